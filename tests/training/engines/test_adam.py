"""Adam's step against its formula, by torch's optimiser and by the fused step."""

import pytest
import torch

from intarsia.training.engines.adam import BETAS, EPSILON, adam_step, torch_adam
from intarsia.training.settings.optimisers import Adam, OptimiserState

STEPS, LEARNING_RATE = 5, 0.03


def by_the_formula(start, grads, first, second, count):
    weight, m, v = start.double(), first.double(), second.double()
    for n, g in enumerate((g.double() for g in grads), count + 1):
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g * g
        root = (v / (1 - BETAS[1] ** n)).sqrt()
        weight = weight - LEARNING_RATE * m / (1 - BETAS[0] ** n) / (root + EPSILON)
    return weight


@pytest.mark.parametrize("kind", ["fused", "unfused", "by hand"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_all_steps_follow_the_formula(kind, goes_on):
    draw = torch.Generator().manual_seed(0)
    start = {"a": torch.randn(4, 3, generator=draw), "b": torch.randn(5, generator=draw)}
    grads = [{n: torch.randn(t.shape, generator=draw) for n, t in start.items()}] * STEPS
    moments = {
        name: {n: torch.rand(t.shape, generator=draw) for n, t in start.items()}
        for name in Adam.moments
    }
    kept = OptimiserState(moments, [torch.tensor(7.0)]) if goes_on else None
    parameters = {n: t.clone().requires_grad_() for n, t in start.items()}
    state = OptimiserState.begin(Adam.moments, parameters, {}, kept)
    optimiser = torch_adam(parameters, state.moments, state.steps)
    optimiser.param_groups[0]["lr"] = LEARNING_RATE
    if kind == "by hand":
        state.steps = state.steps[:1]
    weights = list(parameters.values())
    for step in grads:
        if kind != "unfused":
            rate = LEARNING_RATE if kind == "by hand" else torch.tensor(LEARNING_RATE)
            with torch.no_grad():
                adam_step(weights, list(step.values()), state.moments, state.steps, rate)
            continue
        for name, parameter in parameters.items():
            parameter.grad = step[name]
        optimiser.step()
    assert float(state.steps[0]) == STEPS + (7 if goes_on else 0)
    for name, parameter in parameters.items():
        zeros = torch.zeros_like(start[name])
        first, second = (m[name] if goes_on else zeros for m in moments.values())
        own = [step[name] for step in grads]
        expected = by_the_formula(start[name], own, first, second, 7 if goes_on else 0)
        torch.testing.assert_close(parameter.detach().double(), expected, rtol=1e-5, atol=1e-6)


def test_moments_that_are_kept_are_copied_and_masked():
    parameters = {"a": torch.ones(2, 2)}
    ones = {name: {"a": torch.ones(2, 2)} for name in Adam.moments}
    kept = OptimiserState(ones, [torch.tensor(3.0)])
    mask = torch.tensor([[True, False], [True, True]])
    state = OptimiserState.begin(Adam.moments, parameters, {"a": mask}, kept)
    for moment in state.moments.values():
        assert torch.equal(moment["a"], mask.float())
    state.moments["first"]["a"].zero_()
    state.steps[0].add_(1)
    assert bool(kept.moments["first"]["a"].all())
    assert float(kept.steps[0]) == 3.0
