"""The study `controls`: its figures by plain loops, its choice of amounts by hand."""

from itertools import combinations
from xml.etree import ElementTree

import pytest
import torch

from intarsia.data import Split
from intarsia.measure import evaluate
from intarsia.modules import Bank, logits_of
from intarsia.plots import svg
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.cells import Cell
from intarsia.studies.maxent.shared.merging import whole_of
from intarsia.studies.study import Study
from intarsia.studies.tables import Spread

Ran = tuple[Study, StudyContext, list[Cell], list[Measured]]


@pytest.fixture(scope="module")
def small(store: Store) -> Ran:
    study = find_study("controls")
    context, options = StudyContext(store, "cpu"), study.options("small")
    return study, context, study.plan(options, context), run(study, options, store, context=context)


def test_one_cell_for_each_amount_where_an_objective_has_one(small: Ran) -> None:
    study, context, cells, _ = small
    seen = [(c.settings["objective"], c.settings["amount"]) for c in cells]
    amounts = [("me", None), ("smoothing", 0.1), ("smoothing", 0.5), ("other", None)]
    assert seen == [pair for _ in (False, True) for pair in amounts for _ in range(2)]
    assert len({cell.banks["bank"].key for cell in cells}) == 8  # pruned and not share one
    assert {cell.banks["bank"].recipe.sparsity for cell in cells} == {0.8}
    every = study.plan(
        study.options("small", objectives=study.scales["paper"]["objectives"]), context
    )
    penalty = next(c for c in every if c.settings["objective"] == "confidence_penalty")
    assert penalty.banks["bank"].recipe.objective == "confidence_penalty(amount=0.1)"


def test_figures_of_a_cell_by_plain_loops(small: Ran) -> None:
    _, context, cells, done = small
    data = context.data("digits")
    for cell, measured in list(zip(cells, done, strict=True))[::3]:
        result, imp = measured.result, cell.settings["imp"]
        bank = context.bank(cell.banks["bank"], imp)
        seen = [evaluate(module, data.test) for module in bank]
        assert result["accuracy"] == pytest.approx([one.accuracy for one in seen], rel=1e-5)
        assert result["entropy"] == pytest.approx([one.entropy for one in seen], rel=1e-5)
        for split, accuracy in (
            (data.test, result["complete"]["logits"]),
            (data.validation, result["validation"]),
        ):
            assert accuracy == pytest.approx(_by_logits(bank, split), abs=1e-5)
        kept = [
            torch.cat([m.mask.get(k, torch.ones_like(v)).bool().flatten() for k, v in masked(m)])
            for m in bank
        ]
        jaccard = [float((a & b).sum() / (a | b).sum()) for a, b in combinations(kept, 2)]
        assert result["mask_jaccard"] == pytest.approx(jaccard, rel=1e-4)
        live = [int((m.state["layers.1.weight"] != 0).any(0).sum()) for m in bank]
        assert result["live_units"] == live
        if not imp:
            assert set(jaccard) == {1.0}
            assert set(live) == {32}


def masked(module):  # type: ignore[no-untyped-def]
    """The tensors that pruning may take from: the weights, not the biases."""
    return [(k, v) for k, v in module.state.items() if k.endswith("weight")]


def _by_logits(bank: Bank, split: Split) -> float:
    logits = torch.stack([logits_of(module.to_module(), split.x) for module in bank]).sum(0)
    return float((logits.argmax(1) == split.y).double().mean())


