"""Batches of the samples shown: modules that hide labels train as on data of their own."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import intarsia as ia
from intarsia.data import Data
from intarsia.data.dataset import Split
from intarsia.errors import RecipeError
from intarsia.models import build
from intarsia.objectives import objective
from intarsia.training import Recipe, Task
from intarsia.training.engines.base import Start
from intarsia.training.engines.mlp_cpu.mlp_engine import MlpEngine
from intarsia.training.engines.plain import PlainEngine
from intarsia.training.engines.stack import StackEngine
from intarsia.training.job import BatchGroup
from intarsia.training.tasks import order_of

MODEL = "mlp([24], dropout=0)"
ENGINES = {
    "plain": PlainEngine,
    "single": lambda job: StackEngine(job, 1),
    "stack": lambda job: StackEngine(job, 6),
    "mlp": MlpEngine,
}


def task(name, goal, rewarded, seed=0, rate=1e-3):
    return Task(
        name, tuple(map(str, rewarded)), rewarded, seed, rate, objective(goal, 10, rewarded)
    )


MIXED = [
    task("all", "me", (0,)),
    task("one", "xe", (1,)),
    task("beside it", "smoothing(0.2)", (1,)),
    task("two", "xe", (2, 3)),
    task("another seed", "confidence_penalty(0.5)", (4,), seed=5),
    task("too few", "xe", (9,), rate=3e-3),
]


@pytest.fixture
def mixed(make_job):
    """MaxEnt beside objectives that hide labels, one of which shows but 20 samples."""

    def make(batches="shown", model=MODEL, batch=32):
        job, origins = make_job(model, batch=batch)
        subsample = (job.y == 9).nonzero().flatten()[20:]
        keep = torch.ones(len(job.y), dtype=torch.bool).index_fill(0, subsample, False)
        job = replace(job, tasks=MIXED, x=job.x[keep], y=job.y[keep], batches=batches)
        by_seed = {0: origins[0], 5: origins[2]}
        return job, [by_seed[t.seed] for t in MIXED]

    return make


def run(engine, starts, epochs=3, active=None):
    """States, losses and steps after some epochs."""
    engine.begin(starts)
    rates = [t.learning_rate for t in engine.job.tasks]
    on = active or [True] * len(rates)
    losses = torch.stack([engine.epoch(0, epoch, rates, on) for epoch in range(epochs)])
    scores = engine.validate()
    engine.keep(range(len(rates)))
    states = [engine.best(k) for k in range(len(rates))]
    steps = [int(slot.optimiser.steps[0]) for slot in engine.slots]
    engine.close()
    return states, losses, steps, scores


def far_apart(ours, oracle):
    flat = [torch.cat([s[n].double().flatten() for n in oracle]) for s in (ours, oracle)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())


def same(ours, oracle):
    return all(torch.equal(ours[n], t) for n, t in oracle.items())


@pytest.mark.parametrize("rewarded", [(3,), (2, 3)])
def test_a_module_trains_as_on_data_that_hold_its_classes_only(make_job, masked, rewarded):
    """The oracle is written out: cross-entropy and Adam on restricted data, in the same order."""
    job, origins = make_job(MODEL, batch=32)
    job = replace(job, tasks=[task("own", "xe", rewarded)], batches="shown")
    mine = torch.isin(job.y, torch.tensor(rewarded))
    x, y, place = job.x[mine], job.y[mine], mine.cumsum(0) - 1
    assert len(y) % 32  # some samples are left over in every epoch
    network = build(MODEL, tuple(x.shape[1:]), 10)
    network.load_state_dict(origins[0])
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    means = []
    for epoch in range(3):
        order = torch.stack([place[i] for i in order_of(0, 0, epoch, len(job.y)) if mine[i]])
        total = 0.0
        for step in range(len(y) // 32):
            batch = order[32 * step : 32 * step + 32]
            adam.zero_grad()
            value = F.cross_entropy(network(x[batch]) / job.temperature, y[batch])
            value.backward()
            adam.step()
            total += value.item()
        means.append(total / (len(y) // 32))
    for engine in (PlainEngine(job), MlpEngine(job), StackEngine(job, 1)):
        (state,), losses, steps, _ = run(engine, masked(origins[:1], 1.0))
        assert far_apart(state, network.state_dict()) < 1e-5
        assert losses[:, 0].tolist() == pytest.approx(means, rel=1e-4)
        assert steps == [3 * (len(y) // 32)]


@pytest.mark.parametrize("density", [1.0, 0.3])
@pytest.mark.parametrize("kind", ["mlp", "single", "stack"])
def test_a_mixed_bank_equals_the_plain_loop(mixed, masked, kind, density):
    job, origins = mixed()
    starts = masked(origins, density)
    oracle, oracle_losses, oracle_steps, oracle_scores = run(PlainEngine(job), starts)
    ours, losses, steps, scores = run(ENGINES[kind](job), starts)
    counts = torch.bincount(job.y).tolist()
    shown = [sum(counts), counts[1], counts[1], counts[2] + counts[3], counts[4], 32]
    assert counts[9] == 20
    assert steps == oracle_steps == [3 * (count // 32) for count in shown]
    for state, theirs, start in zip(ours, oracle, starts, strict=True):
        assert far_apart(state, theirs) < 1e-5
        assert far_apart(start.state, theirs) > 1e-3
    torch.testing.assert_close(losses, oracle_losses, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(scores.loss, oracle_scores.loss, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["plain", "mlp", "single"])
def test_modules_that_show_all_labels_do_not_notice(mixed, masked, kind):
    """And those that hide some do not notice their neighbours."""
    job, origins = mixed(model="mlp([24], dropout=0.5)")
    starts = masked(origins, 0.3)
    shown, *_ = run(ENGINES[kind](job), starts)
    merged, *_ = run(ENGINES[kind](replace(job, batches="all")), starts)
    assert same(shown[0], merged[0])
    assert not any(same(a, b) for a, b in zip(shown[1:], merged[1:], strict=True))
    for k in range(len(MIXED)):
        alone, *_ = run(ENGINES[kind](replace(job, tasks=[MIXED[k]])), [starts[k]])
        assert same(alone[0], shown[k])


@pytest.mark.parametrize("kind", list(ENGINES))
def test_modules_that_are_not_active_stand_still(mixed, masked, kind):
    job, origins = mixed()
    starts = masked(origins, 1.0)
    everyone, *_ = run(ENGINES[kind](job), starts)
    some, *_ = run(ENGINES[kind](job), starts, active=[True, False] * 3)
    for k in range(6):
        assert same(some[k], starts[k].state if k % 2 else everyone[k])


def test_a_stack_holds_modules_of_one_group_only(mixed, masked):
    job, origins = mixed()
    engine = StackEngine(job, 6)
    engine.begin(masked(origins, 1.0))
    assert [s.rows for s in engine.stacks] == [
        slice(0, 1), slice(1, 3), slice(3, 4), slice(4, 5), slice(5, 6)
    ]  # fmt: skip
    engine = StackEngine(replace(job, batches="all"), 6)
    engine.begin(masked(origins, 1.0))
    assert [s.rows for s in engine.stacks] == [slice(0, 4), slice(4, 5), slice(5, 6)]


def test_the_count_of_steps_by_hand(mixed):
    job, _ = mixed()
    count = int((job.y == 1).sum())
    assert job.group(MIXED[1]) == BatchGroup(0, (0, 2, 3, 4, 5, 6, 7, 8, 9))
    assert (job.samples(MIXED[1]), job.size(MIXED[1])) == (count, 32)
    assert job.steps(MIXED[1]) == count // 32
    assert (job.samples(MIXED[5]), job.size(MIXED[5]), job.steps(MIXED[5])) == (20, 20, 1)
    assert job.group(MIXED[0]) == BatchGroup(0, ())
    assert job.steps(MIXED[0]) == len(job.y) // 32
    every = replace(job, batches="all")
    assert {every.steps(t) for t in MIXED} == {len(job.y) // 32}


@pytest.mark.parametrize("kind", list(ENGINES))
def test_a_module_without_a_sample_to_learn_from_stays_as_it_is(mixed, masked, kind):
    job, origins = mixed()
    keep = job.y != 9
    job = replace(job, tasks=MIXED[4:], x=job.x[keep], y=job.y[keep])
    starts = masked(origins[4:], 1.0)
    states, losses, _, _ = run(ENGINES[kind](job), starts, epochs=1)
    assert losses[0, 1] == 0
    assert same(states[1], starts[1].state)
    assert not same(states[0], starts[0].state)


@pytest.mark.parametrize("engine", ["plain", "single", "stack", "mlp"])
def test_train_shows_an_xe_module_its_own_samples(small_data, engine):
    settings = {"model": "mlp([16], dropout=0)", "epochs": 2, "batch": 16, "sparsity": 0.5}
    bank = ia.train(small_data, objective="xe", engine=engine, **settings)
    shown = ia.train(small_data, objective="xe", engine=engine, batches="shown", **settings)
    merged = ia.train(small_data, objective="xe", engine=engine, batches="all", **settings)
    assert [m.digest for m in bank] == [m.digest for m in shown]
    assert bank[0].provenance["recipe"]["batches"] == "shown"
    assert merged[0].provenance["recipe"]["batches"] == "all"
    assert not any(same(a.state, b.state) for a, b in zip(bank, merged, strict=True))
    me = [
        ia.train(small_data, engine=engine, batches=batches, **settings)
        for batches in (None, "all", "shown")
    ]
    for other in me[1:]:
        assert [m.digest for m in other] == [m.digest for m in me[0]]
    assert "batches" not in me[0][0].provenance["recipe"]


def own_tasks(data):
    goals = [("me", (0,)), ("xe", (1,)), ("xe", (2, 3))]
    return [
        Task(
            goal + "".join(data.catalogue[i] for i in indices),
            tuple(data.catalogue[i] for i in indices),
            indices,
            0,
            1e-3,
            objective(goal, 4, indices),
        )
        for goal, indices in goals
    ]


@pytest.mark.parametrize("resolved", [False, True])
def test_tasks_of_ones_own_are_shown_their_samples_and_say_so(small_data, resolved):
    """The recipe's objective, which they replace, has no say; what is given for `batches` has."""
    recipe = Recipe(
        model="mlp([16])", epochs=2, batch=16, sparsity=0.5, learning_rate=1e-3, balance=0.0
    )  # as those of the tasks
    recipe = recipe.resolve() if resolved else recipe
    bank = ia.train(small_data, recipe, tasks=own_tasks)
    assert [m.provenance["recipe"].get("batches") for m in bank] == [None, "shown", "shown"]
    for name, goal, classes in [("mea", "me", "a"), ("xeb", "xe", "b"), ("xecd", "xe", "cd")]:
        (alone,) = ia.train(small_data, recipe, objective=goal, partition=[list(classes)])
        assert same(alone.state, bank[name].state)
    merged = ia.train(small_data, replace(recipe, batches="all"), tasks=own_tasks)
    assert [m.provenance["recipe"].get("batches") for m in merged] == [None, "all", "all"]
    assert same(merged["mea"].state, bank["mea"].state)
    assert not same(merged["xeb"].state, bank["xeb"].state)
    plain = ia.train(small_data, recipe, tasks=lambda data: own_tasks(data)[:1])
    assert "batches" not in plain[0].provenance["recipe"]


