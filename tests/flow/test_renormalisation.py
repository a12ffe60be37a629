"""The flow: exact on cumulants and on all pairs of a sample, within its errors on samples."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.errors import IntarsiaError
from intarsia.flow import (
    Cumulants,
    balanced_quadratic,
    clt_step,
    cumulants,
    draw,
    iterate,
    law_cumulants,
)

pytestmark = pytest.mark.usefixtures("one_thread")
numbers = st.lists(st.floats(-100, 100), min_size=2, max_size=12)


@given(numbers)
@settings(max_examples=40)
def test_a_step_is_that_of_all_pairs(values: list[float]) -> None:
    """The law of all ordered pairs of a sample is the step of the sample's own law."""
    x = torch.tensor(values, dtype=torch.float64)
    sums = ((x[:, None] + x) / math.sqrt(2)).flatten()
    after, expected = cumulants(sums, errors=False), clt_step(cumulants(x, errors=False))
    size = max(1.0, float(x.abs().max()))
    for order in range(1, 5):
        torch.testing.assert_close(
            after[order], expected[order], rtol=1e-9, atol=1e-11 * size**order
        )


def test_the_exact_flow_follows_its_law() -> None:
    start = law_cumulants("exponential")
    trace = iterate("exact", start, 8)
    for step, found in enumerate(trace.steps):
        for order in range(1, 5):
            expected = float(start[order]) * 2 ** (step * (1 - order / 2))
            assert float(found[order]) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_gaussians_are_fixed_points() -> None:
    start = law_cumulants("gaussian")
    for order in range(1, 5):
        torch.testing.assert_close(clt_step(start)[order], start[order])


def test_whole_tensors_step_alike() -> None:
    start = cumulants(draw("exponential", 50, 2))
    after = clt_step(start)
    torch.testing.assert_close(after[3], start[3] / math.sqrt(2))
    torch.testing.assert_close(after[4], start[4] / 2)


def test_the_sampled_flow_is_within_its_standard_errors() -> None:
    trace = iterate("exact", "exponential", 5, samples=2**17)
    assert [step.count for step in trace.steps] == [2**17 >> n for n in range(6)]
    away = [value for row in trace.deviations() for value in row if value is not None]
    assert len(away) == 24
    assert max(away) < 4.5
    assert max(away) > 0.1


def test_resampling_keeps_the_number_of_samples() -> None:
    trace = iterate("exact", "exponential", 4, samples=2**15, resample=True)
    assert {step.count for step in trace.steps} == {2**15}
    assert float(trace.steps[-1][3]) == pytest.approx(0.5, abs=0.1)


def test_a_network_that_is_the_step_gives_the_exact_flow() -> None:
    x = draw("laplace", 256)
    exact = iterate("exact", x, 3)
    linear = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    torch.nn.init.constant_(linear.weight, 1 / math.sqrt(2))
    for network in (linear, lambda pairs: pairs.sum(1) / math.sqrt(2)):
        found = iterate(network, x, 3)
        for one, other in zip(exact.steps, found.steps, strict=True):
            torch.testing.assert_close(one[4], other[4])
    single = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(single.weight, 1 / math.sqrt(2))
    assert len(iterate(single, x, 3).steps) == 4


def test_a_network_that_is_not_leaves_the_flow() -> None:
    trace = iterate(balanced_quadratic(0.5), "exponential", 4, samples=2**14, resample=True)
    assert float(trace.steps[-1][4]) > 10 * float(trace.law[-1][4])


def test_a_flow_that_leaves_the_numbers_ends() -> None:
    trace = iterate(lambda pairs: pairs[:, 0] * 1e60, "exponential", 6, samples=64, resample=True)
    assert 1 <= len(trace.steps) < 7
    assert len(trace.law) == len(trace.steps)
    assert trace.to_json()["steps"][0]["samples"] == 64


def test_what_cannot_flow() -> None:
    whole = cumulants(draw("gaussian", 9, 2))
    for network, start, more, message in (
        ("exact", "exponential", {"samples": 32, "steps": 6}, "32 samples are too few"),
        ("exact", draw("gaussian", 64, 2), {}, "2 dimensions"),
        ("exact", whole, {}, "2 dimensions"),
        (balanced_quadratic(1.0), law_cumulants("uniform"), {}, "go through the exact step"),
        ("exakt", "uniform", {}, "the network is 'exakt'"),
        (3, "uniform", {}, "cannot be called"),
        (lambda pairs: pairs, "uniform", {}, "expected a number for each"),
        ("exact", "unifrom", {}, "unifrom"),
        ("exact", "uniform", {"steps": 0}, "steps is 0"),
        ("exact", "uniform", {"samples": 2}, "samples is 2"),
        ("exact", [1.0, math.nan], {}, "not finite"),
    ):
        with pytest.raises(IntarsiaError, match=message):
            iterate(network, start, **{"steps": 1, "samples": 64, **more})  # type: ignore[arg-type]
    with pytest.raises(IntarsiaError, match="are not cumulants"):
        clt_step([1.0])  # type: ignore[arg-type]


def test_a_step_keeps_what_is_known_of_samples() -> None:
    values = tuple(torch.ones(1).double() for _ in range(2))
    after = clt_step(Cumulants(values, True, 7, True))
    assert (after.count, after.unbiased, after.order) == (7, True, 2)


def test_what_is_shown() -> None:
    trace = iterate("exact", "exponential", 2, samples=256)
    assert trace.__rich__().row_count == 3
    for law in ("exponential", "uniform"):
        shown = str(iterate("exact", law, 6))
        assert max(map(len, shown.splitlines())) <= 80
        assert "…" not in shown
    assert len(trace.figure().axes) == 3
    assert iterate("exact", law_cumulants("uniform"), 2).to_json()["steps"][0]["samples"] is None
