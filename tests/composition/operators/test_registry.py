"""Operators carry traits, and one of another program's is asked for its own."""

import re
from collections.abc import Callable, Iterator

import pytest
import torch

from intarsia.composition import OPERATORS, MergeContext, compose, operator
from intarsia.composition.operators.inlay import inlay
from intarsia.errors import RecipeError

Make = Callable[..., MergeContext]


@pytest.fixture
def registered() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = set(OPERATORS)
    yield
    for name in OPERATORS.keys() - before:
        del OPERATORS[name]


def test_traits_are_of_one_kind_for_all() -> None:
    for how in OPERATORS.values():
        assert how.on in ("weights", "units", "logits")
        assert how.colour is None or re.fullmatch("#[0-9a-f]{6}", how.colour)
        assert not how.weight_sum or how.on == "weights"
        assert how.mask is None or how.on == "units"


@pytest.mark.parametrize("name", [n for n, how in OPERATORS.items() if how.logit_sum])
def test_a_logit_sum_is_one(name: str, make_context: Make) -> None:
    parts = make_context(3).parts
    x = torch.randint(0, 256, (20, *parts[0].architecture.shape), dtype=torch.uint8)
    with torch.no_grad():
        expected = sum(part.to_module()(x) for part in parts)
        torch.testing.assert_close(compose(parts, name)(x), expected)


@pytest.mark.usefixtures("registered")
def test_the_mask_of_units_is_the_operators_own(make_context: Make) -> None:
    def everything(context: MergeContext) -> dict[str, torch.Tensor]:
        state = inlay([part.state for part in context.parts], context)
        learned = (name for name, entry in context.plan.items() if entry.learned)
        return {name: torch.ones_like(state[name], dtype=torch.bool) for name in learned}

    @operator("dense_inlay", on="units", paper="none", mask=everything)
    def dense_inlay(states, context):  # type: ignore[no-untyped-def]
        return inlay(states, context)

    @operator("bare_inlay", on="units", paper="none")
    def bare_inlay(states, context):  # type: ignore[no-untyped-def]
        return inlay(states, context)

    parts = make_context(2).parts
    dense, bare = (compose(parts, name).joined for name in ("dense_inlay", "bare_inlay"))
    assert dense is not None
    assert bare is not None
    assert dense.density == 1.0
    assert all(torch.equal(mask, bare.state[name] != 0) for name, mask in bare.mask.items())


def test_an_unknown_trait_is_refused() -> None:
    with pytest.raises(RecipeError, match="no trait 'color': did you mean 'colour'"):
        OPERATORS.register("other", color="#000000")


def test_traits_of_our_operators() -> None:
    def having(trait: str) -> set[str]:
        return {name for name in OPERATORS if getattr(OPERATORS.entry(name), trait)}

    ours = {"fisher", "regmean", "inlay", "logits", "sum", "mean", "ties", "dare", "own"}
    assert having("samples") & ours == {"fisher", "regmean"}
    assert having("logit_sum") & ours == {"inlay", "logits"}
    assert having("weight_sum") & ours == {"sum"}
    assert having("mask") & ours == {"inlay"}
    on = {name: OPERATORS.entry(name).on for name in ours}
    assert {name for name in ours if on[name] == "weights"} == {
        *("fisher", "regmean", "sum", "mean", "ties", "dare"),
    }
    assert (on["inlay"], on["logits"], on["own"]) == ("units", "logits", "logits")


@pytest.mark.usefixtures("registered")
def test_a_registered_function_becomes_its_entry() -> None:
    made = operator("mine", on="logits", paper="")(lambda logits, context: logits[0])
    assert made is OPERATORS["mine"]
    assert made(logits=["one", "two"], context=None) == "one"
