"""Loop: the epochs of one round, with the best checkpoint of every module."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from intarsia.training.engines.base import Engine, Scores
from intarsia.training.recipe import Recipe


@dataclass
class Standing:
    """How far a bank has come: plain values, so that it can be written down and taken up."""

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
    def from_json(cls, values: dict[str, Any]) -> "Standing":
        standing = cls(values["modules"])
        vars(standing).update(values)
        return standing


class Watch(Protocol):
    """Told after every epoch; draws progress or keeps quiet."""

    def __call__(self, standing: Standing, scores: Scores, epochs: int) -> None: ...


def run_round(
    engine: Engine,
    recipe: Recipe,
    standing: Standing,
    epochs: int,
    watch: Watch,
    save: Callable[[Standing], None],
) -> None:
    """Train up to `epochs` epochs from where the standing is; leaves checkpoints in the engine."""
    while standing.epoch < epochs and any(standing.active):
        active = standing.active
        losses, scores = train_epoch(engine, recipe, standing, epochs)
        better = []
        for k in range(standing.modules):
            if not active[k]:
                continue
            if not (math.isfinite(losses[k]) and math.isfinite(scores.loss[k])):
                standing.diverged[k] = True
            elif _judge(standing, k, scores, recipe):
                better.append(k)
        engine.keep(better)
        standing.epoch += 1
        watch(standing, scores, epochs)
        save(standing)


def train_epoch(
    engine: Engine, recipe: Recipe, standing: Standing, epochs: int
) -> tuple[Tensor, Scores]:
    """One epoch of training, and what validation says after it."""
    rates = [_rate(recipe, t.learning_rate, standing.epoch, epochs) for t in engine.job.tasks]
    losses = engine.epoch(standing.round, standing.epoch, rates, standing.active)
    return losses, engine.validate()


def _judge(standing: Standing, k: int, scores: Scores, recipe: Recipe) -> bool:
    """Whether module k is to keep this epoch; also counts its patience."""
    now, best = scores.row(k), standing.best[k]
    keep = best is None or _key(now, recipe) >= _key(best, recipe)
    if keep:
        standing.best[k] = now | {"epoch": standing.epoch}
    standing.stale[k] = 0 if now["loss"] < standing.lowest[k] else standing.stale[k] + 1
    standing.lowest[k] = min(standing.lowest[k], now["loss"])
    standing.stopped[k] = recipe.patience is not None and standing.stale[k] >= recipe.patience
    return keep


def _key(scores: dict[str, float], recipe: Recipe) -> tuple[float, ...]:
    """What a checkpoint is chosen by; equal accuracies go by loss, `last` keeps every epoch."""
    if recipe.select == "last":
        return ()
    if recipe.select == "loss":
        return (-scores["loss"],)
    return (scores["accuracy"], -scores["loss"])


def _rate(recipe: Recipe, rate: float, epoch: int, epochs: int) -> float:
    if recipe.schedule == "cosine":
        return rate * 0.5 * (1 + math.cos(math.pi * epoch / epochs))
    return rate
