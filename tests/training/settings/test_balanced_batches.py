"""Balanced batches: how many negatives an epoch draws, of what, and what they count for."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import intarsia as ia
from intarsia.data import Data
from intarsia.data.dataset import Split
from intarsia.objectives import objective
from intarsia.training import Recipe, Task
from intarsia.training.engines.base import Start
from intarsia.training.engines.select import ENGINES
from intarsia.training.engines.stack import StackEngine
from intarsia.training.job import Job, device_of
from intarsia.training.plan import TrainingPlan
from intarsia.training.tasks import tasks_of

SETTINGS: dict[str, Any] = {
    "model": "mlp([12], dropout=0)", "epochs": 2, "batch": 16, "sparsity": 0,
    "learning_rate": 1e-2, "balance": 0.0, "negatives": "none",
}  # fmt: skip


def plan_of(data: Data, **settings: Any) -> TrainingPlan:
    return TrainingPlan.of(data, None, None, {**SETTINGS, **settings}, None)


def job_of(data: Data, **settings: Any) -> Job:
    return Job.of(plan_of(data, **settings), device_of("cpu"))


def test_an_epoch_has_all_of_ones_own_and_draws_of_the_others(small_data: Data) -> None:
    job = job_of(small_data, batches="balanced(0.5)")
    for task in job.tasks:
        orders = [job.order(task, 0, epoch) for epoch in (0, 1)]
        for order in orders:
            assert len(order) == len(order.unique()) == job.samples(task) == 75
            assert int((job.y[order] == task.indices[0]).sum()) == 50
        assert job.steps(task) == 4
        others = [set(order[job.y[order] != task.indices[0]].tolist()) for order in orders]
        assert others[0] != others[1]
        assert torch.equal(job.order(task, 0, 1), orders[1])
        assert not torch.equal(job.order(task, 1, 1), orders[1])
    drawn = {int(row) for epoch in range(60) for row in job.order(job.tasks[0], 0, epoch)}
    assert drawn == set(range(200))  # all of them, in time


def test_more_than_there_are_is_all_of_them(small_data: Data) -> None:
    job = job_of(small_data, batches="balanced(9)")
    assert [job.samples(task) for task in job.tasks] == [200] * 4
    assert sorted(job.order(job.tasks[2], 0, 0).tolist()) == list(range(200))


@pytest.mark.parametrize("batches", ["balanced(1)", "balanced(1, corrected=true)"])
def test_hidden_samples_are_never_drawn(small_data: Data, batches: str) -> None:
    goal = "me(order=[0, 1, 2, 3])"
    job = job_of(small_data, batches=batches, objective=goal)
    assert [job.samples(task) for task in job.tasks] == [50, 100, 100, 100]
    for task in job.tasks:
        for epoch in range(5):
            labels = set(job.y[job.order(task, 0, epoch)].tolist())
            assert not labels & set(task.hidden)
    # of two labels shown beside its own, the third weighs what it stands for
    weight = job.tasks[2].training_objective.weight.tolist()
    assert weight == ([2, 2, 1, 0] if "corrected" in batches else [1, 1, 1, 0])


def test_what_a_module_may_not_see_stays_unseen(small_data: Data) -> None:
    """And the fewer of both numbers of others are drawn."""
    settings = {"negatives": "noise(1.0)", "visibility": "past(amount=0.5)"}
    fewer = job_of(small_data, batches="balanced(0.2)", **settings)
    more = job_of(small_data, batches="balanced(3)", **settings)
    assert [fewer.samples(task) for task in fewer.tasks] == [100, 110, 110, 110]
    assert [more.samples(task) for task in more.tasks] == [100, 125, 125, 125]
    for task in fewer.tasks:
        seen = set(fewer.y[fewer.order(task, 0, 0)].tolist())
        assert not seen & set(task.unseen)


def test_made_negatives_are_all_there(small_data: Data) -> None:
    job = job_of(small_data, batches="balanced(1)", negatives="noise(0.25)")
    assert job.sizes == [50]  # one pool for all, as without
    for task in job.tasks:
        order = job.order(task, 0, 0)
        assert int((job.y[order] == 4).sum()) == 50
        assert len(order) == job.samples(task) == 150


def test_correction_gives_the_sums_of_the_whole(small_data: Data) -> None:
    """Over many epochs the weighted sum of any number of a sample is that over all samples."""
    numbers = torch.rand(200, generator=torch.Generator().manual_seed(3)).double()
    weights = torch.where(small_data.train.y == 1, 2.0, 1.0)
    plan = TrainingPlan.of(
        small_data, None, None, {**SETTINGS, "batches": "balanced(0.3, True)"}, None, weights
    )
    job = Job.of(plan, device_of("cpu"))
    task = job.tasks[0]
    goal = task.training_objective
    assert goal.weight.tolist() == pytest.approx([1, 10, 10, 10])  # 150 / 15
    assert task.objective.weight.tolist() == [1] * 4
    sums = []
    for epoch in range(400):
        order = job.order(task, 0, epoch)
        each = goal.weight[job.y[order]] * job.sample_weight[order]
        sums.append([float((each * numbers[order]).sum()), float(each.sum())])
    whole = [float((weights * numbers).sum()), float(weights.sum())]
    assert torch.tensor(sums).mean(0).tolist() == pytest.approx(whole, rel=0.02)


@pytest.mark.parametrize("kind", ["plain", "mlp", "stack"])
def test_validation_weighs_all_samples_as_the_objective_does(small_data: Data, kind: str) -> None:
    scores = []
    for batches in (None, "balanced(0.5)", "balanced(0.5, corrected=True)"):
        plan = plan_of(small_data, batches=batches)
        job = Job.of(plan, device_of("cpu"))
        engine = ENGINES[kind](job)
        engine.begin([Start(dict(plan.origins[t.seed][1])) for t in job.tasks])
        scores.append(engine.validate().loss)
        engine.close()
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])


def test_balance_counts_what_is_drawn(small_data: Data) -> None:
    def weight(**settings: Any) -> list[float]:
        recipe = Recipe.read({**SETTINGS, "balance": 0.5, **settings}).resolve()
        own: list[float] = tasks_of(recipe, small_data)[0].training_objective.weight.tolist()
        return own

    assert weight(batches="balanced(2)") == pytest.approx([2**0.5, 1, 1, 1])
    assert weight(batches="balanced(9)") == pytest.approx([3**0.5, 1, 1, 1])
    assert weight(batches="balanced(2, True)") == pytest.approx([3**0.5, 1.5, 1.5, 1.5])
    assert weight() == pytest.approx([3**0.5, 1, 1, 1])


@pytest.mark.parametrize("batches", ["balanced(1)", "balanced(1, corrected=true)", "balanced(9)"])
def test_balance_weighs_what_epochs_have_where_samples_have_weights(
    small_data: Data, batches: str
) -> None:
    """Samples are drawn by the row: the weights of a module's own draw no more others."""
    weight = torch.where(small_data.train.y == 0, 3.0, 1.0)
    settings = {**SETTINGS, "batches": batches, "balance": 1.0}
    plan = TrainingPlan.of(small_data, None, None, settings, None, weight)
    job = Job.of(plan, device_of("cpu"))
    assert job.sample_weight is not None
    task = job.tasks[0]
    order = job.order(task, 0, 0)
    labels = job.y[order]
    weights = task.training_objective.weight[labels] * job.sample_weight[order]
    own = labels == task.indices[0]
    assert float(weights[own].sum()) == pytest.approx(float(weights[~own].sum()))


