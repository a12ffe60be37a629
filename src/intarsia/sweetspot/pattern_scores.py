"""Scores of a pattern network: what its weights do to its picture, and how alike its maps are.

None of them is a validated measure of compositionality. Inflation moves with the fit: compare
networks of like loss, and draw it against the loss.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.errors import DataError, RecipeError, shortened
from intarsia.files import stream
from intarsia.specs import is_number
from intarsia.sweetspot.networks import (
    ACTIVATIONS,
    OUTPUTS,
    PatternNetwork,
    activate,
    coordinates,
    forward,
    one_network,
)
from intarsia.sweetspot.pictures import check_size, png, png_encoder, rgb

SIZE = 48  # pixels along an edge, where inflation is measured
WEIGHTS = 200  # of a network that are tried
ERROR, WINDOW = 0.02, (0.01, 0.04)  # mean squared error of RGB: aimed at, and what is kept
SMALLEST, LARGEST = 1e-4, 1e2  # changes of a weight
STEPS, CLOSE = 24, 0.05  # of a bisection; a change that comes so close to the error ends it
SAME, STILL = 0.999, 1e-6  # |correlation| of maps that are one; deviation of maps that are none
CHUNK = 2**24  # floats of one layer at a time

Place = tuple[int, int, int]
"""A weight: its layer, counted from 0, its row (the unit that it feeds) and its column."""

Judge = Callable[[Tensor], bool]
"""Says of a picture, size x size x 3 from 0 to 1, whether it still is what it should be."""


@dataclass(frozen=True, eq=False)
class Inflation:
    """How much longer a picture's PNG gets when single weights change it equally much.

    ratios     PNG bytes after / before, of the weights that could be brought into the window
    places     those weights
    changes    what was added to each
    errors     mean squared error of the picture that it made
    tried      weights that were tried
    encoder    what wrote the PNG files
    """

    ratios: Tensor
    places: tuple[Place, ...]
    changes: Tensor
    errors: Tensor
    tried: int
    encoder: str = field(default_factory=png_encoder)

    @property
    def median(self) -> float:
        """Of the ratios; nan where no weight moves the picture."""
        return float(torch.quantile(self.ratios, 0.5)) if len(self.ratios) else float("nan")

    def __repr__(self) -> str:
        return f"Inflation(median {self.median:.3f}, of {len(self.ratios)} of {self.tried} weights)"

    def auc(self, other: "Inflation") -> float:
        """How often a ratio of another network is larger than one of this; equal ones count half.

        nan where either has none.
        """
        one, two = self.ratios[:, None], other.ratios[None]
        if not one.numel() or not two.numel():
            return float("nan")
        return float(((two > one).double() + 0.5 * (two == one).double()).mean())

    def to_json(self) -> dict[str, Any]:
        """Plain values: the median, how many weights it rests on, and the encoder."""
        median = self.median if len(self.ratios) else None
        return {
            "median": median,
            "weights": len(self.ratios),
            "tried": self.tried,
            "encoder": self.encoder,
        }


@torch.no_grad()
def inflation(
    network: PatternNetwork,
    *,
    size: int = SIZE,
    weights: int | None = WEIGHTS,
    seed: int = 0,
    error: float = ERROR,
    window: tuple[float, float] = WINDOW,
    device: torch.device | str = "cpu",
) -> Inflation:
    """Change nonzero weights one by one, with a random sign, until the picture's error is `error`.

    The change is found by bisection; weights whose error ends outside of the window are left out.
    Of more than `weights` a random choice is tried; None tries all of them.
    """
    low, high = window
    if not all(map(is_number, (low, error, high))) or not 0 < low <= error <= high:
        raise RecipeError(
            f"the error {shortened(error)} is not in the window {shortened(low)} to "
            f"{shortened(high)}: give one that is, above 0"
        )
    perturbed = PerturbedPictures(network, size, device)
    draw = torch.Generator().manual_seed(stream("inflation", seed))
    places = choose_weights(network, weights, draw)
    signs = torch.randint(0, 2, (len(places),), generator=draw) * 2.0 - 1
    changes, errors = _bisect(perturbed, places, signs.to(device), error)
    kept = ((errors >= low) & (errors <= high)).nonzero().flatten().tolist()
    before = len(png(perturbed.picture))
    chosen = [places[k] for k in kept]
    sizes = []
    for pictures in perturbed.each(chosen, changes[kept]):
        sizes += [len(png(picture)) / before for picture in pictures]
    return Inflation(
        torch.tensor(sizes, dtype=torch.float64),
        tuple(chosen),
        changes[kept].cpu(),
        errors[kept].cpu(),
        len(places),
    )


def perturb(
    network: PatternNetwork,
    places: Sequence[Place],
    change: float | Tensor,
    size: int = SIZE,
    device: torch.device | str = "cpu",
) -> Tensor:
    """The pictures with `change` added to one weight each: (N, size, size, 3)."""
    if not places:
        raise RecipeError("no weight is named: give at least one as (layer, row, column)")
    places = [check_place(network, place) for place in places]
    perturbed = PerturbedPictures(network, size, device)
    changes = torch.as_tensor(change, dtype=torch.float32)
    if changes.shape not in ((), (1,), (len(places),)) or not bool(changes.isfinite().all()):
        raise RecipeError(
            f"change is {shortened(change)}: expected a finite number, or one for each of the "
            f"{len(places)} weights"
        )
    changes = changes.expand(len(places))
    with torch.no_grad():
        return torch.cat([*perturbed.each(places, changes.to(device))])


def judged(
    network: PatternNetwork,
    judge: Judge,
    *,
    change: float = 0.5,
    size: int = 128,
    weights: int | None = WEIGHTS,
    seed: int = 0,
) -> float:
    """The share of nonzero weights that may change, up or down, and the judge still agrees."""
    if not is_number(change):
        raise RecipeError(f"change is {shortened(change)}: expected a number")
    draw = torch.Generator().manual_seed(stream("judged", seed))
    places = choose_weights(network, weights, draw)
    signs = torch.randint(0, 2, (len(places),), generator=draw) * 2.0 - 1
    answers = []
    with torch.no_grad():
        for pictures in PerturbedPictures(network, size).each(places, change * signs):
            answers += [_answer(judge, picture) for picture in pictures]
    return sum(answers) / len(answers)


@dataclass(frozen=True, eq=False)
class DistinctMaps:
    """Which maps of a network show something that no earlier one does.

    new        one row per hidden layer: the unit's map is the first of its kind
    still      the same shape: it does not change over the picture, and counts for nothing
    """

    new: Tensor
    still: Tensor

    @property
    def count(self) -> int:
        """Maps that are new."""
        return int(self.new.sum())

    @property
    def total(self) -> int:
        """Maps that change over the picture."""
        return int((~self.still).sum())

    def __repr__(self) -> str:
        return f"DistinctMaps({self.count} of {self.total})"


def distinct_maps(network: PatternNetwork, size: int = SIZE, same: float = SAME) -> DistinctMaps:
    """Maps, layer by layer from the inputs, whose |correlation| with all before is below `same`."""
    maps, still = _centred(network, size)
    rows = (~still).flatten().nonzero().flatten()
    directions = maps.flatten(0, 1)[rows]
    seen = torch.zeros(len(rows), dtype=torch.bool)
    for place, direction in enumerate(directions):
        seen[place] = not bool(((directions[seen] @ direction).abs() >= same).any())
    new = torch.zeros_like(still).flatten()
    new[rows[seen]] = True
    return DistinctMaps(new.view_as(still), still)


def orthogonality(network: PatternNetwork, size: int = SIZE) -> float:
    """1 minus the mean |correlation| of the maps of one layer, over all pairs that change.

    nan where no layer has two of them.
    """
    maps, still = _centred(network, size)
    alike = (maps @ maps.mT).abs()
    pairs = ~still[:, :, None] & ~still[:, None] & ~torch.eye(still.shape[1], dtype=torch.bool)
    return float(1 - alike[pairs].mean()) if pairs.any() else float("nan")


def png_ratio(picture: Tensor) -> float:
    """Bytes of the picture's PNG file over those of its pixels, three of each."""
    return len(png(picture)) / picture.numel()


