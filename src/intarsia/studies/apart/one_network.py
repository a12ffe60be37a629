"""One network that classes arrive at one by one, with none or a few of the earlier samples kept."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from intarsia.data import Data, Split
from intarsia.data.splits import random_keys
from intarsia.studies.maxent.shared.baselines import fine_tune, on, right, untrained
from intarsia.training import Recipe
from intarsia.training.tasks import stream

MOST = 10  # repeated samples of earlier classes for each of the new one


@dataclass(frozen=True)
class Arrived:
    """What one network knows when all classes have arrived, and the step size that was best."""

    accuracy: float  # on test samples
    validation: float
    rate: float


def trained_by_arrival(
    recipe: Recipe,
    data: Data,
    device: torch.device,
    *,
    kept: int,
    rates: Sequence[float],
    passes: int,
    batch: int,
) -> Arrived:
    """Train on one class after another, in the catalogue's order, each time on all that is there.

    There are the samples of the new class, and `kept` of every earlier one; 0 is fine-tuning. Of
    the step sizes the one is taken that gives the best accuracy on validation samples at the end.
    """
    validation, test = on(data.validation, device), on(data.test, device)
    (seed,) = recipe.seeds
    tried = []
    for learning_rate in rates:
        network = untrained(recipe, data).to(device)
        for place in range(data.classes):
            there = on(_there(data.train, place, kept, seed), device)
            draw = stream("arrival", seed, kept, place)
            fine_tune(
                network, there, passes=passes, learning_rate=learning_rate, batch=batch, seed=draw
            )
        tried.append(Arrived(right(network, test), right(network, validation), learning_rate))
    return max(tried, key=lambda one: one.validation)


def _there(train: Split, place: int, kept: int, seed: int) -> Split:
    """All samples of the new class, and some of every earlier one.

    These are repeated, so that every class counts as much as the new one; but all together are no
    more than MOST times the new ones.
    """
    labels, keys = train.y.numpy(), random_keys(len(train), seed, 0)
    new = np.flatnonzero(labels == place)
    rows = [new]
    if kept and place:
        wanted, room = math.ceil(len(new) / kept), MOST * len(new) // (kept * place)
        repeats = max(1, min(wanted, room))
        for earlier in range(place):
            own = np.flatnonzero(labels == earlier)
            rows += [own[np.argsort(keys[own], kind="stable")[:kept]]] * repeats
    chosen = torch.from_numpy(np.concatenate(rows))
    return Split(train.x[chosen], train.y[chosen])