def test_a_class_without_a_row_sees_all_others(small_data: Data) -> None:
    keep = small_data.train.y != 3
    train = Split(small_data.train.x[keep], small_data.train.y[keep])
    parts = (train, small_data.validation, small_data.test)
    job = job_of(Data.build("few", small_data.catalogue, *parts, "none"), batches="balanced(1)")
    assert [job.samples(task) for task in job.tasks] == [100, 100, 100, 150]
    assert math.isinf(job.tasks[3].others)


def own_tasks(data: Data) -> list[Task]:
    return [
        Task(name, (name,), (k,), 0, 1e-2, objective("me", 4, [k])) for k, name in enumerate("abcd")
    ]


def test_tasks_of_ones_own_draw_too_and_only_once(small_data: Data) -> None:
    text = "balanced(0.5, corrected=True)"
    asked = {**SETTINGS, "batches": text}
    given = TrainingPlan.of(small_data, None, None, asked, own_tasks)
    made = TrainingPlan.of(small_data, None, None, asked, None)
    again = TrainingPlan.of(small_data, None, None, asked, lambda data: made.tasks)
    for plan in (given, again):
        assert plan.recipe.batches == "balanced(amount=0.5, corrected=True)"
        for own, task in zip(plan.tasks, made.tasks, strict=True):
            assert own.others == task.others == 0.5
            assert own.stands_for == task.stands_for == 6.0
            assert torch.equal(own.objective.weight, task.objective.weight)
    # a task may draw by itself; nothing else in the plan tells of it
    some = own_tasks(small_data)
    some[0] = replace(some[0], others=2.0)
    plans = [
        TrainingPlan.of(small_data, None, None, dict(SETTINGS), lambda data, own=own: own)
        for own in (own_tasks(small_data), some)
    ]
    assert plans[0].key != plans[1].key
    assert Job.of(plans[1], device_of("cpu")).samples(some[0]) == 150


