"""Fits of pair networks: solutions are reached to rounding, each network by itself."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.errors import IntarsiaError, RecipeError, TrainingError
from intarsia.flow import draw, fit, on_manifold
from intarsia.flow.pair_networks import HALF

pytestmark = pytest.mark.usefixtures("one_thread")


def test_linear_networks_reach_the_solution() -> None:
    bank = fit("symmetric", "linear", seeds=[0, 1], steps=900, batch=128, learning_rate=0.03)
    x = draw("laplace", 1000, 2)
    assert float((bank(x) - HALF * x.sum(1)).square().max()) < 1e-20
    assert all(on_manifold(network) for network in (bank[0], bank[1]))


def test_the_symmetric_quadratic_pair_does_not() -> None:
    bank = fit("symmetric", "quadratic", seeds=[0], steps=400, batch=128)
    x = draw("exponential", 4000, 2)
    assert float((bank(x) - HALF * x.sum(1)).square().mean()) > 1e-4


def test_networks_of_a_stack_are_trained_by_themselves() -> None:
    how: dict[str, Any] = {"steps": 40, "batch": 16}
    for loss in ("mse", "cumulants"):
        stack = fit("free", "tanh", 2, loss=loss, seeds=[3, 7], **how)
        alone = fit("free", "tanh", 2, loss=loss, seeds=[7], **how)
        torch.testing.assert_close(stack.weights[1], alone.weights[0], rtol=1e-8, atol=1e-10)
        assert not torch.allclose(stack.weights[0], stack.weights[1])
    assert fit("free", "tanh", seeds=2, steps=1).seeds == (0, 1)


def test_steps_are_adam_s() -> None:
    """Against torch's Adam under the same cosine, with the gradients of the same batches."""
    bank = fit("symmetric", "tanh", 2, seeds=[5], steps=6, batch=8, learning_rate=0.1)
    start = fit("symmetric", "tanh", 2, seeds=[5], steps=1, batch=8, learning_rate=1e-300)
    from intarsia.files import stream
    from intarsia.flow.laws import exponential

    generator = torch.Generator().manual_seed(stream("flow fit", "symmetric", "tanh", 2,
                                                     "exponential", 5))  # fmt: skip
    for shape in ((2, 2), (2,), (2,), (1,)):  # what the start took
        torch.randn(shape, dtype=torch.float64, generator=generator)
    batches = exponential((6, 8, 2), generator)
    network = start[0]
    adam = torch.optim.Adam(network.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, 6)
    for x in batches:
        adam.zero_grad()
        (network(x) - HALF * x.sum(1)).square().mean().backward()
        adam.step()
        schedule.step()
    torch.testing.assert_close(network.get_parameter("weights").detach(), bank.weights[0])


def test_cumulants_are_matched_without_targets() -> None:
    bank = fit("symmetric", "linear", loss="cumulants", seeds=[0], steps=600, batch=256)
    x = draw("exponential", 4000, 2)
    y = bank(x)[0]
    assert float(y.var()) == pytest.approx(float((HALF * x.sum(1)).var()), rel=0.2)
    assert float(y.mean()) == pytest.approx(0, abs=0.1)


def test_nothing_finite_is_an_error() -> None:
    with pytest.raises(TrainingError, match="lower the learning rate"):
        fit("free", "quadratic", seeds=[0], steps=30, batch=8, learning_rate=1e200)


@pytest.mark.parametrize(
    "given_",
    [
        {"form": "both"}, {"unit": "sine"}, {"width": 0}, {"width": 10**6}, {"width": 1.5},
        {"law": "cauchy"}, {"loss": "mae"}, {"seeds": []}, {"seeds": [-1]}, {"seeds": ["a"]},
        {"steps": 0}, {"batch": True}, {"learning_rate": 0}, {"learning_rate": float("nan")},
    ],
)  # fmt: skip
def test_settings_that_are_none(given_: dict[str, Any]) -> None:
    with pytest.raises(IntarsiaError) as caught:
        fit(**given_)
    assert next(iter(given_)) in str(caught.value).replace("the unit", "unit")


@given(st.one_of(st.integers(-3, 0), st.floats(), st.text(max_size=5), st.none()))
@settings(max_examples=25)
def test_counts_are_whole_numbers_from_1(value: object) -> None:
    for name in ("width", "steps", "batch"):
        with pytest.raises(RecipeError, match=f"{name} is"):
            fit(**{name: value})  # type: ignore[arg-type]