def test_modules_are_the_same_with_and_without_workers(small_data):
    settings = {"model": "mlp([16])", "epochs": 2, "batch": 16, "sparsity": 0.5}
    alone = ia.train(small_data, tasks=own_tasks, **settings)
    torch.set_num_threads(2)
    shared = ia.train(small_data, tasks=own_tasks, **settings)
    assert [m.digest for m in alone] == [m.digest for m in shared]


@pytest.mark.parametrize("negatives", ["none", "noise(0.25) + mixed(0.25)"])
@pytest.mark.parametrize("batches", ["shown", "all"])
def test_what_hidden_samples_hold_reaches_no_bit(small_data, batches, negatives):
    """Some pixels are 0 but in samples of label 3, which the module xeb is not shown."""
    settings = {"model": "mlp([8])", "epochs": 3, "batch": 16, "sparsity": 0.5, "batches": batches}
    settings["negatives"] = negatives

    def filled(split, values):
        x = split.x.clone()
        x[..., [0, 3, 5]] = 0
        x[split.y == 3] = values
        return Split(x, split.y)

    blank, noise = torch.zeros(8, 8), torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    banks = [
        ia.train(
            replace(
                small_data,
                train=filled(small_data.train, values),
                validation=filled(small_data.validation, values),
            ),
            tasks=own_tasks,
            **settings,
        )
        for values in (blank, noise)
    ]
    one, other = banks
    assert same(one["xeb"].state, other["xeb"].state)
    assert same(one["xeb"].mask, other["xeb"].mask)
    scores = [bank["xeb"].provenance["scores"]["validation"] for bank in banks]
    assert scores[0]["loss"] == scores[1]["loss"]
    assert scores[0]["entropy"] != scores[1]["entropy"]  # which tells of the hidden ones too
    assert not same(one["mea"].state, other["mea"].state)  # it is shown all of them