def choose_weights(network: PatternNetwork, most: int | None, draw: torch.Generator) -> list[Place]:
    """The places of nonzero weights in order, or a random choice of so many."""
    places: list[Place] = [
        (layer, row, column)
        for layer, matrix in enumerate(one_network(network).weights)
        for row, column in matrix.nonzero().tolist()
    ]
    if not places:
        raise DataError(f"{network.name or 'the network'} has no weight that is not 0")
    if most is None or most >= len(places):
        return places
    if type(most) is not int or most < 1:
        raise RecipeError(f"weights is {shortened(most)}: expected a whole number from 1, or None")
    chosen = torch.randperm(len(places), generator=draw)[:most].sort().values
    return [places[k] for k in chosen.tolist()]


def check_place(network: PatternNetwork, place: Any) -> Place:
    """A weight of the network, or our error."""
    shapes = one_network(network).layout.shapes
    sound = (
        isinstance(place, Sequence)
        and len(place) == 3
        and all(type(number) is int for number in place)
        and 0 <= place[0] < len(shapes)
        and all(0 <= n < most for n, most in zip(place[1:], shapes[place[0]], strict=True))
    )
    if not sound:
        raise RecipeError(
            f"there is no weight {shortened(place)}: expected (layer, row, column), layers 0 to "
            f"{len(shapes) - 1}; the first is {shapes[0]}, those between are {shapes[-2]}, the "
            f"last {shapes[-1]}"
        )
    return (place[0], place[1], place[2])


