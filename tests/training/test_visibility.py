"""Visibility: what a module may see, and that nothing else reaches a bit of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import intarsia as ia
from intarsia.data import Data
from intarsia.data.dataset import Split
from intarsia.errors import RecipeError
from intarsia.objectives import objective, visible_labels
from intarsia.training import Recipe, Task
from intarsia.training.job import Job, device_of
from intarsia.training.plan import TrainingPlan
from intarsia.training.tasks import tasks_of

SETTINGS: dict[str, Any] = {
    "model": "mlp([12], dropout=0)",
    "epochs": 2,
    "batch": 16,
    "sparsity": 0.5,
    "learning_rate": 1e-2,
    "balance": 0.5,
    "negatives": "noise(0.5) + bent(0.5)",
    "engine": "plain",
}
EVERY, HALF = "past(amount=None)", "past(amount=0.5)"
SEEN = {
    "own": {"a": "a", "b": "b", "c": "c", "d": "d"},
    "past": {"a": "a", "b": "ab", "c": "abc", "d": "abcd"},
    "past(order=[3, 1])": {"a": "abcd", "b": "bd", "c": "abcd", "d": "d"},
}


def changed(data: Data, label: int, change: Callable[[Tensor], Tensor]) -> Data:
    parts = []
    for split in (data.train, data.validation):
        x = split.x.clone()
        x[split.y == label] = change(x[split.y == label])
        parts.append(Split(x, split.y))
    return replace(data, train=parts[0], validation=parts[1])


def without(data: Data, label: int) -> Data:
    parts = [
        Split(split.x[split.y != label], split.y[split.y != label])
        for split in (data.train, data.validation)
    ]
    return replace(data, train=parts[0], validation=parts[1])


def bits(module: ia.Module) -> tuple[Any, ...]:
    """All of a module but the digest of the data as a whole."""
    about = {k: v for k, v in module.provenance.items() if k != "data"}
    tensors = {**module.state, **{f"mask/{n}": m for n, m in module.mask.items()}}
    return {n: t.tolist() for n, t in tensors.items()}, repr(about), module.scaling.to_json()


@pytest.mark.parametrize("visibility", list(SEEN))
def test_which_labels_are_seen(visibility: str) -> None:
    for place, name in enumerate("abcd"):
        visible = visible_labels(visibility, 4, [place])
        assert [c for c, v in zip("abcd", visible.tolist(), strict=True) if v] == list(
            SEEN[visibility][name]
        )


@pytest.mark.parametrize("engine", ["plain", "single", "mlp"])
@pytest.mark.parametrize("visibility", list(SEEN))
def test_what_is_hidden_reaches_no_bit(small_data: Data, visibility: str, engine: str) -> None:
    """Pools, balance, checkpoints, scores and health; also the rows' weights."""
    settings = {**SETTINGS, "visibility": visibility, "engine": engine, "epochs": 1}
    data = changed(small_data, 2, lambda x: 30 * x.flip(-1) - 4)
    weight = torch.where(data.train.y == 2, 7.0, 1.0)
    one = ia.train(small_data, sample_weight=torch.ones(200), **settings)
    other = ia.train(data, sample_weight=weight, **settings)
    for name, seen in SEEN[visibility].items():
        assert (bits(one[name]) == bits(other[name])) is ("c" not in seen)


@pytest.mark.parametrize("visibility", ["own", "past"])
def test_how_many_rows_are_hidden_does_not_matter(small_data: Data, visibility: str) -> None:
    settings = {**SETTINGS, "visibility": visibility, "select": "last", "partition": [["a"], ["b"]]}
    one, other = ia.train(small_data, **settings), ia.train(without(small_data, 3), **settings)
    for name in ("a", "b"):
        for tensor, value in one[name].state.items():
            assert torch.equal(value, other[name].state[tensor])


