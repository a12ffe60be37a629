"""A class removed: figures by hand and by plain compositions, and networks that never met it."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.modules import logits_of
from intarsia.plots import svg
from intarsia.studies import Measured, Plan, Store, StudyContext, find_study
from intarsia.studies.maxent.shared.baselines import UNPRUNED
from intarsia.studies.maxent.unlearning import compare, removal, retraining

CPU = torch.device("cpu")
STUDY = find_study("unlearning")
OPTIONS = STUDY.options("small", seeds=1)
NETWORK = "mlp(8, dropout=0)"
FAST = {"device": "cpu", "progress": False, "model": NETWORK, "epochs": 2, "learning_rate": 0.01}


def test_figures_of_a_removal_by_hand() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    before = torch.eye(3)[[0, 0, 1, 0, 2, 2]] * 4  # one of class 1 is taken for 0
    after = torch.eye(3)[[0, 1, 1, 1, 2, 1]] * 4
    after[0] = 0.0  # uniform: the first of equal logits is the answer
    result = compare(before, after, labels, 0, temperature=2.0)
    p = np.exp([2.0, 0, 0]) / np.exp([2.0, 0, 0]).sum()
    sure = -(p * np.log(p)).sum()
    assert result == pytest.approx(
        {
            "removed_before": 1.0,
            "removed": 0.5,
            "entropy": (math.log(3) + sure) / 2,
            "remaining_before": 0.75,
            "remaining": 0.75,
            "change": 0.0,
            "kept": 0.5,  # one is right now, one wrong
        }
    )


@pytest.mark.parametrize("how", ["logits", "sum", "inlay"])
def test_removal_is_a_composition_without_the_module(
    how: str, parts: ia.Bank, data: ia.Data
) -> None:
    result = removal(parts, how, data.test, CPU)
    merged = ia.evaluate(ia.compose(parts, how), data.test)
    for index, name in enumerate(data.catalogue):
        less = ia.compose([part for part in parts if part.name != name], how)
        seen = ia.evaluate(less, data.test)
        assert result["remaining"][index] == seen.accuracy
        assert result["removed"][index] == seen.accuracy_per_class[index]
        assert result["removed_before"][index] == merged.accuracy_per_class[index]
        assert result["entropy"][index] == pytest.approx(seen.entropy, rel=1e-12)
    assert result["exact"] == [True] * 10
    assert result["untouched"] == [True if how == "logits" else None] * 10


def test_removal_sees_an_operator_that_touches_others(
    parts: ia.Bank, data: ia.Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks are no tautology: a removal that changed another part would fail both."""
    subtract = ia.Composition.__sub__

    def careless(self: ia.Composition, name: str) -> ia.Composition:
        less = subtract(self, name)
        next(less.networks[0].parameters()).data += 0.1
        return less

    monkeypatch.setattr(ia.Composition, "__sub__", careless)
    result = removal(parts, "logits", data.test, CPU)
    assert result["untouched"] == [False] * 10
    assert result["exact"] == [False] * 10


def test_a_module_that_diverged_leaves_a_gap(parts: ia.Bank, data: ia.Data) -> None:
    result = removal(ia.Bank([m for m in parts if m.name != "2"]), "logits", data.test, CPU)
    assert [value is None for value in result["removed"]] == [i == 2 for i in range(10)]


def test_retrained_networks_never_met_the_class(data: ia.Data) -> None:
    """Whatever its samples hold, the network is the same to the last bit."""
    nine = [c for c in data.catalogue if c != "6"]
    settings = {**FAST, **UNPRUNED, "objective": "xe", "partition": [nine]}
    spoiled = replace(data, train=_spoiled(data.train, 6), validation=_spoiled(data.validation, 6))
    one, other = (ia.train(d, **settings)[0] for d in (data, spoiled))
    assert not torch.equal(data.train.x, spoiled.train.x)
    assert all(torch.equal(value, other.state[name]) for name, value in one.state.items())
    assert ia.evaluate(one, data.test).accuracy > 0.3


def test_retraining_is_put_in_the_place_of_its_class(data: ia.Data) -> None:
    settings = {**FAST, **UNPRUNED, "objective": "xe"}
    sets = [list(data.catalogue), *([c for c in data.catalogue if c != gone] for gone in "73")]
    joint, *again = ia.train(data, partition=sets, **settings)
    result = retraining(joint, again, data.test, CPU)
    assert [i for i in range(10) if result["removed"][i] is not None] == [3, 7]
    after = logits_of(again[0].to_module(), data.test.x)
    expected = compare(
        logits_of(joint.to_module(), data.test.x), after, data.test.y, 7, joint.temperature
    )
    assert {key: values[7] for key, values in result.items()} == expected
    assert expected["removed"] == 0