class PerturbedPictures:
    """Pictures of one network with one weight changed, many at a time.

    What lies before the changed layer is computed once, and of that layer only one row changes.
    """

    def __init__(
        self, network: PatternNetwork, size: int, device: torch.device | str = "cpu"
    ) -> None:
        self.network, self.size = one_network(network), check_size(size)
        self.layout = network.layout
        self.weights = [w.to(device) for w in network.weights]
        inputs = coordinates(size, device)
        with torch.no_grad():
            outputs, maps = forward(self.layout, self.weights, inputs)
        self.read = [inputs, *maps]  # what each matrix reads
        self.picture = self._picture(outputs[None])[0]

    def each(self, places: Sequence[Place], changes: Tensor) -> Iterator[Tensor]:
        """Pictures (n, size, size, 3) of the places in order, as many at a time as fit."""
        at_once = max(1, CHUNK // (self.layout.width * self.size**2))
        start = 0
        while start < len(places):
            layer, end = places[start][0], start + 1
            while end < len(places) and places[end][0] == layer and end - start < at_once:
                end += 1
            yield self._changed(layer, places[start:end], changes[start:end])
            start = end

    def errors(self, places: Sequence[Place], changes: Tensor) -> Tensor:
        """Mean squared error of RGB to the picture as it is, for each place."""
        return torch.cat(
            [
                (pictures - self.picture).square().flatten(1).mean(1)
                for pictures in self.each(places, changes)
            ]
        )

    def unit_map(self, place: Place, change: float) -> Tensor:
        """What the unit that a weight feeds draws once the weight is changed: (size, size).

        Of an output it is the raw hue, saturation or value.
        """
        layer, row, column = place
        sums = self.weights[layer][row] @ self.read[layer] + change * self.read[layer][column]
        if layer < self.layout.depth:
            sums = ACTIVATIONS[self.layout.activations[row]](sums)
        return sums.view(self.size, self.size)

    def _changed(self, layer: int, places: Sequence[Place], changes: Tensor) -> Tensor:
        rows = torch.tensor([row for _, row, _ in places], device=changes.device)
        columns = torch.tensor([column for _, _, column in places], device=changes.device)
        sums = self.weights[layer] @ self.read[layer]
        sums = sums.expand(len(places), *sums.shape).clone()
        each = torch.arange(len(places), device=changes.device)
        sums[each, rows] += changes[:, None] * self.read[layer][columns]
        for matrix in self.weights[layer + 1 :]:
            sums = matrix @ activate(self.layout, sums)
        return self._picture(sums)

    def _picture(self, outputs: Tensor) -> Tensor:
        return rgb(outputs).mT.reshape(-1, self.size, self.size, OUTPUTS)


def _bisect(
    perturbed: PerturbedPictures, places: Sequence[Place], signs: Tensor, error: float
) -> tuple[Tensor, Tensor]:
    """For each weight the change, among all sizes, whose error is nearest to the one aimed at."""
    low = torch.full_like(signs, SMALLEST).log()
    high = torch.full_like(signs, LARGEST).log()
    changes, errors = torch.zeros_like(signs), torch.full_like(signs, torch.inf)
    open_ = torch.arange(len(places), device=signs.device)
    for _ in range(STEPS):
        middle = (low[open_] + high[open_]) / 2
        tried = signs[open_] * middle.exp()
        found = perturbed.errors([places[k] for k in open_.tolist()], tried)
        nearer = (found - error).abs() < (errors[open_] - error).abs()
        changes[open_[nearer]], errors[open_[nearer]] = tried[nearer], found[nearer]
        below = found < error
        low[open_[below]], high[open_[~below]] = middle[below], middle[~below]
        open_ = open_[(errors[open_] - error).abs() > CLOSE * error]
        if not len(open_):
            break
    return changes, errors


def _centred(network: PatternNetwork, size: int) -> tuple[Tensor, Tensor]:
    """Centred maps of length 1, (depth, width, pixels), and which are still: these are 0."""
    maps = torch.stack(one_network(network).maps(size)).flatten(2).double()
    maps = maps - maps.mean(2, keepdim=True)
    norms = maps.norm(dim=2)
    still = norms <= STILL * maps.shape[2] ** 0.5
    return maps / norms.masked_fill(still, torch.inf)[:, :, None], still


def _answer(judge: Judge, picture: Tensor) -> bool:
    answer: Any = judge(picture)
    if isinstance(answer, np.bool_) or (isinstance(answer, Tensor) and answer.shape == ()):
        answer = answer.item()
    if not isinstance(answer, bool):
        raise RecipeError(
            f"the judge answered {shortened(answer)}: a judge is a function of a picture that "
            "returns True or False"
        )
    return answer
