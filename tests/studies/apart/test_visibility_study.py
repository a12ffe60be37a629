"""Study `apart`: its cells, its numbers against plain compositions, and its verdict by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.errors import StudyError
from intarsia.plots import svg
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.apart.one_network import _there, trained_by_arrival
from intarsia.studies.apart.visibility_study import label_of

STUDY = find_study("apart")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Measured]:
    options = STUDY.options("small", seeds=1, recipe={"sparsity": 0.0, "epochs": 1})
    return run(STUDY, options, Store(tmp_path_factory.mktemp("store")), device="cpu")


def test_a_cell_for_every_way(done: Sequence[Measured]) -> None:
    ways = [cell.settings["way"] for cell in done]
    modules = ["all", "past", "own", "past, stick_breaking"]
    assert ways == ["joint", "wide joint", "fine-tuning", "replay", *modules]
    assert all(0 <= cell.result["accuracy"] <= 1 for cell in done)
    (table,) = STUDY.tables(done)
    labels = ["past classes only", "own class only", "past classes only, stick_breaking"]
    assert [row[0] for row in table.rows][-3:] == labels
    figures = STUDY.figures(done)
    assert "own class only" in svg(figures["apart"])


def test_a_chain_is_of_modules_whose_samples_count_alike(done: Sequence[Measured]) -> None:
    data = ia.load_data("digits", scale_on="train")
    settings = {"model": "mlp(16)", "sparsity": 0.0, "epochs": 1, "progress": False}
    settings |= {"visibility": "past(amount=None)", "balance": 0.0}
    bank = ia.train(data, device="cpu", **settings)
    chain = next(cell for cell in done if cell.settings["way"] == "past, stick_breaking")
    accuracy = ia.evaluate(ia.compose(bank), data.test).accuracy
    assert chain.result["accuracy"] == pytest.approx(accuracy, abs=1e-5)


def test_modules_are_those_of_a_plain_training(done: Sequence[Measured]) -> None:
    data = ia.load_data("digits", scale_on="train")
    settings = {"model": "mlp(16)", "sparsity": 0.0, "epochs": 1, "progress": False}
    bank = ia.train(data, visibility="own", device="cpu", **settings)
    own = next(cell for cell in done if cell.settings["way"] == "own")
    accuracy = ia.evaluate(ia.compose(bank, "logits"), data.test).accuracy
    assert own.result["accuracy"] == pytest.approx(accuracy, abs=1e-5)
    assert own.result["negatives"] == bank[0].provenance["recipe"]["negatives"]


def test_replay_has_the_new_class_and_a_few_of_each_earlier_one() -> None:
    train = ia.load_data("digits").train
    there = _there(train, 4, 20, seed=0)
    counts = torch.bincount(there.y, minlength=10).tolist()
    new = int((train.y == 4).sum())  # 116: six times the twenty of each earlier class
    assert counts == [120] * 4 + [new] + [0] * 5
    assert len(there.x[there.y == 0].unique(dim=0)) == 20
    late = torch.bincount(_there(train, 9, 20, seed=0).y).tolist()
    assert late[:9] == [120] * 9
    assert sum(late[:9]) <= 10 * late[9]
    assert set(_there(train, 4, 0, seed=0).y.tolist()) == {4}
    assert torch.equal(there.x, _there(train, 4, 20, seed=0).x)


def test_replay_forgets_less_than_fine_tuning() -> None:
    data = ia.load_data("digits")
    recipe = ia.Recipe(preset="paper", model="mlp(16, dropout=0)", temperature=1.0).resolve()
    how: dict[str, Any] = {"rates": [1e-2, 1e-9], "passes": 3, "batch": 32}
    forgets = trained_by_arrival(recipe, data, CPU, kept=0, **how)
    replays = trained_by_arrival(recipe, data, CPU, kept=20, **how)
    assert replays.accuracy > forgets.accuracy + 0.2
    assert replays.rate == 1e-2  # the other teaches nothing


def measured(way: str, seed: int, accuracy: float, data: str = "digits") -> Measured:
    settings = {"data": data, "model": "mlp(16)", "seed": seed, "way": way}
    return Measured(settings, {"accuracy": accuracy, "validation": accuracy})


def test_the_verdict_asks_how_far_below_joint() -> None:
    cells = [measured("joint", s, 0.95 + s / 100) for s in range(3)]
    near = [measured("past", s, 0.945 + s / 100 + s / 1000) for s in range(3)]
    far = [measured("past", s, 0.90 + s / 100 + s / 1000) for s in range(3)]
    held = [claim.holds for claim in STUDY.judge([*cells, *near]).claims if claim.holds is not None]
    assert held == [True]
    (claim,) = [c for c in STUDY.judge([*cells, *far]).claims if c.holds is not None]
    assert claim.holds is False
    assert claim.n == 3
    assert "p = 0.00014" in claim.text  # t = -49 / (1 / sqrt(3)), two degrees of freedom
    features = [
        measured("own", 0, 0.65, "cifar100_lite0"),
        measured("past", 0, 0.64, "cifar100_lite0"),
    ]
    (claim,) = [c for c in STUDY.judge(features).claims if c.holds is not None]
    assert claim.holds is False


def test_data_in_a_file_are_left_out_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    context = StudyContext(Store(tmp_path / "store"), "cpu")
    options = STUDY.options("small", data=["digits", "cifar100_lite0.npz"], seeds=1)
    assert {c.settings["data"] for c in STUDY.plan(options, context)} == {"digits"}
    with pytest.raises(StudyError, match=r"none of cifar100_lite0\.npz is on this machine"):
        STUDY.plan(STUDY.options("small", data=["cifar100_lite0.npz"]), context)
    random = np.random.default_rng(0)
    arrays = {"x": random.normal(size=(40, 4)), "y": np.arange(40) % 2}
    np.savez(tmp_path / "cifar100_lite0.npz", x_public=random.normal(size=(9, 4)), **arrays)
    cells = STUDY.plan(options, context)
    own = next(c for c in cells if c.settings["data"] != "digits" and c.settings["way"] == "own")
    assert own.banks["modules"].recipe.negatives == "public(amount=6.0) + gaussian(amount=6.0)"
    assert own.settings["source"] == "cifar100_lite0.npz"


def test_what_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    context = StudyContext(Store(tmp_path), "cpu")
    with pytest.raises(StudyError, match="visibilities"):
        STUDY.plan(STUDY.options("small", visibilities=["none"]), context)
    assert label_of("own, noise(amount=1.0)") == "own class only, noise(amount=1.0)"
