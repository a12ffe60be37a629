"""Every engine equals the plain loop, keeps pruned weights at 0, and keeps modules apart."""

from dataclasses import replace

import pytest
import torch

from intarsia.data.augmentations import read_augmentations
from intarsia.models import initialise
from intarsia.training.engines.grouped import GroupedEngine
from intarsia.training.engines.mlp_cpu.mlp_engine import MlpEngine
from intarsia.training.engines.plain import PlainEngine
from intarsia.training.engines.stack import StackEngine
from intarsia.training.engines.streams import StreamEngine

EPOCHS = 5  # of ten batches: fifty steps
SHALLOW, DEEP = "mlp([24], dropout=0)", "mlp([64, 48], dropout=0)"


def engine_of(kind, job):
    return {
        "plain": lambda: PlainEngine(job),
        "single": lambda: StackEngine(job, 1),
        "stack": lambda: StackEngine(job, 3),
        "streams": lambda: StreamEngine(job, 3),
        "grouped": lambda: GroupedEngine(job, 3),
        "mlp": lambda: MlpEngine(job),
    }[kind]()


def run(engine, starts, epochs=EPOCHS):
    """States, losses and scores after some epochs."""
    engine.begin(starts)
    losses = torch.stack([step_on(engine, epoch) for epoch in range(epochs)])
    scores = engine.validate()
    states = states_of(engine)
    engine.close()
    return states, losses, scores


def step_on(engine, epoch, active=None):
    rates = [t.learning_rate for t in engine.job.tasks]
    return engine.epoch(0, epoch, rates, active or [True] * len(rates))


def states_of(engine):
    engine.keep(range(len(engine.slots)))
    return [engine.best(k) for k in range(len(engine.slots))]


def far_apart(ours, oracle):
    """Distance of two states, parameters and statistics alike, relative to the oracle's norm."""
    assert ours.keys() == oracle.keys()
    both = [
        torch.cat([t.double().flatten() for t in s.values() if t.is_floating_point()])
        for s in (ours, oracle)
    ]
    return float((both[0] - both[1]).norm() / both[1].norm())


def assert_close(ours, oracle, tolerance=1e-5):
    for mine, theirs in zip(ours, oracle, strict=True):
        assert far_apart(mine, theirs) <= tolerance
        counts = [n for n, t in theirs.items() if not t.is_floating_point()]
        assert all(torch.equal(mine[n], theirs[n]) for n in counts)


def assert_same_bits(ours, oracle):
    for mine, theirs in zip(ours, oracle, strict=True):
        assert all(torch.equal(mine[n], theirs[n]) for n in theirs)


def assert_equals_the_loop(kinds, job, starts):
    oracle, oracle_losses, oracle_scores = run(PlainEngine(job), starts)
    moved = [far_apart(start.state, state) for start, state in zip(starts, oracle, strict=True)]
    assert min(moved) > 1e-2  # or there would be little to compare
    for kind in kinds:
        ours, losses, scores = run(engine_of(kind, job), starts)
        assert_close(ours, oracle)
        torch.testing.assert_close(losses, oracle_losses, rtol=1e-4, atol=1e-6)
        for name in ("accuracy", "entropy", "loss"):
            mine, theirs = getattr(scores, name), getattr(oracle_scores, name)
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["single", "stack", "streams", "grouped"])
def test_parameters_that_no_logit_depends_on_stay_as_they_are(make_job, masked, kind):
    job, origins = make_job(SHALLOW, several=False)
    job.network.add_module("spare", torch.nn.Linear(3, 2))
    spare = {f"spare.{n}": t.detach().clone() for n, t in job.network.spare.named_parameters()}
    states, _, _ = run(
        engine_of(kind, job), masked([origin | spare for origin in origins], 1.0), epochs=1
    )
    for state, origin in zip(states, origins, strict=True):
        assert all(torch.equal(state[name], tensor) for name, tensor in spare.items())
        assert not torch.equal(state["layers.0.weight"], origin["layers.0.weight"])


@pytest.mark.parametrize("density", [1.0, 0.3, 0.02])
@pytest.mark.parametrize("model", [SHALLOW, DEEP])
def test_fifty_steps_of_an_mlp_equal_the_plain_loop(make_job, masked, model, density):
    job, origins = make_job(model, several=False)
    assert job.steps(job.tasks[0]) * EPOCHS == 50
    assert_equals_the_loop(["mlp", "stack", "single"], job, masked(origins, density))


@pytest.mark.parametrize("density", [1.0, 0.3])
def test_fifty_steps_of_a_lenet_equal_the_plain_loop(make_job, masked, density):
    job, origins = make_job("lenet", samples=320, batch=32, several=False)
    assert job.steps(job.tasks[0]) * EPOCHS == 50
    assert_equals_the_loop(["stack", "single", "streams", "grouped"], job, masked(origins, density))