def test_hidden_samples_are_validated_with_all_that_they_hold(mixed):
    """The first pixel is 0 in every sample but those of label 7, which some are not shown."""
    job, origins = mixed()
    x, validation = job.x.clone(), job.x_validation.clone()
    for samples, labels in ((x, job.y), (validation, job.y_validation)):
        samples.flatten(1)[:, 0] = (labels == 7).float() * 5
    job = replace(job, x=x, x_validation=validation)
    scores = []
    for kind in ("plain", "mlp"):
        engine = ENGINES[kind](job)
        engine.begin([Start(dict(origin)) for origin in origins])
        scores.append(engine.validate())
        engine.close()
    for name in ("accuracy", "entropy", "loss"):
        plain, own = (getattr(s, name) for s in scores)
        assert torch.allclose(plain, own, rtol=1e-5), name


def test_a_batch_of_one_sample_is_too_small_for_batchnorm(small_data):
    keep = (small_data.train.y != 3) | (torch.arange(200) == 3)
    train = Split(small_data.train.x[keep], small_data.train.y[keep])
    data = Data.build(
        "few", small_data.catalogue, train, small_data.validation, small_data.test, "none"
    )
    settings = {"model": "resnet18(width=4)", "epochs": 1, "sparsity": 0.0, "objective": "xe"}
    alone = {**settings, "negatives": "none"}
    with pytest.raises(RecipeError, match="at least 2 samples, got 1 for module 'd'"):
        ia.train(data, **alone)
    assert len(ia.train(data, partition=[["a", "d"]], **alone)) == 1
    made = ia.train(data, partition=[["d"]], negatives="noise(0.25)", **settings)
    assert len(made) == 1  # its batches have made-up samples too
