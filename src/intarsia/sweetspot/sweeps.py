"""Sweeps: one weight, or one direction of a unit's weights, is moved and the picture follows.

Which weights are worth a sweep, `connections` says: by how far a small change moves the picture.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import RecipeError, shortened
from intarsia.files import stream
from intarsia.sweetspot.networks import (
    PatternLayout,
    PatternNetwork,
    activate,
    coordinates,
    one_network,
    render,
)
from intarsia.sweetspot.pattern_scores import Place, check_place, choose_weights
from intarsia.sweetspot.pictures import rgb

STEPS = (-1.0, -0.5, 0.0, 0.5, 1.0)
DIRECTIONS = ("weight", "row")
INPUT_NAMES = ("x", "y", "distance", "1")
OUTPUT_NAMES = ("hue", "saturation", "value")


@dataclass(frozen=True)
class Connection:
    """A weight that is not 0, and the units that it joins.

    effect    how far a small change of the weight moves the picture, for each unit of change: the
              root of the mean square over all pixels and channels
    """

    place: Place
    source: str
    target: str
    value: float
    effect: float


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


def connections(
    network: PatternNetwork, layer: int | None = None, size: int = 64
) -> list[Connection]:
    """The weights that are not 0, of one matrix or of all, those of the largest effect first."""
    if layer is not None:
        check_place(network, (layer, 0, 0))
    layout, effects = one_network(network).layout, weight_effects(network, size)
    places = [
        (number, row, column)
        for number, matrix in enumerate(network.weights)
        if layer in (None, number)
        for row, column in matrix.nonzero().tolist()
    ]
    found = [
        Connection(
            (number, row, column),
            unit_names(layout, number)[column],
            unit_names(layout, number + 1)[row],
            float(network.weights[number][row, column]),
            float(effects[number][row, column]),
        )
        for number, row, column in places
    ]
    return sorted(found, key=lambda one: (-one.effect, one.place))


def weight_effects(network: PatternNetwork, size: int = 64) -> list[Tensor]:
    """How far a small change of each weight moves the picture; see `Connection`.

    Pixels do not depend on each other, so one gradient for each channel holds the slopes s of all
    units at all pixels; a weight that reads the map a has the slope s a there.
    """
    values = coordinates(size)
    read: list[Tensor] = []
    sums: list[Tensor] = []
    with torch.enable_grad():
        for matrix in network.weights:
            read.append(values.detach())
            sums.append(matrix @ values if sums else (matrix @ values).requires_grad_())
            if len(sums) <= network.layout.depth:
                values = activate(network.layout, sums[-1])
        slopes = [torch.zeros_like(own) for own in read[1:]] + [torch.zeros_like(sums[-1])]
        for channel in rgb(sums[-1]):
            for own, slope in zip(
                slopes, torch.autograd.grad(channel.sum(), sums, retain_graph=True), strict=True
            ):
                own += slope.square()
    numbers = len(OUTPUT_NAMES) * size**2
    return [
        (own @ maps.square().T / numbers).sqrt() for own, maps in zip(slopes, read, strict=True)
    ]


@cache
def unit_names(layout: PatternLayout, layer: int) -> tuple[str, ...]:
    """The inputs (layer 0), the units of a hidden layer, or the outputs, as people call them."""
    if layer == 0:
        return INPUT_NAMES
    if layer == layout.depth + 1:
        return OUTPUT_NAMES
    names = layout.activations
    return tuple(f"{name} {names[: n + 1].count(name)}" for n, name in enumerate(names))


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
