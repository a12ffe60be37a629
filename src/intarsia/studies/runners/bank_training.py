"""Training for studies: several plans as one bank, each as if it had been trained alone."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch

from intarsia.data import Data
from intarsia.errors import HealthWarning
from intarsia.modules import Architecture, Bank
from intarsia.objectives import objective, visible_labels
from intarsia.studies.plans import Plan
from intarsia.training import Task, train
from intarsia.training.settings.batches import read_batches
from intarsia.training.tasks import drawn_others, tasks_of

TOGETHER = 200  # modules in one call of train on a GPU; more is no faster
# Seconds of work that a kill costs at most; a GPU does more in them, and has more to write.
CHECKPOINT_EVERY = {"cpu": 10.0, "cuda": 120.0}


def training_groups(
    plans: Sequence[Plan], device: torch.device, alone: bool = False, workers: int = 1
) -> list[list[Plan]]:
    """Plans cut into groups to train at once: a GPU takes many modules, a CPU one plan.

    `alone` each plan is a group, so that one is finished before the next begins. Several workers
    have about equally many modules each.
    """
    most = min(TOGETHER, -(-sum(plan.modules for plan in plans) // workers))
    groups: list[list[Plan]] = []
    open_: dict[str, list[Plan]] = {}
    for plan in plans:
        group = open_.get(plan.training_group, [])
        full = sum(p.modules for p in group) + plan.modules > most
        if alone or device.type == "cpu" or not group or full:
            group = open_[plan.training_group] = []
            groups.append(group)
        group.append(plan)
    return groups


def train_plans(
    plans: Sequence[Plan],
    data: Data,
    device: torch.device,
    work: Path | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[Bank]:
    """The banks of these plans, which share a training group.

    On a CPU, where a bank takes long, checkpoints go to `work`, and a run that was stopped is taken
    up there. On a GPU a bank is trained again from the start, unless `stop` may end its training
    with a StoppedError: then that has checkpoints as well.
    """
    folder = work if device.type == "cpu" or stop is not None else None
    own: Any = None if len(plans) == 1 else lambda data: _tasks(plans, data)
    with warnings.catch_warnings(action="ignore", category=HealthWarning):  # studies say it
        merged = train(
            data,
            plans[0].recipe,
            out=folder,
            device=str(device),
            tasks=own,
            keep_rounds=True,
            progress=False,
            checkpoint_every=CHECKPOINT_EVERY.get(device.type, 10.0),
            stop=stop,
        )
    return [_own(plan, merged, number, len(plans)) for number, plan in enumerate(plans)]


def work_of(plan: Plan, data: Data) -> float:
    """Samples times parameters, over all epochs and modules: what the time goes with."""
    shapes = Architecture.of(plan.recipe.model, data.shape, data.classes).plan().values()
    parameters = sum(prod(entry.shape) for entry in shapes if entry.learned)
    return float(samples_of(plan, data) * parameters)


def samples_of(plan: Plan, data: Data) -> int:
    """Samples that pass through the modules, over all epochs."""
    return plan.epochs * sum(_seen(plan, classes, data) for classes in plan.sets)


def _seen(plan: Plan, classes: Sequence[str], data: Data) -> int:
    """Samples in an epoch of one module."""
    batches = read_batches(plan.recipe.batches)
    if batches.hidden:
        return len(data.train)
    indices = [data.catalogue.index(name) for name in classes]
    shown = objective(plan.recipe.objective, data.classes, indices).weight > 0
    if plan.recipe.visibility is not None:
        shown &= visible_labels(plan.recipe.visibility, data.classes, indices) > 0
    seen = int(shown[data.train.y].sum())
    own = sum(int((data.train.y == index).sum()) for index in indices if shown[index])
    return own + drawn_others(batches.others, own, seen - own)


def _tasks(plans: Sequence[Plan], data: Data) -> list[Task]:
    return [
        dataclasses.replace(task, name=_label(number, task.name))
        for number, plan in enumerate(plans)
        for task in tasks_of(plan.recipe, data)
    ]


def _own(plan: Plan, merged: Bank, number: int, of: int) -> Bank:
    """The modules of one plan, with nothing on them that tells of the others."""
    prefix = _label(number, "") if of > 1 else ""

    def own(bank: Bank) -> Bank:
        modules = [
            dataclasses.replace(
                module,
                name=module.name.removeprefix(prefix),
                provenance={**module.provenance, "recipe": plan.recipe.as_dict()},
            )
            for module in bank
            if module.name.startswith(prefix)
        ]
        diverged = [n.removeprefix(prefix) for n in bank.diverged if n.startswith(prefix)]
        known = ("engine", "device", "versions", "threads")
        kept = {k: v for k, v in merged.report.items() if k in known}
        return Bank(modules, diverged, {**kept, "plan": plan.key})

    bank = own(merged)
    bank.rounds = tuple(own(earlier) for earlier in merged.rounds[:1])
    return bank


def _label(number: int, name: str) -> str:
    return f"{number}/{name}"
