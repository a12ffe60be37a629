"""Every engine equals the plain loop."""

import pytest
import torch

from intarsia.training.mlp import MlpEngine
from intarsia.training.plain import PlainEngine
from intarsia.training.stack import StackEngine

STEPS = 50  # five epochs of ten batches


def run(engine, starts, epochs=5):
    engine.begin(starts)
    losses = []
    for epoch in range(epochs):
        rates = [t.learning_rate for t in engine.job.tasks]
        losses.append(engine.epoch(0, epoch, rates, [True] * len(rates)))
    scores = engine.validate()
    engine.keep(range(len(engine.slots)))
    states = [engine.best(k) for k in range(len(engine.slots))]
    engine.close()
    return states, torch.stack(losses), scores


def assert_close(ours, oracle, tolerance=1e-5):
    """Each module's whole state, parameters and buffers, within the tolerance of its norm."""
    for mine, theirs in zip(ours, oracle, strict=True):
        assert mine.keys() == theirs.keys()
        assert far_apart(mine, theirs) <= tolerance


def far_apart(ours, oracle):
    flat = [torch.cat([t.double().flatten() for t in s.values()]) for s in (ours, oracle)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())


def engine_of(kind, job):
    return {
        "single": lambda: StackEngine(job, 1),
        "stack": lambda: StackEngine(job, 3),
        "mlp": lambda: MlpEngine(job),
    }[kind]()


@pytest.mark.parametrize("density", [1.0, 0.3, 0.02])
@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("mlp", "mlp([24], dropout=0)"),
        ("mlp", "mlp([24, 16], dropout=0)"),
        ("stack", "mlp([24, 16], dropout=0)"),
        ("single", "mlp([24, 16], dropout=0)"),
        ("stack", "lenet"),
        ("single", "lenet"),
        ("single", "resnet18(width=4)"),
    ],
)
def test_fifty_steps_equal_the_plain_loop(make_job, masked, kind, model, density):
    job, origins = make_job(model)
    assert job.steps * 5 == STEPS
    starts = masked(origins, density)
    oracle, oracle_losses, oracle_scores = run(PlainEngine(job), starts)
    ours, losses, scores = run(engine_of(kind, job), starts)
    assert_close(ours, oracle)
    torch.testing.assert_close(losses, oracle_losses, rtol=1e-4, atol=1e-6)
    for name in ("accuracy", "entropy", "loss"):
        torch.testing.assert_close(
            getattr(scores, name), getattr(oracle_scores, name), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("density", [1.0, 0.3])
def test_a_stack_with_batchnorm_equals_the_plain_loop_in_double(make_job, masked, density):
    """In single precision a ReLU that flips by rounding sends both ways apart; see the next test."""
    job, origins = make_job("resnet18(width=4)", dtype=torch.float64)
    starts = masked(origins, density)
    oracle, oracle_losses, _ = run(PlainEngine(job), starts)
    ours, losses, _ = run(StackEngine(job, 3), starts)
    assert_close(ours, oracle)
    torch.testing.assert_close(losses.double(), oracle_losses.double(), rtol=1e-4, atol=1e-6)


def test_a_stack_with_batchnorm_departs_no_further_than_rounding_moves_the_loop(make_job, masked):
    job, origins = make_job("resnet18(width=4)")
    oracle, _, _ = run(PlainEngine(job), masked(origins, 1.0))
    ours, _, _ = run(StackEngine(job, 3), masked(origins, 1.0))
    nudged = [{n: t * (1 + 1e-7) if t.ndim > 1 else t for n, t in o.items()} for o in origins]
    moved, _, _ = run(PlainEngine(job), masked(nudged, 1.0))
    for mine, theirs, shaken in zip(ours, oracle, moved, strict=True):
        assert far_apart(mine, theirs) < 10 * far_apart(shaken, theirs) + 1e-5


@pytest.mark.parametrize("goal", ["qme", "xe", "smoothing", "confidence_penalty(0.5)", "other"])
@pytest.mark.parametrize("kind", ["mlp", "stack"])
def test_every_objective_equals_the_plain_loop(make_job, masked, kind, goal):
    job, origins = make_job("mlp([24], dropout=0)", goal=goal)
    starts = masked(origins, 0.5)
    oracle, oracle_losses, _ = run(PlainEngine(job), starts)
    ours, losses, _ = run(engine_of(kind, job), starts)
    assert_close(ours, oracle)
    torch.testing.assert_close(losses, oracle_losses, rtol=1e-4, atol=1e-6)
