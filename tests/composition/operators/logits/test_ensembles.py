"""Logits joined: formulas against plain loops, and what a sure and an unsure module say."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from intarsia.composition import OPERATORS, MergeContext
from intarsia.errors import RecipeError

pytestmark = pytest.mark.usefixtures("one_thread")

Make = Callable[..., MergeContext]
EVERY = ["logits", "logit_mean", "logit_weighted", "probabilities", "own", "stick_breaking"]


def answers(count: int = 3, seed: int = 0) -> list[Tensor]:
    return list(8 * torch.randn(count, 6, 4, generator=torch.Generator().manual_seed(seed)))


def join(how: Any, logits: list[Tensor], context: MergeContext) -> Tensor:
    return OPERATORS.call(OPERATORS.spec(how), logits=logits, context=context)


@pytest.mark.parametrize(
    ("how", "factors"),
    [
        ("logits", (1, 1, 1)),
        ("logit_mean", (1 / 3, 1 / 3, 1 / 3)),
        ("logit_weighted(0.5)", (0.5, 0.5, 0.5)),
        ("logit_weighted({'b': -2})", (1, -2, 1)),
        ("logit_weighted({'b': 2}, normalise=True)", (0.25, 0.5, 0.25)),
    ],
)
def test_products_of_experts(how: str, factors: tuple[float, ...], make_context: Make) -> None:
    logits = answers()
    expected = sum(f * z for f, z in zip(factors, logits, strict=True))
    torch.testing.assert_close(join(how, logits, make_context(3)), expected)


def test_probabilities_are_the_mean(make_context: Make) -> None:
    context, logits = make_context(3), answers()
    joined = join("probabilities", logits, context)
    seen = torch.softmax(joined / context.temperature, dim=1)
    expected = sum(torch.softmax(z / context.temperature, dim=1) for z in logits) / 3
    torch.testing.assert_close(seen, expected)
    torch.testing.assert_close(torch.exp(joined / context.temperature).sum(1), torch.ones(6))


@pytest.mark.parametrize("rewarded", [("a", "b", "c"), ("ab", "c", "a"), ("d", "d", "d")])
def test_own_scores_are_their_formula(rewarded: tuple[str, ...], make_context: Make) -> None:
    context = make_context(3, rewarded=rewarded)
    logits, t = answers(), context.temperature
    seen = join("own", logits, context)
    for n in range(6):
        for c, name in enumerate("abcd"):
            scores = [
                t * math.log(4 * float(torch.softmax(z[n].double() / t, dim=0)[c]))
                for z, own in zip(logits, rewarded, strict=True)
                if name in own
            ]
            expected = sum(scores) / len(scores) if scores else 0.0
            assert float(seen[n, c]) == pytest.approx(expected, abs=1e-4)


def test_own_scores_of_sure_and_unsure_modules(make_context: Make) -> None:
    """Uniform modules score 0, as unowned classes do; one that is sure wins, one against loses."""
    context = make_context(2)
    uniform = torch.full((1, 4), 7.0)
    assert join("own", [uniform, uniform], context).abs().max() < 1e-5
    sure = torch.tensor([[200.0, 0.0, 0.0, 0.0]])
    scores = join("own", [sure, uniform], context)[0]
    assert scores.argmax() == 0
    assert float(scores[0]) == pytest.approx(context.temperature * math.log(4), rel=1e-4)
    # b's module is sure of a: it speaks against b, and its word on a is not asked
    scores = join("own", [uniform, sure], context)[0]
    assert scores.argmin() == 1
    assert float(scores[0]) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("how", EVERY)
@settings(max_examples=15)
@given(seed=st.integers(0, 20), shift=st.floats(-5, 5))
def test_neither_order_nor_a_common_shift_matters(
    how: str, seed: int, shift: float, make_context: Make
) -> None:
    context, logits = make_context(3), answers(seed=seed)
    turned = MergeContext(context.parts[::-1])
    joined = join(how, logits, context)
    torch.testing.assert_close(join(how, logits[::-1], turned), joined, atol=1e-4, rtol=1e-4)
    moved = join(how, [z + shift for z in logits], context)
    t = context.temperature
    torch.testing.assert_close(
        torch.softmax(moved / t, dim=1), torch.softmax(joined / t, dim=1), atol=1e-4, rtol=1e-3
    )


@pytest.mark.parametrize("how", EVERY[:-2])
def test_one_module_is_itself(how: str, make_context: Make) -> None:
    context, (logits,) = make_context(1), answers(1)
    seen = torch.softmax(join(how, [logits], context) / context.temperature, dim=1)
    torch.testing.assert_close(seen, torch.softmax(logits / context.temperature, dim=1))


def test_extreme_logits_stay_finite(make_context: Make) -> None:
    wild = [1e4 * z for z in answers()]
    for how in ("probabilities", "own", "stick_breaking"):
        assert join(how, wild, make_context(3)).isfinite().all()


def test_what_a_part_denies_beyond_all_doubt_is_shared_out(make_context: Make) -> None:
    """Its own class has a probability of 0 in float64, of which no fraction can be taken."""
    sure = 1e4 * torch.nn.functional.one_hot(torch.tensor([3]), 4).float()
    joined = join("stick_breaking", [sure, sure], make_context(2))
    torch.testing.assert_close(torch.softmax(joined, dim=1), torch.full((1, 4), 0.25))


def test_a_module_that_rewards_all_scores_its_own_evidence(make_context: Make) -> None:
    part = replace(make_context(1).parts[0], rewarded=("a", "b", "c", "d"))
    context, (logits,) = MergeContext((part,)), answers(1)
    seen = torch.softmax(join("own", [logits], context) / context.temperature, dim=1)
    torch.testing.assert_close(seen, torch.softmax(logits / context.temperature, dim=1))


def test_the_latest_claim_wins(make_context: Make) -> None:
    """Where all three claim a sample the last has it; where none does, all classes share it."""
    context = make_context(3)
    sure = [200.0 * torch.nn.functional.one_hot(torch.tensor([c]), 4).float() for c in range(3)]
    uniform = torch.full((1, 4), 7.0)
    for claims in ([0, 1, 2], [0, 1], [0], [1, 2], [2]):
        logits = [sure[c] if c in claims else uniform for c in range(3)]
        joined = torch.softmax(join("stick_breaking", logits, context) / context.temperature, 1)
        assert int(joined.argmax()) == max(claims)
        assert float(joined.max()) > 0.99
    joined = join("stick_breaking", [uniform] * 3, context)
    shared = torch.softmax(joined / context.temperature, 1)
    torch.testing.assert_close(shared, torch.full((1, 4), 0.25), atol=1e-3, rtol=0)


@pytest.mark.parametrize("arriving", ["abcd", "cbad"])
@pytest.mark.parametrize(
    "rewarded", [("a", "b", "c"), ("c", "a", "b"), ("ab", "c", "d"), ("d", "ac", "b")]
)
def test_stick_breaking_is_its_formula(
    rewarded: tuple[str, ...], arriving: str, make_context: Make
) -> None:
    context = make_context(3, rewarded=rewarded)
    logits, t = [z / 4 for z in answers()], context.temperature
    order = None if arriving == "abcd" else ["abcd".index(name) for name in arriving[:-1]]
    joined = join({"name": "stick_breaking", "order": order}, logits, context)
    seen = torch.softmax(joined.double() / t, dim=1)
    arrivals = {place: max(map(arriving.index, rewarded[place])) for place in range(3)}
    latest = sorted(arrivals, key=arrivals.__getitem__, reverse=True)
    for n in range(6):
        left, expected = 1.0, [0.0] * 4
        for place in latest:
            p = torch.softmax(logits[place][n].double() / t, dim=0).tolist()
            own = ["abcd".index(name) for name in rewarded[place]]
            q, chance = sum(p[c] for c in own), len(own) / 4
            claim = max((q - chance) / (1 - chance), 1e-3 * q)
            for c in own:
                expected[c] += left * claim * p[c] / q
            left *= 1 - claim
        torch.testing.assert_close(seen[n], torch.tensor(expected).double() + left / 4)


def test_a_part_that_rewards_all_takes_what_is_left(make_context: Make) -> None:
    context = make_context(2, rewarded=("abcd", "abcd"))
    logits = answers(2)
    joined = torch.softmax(join("stick_breaking", logits, context) / context.temperature, 1)
    last = torch.softmax(logits[1] / context.temperature, 1)
    torch.testing.assert_close(joined, last)


@pytest.mark.parametrize("order", [[0, 0], [0.5], "ab", [-1], 3])
def test_an_order_that_is_none_is_refused(order: Any, make_context: Make) -> None:
    with pytest.raises(RecipeError, match="stick_breaking: order is"):
        join({"name": "stick_breaking", "order": order}, answers(), make_context(3))
