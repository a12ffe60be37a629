"""Gradients by hand against autograd; dropout's factors."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from intarsia.models import initialise
from intarsia.objectives import loss, objective
from intarsia.training.engines.adam import MOMENTS
from intarsia.training.engines.base import ObjectiveStack, Slot
from intarsia.training.engines.mlp_cpu.hand_mlp import BULK, HandMlp, _factors
from intarsia.training.engines.mlp_cpu.mlp_engine import MlpEngine
from intarsia.training.settings.optimisers import OptimiserState
from intarsia.training.tasks import Task

BATCH, SHAPE, TEMPERATURE = 32, (20,), 5.0


def draw_of(seed):
    return torch.Generator().manual_seed(seed)


def some_factors(dropout, seed=0, batches=40, batch=BATCH, units=48):
    drawn = _factors(batch, units, dropout, draw_of(seed))
    return torch.stack([next(drawn) for _ in range(batches)])


@pytest.mark.parametrize("dropout", [0.5, 0.3, 0.2, 0.9])
def test_factors_keep_their_share_and_scale_it(dropout):
    factors = some_factors(dropout)
    kept = factors > 0
    assert torch.equal(factors[kept], torch.full_like(factors[kept], 1 / (1 - dropout)))
    spread = math.sqrt(dropout * (1 - dropout) / kept.numel())
    assert abs(float(kept.float().mean()) - (1 - dropout)) < 5 * spread


@pytest.mark.parametrize("dropout", [0.5, 0.3])
def test_factors_do_not_depend_on_their_neighbours(dropout):
    """Neighbouring batches, samples and units are kept together as often as by chance."""
    kept = (some_factors(dropout) > 0).double()
    chance = (1 - dropout) ** 2
    for dimension in range(3):
        size = kept.shape[dimension] - 1
        one, other = kept.narrow(dimension, 0, size), kept.narrow(dimension, 1, size)
        bound = 5 * math.sqrt(chance * (1 - chance) / one.numel())
        assert abs(float((one * other).mean()) - chance) < bound


@pytest.mark.parametrize("dropout", [0.5, 0.3])
@pytest.mark.parametrize("batch", [1, 3, 32])
def test_factors_follow_their_stream(dropout, batch):
    batches = 2 * BULK + 3  # across two draws
    one = some_factors(dropout, 1, batches, batch, units=7)
    assert one.shape == (batches, batch, 7)
    assert torch.equal(one, some_factors(dropout, 1, batches, batch, units=7))
    assert not torch.equal(one, some_factors(dropout, 2, batches, batch, units=7))
    assert not torch.equal(one[:BULK], one[BULK : 2 * BULK])


def test_streams_differ_between_modules_rounds_and_epochs(make_job):
    job, _ = make_job("mlp(8)")
    engine = MlpEngine(job)
    streams = {engine.dropout_stream(k, r, e) for k in range(3) for r in range(3) for e in range(4)}
    assert len(streams) == 36
    assert engine.dropout_stream(1, 2, 3) == engine.dropout_stream(1, 2, 3)
    engine.close()


@pytest.mark.parametrize("goal", ["me", "xe", "confidence_penalty(0.5)", "other"])
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.3])
@pytest.mark.parametrize("hidden", [[16], [16, 12, 8]])
def test_gradients_equal_autograds_with_the_same_factors(hidden, dropout, goal):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(BATCH, *SHAPE, generator=generator), torch.arange(BATCH) % 5
    aim = objective(goal, 5, [1, 2])
    model = {"name": "mlp", "hidden": hidden, "dropout": dropout}
    state = initialise(model, SHAPE, aim.outputs, 0).state_dict()
    mask = {"layers.0.weight": torch.rand(hidden[0], 20, generator=generator) < 0.5}

    network = hand_of(state, mask, dropout)
    objectives = ObjectiveStack([Task("t", ("b", "c"), (1, 2), 0, 0.0, aim)], x)
    found_loss = network.epoch(x, y, [torch.arange(BATCH)], objectives, 0, 0.0, draw_of(3))

    draw = draw_of(3)
    streams = [_factors(BATCH, units, dropout, draw) for units in hidden]
    parameters = {n: t.clone().requires_grad_() for n, t in state.items()}
    h = x
    for layer, stream in enumerate(streams):
        weight, bias = parameters[f"layers.{layer}.weight"], parameters[f"layers.{layer}.bias"]
        h = F.relu(F.linear(h, weight, bias)) * (next(stream) if dropout else 1)
    logits = F.linear(h, parameters[f"layers.{len(hidden)}.weight"])
    value = loss(logits, y, aim, TEMPERATURE)
    value.backward()

    assert found_loss == pytest.approx(value.item(), rel=1e-5)
    for (name, parameter), result in zip(parameters.items(), network.grads, strict=True):
        expected = parameter.grad * mask[name] if name in mask else parameter.grad
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-7)


def test_a_batch_of_hidden_labels_moves_nothing():
    x, y = torch.rand(BATCH, *SHAPE, generator=draw_of(0)), torch.zeros(BATCH, dtype=torch.long)
    state = initialise("mlp([16], dropout=0)", SHAPE, 5, 0).state_dict()
    network = hand_of(state, {}, 0.0)
    objectives = ObjectiveStack([Task("t", ("b",), (1,), 0, 0.1, objective("xe", 5, [1]))], x)
    assert network.epoch(x, y, [torch.arange(BATCH)], objectives, 0, 0.1, draw_of(0)) == 0
    assert all(torch.equal(network.slot.parameters[n], t) for n, t in state.items())


def test_logits_are_the_networks_in_evaluation():
    network = initialise("mlp([16, 12], dropout=0.5)", SHAPE, 5, 0).eval()
    x = torch.rand(BATCH, *SHAPE, generator=draw_of(0))
    result = hand_of(network.state_dict(), {}, 0.5).logits(x)
    torch.testing.assert_close(result, network(x).detach()[None])


def hand_of(state, mask, dropout):
    parameters = {n: t.clone() for n, t in state.items()}
    slot = Slot(parameters, {}, OptimiserState.zeros(MOMENTS, state))
    return HandMlp(slot, mask, dropout, TEMPERATURE)
