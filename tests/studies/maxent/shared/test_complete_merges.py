"""Merges against compositions laid and evaluated one by one."""

from dataclasses import replace
from itertools import permutations

import pytest
import torch

import intarsia as ia
from intarsia.composition import OPERATORS
from intarsia.errors import RecipeError, StudyError
from intarsia.modules import Bank
from intarsia.studies.maxent.shared import complete_merges as curves
from intarsia.studies.maxent.shared.complete_merges import Merges, orders_of

pytestmark = pytest.mark.usefixtures("one_thread")

ORDER = ("7", "0", "3", "9+4", "1+2+5+6+8")
CLASSES = (("0",), ("3",), ("7",), ("9", "4"), ("1", "2", "5", "6", "8"))
OTHERS = ("logit_weighted(weights=2.0, normalise=True)", "ties(density=0.5)")


@pytest.fixture(scope="module")
def bank(data):
    return ia.train(
        data,
        model="mlp(16)",
        epochs=3,
        sparsity=0.6,
        partition=CLASSES,
        seeds=[0],
        progress=False,
        device="cpu",
    )


@pytest.fixture(scope="module")
def order(bank):
    """Keys of the bank's modules, by classes in any order."""
    keys = {frozenset(m.rewarded): m.name for m in bank}
    return [keys[frozenset(key.split("+"))] for key in ORDER]


@pytest.mark.parametrize("operator", [*OPERATORS, *OTHERS])
def test_a_curve_is_what_evaluate_says_of_each_composition(operator, bank, data, order):
    order = order[: OPERATORS.entry(operator).most]
    curve = Merges(bank, data).curve(operator, order)
    for n in range(len(order)):
        merged = ia.compose([bank[key] for key in order[: n + 1]], operator, samples=data)
        seen = ia.evaluate(merged, data.test)
        assert curve["accuracy"][n] == seen.accuracy
        if n < len(order) - 1:
            assert curve["entropy"][n] == seen.entropy
    assert (curve["entropy"][-1] is None) == (len(order) == len(ORDER))
    assert len(curve["accuracy"]) == len(curve["entropy"]) == len(order)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_order_of_the_parts_does_not_matter(operator, bank, data):
    modules = list(bank)[: OPERATORS[operator].most]
    one = ia.compose(modules, operator, samples=data)
    for other in (modules[::-1], modules[2:] + modules[:2]):
        again = ia.compose(other, operator, samples=data)
        assert torch.equal(one(data.test.x[:50]), again(data.test.x[:50]))


def test_each_set_is_measured_once(bank, data, order, monkeypatch):
    laid, run = [], []
    compose, logits_of = curves.compose, curves.logits_of

    def counted(parts, *given, **more):
        laid.append(frozenset(part.name for part in parts))
        return compose(parts, *given, **more)

    monkeypatch.setattr(curves, "compose", counted)
    monkeypatch.setattr(curves, "logits_of", lambda *given: run.append(1) or logits_of(*given))
    merges = Merges(bank, data)
    orders = list(permutations(order))[:24]  # those that begin with one module
    several = [merges.curve("sum", some) for some in orders]
    # one, then each of 4, 6, 4 and 1 sets of the others beside it
    assert len(laid) == len(set(laid)) == 16
    assert all(curve["accuracy"][-1] == several[0]["accuracy"][-1] for curve in several)
    run.clear()
    for some in orders:
        for operator in ("logits", "own", "probabilities"):
            merges.curve(operator, some)
    assert len(run) == len(bank)
    assert len(laid) == 16


def test_an_operator_that_refuses_is_left_out_with_its_reason(bank, data, order):
    strangers = Bank([replace(m, origin=f"{i:064x}") for i, m in enumerate(bank)])
    merges = Merges(strangers, data)
    assert merges.curve("logits", order) == Merges(bank, data).curve("logits", order)
    assert merges.curve("sum", order) is None
    assert merges.refused.keys() == {"sum"}
    assert "origin" in merges.refused["sum"]
    with pytest.raises(RecipeError, match="unknown operator 'summ'"):
        merges.curve("summ", order)


def test_orders_are_distinct_shuffles_that_a_seed_gives():
    catalogue = tuple("abcdefghij")
    ten = orders_of(catalogue)
    assert len(set(ten)) == 10
    assert all(sorted(order) == sorted(catalogue) for order in ten)
    assert orders_of(catalogue, 3) == ten[:3]
    assert orders_of(catalogue, seed=1) != ten
    # each class comes first about equally often
    firsts = [order[0] for order in orders_of(catalogue, 2000)]
    assert all(130 < firsts.count(name) < 270 for name in catalogue)
    assert sorted(orders_of("ab", 10)) == [("a", "b"), ("b", "a")]
    assert sorted(orders_of("abc", 6)) == sorted(permutations("abc"))
    with pytest.raises(StudyError, match="expected at least 1"):
        orders_of(catalogue, 0)
