"""Expert banks: known by what determines them, trained once for all studies of a store."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import intarsia as ia
from intarsia.data import load_data, partition
from intarsia.errors import StoppedError, StudyError
from intarsia.modules import BASES, LISTING, Bank
from intarsia.studies import Store, StudyContext, find_study, run
from intarsia.studies.base import expert_banks
from intarsia.studies.base.expert_banks import (
    base_network,
    expert_bank,
    expert_plan,
    expert_source,
    expert_tasks,
)
from intarsia.studies.base.experts import JOINT
from intarsia.studies.runners import local

STUDIES = ("base", "fresh_head", "geometry")
WAYS = ["cross-entropy", "ME, all tasks"]


@dataclass(frozen=True)
class Key:
    """A plan of which nothing matters but its key."""

    key: str
    keeps_unpruned: bool = False


@pytest.fixture(scope="module")
def bank() -> Bank:
    data = load_data("digits", classes=["0", "1"])
    how: dict[str, Any] = {"preset": "paper", "rounds": 0, "sparsity": 0.0, "epochs": 1}
    return ia.train(data, model="mlp(4)", progress=False, device="cpu", **how)


def same(one: Bank, other: Bank) -> bool:
    return [module.digest for module in one] == [module.digest for module in other]


def test_a_bank_is_made_once_and_a_damaged_one_again(tmp_path: Path, bank: Bank) -> None:
    store, made = Store(tmp_path / "store"), []

    def make() -> Bank:
        made.append(1)
        return Bank(bank)

    plan = Key("ab" * 32)
    with store.in_use():
        assert same(store.bank_or_made(plan, make), bank)
        assert same(store.bank_or_made(plan, make), bank)
        assert len(made) == 1
        (store.bank_folder(plan) / bank.file_names[0]).write_bytes(b"nonsense")
        assert same(store.bank_or_made(plan, make), bank)
        assert len(made) == 2
        listing = store.bank_folder(plan) / LISTING
        assert listing.exists()
        assert same(store.bank(plan), bank)
    assert not list((store.path / "locks").glob("*"))


def test_others_wait_for_the_one_that_makes_it(tmp_path: Path, bank: Bank) -> None:
    """Locks are those of files, which keep threads apart as they do processes."""
    store, made, got = Store(tmp_path / "store"), [], []

    def make() -> Bank:
        made.append(1)
        time.sleep(0.3)
        return Bank(bank)

    def ask() -> None:
        got.append(store.bank_or_made(Key("cd" * 32), make))

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(made) == 1
    assert len(got) == 3
    assert all(same(one, bank) for one in got)


def test_one_that_waits_stops_when_its_time_is_over(tmp_path: Path, bank: Bank) -> None:
    store, plan = Store(tmp_path / "store"), Key("01" * 32)
    with (
        store.lock([plan.key]),
        pytest.raises(StoppedError, match="another process trains"),
    ):
        store.bank_or_made(plan, lambda: Bank(bank), stop=lambda: True)


def test_what_is_not_kept_is_made_each_time_by_one_at_a_time(tmp_path: Path, bank: Bank) -> None:
    store, plan, at_once = Store(tmp_path / "store"), Key("23" * 32), []
    running: list[int] = []

    def make() -> Bank:
        running.append(1)
        at_once.append(len(running))
        time.sleep(0.1)
        return Bank(bank)

    def ask() -> None:
        store.bank_or_made(plan, make, keep=False, after=running.clear)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert at_once == [1, 1, 1]
    assert not store.has_bank(plan)


def test_a_failure_leaves_nothing_locked(tmp_path: Path, bank: Bank) -> None:
    store, plan = Store(tmp_path / "store"), Key("ef" * 32)

    def fail() -> Bank:
        raise StudyError("no")

    with pytest.raises(StudyError, match="no"):
        store.bank_or_made(plan, fail)
    assert same(store.bank_or_made(plan, lambda: Bank(bank)), bank)


def options_of(name: str, **given: Any) -> dict[str, Any]:
    return find_study(name).options("small", **{"seeds": 1, "ways": WAYS, **given})


def test_three_studies_train_experts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[Any] = []
    train = expert_banks.train
    monkeypatch.setattr(
        expert_banks, "train", lambda *a, **k: trained.append(k["partition"]) or train(*a, **k)
    )
    store = Store(tmp_path / "store")
    counts = []
    for name in STUDIES:
        done = run(name, options_of(name), store, device="cpu")
        assert not [cell for cell in done if "diverged" in cell.result]
        counts.append(len(trained))
    assert counts == [3, 3, 3]  # two ways and joint, all in the first
    apart = Store(tmp_path / "apart")
    done = run("geometry", options_of("geometry", keep_banks=False), apart, device="cpu")
    kept = run("geometry", options_of("geometry"), store, device="cpu")
    assert len(trained) == 5
    assert [cell.result for cell in done] == [cell.result for cell in kept]
    assert not list((apart.path / "banks").glob("*"))


def test_keys_are_of_all_that_determines_experts(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    context = StudyContext(store, "cpu")
    study = find_study("base")
    (cell,) = [c for c in study.plan(options_of("base"), context) if c.settings["way"] == WAYS[0]]
    with store.in_use():
        run("geometry", options_of("geometry", ways=WAYS[:1]), store, context=context)
    source = expert_source(cell, context)
    assert source is not None
    plan = expert_plan(cell.settings, source)
    assert store.has_bank(plan)
    same_experts = {"scales": [0.5], "selection": 9, "head": {}, "base_fraction": 0.9}
    for key, value in same_experts.items():
        assert expert_plan({**cell.settings, key: value}, source) == plan
    recipe = cell.settings["recipe"]
    others = {
        "seed": 7,
        "partition": "ward",
        "tasks": 2,
        "way": "label smoothing",
        "sparsity": 0.5,
        "amount": 2.0,
        "preset": "released",
        "recipe": {**recipe, "epochs": 3},
    }
    keys = {expert_plan({**cell.settings, key: value}, source).key for key, value in others.items()}
    assert len(keys - {plan.key}) == len(others)
    joint = {**cell.settings, "way": JOINT, "partition": "-"}
    assert expert_plan(joint, source) == expert_plan({**joint, "tasks": 2}, source) != plan
    elsewhere = type(source)(source.base, source.data, source.measured, "another base")
    assert expert_plan(cell.settings, elsewhere) != plan


def test_tasks_of_a_cell_are_those_of_the_partition(tmp_path: Path) -> None:
    @BASES.register("warmer")
    def warmer() -> tuple[str, dict[str, torch.Tensor]]:
        network = ia.initialise("mlp(24, dropout=0)", (64,), 4, 3)
        return "mlp(24, dropout=0)", network.state_dict()

    given = {"models": ["warmer"], "named": True, "public": "digits"}
    context = StudyContext(Store(tmp_path / "store"), "cpu")
    for how, expected in (("randperm(100)", "randperm(3, 100)"), ("random", "random(3)")):
        options = options_of("base", partitions=[how], ways=WAYS[:1], **given)
        *_, cell = find_study("base").plan(options, context)
        source = expert_source(cell, context)
        assert source is not None
        sets = expert_tasks(cell.settings, source, context)
        assert list(map(tuple, sets)) == partition(source.data.catalogue, expected)
    bank = expert_bank(cell.settings, context, source)
    assert [list(module.rewarded) for module in bank] == sets
    base, started = bank[0].base, base_network(source, torch.device("cpu")).network.state_dict()
    assert base is not None
    for name, tensor in started.items():
        assert torch.equal(tensor, base.state[name])


def test_whether_banks_stay_is_true_or_false(tmp_path: Path) -> None:
    context = StudyContext(Store(tmp_path / "store"), "cpu")
    for name in STUDIES:
        with pytest.raises(StudyError, match="'keep_banks' is 'no': expected true or false"):
            find_study(name).plan(options_of(name, keep_banks="no"), context)


def test_training_that_a_deadline_stops_goes_on_in_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of("geometry", ways=WAYS[:1])
    whole = run("geometry", options, Store(tmp_path / "whole"), device="cpu")
    store, asked = Store(tmp_path / "store"), []

    def after_some() -> bool:
        asked.append(1)
        return len(asked) > 4

    with monkeypatch.context() as early:
        context = StudyContext(store, "cpu")
        cell = find_study("geometry").plan(options, context)[0]
        run("base", options_of("base", ways=[], sparsities=[]), store, context=context)
        context.stop = after_some
        source = expert_source(cell, context)
        assert source is not None
        with store.in_use(), pytest.raises(StoppedError):
            expert_bank(cell.settings, context, source)
        assert len(list((store.path / "work").glob("*"))) == 1
        early.setattr(local.Deadline, "passed", lambda self: True)
        with pytest.raises(StoppedError, match="1 of 1 cells are missing"):
            run("geometry", options, store, device="cpu", minutes=1)
    went_on: list[Any] = []
    train = expert_banks.train
    monkeypatch.setattr(expert_banks, "train", lambda *a, **k: went_on.append(k) or train(*a, **k))
    done = run("geometry", options, store, device="cpu", minutes=10)
    assert [cell.result for cell in done] == [cell.result for cell in whole]
    assert len(went_on) == 1
    assert went_on[0]["out"] is not None
    assert not list((store.path / "work").glob("*"))
