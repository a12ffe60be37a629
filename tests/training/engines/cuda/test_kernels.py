"""The CUDA engines' kernels against the plain loop in Triton's interpreter, which needs no GPU.

Triton takes up its interpreter when it is imported, so all of it runs once in a process of its own:
this file as a script, which prints what the tests then judge.
"""

import json
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from intarsia.errors import RecipeError
from intarsia.models import Mlp, build, initialise, wiring_of
from intarsia.objectives import objective
from intarsia.training.engines.base import Start
from intarsia.training.engines.plain import PlainEngine
from intarsia.training.engines.select import choose
from intarsia.training.job import Job
from intarsia.training.rounds import rewound
from intarsia.training.settings.optimisers import OptimiserState
from intarsia.training.tasks import Task

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


DEEP, SHALLOW = "mlp([20, 16], dropout=0)", "mlp([20], dropout=0)"
CASES = ["grey", "colour", "shown", "mlp", "mlp shown", "mlp shown, pruned"]


@pytest.mark.parametrize("case", CASES)
def test_steps_equal_the_plain_loop(result, case):
    distances = result[case]
    assert min(distances["moved"]) > 1e-3  # or there would be little to compare
    for name in ("states", "first", "second", "losses", "scores"):
        assert max(distances[name]) < 1e-4, name
    assert distances["steps"][0] == distances["steps"][1]


@pytest.mark.parametrize("case", [c for c in CASES if c != "colour"])
def test_pruned_weights_are_exactly_0_and_inactive_modules_stand_still(result, case):
    assert result[case]["pruned"] == 0
    assert result[case]["stood_still"]


@pytest.mark.parametrize("case", CASES)
def test_a_slot_takes_up_what_another_left(result, case):
    assert result[case]["taken_up"]


@pytest.mark.parametrize("case", [c for c in CASES if "shown" in c])
def test_modules_of_unequal_epochs_do_not_notice_each_other(result, case):
    """In two epochs of 5, 3, 1 and 2 steps, the last of which rests in the second."""
    assert result[case]["steps"][0] == [10, 6, 2, 2]
    assert result[case]["alone"]


def test_where_the_kernels_cannot_run_the_engine_is_refused():
    grey = job_of((1, 7, 6), batch=60, goals=[(0, "me")])
    assert choose(grey, "auto", patience=False).engine == "single"
    with pytest.raises(RecipeError, match="engine 'lenet' needs CUDA"):
        choose(grey, "lenet", patience=False)
    mlp = replace(grey, network=build("mlp([8])", (1, 7, 6), 10))
    with pytest.raises(RecipeError, match="trains lenet networks only"):
        choose(mlp, "lenet", patience=False)


def main():
    """Banks of several seeds and objectives, some of them pruned; and one module in colour."""
    torch.set_num_threads(1)
    grey = job_of((1, 7, 6), batch=60, goals=[(0, "me"), (1, "xe"), (0, "confidence_penalty(0.5)")])
    colour = job_of((3, 5, 4), batch=10, goals=[(0, "me")])
    mlp = on_mlp(grey, DEEP)
    shown = shown_of((1, 5, 4))
    small = on_mlp(shown, SHALLOW)
    cases = {
        "grey": (grey, [start_of(grey, k, k < 2) for k in range(3)]),
        "colour": (colour, [with_moments(start_of(colour, 0, True))]),
        "shown": (shown, [start_of(shown, k, k < 2) for k in range(4)]),
        "mlp": (mlp, [start_of(mlp, k, k < 2, DEEP) for k in range(3)]),
        "mlp shown": (small, [start_of(small, k, False, SHALLOW) for k in range(4)]),
        "mlp shown, pruned": (small, [start_of(small, k, True, SHALLOW, 0.2) for k in range(4)]),
    }
    print(json.dumps({name: compare(*case) for name, case in cases.items()}))


def job_of(shape, batch, goals):
    generator = torch.Generator().manual_seed(0)
    tasks = [
        Task(str(k), (str(k),), (k,), seed, 2e-3, objective(goal, 10, (k,)))
        for k, (seed, goal) in enumerate(goals)
    ]
    samples = 2 * batch + 3
    x = torch.rand(samples, *shape, generator=generator) * (
        torch.rand(samples, *shape, generator=generator) < 0.5  # blank places, as pictures have
    )
    y = torch.randint(10, (samples,), generator=generator)
    network = build("lenet", shape, 10)
    return Job(network, wiring_of(network, shape), tasks, x, y, x[:70], y[:70], batch, 5.0)


def shown_of(shape):
    """Batches of 8 of 43 samples, of the 26 of label 1, the 5 of label 2, the 16 of 2 and 3.

    The kernels fill a short batch up with sample 0, so it has a label that counts there.
    """
    goals = [(0, "me"), (0, "xe"), (0, "smoothing"), (1, "confidence_penalty(0.5)")]
    job = job_of(shape, batch=20, goals=goals)
    y = torch.tensor([0] + [1] * 26 + [2] * 4 + [3] * 11)
    y = y[torch.randperm(42, generator=torch.Generator().manual_seed(1))]
    y = torch.cat([torch.tensor([2]), y])
    two = replace(job.tasks[3], rewarded=("2", "3"), indices=(2, 3))
    tasks = [*job.tasks[:3], replace(two, objective=objective(goals[3][1], 10, (2, 3)))]
    return replace(
        job, tasks=tasks, y=y, y_validation=y, x_validation=job.x, batch=8, batches="shown"
    )


