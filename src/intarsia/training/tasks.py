"""Tasks: what each module of a bank is to learn, and the streams its random choices come from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from intarsia.data import Data, partition, set_name
from intarsia.data.negatives import amount_of, read_negatives
from intarsia.errors import RecipeError
from intarsia.files import stream
from intarsia.objectives import VISIBILITIES, Objective, objective, visible_labels
from intarsia.training.recipe import Recipe


@dataclass(frozen=True)
class Task:
    """One module to train: its classes, seed, learning rate and objective."""

    name: str
    rewarded: tuple[str, ...]
    indices: tuple[int, ...]  # of the rewarded classes in the catalogue
    seed: int
    learning_rate: float
    objective: Objective
    unseen: tuple[int, ...] = ()  # labels of which no sample may reach the module, in any way
    others: float = math.inf  # samples of other classes in an epoch, for each of its own

    @property
    def hidden(self) -> tuple[int, ...]:
        """The labels that the objective hides."""
        return tuple((self.objective.weight == 0).nonzero().flatten().tolist())

    @property
    def labels(self) -> set[int]:
        """All labels of the catalogue."""
        return set(range(self.objective.classes))


def tasks_of(recipe: Recipe, data: Data, sample_weight: Tensor | None = None) -> list[Task]:
    """One task per seed and set of classes, seeds outermost.

    With `sample_weight`, one per training sample, balance counts the samples by it. Where the
    recipe has a visibility, it counts what the module sees: made-up negatives, too.
    """
    sets = partition(data.catalogue, recipe.partition, seed=recipe.partition_seed)
    several = len(recipe.seeds) > 1
    learning_rate = recipe.learning_rate
    assert learning_rate is not None
    weight = None if sample_weight is None else sample_weight.double()
    counts = torch.bincount(data.train.y, weight, minlength=data.classes).double()
    amount = amount_of(read_negatives(recipe.negatives))
    tasks = []
    for seed in recipe.seeds:
        for classes in sets:
            name = set_name(classes, data.catalogue) + (f"-s{seed}" if several else "")
            indices = tuple(data.catalogue.index(c) for c in classes)
            goal = objective(recipe.objective, data.classes, indices)
            task = Task(name, tuple(classes), indices, seed, learning_rate, goal)
            seen = counts
            if recipe.visibility is not None:
                task = _hiding(task, recipe.visibility)
                seen = _seen(counts, task, amount)
            if recipe.balance:
                factors = balanced(seen, indices, recipe.balance)[: data.classes]
                task = replace(task, objective=task.objective.weighted(factors))
            tasks.append(task)
    return tasks


def _hiding(task: Task, visibility: Any) -> Task:
    """The task with the labels hidden that its module may not see."""
    visible = visible_labels(visibility, task.objective.classes, task.indices)
    others = VISIBILITIES.settings(visibility).get("amount")
    return replace(
        task,
        objective=task.objective.weighted(visible),
        unseen=tuple((visible == 0).nonzero().flatten().tolist()),
        others=math.inf if others is None else float(others),
    )


def _seen(counts: Tensor, task: Task, made: float) -> Tensor:
    """What an epoch has of each label, and of made-up samples after them."""
    seen = counts.clone()
    seen[list(task.unseen)] = 0
    own = float(seen[list(task.indices)].sum())
    others = float(seen.sum()) - own
    factor = min(1.0, task.others * own / others) if others else 1.0
    rewarded = torch.zeros(len(counts), dtype=torch.bool)
    rewarded[list(task.indices)] = True
    seen = torch.where(rewarded, seen, seen * factor)
    return torch.cat([seen, torch.tensor([made * own], dtype=seen.dtype)])


def balanced(counts: Tensor, rewarded: Sequence[int], balance: float) -> Tensor:
    """A factor for each label: rewarded ones weigh (others / own) ** balance, by these counts."""
    factors = torch.ones(len(counts))
    own = float(counts[list(rewarded)].sum())
    others = float(counts.sum()) - own
    if own and others:
        factors[list(rewarded)] = (others / own) ** balance
    return factors


def check_tasks(tasks: Sequence[Task], data: Data) -> None:
    """Tasks of one bank have distinct names, known classes and equally many outputs."""
    names = [t.name for t in tasks]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise RecipeError(f"two modules have the name {twice[0]!r}: give each set of classes once")
    if not tasks:
        raise RecipeError("there is nothing to train: no set of rewarded classes is given")
    outputs = {t.objective.outputs for t in tasks}
    if len(outputs) > 1:
        raise RecipeError(f"modules of one bank need equally many outputs, got {sorted(outputs)}")
    for task in tasks:
        for index, name in zip(task.indices, task.rewarded, strict=False):
            if not 0 <= index < data.classes or data.catalogue[index] != name:
                raise RecipeError(
                    f"task {task.name!r} rewards {name!r} as number {index}, which is not in the "
                    f"catalogue: {', '.join(data.catalogue)}"
                )
        if not task.rewarded or len(task.indices) != len(task.rewarded):
            raise RecipeError(f"task {task.name!r} needs one index for each of its classes")
        if task.objective.table.shape[0] != data.classes:
            raise RecipeError(
                f"the objective of {task.name!r} has {task.objective.table.shape[0]} labels, "
                f"the catalogue {data.classes}"
            )


def order_of(seed: int, round_: int, epoch: int, samples: int) -> Tensor:
    """The order in which an epoch visits the samples; modules of one seed share it."""
    generator = torch.Generator().manual_seed(stream("order", seed, round_, epoch))
    return torch.randperm(samples, generator=generator)
