"""Loop: the epochs of one round, with the best checkpoint of every module."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from intarsia.training.engines.base import Engine, Scores
from intarsia.training.settings.recipe import Recipe
from intarsia.training.settings.schedules import SCHEDULES, scheduled


@dataclass
class RoundProgress:
    """How far a bank has come in a round: plain values, so that a checkpoint can hold them."""

    modules: int
    round: int = 0
    epoch: int = 0

    def __post_init__(self) -> None:
        self.diverged = [False] * self.modules
        self.new_round(self.round)

    def new_round(self, round_: int) -> None:
        self.round, self.epoch = round_, 0
        self.best: list[dict[str, float] | None] = [None] * self.modules
        self.lowest = [math.inf] * self.modules  # validation loss, for patience
        self.stale = [0] * self.modules
        self.stopped = [False] * self.modules

    @property
    def active(self) -> list[bool]:
        return [not (d or s) for d, s in zip(self.diverged, self.stopped, strict=True)]

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, values: Any, modules: int) -> "RoundProgress":
        """What `to_json` gave for so many modules; a ValueError for anything else."""
        progress = cls(modules)
        if not isinstance(values, dict) or values.keys() != vars(progress).keys():
            raise ValueError("it has other entries than the progress of a round")
        if values["modules"] != modules or not all(
            _alike(values[name], own) for name, own in vars(progress).items()
        ):
            raise ValueError(f"it is not the progress of {modules} modules")
        vars(progress).update(values)
        return progress


def _alike(value: Any, own: Any) -> bool:
    """Whether a value has the type of ours; lists have its length, and scores are numbers."""
    if isinstance(own, list):
        return isinstance(value, list) and len(value) == len(own) and all(map(_alike, value, own))
    if own is None:
        scores = value.values() if isinstance(value, dict) else ()
        return value is None or (bool(scores) and all(type(v) in (int, float) for v in scores))
    return type(value) is type(own)


Watch = Callable[[RoundProgress, Scores, int], None]
"""Called after every epoch with the epochs of the round; shows progress or keeps quiet."""


def run_round(
    engine: Engine,
    recipe: Recipe,
    progress: RoundProgress,
    epochs: int,
    watch: Watch,
    save: Callable[[RoundProgress], None],
) -> None:
    """Train up to `epochs` epochs from where the bank is; leaves checkpoints in the engine."""
    while progress.epoch < epochs and any(progress.active):
        active = progress.active
        losses, scores = train_epoch(engine, recipe, progress, epochs)
        better = []
        for k in range(progress.modules):
            if not active[k]:
                continue
            if not (math.isfinite(losses[k]) and math.isfinite(scores.loss[k])):
                progress.diverged[k] = True
            elif _judge(progress, k, scores, recipe):
                better.append(k)
        engine.keep(better)
        progress.epoch += 1
        watch(progress, scores, epochs)
        save(progress)


def train_epoch(
    engine: Engine, recipe: Recipe, progress: RoundProgress, epochs: int
) -> tuple[Tensor, Scores]:
    """One epoch of training, and what validation says after it."""
    job, schedule = engine.job, SCHEDULES.spec(recipe.schedule or "constant")
    learning_rates = [
        scheduled(schedule, task.learning_rate, progress.epoch, epochs, job.steps(task))
        for task in job.tasks
    ]
    losses = engine.epoch(progress.round, progress.epoch, learning_rates, progress.active)
    return losses, engine.validate()


def _judge(progress: RoundProgress, k: int, scores: Scores, recipe: Recipe) -> bool:
    """Whether module k is to keep this epoch; also counts its patience."""
    now, best = scores.row(k), progress.best[k]
    keep = best is None or _key(now, recipe) >= _key(best, recipe)
    if keep:
        progress.best[k] = now | {"epoch": progress.epoch}
    better = now["loss"] < progress.lowest[k] or math.isnan(now["accuracy"])
    progress.stale[k] = 0 if better else progress.stale[k] + 1
    progress.lowest[k] = min(progress.lowest[k], now["loss"])
    progress.stopped[k] = recipe.patience is not None and progress.stale[k] >= recipe.patience
    return keep


def _key(scores: dict[str, float], recipe: Recipe) -> tuple[float, ...]:
    """What a checkpoint is chosen by; equal accuracies go by loss, `last` keeps every epoch.

    So does a module without a validation sample of its own classes: what the others ask for, a
    network that has learned nothing answers best.
    """
    if recipe.select == "last" or math.isnan(scores["accuracy"]):
        return ()
    if recipe.select == "loss":
        return (-scores["loss"],)
    return (scores["accuracy"], -scores["loss"])