def test_cells_ask_for_modules_that_other_studies_have(store: Store) -> None:
    context = StudyContext(store, "cpu")
    cells = STUDY.plan(STUDY.options("paper", data="digits", seeds=2), context)
    assert [cell.settings["seed"] for cell in cells] == [0, 1]
    names = context.data("digits").catalogue
    shared = context.plan("digits", "shallow", [(c,) for c in names], 0)
    assert cells[0].banks["modules"].key == shared.key
    assert [cells[0].banks[r].modules for r in ("modules", "joint", "retrained")] == [10, 1, 10]
    assert cells[0].banks["joint"].recipe.rounds == 0
    assert all(len(nine) == 9 for nine in cells[0].banks["retrained"].sets)


def test_small_form(done: Sequence[Measured]) -> None:
    (cell,) = done
    ways = cell.result["ways"]
    assert list(ways) == ["logits", "sum", "retraining", "gradient ascent"]
    for way in ways.values():
        assert all(len(values) == 10 for values in way.values())
        assert all(0 <= v <= math.log(10) + 1e-6 for v in way["entropy"])
        changes = np.subtract(way["remaining"], way["remaining_before"])
        assert np.allclose(changes, way["change"], atol=1e-5)
    assert max(ways["logits"]["removed"]) < 0.1 < min(ways["logits"]["removed_before"])
    assert max(ways["retraining"]["removed"]) == 0
    assert all(ways["gradient ascent"]["reached"])
    assert set(ways["gradient ascent"]["rate"]) <= {1e-3, 1e-2}


def test_a_cell_gives_the_same_twice(done: Sequence[Measured], store: Store) -> None:
    context = StudyContext(store, "cpu")
    (cell,) = STUDY.plan(STUDY.options("small", seeds=1), context)
    again = STUDY.measure(cell, context)
    assert store.write(cell, again).result == done[0].result


@pytest.mark.parametrize(
    ("lost", "left"),
    [
        ({"joint"}, ["logits", "sum"]),
        ({"modules"}, ["retraining", "gradient ascent"]),
        ({"retrained", "modules"}, ["gradient ascent"]),
        ({"modules", "joint", "retrained"}, []),
    ],
)
def test_networks_that_diverged_leave_their_ways_out(
    lost: set[str], left: list[str], done: Sequence[Measured], store: Store
) -> None:
    (cell,) = STUDY.plan(STUDY.options("small", seeds=1), StudyContext(store, "cpu"))
    short = replace(cell, settings={**cell.settings, "rates": [1e-2], "limit": 4})
    gone = {cell.banks[role].key for role in lost}

    class Lacking:
        def bank(self, plan: Plan) -> ia.Bank:
            return ia.Bank([], ["x"]) if plan.key in gone else store.bank(plan)

    result = STUDY.measure(short, StudyContext(Lacking(), "cpu"))
    assert list(result["ways"]) == left
    measured = Measured(short.settings, result)
    summary, by_class = STUDY.tables([measured])
    assert len(summary.rows) == len(left)
    assert len(by_class.rows) == 10
    assert not any("None" in note or "nan" in note for note in summary.notes)
    assert any(note.startswith("seed 0: no ") for note in summary.notes)
    assert len(STUDY.figures([measured])) == bool(left)
    assert len(STUDY.tables([measured, *done])[0].rows) == 4
    assert not any(note.startswith("seed") for note in STUDY.tables(done)[0].notes)


def test_tables_count_every_removal(done: Sequence[Measured]) -> None:
    summary, by_class = STUDY.tables([*done, *done])
    row = dict(zip(summary.columns, summary.rows[0], strict=True))
    logits = done[0].result["ways"]["logits"]
    assert (row["way"], row["exact"], row["untouched"]) == (
        "logits = inlay",
        "20 of 20",
        "20 of 20",
    )
    assert row["removed after"].n == 20
    assert row["removed after"].mean == pytest.approx(np.mean(logits["removed"]))
    assert row["entropy"].sd == pytest.approx(np.std(logits["entropy"] * 2, ddof=1))
    assert summary.rows[1][-2:] == ["20 of 20", None]
    assert [r[0] for r in by_class.rows] == list("0123456789")
    assert by_class.rows[3][1].mean == logits["removed"][3]
    assert "2.3026" in summary.markdown()


def test_figures_draw_every_way(done: Sequence[Measured]) -> None:
    figures = STUDY.figures(done)
    assert list(figures) == ["unlearning-digits-mlp-32"]
    for way in ("logits = inlay", "sum", "retraining", "gradient ascent"):
        assert way in svg(figures["unlearning-digits-mlp-32"])


def _spoiled(split: ia.Split, index: int) -> ia.Split:
    x = split.x.clone()
    x[split.y == index] = 1
    return ia.Split(x, split.y)