def on_mlp(job, model):
    shape = tuple(job.x.shape[1:])
    network = build(model, shape, 10)
    return replace(job, network=network, wiring=wiring_of(network, shape))


def start_of(job, k, pruned, model="lenet", density=0.4):
    generator = torch.Generator().manual_seed(100 + k)
    origin = initialise(model, tuple(job.x.shape[1:]), 10, job.tasks[k].seed).state_dict()
    mask = {
        n: torch.rand(t.shape, generator=generator) < density for n, t in origin.items() if pruned
    }
    return Start(rewound(origin, mask), mask)


def with_moments(start):
    generator = torch.Generator().manual_seed(7)
    first, second = (
        {n: size * torch.rand(t.shape, generator=generator) for n, t in start.state.items()}
        for size in (1e-3, 1e-6)
    )
    start.optimiser = OptimiserState({"first": first, "second": second}, [torch.tensor(7.0)])
    return start


def compare(job, starts):
    """Two epochs, in the second of which the last of several stands still."""
    modules = range(len(starts))
    plain, ours = PlainEngine(job), engine_of(job)
    losses, halfway = [], []
    for engine in (plain, ours):
        before, both = train(engine, starts)
        halfway.append(before)
        losses.append(both)
    theirs, mine = ([e.best(k) for k in modules] for e in (plain, ours))
    scores = [e.validate()._asdict() for e in (plain, ours)]
    kept = [[moments_of(e, k) for k in modules] for e in (plain, ours)]
    return {
        "moved": [far_apart(s.state, state) for s, state in zip(starts, theirs, strict=True)],
        "states": [far_apart(a, b) for a, b in zip(mine, theirs, strict=True)],
        "first": [far_apart(a[0], b[0]) for a, b in zip(kept[1], kept[0], strict=True)],
        "second": [far_apart(a[1], b[1]) for a, b in zip(kept[1], kept[0], strict=True)],
        "losses": [float((losses[0] - losses[1]).abs().max())],
        "scores": [float((scores[0][n] - scores[1][n]).abs().max()) for n in scores[0]],
        "pruned": sum(
            int(torch.count_nonzero(state[n][~mask]))
            for state, start in zip(mine, starts, strict=True)
            for n, mask in start.mask.items()
        ),
        "stood_still": all(torch.equal(halfway[1][n], t) for n, t in mine[-1].items()),
        "steps": [[int(slot.optimiser.steps[0]) for slot in e.slots] for e in (plain, ours)],
        "taken_up": taken_up(ours, engine_of(job), starts),
        "alone": job.batches == "all"
        or all(alone(job, k, starts[k], mine[k]) for k in modules[:-1]),
    }


def engine_of(job):
    from intarsia.training.engines.cuda import cuda_lenet as lenet_cuda
    from intarsia.training.engines.cuda import cuda_mlp as mlp_cuda

    if isinstance(job.network, Mlp):
        return mlp_cuda.CudaMlpEngine(job, graphs=False)
    lenet_cuda.SPANS = (3, 2, 3)  # so that even small pictures come in pieces, of unequal size
    return lenet_cuda.CudaLenetEngine(job, graphs=False)


def train(engine, starts):
    """The last module's state after the first epoch, and the losses of both."""
    modules = range(len(starts))
    engine.begin(starts)
    losses = [engine.epoch(0, 0, [2e-3] * len(starts), [True] * len(starts))]
    engine.keep(modules)
    halfway = engine.best(modules[-1])
    active = [k == 0 or k < modules[-1] for k in modules]
    losses.append(engine.epoch(0, 1, [1e-3] * len(starts), active))
    engine.keep(modules)
    return halfway, torch.stack(losses)


def alone(job, k, start, expected):
    """Whether a module comes to the same weights by itself, bit for bit."""
    engine = engine_of(replace(job, tasks=[job.tasks[k]]))
    train(engine, [start])
    return all(torch.equal(engine.best(0)[n], t) for n, t in expected.items())


def moments_of(engine, k):
    """Both moments where the mask keeps a weight; the loop's live on elsewhere too."""
    mask = engine.starts[k].mask
    both = engine.moments(k).moments
    return [{n: t * mask.get(n, 1) for n, t in part.items()} for part in both.values()]


def taken_up(ours, other, starts):
    other.begin(starts)
    for slot, given in zip(other.slots, ours.slots, strict=True):
        slot.load({n: t.clone() for n, t in given.tensors().items()})
    return all(
        torch.equal(other.best(k)[n], t)
        and torch.equal(other.moments(k).moments["first"][n], first)
        for k in range(len(starts))
        for (n, t), first in zip(
            ours.best(k).items(), ours.moments(k).moments["first"].values(), strict=True
        )
    )


def far_apart(ours, oracle):
    flat = [torch.cat([s[n].double().flatten() for n in oracle]) for s in (ours, oracle)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())


if __name__ == "__main__":
    main()