@pytest.mark.parametrize("engine", ["mlp", "single", "stack"])
@pytest.mark.parametrize("text", ["balanced(1)", "balanced(0.5, corrected=True)"])
def test_engines_equal_the_plain_loop(small_data: Data, text: str, engine: str) -> None:
    weight = torch.rand(200, generator=torch.Generator().manual_seed(0))
    settings = {**SETTINGS, "batches": text, "sparsity": 0.5, "sample_weight": weight}
    oracle = ia.train(small_data, engine="plain", **settings)
    plainly = ia.train(small_data, engine="plain", **{**settings, "batches": None})
    for module in ia.train(small_data, engine=engine, **settings):
        for name, value in oracle[module.name].state.items():
            torch.testing.assert_close(module.state[name], value, rtol=1e-3, atol=1e-4)
            same = torch.allclose(plainly[module.name].state[name], value, rtol=1e-2)
            assert value.dim() == 1 or not same


@pytest.mark.parametrize("settings", [{}, {"augment": "crop(1) + flip", "model": "lenet"}])
def test_modules_that_draw_equally_many_are_one_stack(
    small_data: Data, settings: dict[str, Any]
) -> None:
    plan = plan_of(small_data, batches="balanced(1)", seeds=[0, 1], **settings)
    job = Job.of(plan, device_of("cpu"))
    starts = [Start(dict(plan.origins[t.seed][1])) for t in job.tasks]
    states = {}
    for width in (1, 8):
        engine = StackEngine(job, width)
        engine.begin(starts)
        engine.epoch(0, 0, [1e-2] * 8, [True, False] + [True] * 6)
        states[width] = [slot.current for slot in engine.slots]
        rows = [stack.rows for stack in engine.stacks]
        assert width == 1 or rows == [slice(0, 4), slice(4, 8)]  # one for each seed
    for k, (one, other) in enumerate(zip(states[1], states[8], strict=True)):
        for name, tensor in one.items():
            torch.testing.assert_close(other[name], tensor, rtol=1e-3, atol=1e-4)
            assert torch.equal(tensor, starts[k].state[name]) is (k == 1)


def test_other_numbers_of_batches_are_stacks_of_their_own(small_data: Data) -> None:
    keep = (small_data.train.y != 3) | (torch.arange(200) < 80)
    train = Split(small_data.train.x[keep], small_data.train.y[keep])
    parts = (train, small_data.validation, small_data.test)
    data = Data.build("few", small_data.catalogue, *parts, "none")
    plan = plan_of(data, batches="balanced(1)")
    job = Job.of(plan, device_of("cpu"))
    engine = StackEngine(job, 4)
    engine.begin([Start(dict(plan.origins[0][1])) for _ in job.tasks])
    assert [job.steps(task) for task in job.tasks] == [6, 6, 6, 2]
    assert [stack.rows for stack in engine.stacks] == [slice(0, 3), slice(3, 4)]


def test_a_recipe_keeps_balanced_batches_whatever_is_hidden() -> None:
    for goal in ("me", "xe"):
        recipe = Recipe(objective=goal, batches="balanced(9)").resolve()
        assert recipe.as_dict()["batches"] == "balanced(amount=9)"
        assert Recipe.read(recipe.as_dict()).resolve().digest() == recipe.digest()
    assert Recipe().resolve().digest() != recipe.digest()
