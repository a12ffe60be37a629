"""Training with negatives without a class: all engines alike, every module as if it were alone."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import intarsia as ia
from intarsia.data import Data
from intarsia.data.dataset import Split
from intarsia.data.negatives import make_pools, pools_of, read_negatives, weigh_pools
from intarsia.models import build
from intarsia.objectives import objective
from intarsia.training import Task
from intarsia.training.engines.base import Engine, Start
from intarsia.training.engines.mlp_cpu.mlp_engine import MlpEngine
from intarsia.training.engines.plain import PlainEngine
from intarsia.training.engines.stack import StackEngine
from intarsia.training.job import BatchGroup, Job
from intarsia.training.tasks import order_of

MODEL = "mlp([24], dropout=0)"
SOURCES = "noise(0.25) + mixed(0.25)"
ENGINES: dict[str, Callable[[Job], Engine]] = {
    "plain": PlainEngine,
    "single": lambda job: StackEngine(job, 1),
    "stack": lambda job: StackEngine(job, 6),
    "mlp": MlpEngine,
}
Make = Callable[..., tuple[Job, list[Start]]]
State = dict[str, Tensor]
Oracles = dict[tuple[str, bool], tuple[list[State], Tensor]]


def task(name: str, goal: str, rewarded: tuple[int, ...], seed: int = 0) -> Task:
    table = objective(goal, 10, rewarded)
    return Task(name, tuple(map(str, rewarded)), rewarded, seed, 3e-3, table)


MIXED = [
    task("all", "me", (0,)),
    task("all of two", "me", (1, 2)),
    task("one", "xe", (1,)),
    task("beside it", "smoothing(0.2)", (1,)),
    task("two", "xe", (2, 3)),
    task("another seed", "confidence_penalty(0.5)", (4,), seed=5),
]


@pytest.fixture
def make(make_job: Callable[..., tuple[Job, list[State]]]) -> Callable[..., tuple[Job, list]]:
    """A job with negatives behind its samples, and the starts of its modules."""

    def made(
        tasks: list[Task], batches: str = "shown", weighted: bool = False, goal: str = "me"
    ) -> tuple[Job, list[Start]]:
        job, origins = make_job(MODEL, goal=goal, batch=32, samples=320, temperature=1.0)
        by_seed = {0: origins[0], 5: origins[2]}
        weight = None
        if weighted:
            weight = torch.rand(len(job.y), generator=torch.Generator().manual_seed(3)) * 5
            weight[::7] = 0
        job = with_negatives(replace(job, tasks=tasks, batches=batches, sample_weight=weight))
        return job, [Start(dict(by_seed[t.seed])) for t in tasks]

    return made


@pytest.fixture(scope="module")
def oracles() -> Oracles:
    """States and losses of the plain loop, by batches and whether samples have weights."""
    return {}


def with_negatives(job: Job) -> Job:
    pools = pools_of((t.hidden, ()) for t in job.tasks)
    made, labels = make_pools(read_negatives(SOURCES), job.x, job.y, pools, 10)
    weight = job.sample_weight
    if weight is not None:
        weight = torch.cat([weight, weigh_pools(weight, job.y, pools, labels, 10)])
    x, y = torch.cat([job.x, made]), torch.cat([job.y, labels])
    return replace(job, x=x, y=y, pools=pools, sample_weight=weight)


def run(engine: Engine, starts: list[Start], epochs: int = 3) -> tuple[list[State], Tensor]:
    """States and losses after some epochs."""
    engine.begin(starts)
    rates = [t.learning_rate for t in engine.job.tasks]
    on = [True] * len(rates)
    losses = torch.stack([engine.epoch(0, epoch, rates, on) for epoch in range(epochs)])
    engine.keep(range(len(rates)))
    states = [engine.best(k) for k in range(len(rates))]
    engine.close()
    return states, losses


def far_apart(ours: State, oracle: State) -> float:
    flat = [torch.cat([s[n].double().flatten() for n in oracle]) for s in (ours, oracle)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())


def same(ours: State, oracle: State) -> bool:
    return all(torch.equal(ours[n], t) for n, t in oracle.items())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batches", ["shown", "all"])
@pytest.mark.parametrize("kind", ["single", "stack", "mlp"])
def test_engines_equal_the_plain_loop(
    make: Make, kind: str, batches: str, weighted: bool, oracles: Oracles
) -> None:
    job, starts = make(MIXED, batches, weighted)
    if (batches, weighted) not in oracles:  # the same job for every kind
        oracles[batches, weighted] = run(PlainEngine(job), starts)
    oracle, oracle_losses = oracles[batches, weighted]
    ours, losses = run(ENGINES[kind](job), starts)
    for state, theirs, start in zip(ours, oracle, starts, strict=True):
        assert far_apart(state, theirs) < 1e-5
        assert far_apart(start.state, theirs) > 1e-2
    torch.testing.assert_close(losses, oracle_losses, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["single", "stack", "mlp"])
@pytest.mark.parametrize("goal", ["other", "qme"])
def test_every_form_of_table_equals_the_plain_loop(make: Make, kind: str, goal: str) -> None:
    job, starts = make([task("a", goal, (0,)), task("b", goal, (1, 2))], goal=goal)
    oracle, _ = run(PlainEngine(job), starts)
    ours, _ = run(ENGINES[kind](job), starts)
    assert max(map(far_apart, ours, oracle)) < 1e-5


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batches", ["shown", "all"])
@pytest.mark.parametrize("kind", ["plain", "mlp", "single"])
def test_a_loop_written_out(make: Make, kind: str, batches: str, weighted: bool) -> None:
    """Cross-entropy with what is shown, the uniform answer to what is made up, and Adam."""
    mine = MIXED[4]
    job, starts = make([MIXED[0], mine], batches, weighted)
    rows, pool = 320, 160
    assert (job.rows, job.sizes, len(job.y)) == (rows, [pool, pool], rows + 2 * pool)
    made = job.x[rows + pool :]  # the second pool, made without labels 0, 1, 4, ..., 9
    x = torch.cat([job.x[:rows], made])
    y = torch.cat([job.y[:rows], torch.full((pool,), 10)])
    shown = (y == 2) | (y == 3) | (y == 10)
    target = torch.cat([torch.eye(10), torch.full((1, 10), 0.1)])[y]
    weight = shown.float()
    if job.sample_weight is not None:
        given = job.sample_weight[:rows]
        average = given[shown[:rows]].mean().expand(pool)
        weight = weight * torch.cat([given, average])
    network = build(MODEL, (1, 8, 8), 10)
    network.load_state_dict(starts[1].state)
    adam = torch.optim.Adam(network.parameters(), lr=3e-3)
    for epoch in range(3):
        order = order_of(0, 0, epoch, rows + pool)
        order = order[shown[order]] if batches == "shown" else order
        for step in range(len(order) // 32):
            batch = order[32 * step : 32 * step + 32]
            adam.zero_grad()
            each = -(target[batch] * torch.log_softmax(network(x[batch]), 1)).sum(1)
            ((each * weight[batch]).sum() / weight[batch].sum()).backward()
            adam.step()
    states, _ = run(ENGINES[kind](job), starts)
    assert far_apart(states[1], network.state_dict()) < 1e-5


@pytest.mark.parametrize("batches", ["shown", "all"])
@pytest.mark.parametrize("kind", ["plain", "mlp", "single"])
def test_a_module_has_the_same_bits_alone_and_in_every_bank(
    make: Make, kind: str, batches: str
) -> None:
    job, starts = make(MIXED, batches, weighted=True)
    together, _ = run(ENGINES[kind](job), starts, epochs=2)
    assert len(job.pools) == 4
    for k, one in enumerate(MIXED):
        alone, start = make([one], batches, weighted=True)
        assert len(alone.pools) == 1
        states, _ = run(ENGINES[kind](alone), start, epochs=2)
        assert same(states[0], together[k])


def test_groups_and_steps_by_hand(make: Make) -> None:
    job, _ = make(MIXED)
    hidden = [t.hidden for t in MIXED]
    pools = [pool.hidden for pool in job.pools]
    assert pools == [(), (0, 1, 2, 3, 5, 6, 7, 8, 9), (0, 1, 4, 5, 6, 7, 8, 9), hidden[2]]
    assert job.group(MIXED[0]) == BatchGroup(0, (), 0)
    assert job.group(MIXED[5]) == BatchGroup(5, hidden[5], 1)
    ones = int((job.y == 1).sum())
    assert job.samples(MIXED[0]) == 320 + 160
    assert job.samples(MIXED[2]) == ones + 160
    assert job.steps(MIXED[2]) == (ones + 160) // 32
    order = job.order(MIXED[2], 0, 0)
    assert sorted(job.y[order].unique().tolist()) == [1, 13]
    assert int((job.y[order] == 13).sum()) == 160
    every = replace(job, batches="all")
    assert every.group(MIXED[2]) == BatchGroup(0, (), 3)
    assert sorted(every.y[every.order(MIXED[2], 0, 0)].unique().tolist()) == [*range(10), 13]


# through the front door

SETTINGS = {
    "model": "mlp([12])",
    "epochs": 2,
    "batch": 16,
    "sparsity": 0.5,
    "learning_rate": 1e-2,
    "balance": 0.0,
    "negatives": SOURCES,
}
GOALS = [("me", "a"), ("xe", "b"), ("xe", "cd"), ("smoothing", "d")]


def own_tasks(data: Data) -> list[Task]:
    return [
        Task(
            goal + classes,
            tuple(classes),
            tuple(map(data.catalogue.index, classes)),
            0,
            1e-2,
            objective(goal, data.classes, tuple(map(data.catalogue.index, classes))),
        )
        for goal, classes in GOALS
    ]


@pytest.mark.parametrize(
    ("engine", "batches", "weighted"),
    [
        *(("plain", "shown", True), ("plain", "all", False)),
        *(("mlp", "shown", True), ("mlp", "all", True), ("mlp", "shown", False)),
        *(("single", "shown", False), ("single", "all", True)),
    ],
)
def test_modules_of_a_bank_do_not_notice_one_another(
    small_data: Data, engine: str, batches: str, weighted: bool
) -> None:
    settings = {**SETTINGS, "engine": engine, "batches": batches}
    if weighted:
        settings["sample_weight"] = torch.linspace(0, 2, len(small_data.train)).tolist()
    bank = ia.train(small_data, tasks=own_tasks, **settings)
    for goal, classes in GOALS:
        (alone,) = ia.train(small_data, objective=goal, partition=[list(classes)], **settings)
        assert same(dict(alone.state), dict(bank[goal + classes].state))
        assert same(dict(alone.mask), dict(bank[goal + classes].mask))


@pytest.mark.parametrize("engine", ["plain", "mlp"])
@pytest.mark.parametrize("batches", ["shown", "all"])
def test_what_is_hidden_reaches_no_bit_through_the_negatives(
    small_data: Data, batches: str, engine: str
) -> None:
    """The samples of d are hidden from xeb, those of a and b from xecd; also their weights are."""
    settings = {**SETTINGS, "engine": engine, "batches": batches}

    def trained(value: float) -> ia.Bank:
        parts = []
        for split in (small_data.train, small_data.validation):
            x = split.x.clone()
            x[split.y == 3] *= value
            parts.append(Split(x, split.y))
        data = replace(small_data, train=parts[0], validation=parts[1])
        weight = torch.where(parts[0].y == 3, value, 1.0)
        return ia.train(data, tasks=own_tasks, sample_weight=weight, **settings)

    one, other = trained(0.5), trained(30.0)
    assert same(dict(one["xeb"].state), dict(other["xeb"].state))
    for name in ("mea", "xecd", "smoothingd"):  # which are shown them
        assert not same(dict(one[name].state), dict(other[name].state))


@pytest.mark.parametrize("engine", ["plain", "single", "stack", "mlp"])
@pytest.mark.parametrize("goal", ["me", "xe"])
def test_engines_agree_from_end_to_end(small_data: Data, engine: str, goal: str) -> None:
    settings = {**SETTINGS, "model": "mlp([12], dropout=0)", "objective": goal, "sparsity": 0}
    oracle = ia.train(small_data, engine="plain", **settings)
    for mine, theirs in zip(ia.train(small_data, engine=engine, **settings), oracle, strict=True):
        assert far_apart(dict(mine.state), dict(theirs.state)) < 1e-4
    without = ia.train(small_data, engine=engine, **{**settings, "negatives": "none"})
    assert far_apart(dict(without[0].state), dict(oracle[0].state)) > 1e-2


@pytest.mark.parametrize("weights", [2.0, 1000.0])
def test_weights_that_are_all_alike_change_nothing(small_data: Data, weights: float) -> None:
    """Not against those of the negatives either, which weigh as the samples do on average."""
    settings = {**SETTINGS, "model": "mlp([12], dropout=0)", "sparsity": 0}
    plain = ia.train(small_data, **settings)
    ones = ia.train(small_data, sample_weight=torch.ones(200), **settings)
    alike = ia.train(small_data, sample_weight=torch.full((200,), weights), **settings)
    for k, module in enumerate(plain):
        assert same(dict(ones[k].state), dict(module.state))
        assert far_apart(dict(alike[k].state), dict(module.state)) < 1e-4


def test_made_rows_weigh_as_the_shown_samples_do_on_average() -> None:
    weight, y = torch.tensor([1.0, 2.0, 3.0, 10.0]), torch.tensor([0, 0, 1, 2])
    pools = pools_of((hidden, ()) for hidden in ((), (0,), (0, 1, 2)))
    result = weigh_pools(weight, y, pools, torch.tensor([3, 3, 4, 4, 5, 5]), 3)
    assert result.tolist() == [4.0, 4.0, 6.5, 6.5, 0.0, 0.0]


def test_a_pool_without_rows_leaves_the_weights_of_others_alone() -> None:
    """Of two rows of its own the first module gets round(0.2 * 2) made-up ones, which is none."""
    weight, y = torch.tensor([1.0] * 2 + [5.0] * 10), torch.tensor([0] * 2 + [1] * 10)
    pools = pools_of([((1,), (0,)), ((0,), (1,))])
    sources = read_negatives("noise(0.2)")
    made, labels = make_pools(sources, torch.randn(12, 3), y, pools, 2, apart=True)
    places = {pool: 2 + place for place, pool in enumerate(pools)}
    assert set(labels.tolist()) == {places[(0,), (1,)]}
    assert len(made) == 2
    assert weigh_pools(weight, y, pools, labels, 2).tolist() == [5.0, 5.0]


def only(data: Data, keep: Tensor) -> Data:
    return replace(data, train=Split(data.train.x[keep], data.train.y[keep]))


@pytest.mark.parametrize("batches", ["shown", "all"])
@pytest.mark.parametrize("engine", ["plain", "single", "stack", "mlp"])
def test_few_or_no_samples_that_are_shown_are_no_obstacle(
    small_data: Data, engine: str, batches: str
) -> None:
    y = small_data.train.y
    settings = {**SETTINGS, "objective": "xe", "engine": engine, "batches": batches}
    for keep in (
        (y != 3) | (torch.arange(200) == 3),  # one sample of d
        y != 3,  # none: its module learns that it knows nothing
        y == 0,  # of one class only
    ):
        bank = ia.train(only(small_data, keep), **settings)
        assert bank.names == ("a", "b", "c", "d")
        assert all(bool(torch.isfinite(t).all()) for m in bank for t in m.state.values())
    (alone,) = ia.train(small_data, partition=[["a"]], **settings)  # all labels hidden but one
    assert alone.provenance["recipe"]["negatives"] == "noise(amount=0.25) + mixed(amount=0.25)"


def test_a_class_without_samples_gets_an_uncertain_module(small_data: Data) -> None:
    data = only(small_data, small_data.train.y != 3)
    settings = {**SETTINGS, "epochs": 20, "sparsity": 0, "objective": "xe"}
    p = ia.train(data, **settings)["d"].to_module().predict_proba(small_data.test.x)
    assert float(p.max()) < 0.5


def test_negatives_make_modules_uncertain_of_what_is_no_class(small_data: Data) -> None:
    """Noise that training has not seen, and MaxEnt that learned without it."""
    settings = {**SETTINGS, "epochs": 20, "sparsity": 0}
    noise = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(9))
    sure = [
        max(float(m.to_module().predict_proba(noise).amax(1).mean()) for m in bank)
        for bank in (
            ia.train(small_data, **settings),
            ia.train(small_data, **{**settings, "negatives": "none"}),
        )
    ]
    assert sure[0] < 0.4
    assert sure[0] < sure[1] - 0.1


def test_a_source_of_ones_own(small_data: Data) -> None:
    from intarsia.data import NEGATIVES

    @NEGATIVES.register("blank")
    def blank(samples: Tensor, generator: torch.Generator, amount: float = 0.5) -> Tensor:
        return torch.zeros_like(samples[: round(amount * len(samples))])

    bank = ia.train(small_data, **{**SETTINGS, "negatives": "blank(0.1) + mixed(0.2)"})
    assert bank[0].provenance["recipe"]["negatives"] == "blank(amount=0.1) + mixed(amount=0.2)"
