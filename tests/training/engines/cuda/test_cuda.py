"""The CUDA engines against the plain loop on the same device; skipped where there is no GPU."""

import dataclasses
import math

import pytest
import torch

import intarsia as ia
from intarsia.models import build, initialise, wiring_of
from intarsia.objectives import objective
from intarsia.training.engines.plain import PlainEngine
from intarsia.training.engines.select import choose
from intarsia.training.engines.stack import StackEngine
from intarsia.training.job import Job
from intarsia.training.settings.optimisers import OPTIMISERS
from intarsia.training.tasks import Task

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def job_of(model, goal="me", dtype=torch.float32):
    """Four modules of two seeds on the digits, with the paper's batch, step size and temperature.

    In double the step size is the nearest power of 2, which is the same number in every precision.
    """
    data = ia.load_data("digits")
    rate = 1e-3 if dtype == torch.float32 else 2**-10
    tasks = [
        Task(str(k), (str(k),), (k,), seed, rate, objective(goal, 10, (k,)))
        for k, (seed, rate) in enumerate([(0, rate), (0, rate), (1, rate), (1, rate / 2)])
    ]
    outputs = tasks[0].objective.outputs
    network = build(model, data.shape, outputs).to("cuda", dtype)
    x, y = data.scaling(data.train.x)[:640].to("cuda", dtype), data.train.y[:640].cuda()
    wiring = wiring_of(network, data.shape)
    job = Job(network, wiring, tasks, x, y, x[:100], y[:100], 64, 5.0)
    origins = [initialise(model, data.shape, outputs, t.seed).to(dtype) for t in tasks]
    return job, [origin.state_dict() for origin in origins]


def mixed_of(model, dtype=torch.float32):
    """MaxEnt beside objectives that hide labels: epochs of 2 to 19 batches, and of one of 20.

    The kernels fill a short batch up with sample 0, so it has a label that counts there.
    """
    job, origins = job_of(model, dtype=dtype)
    rate = job.tasks[0].learning_rate
    keep = ((job.y != 9) | ((job.y == 9).cumsum(0) <= 20)).nonzero().flatten()
    keep = keep[(job.y[keep] != 9).argsort(stable=True)]
    tasks = [
        Task(str(k), tuple(map(str, rewarded)), rewarded, seed, rate, objective(goal, 10, rewarded))
        for k, (goal, rewarded, seed) in enumerate(
            [
                ("me", (0,), 0),
                ("xe", (1,), 0),
                ("smoothing(0.2)", (2, 3, 4, 5), 0),
                ("confidence_penalty(0.5)", (6, 7), 1),
                ("xe", (9,), 1),
            ]
        )
    ]
    job = dataclasses.replace(
        job, tasks=tasks, x=job.x[keep], y=job.y[keep], batch=30, batches="shown"
    )
    by_seed = {0: origins[0], 1: origins[2]}
    return job, [by_seed[t.seed] for t in tasks]


def run(engine, starts, epochs=5, active=None):
    engine.begin(starts)
    for epoch in range(epochs):
        rates = [t.learning_rate for t in engine.job.tasks]
        losses = engine.epoch(0, epoch, rates, active or [True] * len(rates))
    engine.keep(range(len(engine.slots)))
    return [engine.best(k) for k in range(len(engine.slots))], losses, engine.validate()


def far_apart(ours, oracle):
    flat = [torch.cat([t.double().flatten() for t in s.values()]) for s in (ours, oracle)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())


def engine_of(kind, job):
    if kind == "mlp":
        from intarsia.training.engines.cuda.cuda_mlp import CudaMlpEngine

        return CudaMlpEngine(job)
    if kind == "lenet":
        from intarsia.training.engines.cuda.cuda_lenet import CudaLenetEngine

        return CudaLenetEngine(job)
    return StackEngine(job, 1 if kind == "single" else len(job.tasks))