@pytest.mark.parametrize("engine", ["single", "stack", "mlp"])
@pytest.mark.parametrize("visibility", ["own", "past"])
def test_engines_equal_the_plain_loop(small_data: Data, visibility: str, engine: str) -> None:
    settings = {**SETTINGS, "sparsity": 0, "visibility": visibility}
    oracle = ia.train(small_data, **settings)
    for module in ia.train(small_data, **{**settings, "engine": engine}):
        for name, value in oracle[module.name].state.items():
            torch.testing.assert_close(module.state[name], value, rtol=1e-3, atol=1e-4)


def test_a_module_has_the_same_bits_alone_and_in_a_bank(small_data: Data) -> None:
    settings = {**SETTINGS, "visibility": "past", "engine": "mlp"}
    bank = ia.train(small_data, **settings)
    for name in "ac":
        (alone,) = ia.train(small_data, partition=[[name]], **settings)
        assert bits(alone)[0] == bits(bank[name])[0]


@pytest.mark.parametrize("goal", ["me", "qme", "other", "xe"])
def test_any_objective_hides(small_data: Data, goal: str) -> None:
    recipe = Recipe(**{**_recipe(), "objective": goal, "visibility": "past"})
    for place, task in enumerate(tasks_of(recipe, small_data)):
        later = set(range(place + 1, 4))
        assert later == set(task.unseen) <= set(task.hidden)


def test_balance_counts_what_is_seen_and_what_is_made(small_data: Data) -> None:
    recipe = Recipe(**{**_recipe(), "visibility": HALF, "balance": 0.5, "negatives": "noise(3)"})
    weights = [t.objective.weight.tolist() for t in tasks_of(recipe, small_data)]
    # of each class 50 rows; of the third 50 own, 25 drawn of 100 past and 150 made
    assert weights[0] == pytest.approx([3**0.5, 0, 0, 0])
    assert weights[2] == pytest.approx([1, 1, (175 / 50) ** 0.5, 0])
    recipe = replace(recipe, visibility=EVERY)
    weight = tasks_of(recipe, small_data)[2].objective.weight.tolist()
    assert weight == pytest.approx([1, 1, (250 / 50) ** 0.5, 0])
    everything = Recipe(**{**_recipe(), "balance": 0.5, "negatives": "noise(3)"})
    assert tasks_of(everything, small_data)[0].objective.weight[0] == pytest.approx(3**0.5)


def test_amounts_are_for_each_row_of_ones_own(small_data: Data) -> None:
    for visibility in ("own", HALF, EVERY):
        settings = {**_recipe(), "visibility": visibility, "negatives": "noise(1) + turned(0.5)"}
        plan = TrainingPlan.of(small_data, None, None, settings, None)
        job = Job.of(plan, device_of("cpu"))
        assert job.sizes == [75] * 4
        seen = {"own": [50] * 4, HALF: [50, 75, 75, 75], EVERY: [50, 100, 150, 200]}[visibility]
        assert [job.samples(t) for t in job.tasks] == [n + 75 for n in seen]
        for task, count in zip(job.tasks, seen, strict=True):
            order = job.order(task, 0, 0)
            assert len(order.unique()) == count + 75
            shown = set(range(4)) - set(task.unseen)
            assert set(job.y[order].tolist()) <= {*shown, 4 + job.group(task).pool}
            assert int((job.y[order] == task.indices[0]).sum()) == 50
    first, second = (set(job.order(job.tasks[3], 0, epoch).tolist()) for epoch in (0, 1))
    assert first == second  # all of them


def test_every_epoch_draws_other_samples_of_earlier_classes(small_data: Data) -> None:
    settings = {**_recipe(), "visibility": HALF}
    job = Job.of(TrainingPlan.of(small_data, None, None, settings, None), device_of("cpu"))
    task = job.tasks[3]
    first, second = (job.order(task, 0, epoch) for epoch in (0, 1))
    assert len(first) == len(second) == job.samples(task)
    earlier = [set(order[job.y[order] < 3].tolist()) for order in (first, second)]
    assert len(earlier[0]) == 25
    assert earlier[0] != earlier[1]


