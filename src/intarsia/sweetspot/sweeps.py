"""Sweeps: one weight, or one direction of a unit's weights, is moved and the picture follows."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import RecipeError, shortened
from intarsia.files import stream
from intarsia.sweetspot.networks import PatternNetwork, render
from intarsia.sweetspot.pattern_scores import Place, check_place, choose_weights

STEPS = (-1.0, -0.5, 0.0, 0.5, 1.0)
DIRECTIONS = ("weight", "row")


@dataclass(frozen=True, eq=False)
class WeightSweep:
    """Pictures along a line through the weights of one unit.

    place        layer, row and column of the weight; in a sweep of a row its column counts for
                 nothing
    steps        what was added
    value        of the weight, before
    pictures     one per step: (steps, size, size, 3)
    direction    None, or the direction of length 1 along the row
    """

    place: Place
    steps: tuple[float, ...]
    value: float
    pictures: Tensor
    direction: Tensor | None = None

    @property
    def labels(self) -> list[str]:
        """One per picture: the weight's value, or the step along the direction."""
        if self.direction is None:
            return [f"{self.value + step:.2f}" for step in self.steps]
        return [f"{step:+.2f}" for step in self.steps]


def sweep(
    network: PatternNetwork,
    weight: int | Sequence[int],
    *,
    steps: Sequence[float] = STEPS,
    size: int = 128,
    along: str = "weight",
    seed: int = 0,
) -> WeightSweep:
    """The pictures with each of the steps added to a weight.

    `weight` is its (layer, row, column), or the number of a nonzero weight, counted from 0 in that
    order. Along "row" the steps go in a random direction of length 1 over all weights of the unit
    that may change: the control for a single weight.
    """
    if along not in DIRECTIONS:
        raise RecipeError(f"along is {shortened(along)}: use {' or '.join(map(repr, DIRECTIONS))}")
    moves = _checked(steps)
    layer, row, column = find_weight(network, weight)
    matrix = network.weights[layer]
    line = torch.zeros(matrix.shape[1])
    line[column] = 1.0
    if along == "row":
        free = matrix[row] != 0 if network.masks is None else network.masks[layer][row]
        draw = torch.Generator().manual_seed(stream("sweep", seed, layer, row))
        line = torch.where(free, torch.randn(len(line), generator=draw), 0)
        line = line / line.norm().clamp(min=1e-30)
    stacked = [w.expand(len(moves), *w.shape) for w in network.weights]
    stacked[layer] = stacked[layer].clone()
    stacked[layer][:, row] += torch.tensor(moves)[:, None] * line
    pictures = render(network.layout, stacked, size)
    direction = line if along == "row" else None
    value = float(matrix[row, column])
    return WeightSweep((layer, row, column), moves, value, pictures, direction)


def find_weight(network: PatternNetwork, weight: Any) -> Place:
    """A weight by its place, or by its number among those that are not 0."""
    if not isinstance(weight, int) or isinstance(weight, bool):
        return check_place(network, weight)
    places = choose_weights(network, None, torch.Generator())
    if not 0 <= weight < len(places):
        raise RecipeError(
            f"there is no weight {weight}: the network has {len(places)} that are not 0, "
            f"0 to {len(places) - 1}"
        )
    return places[weight]


def _checked(steps: Sequence[float]) -> tuple[float, ...]:
    try:
        moves = tuple(float(step) for step in steps)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"steps are {shortened(steps)}: expected numbers") from error
    if not moves or not all(isfinite(step) for step in moves):
        raise RecipeError(f"steps are {shortened(steps)}: expected at least one finite number")
    return moves