@pytest.mark.parametrize("kind", ["grouped", "streams"])
@pytest.mark.parametrize("model", ["fastnet(width=2)", "lenet"])
def test_modules_of_several_seeds_run_as_one_stack(make_job, masked, kind, model):
    """Each with its own batches and its own random numbers to augment them."""
    job, _ = make_job(model, samples=320, dtype=torch.float64)
    crop = tuple(read_augmentations("crop(1) + flip"))
    tasks = [replace(t, seed=k, learning_rate=1e-3) for k, t in enumerate(job.tasks)]
    job = replace(job, tasks=tasks, augment=crop)
    outputs = tasks[0].objective.outputs
    origins = [
        initialise(model, tuple(job.x.shape[1:]), outputs, t.seed).double().state_dict()
        for t in tasks
    ]
    starts = masked(origins, 0.5)
    engine = engine_of(kind, job)
    ours, losses, _ = run(engine, starts, epochs=2)
    assert len(engine.stacks) == 1
    oracle, oracle_losses, _ = run(PlainEngine(job), starts, epochs=2)
    assert_close(ours, oracle)
    torch.testing.assert_close(losses, oracle_losses, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_each_of_fifty_steps_of_a_resnet_equals_the_plain_loops(make_job, masked):
    """Every step begins where the loop is; one module is dense, the other pruned.

    Left alone, two float32 runs of this network part by 1e-3 within fifty steps, whatever computes
    them: a ReLU that rounding flips changes gradients near 0, which Adam scales up. The next test
    lets them run, in float64.
    """
    job, origins = make_job("resnet18(width=4)", samples=64, several=False)
    job = replace(job, tasks=job.tasks[:2])
    other, _ = make_job("resnet18(width=4)", several=False)
    plain, ours = PlainEngine(job), [engine_of(kind, job) for kind in ("stack", "single")]
    starts = [masked(origins, 1.0)[0], masked(origins, 0.3)[1]]
    for engine in [plain, *ours]:
        engine.begin(starts)
    for step in range(50):
        rows = slice(64 * (step % 10), 64 * (step % 10) + 64)
        job.x.copy_(other.x[rows])
        job.y.copy_(other.y[rows])
        for engine in ours:
            for slot, given, start in zip(engine.slots, plain.slots, starts, strict=True):
                slot.load(on_mask(given.tensors(), start.mask))
        expected = step_on(plain, step)
        for engine in ours:
            torch.testing.assert_close(step_on(engine, step), expected, rtol=1e-4, atol=1e-6)
            assert_close(states_of(engine), states_of(plain))


def on_mask(tensors, mask):
    """The loop's tensors; its moments live on pruned weights too, whose values it sets to 0."""
    return {n: t * mask.get(n.partition("/")[2], torch.ones(())) for n, t in tensors.items()}


def test_fifty_steps_of_a_resnet_equal_the_plain_loop_in_double(make_job, masked):
    job, origins = make_job(
        "resnet18(width=4)", samples=80, batch=8, dtype=torch.float64, several=False
    )
    job = replace(job, tasks=job.tasks[:2])
    assert job.steps(job.tasks[0]) * EPOCHS == 50
    assert_equals_the_loop(["stack", "streams", "grouped"], job, masked(origins[:2], 0.3))


@pytest.mark.parametrize("goal", ["qme", "xe", "smoothing", "confidence_penalty(0.5)", "other"])
def test_every_objective_equals_the_plain_loop(make_job, masked, goal):
    job, origins = make_job(SHALLOW, goal=goal, several=False)
    assert_equals_the_loop(["mlp", "stack"], job, masked(origins, 0.5))


@pytest.mark.parametrize("kind", ["mlp", "stack", "single", "streams", "grouped"])
def test_moments_that_live_on_equal_the_plain_loop(make_job, masked, with_moments, kind):
    job, origins = make_job(SHALLOW, several=False)
    starts = [with_moments(s, k) for k, s in enumerate(masked(origins, 0.3))]
    assert_equals_the_loop([kind], job, starts)


@pytest.mark.parametrize("moments", [False, True])
@pytest.mark.parametrize("density", [0.3, 0.02])
@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("plain", DEEP),
        ("mlp", SHALLOW),
        ("mlp", DEEP),
        ("stack", DEEP),
        ("single", DEEP),
        ("stack", "lenet"),
        ("stack", "resnet18(width=4)"),
        ("streams", "resnet18(width=4)"),
        ("grouped", "resnet18(width=4)"),
    ],
)
def test_pruned_weights_are_exactly_0_after_every_step(
    make_job, masked, with_moments, kind, model, density, moments
):
    job, origins = make_job(model, samples=96, batch=96)
    assert job.steps(job.tasks[0]) == 1
    starts = masked(origins, density)
    if moments:
        starts = [with_moments(s, k) for k, s in enumerate(starts)]
    engine = engine_of(kind, job)
    engine.begin(starts)
    for step in range(4):
        step_on(engine, step)
        for state, start in zip(states_of(engine), starts, strict=True):
            for name, mask in start.mask.items():
                assert torch.count_nonzero(state[name][~mask]) == 0
            assert far_apart(state, start.state) > 0
    engine.close()