@pytest.mark.parametrize("density", [1.0, 0.3, 0.02])
@pytest.mark.parametrize(
    ("kind", "model", "goal"),
    [
        ("mlp", "mlp([48], dropout=0)", "me"),
        ("mlp", "mlp([48, 40], dropout=0)", "me"),
        ("mlp", "mlp([48, 40], dropout=0)", "confidence_penalty(0.5)"),
        ("mlp", "mlp([48], dropout=0)", "other"),
        ("mlp", "mlp([48], dropout=0)", "xe"),
        ("stack", "mlp([48, 40], dropout=0)", "me"),
        ("stack", "lenet", "me"),
        ("single", "lenet", "me"),
    ],
)
def test_fifty_steps_equal_the_plain_loop(masked, monkeypatch, kind, model, goal, density):
    """The fused kernels in their own float32; autograd's stacks in double.

    In float32 a stack's 50 steps may part from the loop's by 3e-4, since a ReLU that rounding flips
    changes gradients near 0, which Adam scales up.
    """
    job, origins = job_of(model, goal, torch.float32 if kind == "mlp" else torch.float64)
    starts = masked(origins, density)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    oracle, oracle_losses, oracle_scores = run(PlainEngine(job), starts)
    ours, losses, scores = run(engine_of(kind, job), starts)
    assert [far_apart(a, b) <= 1e-5 for a, b in zip(ours, oracle, strict=True)] == [True] * 4, [
        far_apart(a, b) for a, b in zip(ours, oracle, strict=True)
    ]
    torch.testing.assert_close(losses, oracle_losses, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(scores.loss, oracle_scores.loss, rtol=1e-4, atol=1e-6)
    for state, start in zip(ours, starts, strict=True):
        for name, mask in start.mask.items():
            assert not state[name][~mask].any()


@pytest.mark.parametrize("density", [1.0, 0.3])
@pytest.mark.parametrize("batch", [64, 60, 128])
@pytest.mark.parametrize("goal", ["me", "confidence_penalty(0.5)", "other"])
def test_steps_of_the_lenet_kernels_equal_the_plain_loop(masked, monkeypatch, goal, batch, density):
    """Fewer steps than above and a wider bound: in float32 a maximum may change its place too."""
    job, origins = job_of("lenet", goal)
    job = dataclasses.replace(job, batch=batch)
    starts = masked(origins, density)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    oracle, oracle_losses, oracle_scores = run(PlainEngine(job), starts, epochs=2)
    ours, losses, scores = run(engine_of("lenet", job), starts, epochs=2)
    distances = [far_apart(a, b) for a, b in zip(ours, oracle, strict=True)]
    assert max(distances) <= 1e-4, distances
    torch.testing.assert_close(losses, oracle_losses, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(scores.loss, oracle_scores.loss, rtol=1e-4, atol=1e-6)
    for state, start in zip(ours, starts, strict=True):
        for name, mask in start.mask.items():
            assert not state[name][~mask].any()


@pytest.mark.parametrize("kind", ["stack", "single"])
@pytest.mark.parametrize("others", [math.inf, 1.0])
@pytest.mark.parametrize("optimiser", ["adam", "adamw(decay=0.3)", "sgd(decay=0.3)"])
def test_recorded_steps_of_every_optimiser_equal_the_plain_loop(masked, optimiser, others, kind):
    """With a learning rate for each batch, and with batches that each module draws.

    Rates are powers of 2, which are the same numbers in every precision.
    """
    job, origins = job_of("mlp([48], dropout=0)", dtype=torch.float64)
    tasks = [dataclasses.replace(task, others=others) for task in job.tasks[:2]]
    spec = OPTIMISERS.spec(optimiser)
    job = dataclasses.replace(job, tasks=tasks, optimiser=spec, batch=32)
    starts = masked(origins[:2], 0.3)
    states = []
    for engine in (PlainEngine(job), engine_of(kind, job)):
        engine.begin(starts)
        for epoch in range(3):
            rates = [
                [2.0 ** -(5 + step % 4 + epoch) for step in range(job.steps(task))]
                for task in job.tasks
            ]
            engine.epoch(0, epoch, rates, [True, True])
        engine.keep([0, 1])
        states.append([engine.best(k) for k in (0, 1)])
    if kind == "stack":  # both at once, by drawn batches of equal size
        assert (len(engine.stacks) == 1) == (job.steps(tasks[0]) == job.steps(tasks[1]))
    for mine, oracle, start in zip(states[1], states[0], starts, strict=True):
        assert far_apart(mine, oracle) <= 1e-6
        assert far_apart(start.state, oracle) > 1e-3
        for name, mask in start.mask.items():
            assert not mine[name][~mask].any()


MIXED = [
    ("mlp", "mlp([48], dropout=0)"),
    ("mlp", "mlp([48, 40], dropout=0)"),
    ("lenet", "lenet"),
    ("stack", "lenet"),
    ("single", "lenet"),
]


@pytest.mark.parametrize("density", [1.0, 0.3])
@pytest.mark.parametrize(("kind", "model"), MIXED)
def test_batches_of_the_samples_shown_equal_the_plain_loop(
    masked, monkeypatch, kind, model, density
):
    job, origins = mixed_of(model, torch.float64 if kind in ("stack", "single") else torch.float32)
    starts = masked(origins, density)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    plain, engine = PlainEngine(job), engine_of(kind, job)
    oracle, oracle_losses, _ = run(plain, starts, epochs=2)
    ours, losses, _ = run(engine, starts, epochs=2)
    distances = [far_apart(a, b) for a, b in zip(ours, oracle, strict=True)]
    assert max(distances) <= (1e-4 if kind == "lenet" else 1e-5), distances
    torch.testing.assert_close(losses, oracle_losses, rtol=1e-4, atol=1e-6)
    steps = [[int(slot.optimiser.steps[0]) for slot in e.slots] for e in (plain, engine)]
    assert steps[0] == steps[1] == [2 * job.steps(t) for t in job.tasks]
    assert [job.size(t) for t in job.tasks] == [30, 30, 30, 30, 20]


@pytest.mark.parametrize(("kind", "model"), [("mlp", "mlp([48], dropout=0.5)"), ("lenet", "lenet")])
def test_modules_of_unequal_epochs_are_the_same_in_any_bank(masked, kind, model):
    """MaxEnt, whose bank is even without the others, among them; and with and without graphs."""
    job, origins = mixed_of(model)
    starts = masked(origins, 0.3)
    together, _, _ = run(engine_of(kind, job), starts)
    stepwise = engine_of(kind, job)
    stepwise.graphs = False
    again, _, _ = run(stepwise, starts)
    some, _, _ = run(engine_of(kind, job), starts, active=[False, True, True, False, True])
    for k, task in enumerate(job.tasks):
        alone = engine_of(kind, dataclasses.replace(job, tasks=[task]))
        (single,), _, _ = run(alone, starts[k : k + 1])
        assert all(torch.equal(single[n], together[k][n]) for n in single), k
        assert all(torch.equal(again[k][n], together[k][n]) for n in single), k
        expected = starts[k].state if k in (0, 3) else together[k]
        assert all(torch.equal(some[k][n], expected[n]) for n in single), k


def test_a_lenet_is_the_same_in_any_bank_and_every_time(masked):
    job, origins = job_of("lenet")
    assert choose(job, "auto", patience=True).engine == "lenet"
    together, _, _ = run(engine_of("lenet", job), masked(origins, 0.3))
    again, _, _ = run(engine_of("lenet", job), masked(origins, 0.3))
    assert all(torch.equal(a[n], b[n]) for a, b in zip(together, again, strict=True) for n in a)
    alone = dataclasses.replace(job, tasks=job.tasks[2:3])
    (single,), _, _ = run(engine_of("lenet", alone), masked(origins, 0.3)[2:3])
    assert all(torch.equal(single[n], together[2][n]) for n in single)


@pytest.mark.parametrize(("kind", "model"), [("mlp", "mlp([48], dropout=0)"), ("lenet", "lenet")])
def test_inactive_modules_stand_still(masked, kind, model):
    job, origins = job_of(model)
    everyone, _, _ = run(engine_of(kind, job), masked(origins, 1.0))
    some, _, _ = run(engine_of(kind, job), masked(origins, 1.0), active=[True, False] * 2)
    for k in (0, 2):
        assert all(torch.equal(everyone[k][n], some[k][n]) for n in some[k])
    assert all(torch.equal(origins[1][n], some[1][n]) for n in some[1])


@pytest.mark.parametrize("kind", ["mlp", "stack"])
def test_dropout_repeats_and_a_module_is_the_same_in_any_bank(masked, kind):
    job, origins = job_of("mlp([48], dropout=0.5)")
    first, _, _ = run(engine_of(kind, job), masked(origins, 0.3))
    again, _, _ = run(engine_of(kind, job), masked(origins, 0.3))
    assert all(torch.equal(a[n], b[n]) for a, b in zip(first, again, strict=True) for n in a)
    without, _ = job_of("mlp([48], dropout=0)")
    plain, _, _ = run(engine_of(kind, without), masked(origins, 0.3))
    assert far_apart(first[0], plain[0]) > 1e-4
    if kind == "mlp":
        alone = dataclasses.replace(job, tasks=job.tasks[2:3])
        (single,), _, _ = run(engine_of(kind, alone), masked(origins, 0.1)[2:3])
        together, _, _ = run(engine_of(kind, job), masked(origins, 0.1))
        assert all(torch.equal(single[n], together[2][n]) for n in single)


@pytest.mark.parametrize("goal", ["me", "xe"])
def test_a_run_on_the_gpu_resumes_to_the_same_bytes(tmp_path, stop_at, goal):
    settings = {"model": "mlp([48])", "epochs": 3, "device": "cuda", "checkpoint_every": 0}
    settings["objective"] = goal
    ia.train("digits", out=tmp_path / "whole", **settings)
    stop_at(6)
    with pytest.raises(KeyboardInterrupt):
        ia.train("digits", out=tmp_path / "stopped", **settings)
    ia.train("digits", out=tmp_path / "stopped", **settings)
    for path in (tmp_path / "whole").rglob("*.safetensors"):
        assert path.read_bytes() == (tmp_path / "stopped" / path.name).read_bytes()
