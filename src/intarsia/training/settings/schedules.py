"""Schedules: by which factor the learning rate is multiplied as a round goes on.

A schedule is a function of the place in a round, `step` of `steps`, from 0 on; each round goes
through all of it:

    @SCHEDULES.register("halving", by_batch=True)
    def halving(step, steps, times=3):
        return 0.5 ** int(times * step / steps)

It moves from epoch to epoch, where a step is an epoch, or with `by_batch` from batch to batch.
It depends on the place alone, so that a run that was stopped goes on as it would have.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.errors import RecipeError, shortened
from intarsia.specs import Registry, Spec, is_number

SCHEDULES = Registry("schedule", given=("step", "steps"), by_batch=False)
"""Schedules by name; the trait `by_batch` says that the factor changes from batch to batch."""

LearningRate = float | list[float]  # of an epoch, or of each of its batches
LearningRates = Sequence[LearningRate]  # of each module


def scheduled(
    schedule: str | Mapping[str, Any] | Spec,
    learning_rate: float,
    epoch: int,
    epochs: int,
    batches: int,
) -> LearningRate:
    """The learning rate of an epoch of a round, or of each of its batches."""
    spec = SCHEDULES.spec(schedule)
    if not SCHEDULES[spec.name].by_batch:
        factor: float = SCHEDULES.call(spec, step=epoch, steps=epochs)
        return learning_rate * factor
    places = range(epoch * batches, (epoch + 1) * batches)
    return [
        learning_rate * SCHEDULES.call(spec, step=step, steps=epochs * batches) for step in places
    ]


def each_batch(learning_rate: LearningRate, batches: int) -> list[float]:
    """The learning rate of each batch of an epoch."""
    if isinstance(learning_rate, list):
        return learning_rate
    return [learning_rate] * batches


@SCHEDULES.register("constant")
def constant(step: int, steps: int) -> float:
    """The learning rate as it is."""
    return 1.0


@SCHEDULES.register("cosine")
def cosine(step: int, steps: int) -> float:
    """From the learning rate down half a cosine, from epoch to epoch."""
    return 0.5 * (1 + math.cos(math.pi * step / steps))


@SCHEDULES.register("onecycle", by_batch=True)
def onecycle(
    step: int, steps: int, warmup: float = 0.3, start: float = 0.04, end: float = 0.0
) -> float:
    """Up in a straight line and down in another, from batch to batch.

    From `start` times the learning rate it rises over the first `warmup` of the steps to the
    learning rate, and falls to `end` times it, where the step after the last would be.
    """
    for name, value, most in (("warmup", warmup, 1), ("start", start, 1), ("end", end, 1)):
        if not is_number(value) or not 0 <= value <= most:
            raise RecipeError(
                f"schedule: onecycle has {name} {shortened(value)}: expected a number from 0 to 1"
            )
    progress = step / steps
    if progress < warmup:
        return start + (1 - start) * progress / warmup
    return 1 + (end - 1) * (progress - warmup) / (1 - warmup)