@pytest.mark.parametrize(
    ("kind", "model", "same_bits"),
    [
        ("plain", SHALLOW, True),
        ("mlp", SHALLOW, True),
        ("mlp", "mlp([24], dropout=0.5)", True),
        ("single", SHALLOW, True),
        ("single", "lenet", True),
        ("stack", SHALLOW, False),  # one product for the whole stack may round in another order
        ("stack", "lenet", False),
    ],
)
def test_a_module_trains_as_if_it_were_alone(make_job, masked, kind, model, same_bits):
    """Two seeds and two step sizes in one bank."""
    job, origins = make_job(model)
    assert len({(t.seed, t.learning_rate) for t in job.tasks}) == 2
    starts = masked(origins, 0.3)
    together, losses, _ = run(engine_of(kind, job), starts, epochs=2)
    for k, task in enumerate(job.tasks):
        alone = engine_of(kind, replace(job, tasks=[task]))
        state, loss, _ = run(alone, [starts[k]], epochs=2)
        if same_bits:
            assert_same_bits(state, [together[k]])
        assert_close(state, [together[k]], tolerance=1e-4)
        torch.testing.assert_close(loss[:, 0], losses[:, k], rtol=1e-4, atol=1e-6)
    assert far_apart(together[0], together[2]) > 0.1


@pytest.mark.parametrize("kind", ["plain", "mlp", "stack", "single", "streams", "grouped"])
def test_modules_that_are_not_active_stand_still(make_job, masked, kind):
    job, origins = make_job(SHALLOW, several=False)
    starts = masked(origins, 0.3)
    merged = engine_of(kind, job)
    merged.begin(starts)
    step_on(merged, 0)
    before = states_of(merged)
    step_on(merged, 1, active=[True, False, True])
    after = states_of(merged)
    merged.close()
    assert_same_bits([after[1]], [before[1]])
    everyone, _, _ = run(engine_of(kind, job), starts, epochs=2)
    assert_same_bits([after[0], after[2]], [everyone[0], everyone[2]])
    assert far_apart(everyone[1], after[1]) > 0


@pytest.mark.parametrize("kind", ["plain", "mlp", "stack", "single", "streams", "grouped"])
def test_a_slot_takes_up_what_another_left(make_job, masked, kind):
    job, origins = make_job("mlp([24], dropout=0.3)")
    starts = masked(origins, 0.3)
    first, second = engine_of(kind, job), engine_of(kind, job)
    first.begin(starts)
    second.begin(starts)
    step_on(first, 0)
    for old, new in zip(first.slots, second.slots, strict=True):
        new.load({n: t.clone() for n, t in old.tensors().items()})
    step_on(first, 1)
    step_on(second, 1)
    assert_same_bits(states_of(second), states_of(first))
    first.close()
    second.close()


@pytest.mark.parametrize("kind", ["plain", "stack"])
def test_an_epoch_seeds_no_accelerator_that_is_not_used(make_job, masked, monkeypatch, kind):
    """torch would format the stack for each of them, which takes longer than a small epoch."""
    job, origins = make_job(SHALLOW)
    engine = engine_of(kind, job)
    engine.begin(masked(origins, 1.0))
    monkeypatch.setattr("traceback.format_stack", None)
    step_on(engine, 0)
    engine.close()


def test_validation_scores_by_hand(make_job, masked):
    """Against the measures of the house, for a module that is rewarded for two classes."""
    from intarsia.measure import nonrewarded_entropy, rewarded_accuracy

    job, origins = make_job(SHALLOW)
    engine = PlainEngine(job)
    engine.begin(masked(origins, 1.0))
    step_on(engine, 0)
    scores, network = engine.validate(), job.network.eval()
    with torch.no_grad():
        logits = torch.func.functional_call(network, engine.slots[1].current, job.x_validation)
    accuracy = rewarded_accuracy(logits, job.y_validation, [1, 2])
    entropy = nonrewarded_entropy(logits / job.temperature, job.y_validation, [1, 2])
    assert float(scores.accuracy[1]) == pytest.approx(float(accuracy))
    assert float(scores.entropy[1]) == pytest.approx(float(entropy), rel=1e-5)
