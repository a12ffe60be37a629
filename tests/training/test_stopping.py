"""Training that is asked to stop: half a bank stays in its folder and goes on to the same bytes."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intarsia as ia
from intarsia.errors import StoppedError
from intarsia.files import read_sealed
from intarsia.training.engines import select
from intarsia.training.run_folder import PROGRESS

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS: dict[str, Any] = {
    **{"preset": "paper", "model": "mlp(4)", "sparsity": 0.5, "rounds": 1, "epochs": 2},
    **{"batch": 64, "progress": False, "device": "cpu"},
}


@pytest.fixture(scope="module")
def six() -> ia.Data:
    return ia.load_data("digits", classes=["0", "1", "2", "3", "4", "5"])


@pytest.fixture(scope="module")
def six_alone(six: ia.Data) -> list[str]:
    return digests(ia.train(six, **SETTINGS))


def digests(bank: ia.Bank) -> list[str]:
    return [module.digest for module in bank]


def after(asks: int) -> Callable[[], bool]:
    """Says yes when it has been asked more often."""
    count = itertools.count(1)
    return lambda: next(count) > asks


def pieces(folder: Path) -> list[list[str]]:
    noted: list[list[str]] = read_sealed(folder / PROGRESS / "pieces")["pieces"]
    return noted


def test_a_hundred_modules_stop_in_their_middle_and_go_on(tmp_path: Path) -> None:
    """Epoch by epoch, in a folder that moves, as one piece of a hundred."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(100), 6)
    rows = draw.normal(size=(100, 8))[labels] + 0.3 * draw.normal(size=(600, 8))
    data = ia.load_data((rows.astype(np.float32), labels))
    settings = {**SETTINGS, "sparsity": 0.0, "rounds": 0}
    expected = digests(ia.train(data, **settings))
    first, second = tmp_path / "first", tmp_path / "second"
    with pytest.raises(StoppedError, match="after epoch 1: the same call goes on"):
        ia.train(data, out=first, stop=lambda: True, **settings)
    assert [len(piece) for piece in pieces(first)] == [100]
    assert not (first / "bank.json").exists()
    first.rename(second)
    assert digests(ia.train(data, out=second, **settings)) == expected


def test_without_a_folder_nothing_is_kept(six: ia.Data) -> None:
    with pytest.raises(StoppedError, match="nothing is kept without a folder"):
        ia.train(six, stop=lambda: True, **SETTINGS)


@pytest.mark.parametrize("most", [1, 3, 6])
def test_a_run_goes_on_where_another_size_of_pieces_fits(
    six: ia.Data,
    six_alone: list[str],
    most: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a machine of more or less memory: what was begun is found again, or cut anew."""
    folder = tmp_path / "bank"
    monkeypatch.setattr(select, "CPU_CHUNK", (2, 2))
    with pytest.raises(StoppedError):
        ia.train(six, out=folder, stop=after(5), **SETTINGS)  # in the second of three pieces
    begun = pieces(folder)
    assert [len(piece) for piece in begun] == [2, 2, 2]
    done = set((folder / PROGRESS).glob("*-round-1/bank.json"))
    assert len(done) == 1
    monkeypatch.setattr(select, "CPU_CHUNK", (most, most))
    with pytest.raises(StoppedError):
        ia.train(six, out=folder, stop=lambda: True, **SETTINGS)
    if most > 1:
        assert pieces(folder) == begun
    else:
        assert sorted(len(piece) for piece in pieces(folder)) == [1, 1, 1, 1, 2]
    assert digests(ia.train(six, out=folder, **SETTINGS)) == six_alone


def test_stopping_after_the_last_epoch_loses_nothing(
    six: ia.Data, six_alone: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "bank"
    with pytest.raises(StoppedError, match="after epoch 2"):
        ia.train(six, out=folder, stop=after(3), **SETTINGS)
    asked: list[int] = []

    def never() -> bool:
        asked.append(1)
        return False

    assert digests(ia.train(six, out=folder, stop=never, **SETTINGS)) == six_alone
    assert asked == []  # no epoch was left to train