def test_added_weights_with_an_explicit_other_are_read_over_the_classes(small: Ran) -> None:
    _, context, cells, done = small
    data = context.data("digits")
    x = data.test.x.flatten(1) * data.scaling.scale.flatten()
    for cell, measured in zip(cells, done, strict=True):
        if cell.settings["objective"] != "other":
            continue
        bank = context.bank(cell.banks["bank"], cell.settings["imp"])
        weights = {k: sum(m.state[k] for m in bank) for k in bank[0].state}
        hidden = torch.relu(x @ weights["layers.0.weight"].T + weights["layers.0.bias"])
        logits = hidden @ weights["layers.1.weight"].T
        assert logits.shape[1] == 11
        right = float((logits[:, :10].argmax(1) == data.test.y).double().mean())
        assert measured.result["complete"]["sum"] == pytest.approx(right, abs=3e-3)
        assert measured.result["complete"]["inlay"] is None  # other is shared out after a network
    laid = [c.result["complete"] for c in done if c.settings["objective"] == "me"]
    assert all(found["inlay"] == pytest.approx(found["logits"], abs=3e-3) for found in laid)


def by_hand(
    seed: int, amount: float | None, validation: float | None, test: float | None
) -> Measured:
    settings = {"data": "toy", "model": "mlp", "imp": True, "seed": seed, "sparsity": 0.9}
    settings |= {"objective": "me" if amount is None else "smoothing", "amount": amount}
    result = {
        "accuracy": [0.8, 1.0],
        "entropy": [1.0, 2.0],
        "live_units": [3, 5],
        "mask_jaccard": [0.25],
        "validation": validation,
        "complete": {"sum": test, "inlay": None},
    }
    return Measured(settings, result)


def test_the_amount_is_chosen_on_validation_samples_not_on_test_samples() -> None:
    done = [
        by_hand(0, 0.1, 0.5, 0.9),
        by_hand(1, 0.1, 0.6, 0.9),
        by_hand(0, 0.5, 0.7, 0.2),
        by_hand(1, 0.5, 0.6, 0.4),
        by_hand(0, None, 0.9, 0.95),
    ]
    first, second = find_study("controls").tables(done)
    assert [row[3:5] for row in first.rows] == [["smoothing", "0.5"], ["me", None]]
    assert first.rows[0][5:8] == [Spread(0.9, 0.0, 2), Spread(1.5, 0.0, 2), Spread.of([0.2, 0.4])]
    assert first.rows[0][8:] == [None, Spread(0.25, 0.0, 2), Spread(4.0, 0.0, 2)]
    assert [row[4:7] for row in second.rows] == [
        ["0.1", "no", Spread.of([0.5, 0.6])],
        ["0.5", "yes", Spread.of([0.7, 0.6])],
    ]
    (alone,) = find_study("controls").tables(done[-1:])  # no amounts, so no second table
    assert len(alone.rows) == 1


def test_of_equal_amounts_the_first_and_one_without_a_figure_never() -> None:
    tables = find_study("controls").tables
    assert tables([by_hand(0, 0.1, 0.5, 0.1), by_hand(0, 0.5, 0.5, 0.9)])[0].rows[0][4] == "0.1"
    assert tables([by_hand(0, 0.1, None, None), by_hand(0, 0.5, 0.1, 0.9)])[0].rows[0][4] == "0.5"


def test_figures_have_a_bar_and_a_point_for_each_objective(small: Ran) -> None:
    study, _, _, done = small
    drawn = study.figures(done)
    names = [f"controls-digits-{how}-entropy" for how in ("sum", "logits", "inlay")]
    assert list(drawn) == ["controls-digits", *names]
    words = {
        name: {t.text for t in ElementTree.fromstring(svg(one)).iter()}
        for name, one in drawn.items()
    }
    shown = {"mlp(32), with IMP", "mlp(32), without IMP", "me", "smoothing", "other"}
    assert shown | {"sum", "logits", "inlay"} <= words["controls-digits"]
    assert shown <= words["controls-digits-sum-entropy"]
    assert "other" not in words["controls-digits-inlay-entropy"]
    assert study.figures(done[:1])
    assert study.figures([by_hand(0, None, None, None)]) == {}


def test_no_whole_without_a_module_that_diverged(small: Ran) -> None:
    _, context, cells, _ = small
    bank = context.bank(cells[0].banks["bank"])
    data = context.data("digits")
    assert whole_of(bank, "sum", data) is not None
    assert whole_of(Bank(list(bank)[1:], [bank[0].name]), "sum", data) is None
