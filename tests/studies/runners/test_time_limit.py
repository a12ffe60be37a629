"""A run that stops in time: what is done is kept, half a bank too, and goes on wherever it lies."""

import dataclasses
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from store_content import content, events
from toy import RECIPE, TOY

from intarsia.errors import StoppedError, StudyError
from intarsia.files import sealed
from intarsia.studies import Cell, Store, StudyContext, run
from intarsia.studies.runners import bank_training
from intarsia.studies.runners.bank_training import training_groups
from intarsia.studies.runners.dispatch import run_with
from intarsia.studies.runners.local import Deadline, RunRequest
from intarsia.training.engines import select
from intarsia.training.run_folder import spent

pytestmark = pytest.mark.usefixtures("one_thread")

# Two seeds of a bank of two modules, in pieces of one; two rounds of two epochs each.
OPTIONS = TOY.options("small", objectives=["me"], seeds=2, recipe={**RECIPE, "epochs": 2})
Stops = Callable[[int], None]


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Stops:
    """The limit of a run is over when it has been asked about so many times."""

    def after(asks: int) -> None:
        count = itertools.count(1)
        monkeypatch.setattr(Deadline, "passed", lambda self: next(count) > asks)

    return after


@pytest.fixture(autouse=True)
def pieces_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "CPU_CHUNK", (1, 1))


def test_a_store_that_moves_after_every_stop_ends_with_the_same_bytes(
    tmp_path: Path, stops: Stops
) -> None:
    whole = Store(tmp_path / "whole")
    expected = run(TOY, OPTIONS, whole, device="cpu")
    place = tmp_path / "store"
    half_banks, said = 0, []
    for number in itertools.count():
        stops(4)  # two before training, and two epochs
        try:
            done = run(TOY, OPTIONS, Store(place), device="cpu", minutes=1)
            break
        except StoppedError as error:
            said.append(str(error))
        half_banks += bool(list(place.glob("work/*/.progress/*-round-0")))
        moved = tmp_path / f"elsewhere-{number}" / "store"
        moved.parent.mkdir()
        shutil.copytree(place, moved)
        shutil.rmtree(place)
        place = moved
    assert number > 3
    assert said[0] == (
        "stopped after 1 minutes: 2 of 2 cells are missing; the same command goes on"
    )
    assert half_banks > 1
    assert done == expected
    assert content(Store(place)) == content(whole)
    assert len(events(Store(place), "banks")) == 2


def test_seconds_of_a_stopped_bank_count_all_calls(tmp_path: Path, stops: Stops) -> None:
    store = Store(tmp_path / "store")
    stops(4)
    with pytest.raises(StoppedError):
        run(TOY, OPTIONS, store, device="cpu", minutes=1)
    (note,) = store.path.glob("work/*/.progress/time.json")
    earlier = spent(note.parent)
    assert earlier is not None
    note.write_bytes(sealed({"seconds": 500.0, "calls": earlier.calls}))
    stops(1000)
    run(TOY, OPTIONS, store, device="cpu")
    assert sum(event["seconds"] > 500 for event in events(store, "banks")) == 1


def test_no_time_at_all_is_said_and_does_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(StoppedError, match="after 0 minutes: 2 of 2 cells"):
        run(TOY, OPTIONS, store, device="cpu", minutes=0)
    assert content(store) == {}
    with pytest.raises(StudyError, match="minutes is -1"):
        run(TOY, OPTIONS, store, device="cpu", minutes=-1)


def test_a_finished_study_needs_no_time(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    done = run(TOY, OPTIONS, store, device="cpu")
    assert run(TOY, OPTIONS, store, device="cpu", minutes=0) == done


def test_every_engine_takes_the_limit_or_refuses_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(StoppedError, match="2 of 2 cells"):
        run_with("processes", RunRequest(TOY, OPTIONS, store, "cpu", workers=1, minutes=0))
    with pytest.raises(StudyError, match="'local' and 'processes', not for 'ray'"):
        run_with("ray", RunRequest(TOY, OPTIONS, store, "cpu", minutes=1))


def test_with_a_limit_each_bank_is_trained_by_itself(tmp_path: Path) -> None:
    """On a GPU, where banks of one kind are trained together otherwise."""
    context = StudyContext(Store(tmp_path / "store"), "cpu")
    plans = [plan for cell in TOY.plan(OPTIONS, context) for plan in cell.banks.values()]
    gpu = torch.device("cuda")
    assert [len(group) for group in training_groups(plans, gpu)] == [2]
    assert [len(group) for group in training_groups(plans, gpu, alone=True)] == [1, 1]


def test_on_a_gpu_a_bank_that_may_be_stopped_has_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing stops it, it is trained in memory, as a GPU is quick."""
    context = StudyContext(Store(tmp_path / "store"), "cpu")
    (cell, _) = TOY.plan(OPTIONS, context)
    plans = list(cell.banks.values())
    folders: list[Any] = []

    def train(data: Any, recipe: Any, *, out: Any, **more: Any) -> None:
        folders.append(out)
        raise StoppedError("as asked")

    monkeypatch.setattr(bank_training, "train", train)
    for stop in (None, lambda: True):
        for device in ("cpu", "cuda"):
            what = (plans, context.data("digits"), torch.device(device), tmp_path, stop)
            with pytest.raises(StoppedError):
                bank_training.train_plans(*what)
    assert folders == [tmp_path, None, tmp_path, tmp_path]


def test_what_one_kind_of_device_began_is_not_the_other_s(tmp_path: Path) -> None:
    """A half-trained bank of a GPU stays where it is, and goes once the bank is there."""
    store = Store(tmp_path / "store")
    (cell, _) = TOY.plan(OPTIONS, StudyContext(store, "cpu"))
    plans = list(cell.banks.values())
    folders = [store.work_folder(plans), store.work_folder(plans, "cuda")]
    assert len(set(folders)) == 2
    run(TOY, OPTIONS, store, device="cpu")
    for folder in folders:
        folder.mkdir(parents=True)
    with store.in_use():
        assert not any(folder.exists() for folder in folders)


def test_banks_go_once_their_cells_are_measured(tmp_path: Path) -> None:
    whole, store = Store(tmp_path / "whole"), Store(tmp_path / "store")
    expected = run(TOY, OPTIONS, whole, device="cpu")
    options = {**OPTIONS, "keep_banks": False}
    assert run(TOY, options, store, device="cpu") == expected
    assert not list((store.path / "banks").iterdir())
    cells = {name: text for name, text in content(whole).items() if name.startswith("cells")}
    assert content(store) == cells
    gone, _ = sorted((store.path / "cells" / "toy").iterdir())
    gone.unlink()
    assert run(TOY, options, store, device="cpu") == expected
    assert len(events(store, "banks")) == 3  # that of the missing cell alone


def test_a_bank_stays_while_another_cell_needs_it(tmp_path: Path) -> None:
    """Two cells that differ in what is measured share their bank: it is trained once."""

    def twice(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
        for scale in (1.0, 2.0):
            yield from TOY.cells({**options, "scale": scale}, context)

    store = Store(tmp_path / "store")
    options = {**TOY.options("small", objectives=["me"], seeds=1), "keep_banks": False}
    assert len(run(dataclasses.replace(TOY, cells=twice), options, store, device="cpu")) == 2
    assert len(events(store, "banks")) == 1
    assert not list((store.path / "banks").iterdir())