def test_sources_of_ones_own_class_with_all_visible(small_data: Data) -> None:
    settings = {**_recipe(), "negatives": "noise(0.5) + turned(1)"}
    job = Job.of(TrainingPlan.of(small_data, None, None, settings, None), device_of("cpu"))
    assert job.sizes == [100 + 50] * 4
    assert [job.samples(t) for t in job.tasks] == [350] * 4
    assert ia.train(small_data, **{**SETTINGS, "negatives": "turned(1)"}).names == tuple("abcd")


def test_modules_that_would_see_no_negative_are_refused(small_data: Data) -> None:
    settings = {**SETTINGS, "negatives": "none"}
    with pytest.raises(RecipeError, match=r"visibility is 'own' and negatives is 'none'"):
        ia.train(small_data, visibility="own", **settings)
    with pytest.raises(RecipeError, match="'own' and negatives is 'none'"):
        ia.train(small_data, preset="paper", visibility="own", epochs=1)
    ia.train(small_data, visibility="own", **{**settings, "objective": "xe"})  # asks for none
    ia.train(small_data, visibility="past", **settings)  # all but the first have some


def test_a_scaling_that_saw_all_rows_is_refused(small_data: Data) -> None:
    parts = (small_data.train, small_data.validation, small_data.test)
    fitted = Data.build("small", small_data.catalogue, *parts, "standard")
    with pytest.raises(RecipeError, match=r"fitted on the rows of all classes.*scale_on"):
        ia.train(fitted, visibility="own", **SETTINGS)
    agreed = replace(fitted, scale_on="train")
    ia.train(agreed, visibility="own", **SETTINGS)
    public = torch.rand(20, 1, 8, 8)
    given = Data.build(
        "small", small_data.catalogue, *parts, "standard", public=public, scale_on="public"
    )
    bank = ia.train(given, visibility="own", **SETTINGS)
    assert float(bank[0].scaling.shift) == pytest.approx(float(public.mean()), rel=1e-5)


def test_hidden_samples_are_in_no_batch_of_all(small_data: Data) -> None:
    with pytest.raises(RecipeError, match=r"batches is 'all'.*visibility"):
        ia.train(small_data, visibility="own", batches="all", **SETTINGS)


def test_tasks_of_ones_own_must_hide_what_the_recipe_says(small_data: Data) -> None:
    def tasks(data: Data) -> list[Task]:
        return [Task("a", ("a",), (0,), 0, 1e-2, objective("me", 4, [0]))]

    with pytest.raises(RecipeError, match="does not hide the labels"):
        ia.train(small_data, tasks=tasks, visibility="own", **SETTINGS)


def test_neutral_visibility_changes_no_digest() -> None:
    one, other = Recipe(preset="paper"), Recipe(preset="paper", visibility="all")
    assert one.resolve().digest() == other.resolve().digest()
    assert "visibility" not in one.resolve().as_dict()
    hidden = Recipe(preset="paper", visibility="past(order=[1, 0])").resolve()
    assert hidden.as_dict()["visibility"] == "past(order=[1, 0])"
    with pytest.raises(RecipeError, match=r"unknown visibility 'pas'.*past"):
        Recipe(visibility="pas").resolve()
    with pytest.raises(RecipeError, match="past: order is"):
        visible_labels("past(order=[1, 1])", 4, [0])


def _recipe() -> dict[str, Any]:
    return {k: v for k, v in SETTINGS.items() if k != "engine"}


def test_samples_of_ones_own_may_be_hidden_by_the_objective(small_data: Data) -> None:
    settings = {**_recipe(), "visibility": "past", "objective": "me(reward=0)"}
    settings["partition"] = [["b"], ["d"]]  # the first would see nothing
    plan = TrainingPlan.of(small_data, None, None, {**settings, "negatives": "noise(1)"}, None)
    job = Job.of(plan, device_of("cpu"))
    assert [len(job.order(t, 0, 0)) for t in job.tasks] == [job.samples(t) for t in job.tasks]
