"""Tasks: what each module of a bank is to learn, and the streams its random choices come from."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from intarsia.data import Data, partition, set_name
from intarsia.data.negatives import amount_of, read_negatives
from intarsia.errors import RecipeError, comma_separated
from intarsia.files import stream
from intarsia.objectives import VISIBILITIES, Objective, objective, visible_labels
from intarsia.training.settings.batches import Batches, read_batches
from intarsia.training.settings.recipe import Recipe


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
    stands_for: float = 1.0  # how many samples one of these counts as, in training

    @property
    def hidden(self) -> tuple[int, ...]:
        """The labels that the objective hides."""
        return tuple((self.objective.weight == 0).nonzero().flatten().tolist())

    @property
    def training_objective(self) -> Objective:
        """The objective as batches weigh it: samples of others that are drawn stand for all."""
        factors = torch.full((self.objective.classes,), self.stands_for)
        factors[list(self.indices)] = 1.0
        return self.objective if self.stands_for == 1 else self.objective.weighted(factors)

    @property
    def labels(self) -> set[int]:
        """All labels of the catalogue."""
        return set(range(self.objective.classes))


def tasks_of(recipe: Recipe, data: Data, sample_weight: Tensor | None = None) -> list[Task]:
    """One task per seed and set of classes, seeds outermost.

    With `sample_weight`, one per training sample, balance counts the samples by it. Where the
    recipe has a visibility, it counts what the module sees: made-up negatives, too. Where batches
    draw some of the others, it counts these, unless they stand for all.
    """
    sets = partition(data.catalogue, recipe.partition, seed=recipe.partition_seed)
    several = len(recipe.seeds) > 1
    learning_rate = recipe.learning_rate
    assert learning_rate is not None
    weight = None if sample_weight is None else sample_weight.double()
    counts = torch.bincount(data.train.y, weight, minlength=data.classes).double()
    rows, batches = rows_of(data), read_batches(recipe.batches)
    amount = amount_of(read_negatives(recipe.negatives))
    tasks = []
    for seed in recipe.seeds:
        for classes in sets:
            name = set_name(classes, data.catalogue) + (f"-s{seed}" if several else "")
            indices = tuple(data.catalogue.index(c) for c in classes)
            goal = objective(recipe.objective, data.classes, indices)
            task = Task(name, tuple(classes), indices, seed, learning_rate, goal)
            if recipe.visibility is not None:
                task = _hiding(task, recipe.visibility)
            drawing = with_batches(task, batches, rows)
            counted = task if batches.corrected else drawing
            seen = counts
            if recipe.visibility is not None:
                seen = _seen(counts, rows, counted, amount)
            elif math.isfinite(counted.others):
                seen = _seen(counts, rows, counted, 0.0)
            if recipe.balance:
                factors = balanced(seen, indices, recipe.balance)[: data.classes]
                drawing = replace(drawing, objective=drawing.objective.weighted(factors))
            tasks.append(drawing)
    return tasks


def rows_of(data: Data) -> list[int]:
    """Training samples of each label."""
    counts: list[int] = torch.bincount(data.train.y, minlength=data.classes).tolist()
    return counts


def with_batches(task: Task, batches: Batches, rows: Sequence[int]) -> Task:
    """The task with as many samples of other classes in an epoch as the batches draw.

    `rows` are the samples of each label. A task that draws no more already stays as it is, and so
    does one without a sample of its own.
    """
    own, others = _shown_rows(task, rows)
    if not own or batches.others >= task.others:
        return task
    before, now = (drawn_others(most, own, others) for most in (task.others, batches.others))
    factor = before / now if batches.corrected and now else 1.0
    return replace(task, others=batches.others, stands_for=factor * task.stands_for)


def drawn_others(most: float, own: int, others: int) -> int:
    """How many of the others an epoch draws: `most` for each of its own, if there are so many."""
    return others if math.isinf(most) else min(others, round(most * own))


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


def _seen(counts: Tensor, rows: Sequence[int], task: Task, made: float) -> Tensor:
    """What an epoch has of each label, and of made-up samples after them.

    Samples are drawn by the row, whatever each of them counts.
    """
    seen = counts.clone()
    seen[list(task.hidden)] = 0
    rewarded = torch.zeros(len(counts), dtype=torch.bool)
    rewarded[list(task.indices)] = True
    own = float(seen[rewarded].sum())
    mine, others = _shown_rows(task, rows)
    fraction = drawn_others(task.others, mine, others) / others if others else 1.0
    seen = torch.where(rewarded, seen, seen * fraction)
    return torch.cat([seen, torch.tensor([made * own], dtype=seen.dtype)])


def _shown_rows(task: Task, rows: Sequence[int]) -> tuple[int, int]:
    """Samples that are not hidden: of a task's own classes, and of others."""
    shown = task.labels - set(task.hidden)
    own = sum(rows[label] for label in shown & set(task.indices))
    return own, sum(rows[label] for label in shown - set(task.indices))


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
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
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
                    f"catalogue: {comma_separated(data.catalogue)}"
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
