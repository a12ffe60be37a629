"""Changes thinned out by magnitude before they are joined: breadcrumbs and DELLA.

Sources: the papers, https://arxiv.org/abs/2312.06795 and https://arxiv.org/abs/2406.11617;
mergekit 0.1.5, whose results breadcrumbs and the preset "mergekit" of DELLA equal. What is left is
added up, or joined by TIES.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.arithmetic import (
    Density,
    Weights,
    check_density,
    check_fraction,
    combination,
)
from intarsia.composition.operators.changes import ties
from intarsia.composition.operators.changes.dare import drop, norm_scales, uniform
from intarsia.composition.operators.changes.tensor_changes import (
    TensorJoin,
    rows_of,
    tensor_operator,
)
from intarsia.composition.operators.pieces import PieceJoin, TensorPieces, largest
from intarsia.composition.operators.registry import copies
from intarsia.errors import RecipeError

Consensus = Literal["sum", "ties"]
SPREAD = 0.15  # mergekit's epsilon


@dataclass(frozen=True)
class Della:
    """What follows the drop: entries divided by their probability or by norm, and the TIES."""

    rescale: Literal["probability", "norm"]
    ties: ties.Ties


DELLA = {
    "paper": Della("probability", replace(ties.PRESETS["paper"], density=1.0)),
    "mergekit": Della("norm", ties.PRESETS["mergekit"]),
}
BREADCRUMBS = replace(ties.PRESETS["mergekit"], reduce="sum")


@tensor_operator(
    "breadcrumbs",
    paper="https://arxiv.org/abs/2312.06795",
    pieces=lambda tensor, context, settings: _breadcrumbs_pieces(tensor, context, settings),
    memory=copies(11),
)
def breadcrumbs(
    context: MergeContext,
    density: Density = 0.9,
    gamma: float = 0.01,
    consensus: Consensus = "sum",
    weights: Weights = 1.0,
    scale: float = 1.0,
) -> TensorJoin:
    """Drop the largest and the smallest entries of each tau_i, and join the others.

    Of a tensor the fraction `gamma` that is largest goes first, then the smallest until `density`
    is left; less of the largest where that would leave too few. With density=1 nothing goes.
    """
    check_density("breadcrumbs", density)
    given, densities = context.weights(weights), context.densities(density)
    check_fraction("breadcrumbs", "gamma", gamma, zero=True)

    def join(name: str, changes: list[Tensor]) -> Tensor:
        pairs = zip(changes, densities, strict=True)
        left = [without_extremes(change, own, gamma) for change, own in pairs]
        return scale * joined(left, given, consensus, BREADCRUMBS)

    return join


@tensor_operator(
    "della",
    paper="https://arxiv.org/abs/2406.11617",
    pieces=lambda tensor, context, settings: _della_pieces(tensor, context, settings),
    by_rows=True,
    memory=copies(11),
)
def della(
    context: MergeContext,
    density: Density = 0.5,
    epsilon: float | None = None,
    seed: int = 0,
    consensus: Consensus = "ties",
    preset: Literal["paper", "mergekit"] = "paper",
    weights: Weights = 1.0,
    scale: float = 1.0,
) -> TensorJoin:
    """Drop entries of each tau_i at random, small ones sooner; rescale the others and join them.

    In every row the chance to stay grows with the rank by magnitude, from density - epsilon to
    density + epsilon. Epsilon is 0.15, or half of what density leaves room for. What stays is
    divided by its chance; preset="mergekit" scales a tensor back to its sum of magnitudes. A draw
    depends on the seed and the names of part and tensor alone.
    """
    check_density("della", density)
    densities = context.densities(density)
    spreads = _spreads(densities, epsilon)
    given, how = context.weights(weights), DELLA[preset]

    def join(name: str, changes: list[Tensor]) -> Tensor:
        left = []
        each = zip(context.parts, changes, densities, spreads, strict=True)
        for part, change, own, spread in each:
            numbers = uniform(f"{part.name}/{name}", change.numel(), seed).to(change.device)
            left.append(magnitude_drop(change, numbers, own, spread, how.rescale))
        return scale * joined(left, given, consensus, how.ties)

    return join


def _breadcrumbs_pieces(
    tensor: TensorPieces, context: MergeContext, settings: Mapping[str, Any]
) -> PieceJoin:
    given, scale = context.weights(settings["weights"]), settings["scale"]
    parts, gamma = len(given), settings["gamma"]
    densities = context.densities(settings["density"])
    ranks = [_kept_ranks(tensor.entries, density, gamma) for density in densities]
    found = largest(
        tensor,
        lambda changes: [change.abs() for change in changes] * 2,
        [*(top for top, _ in ranks), *(top + count for top, count in ranks)],
    )
    beyond, within = found[:parts], found[parts:]

    def join(changes: list[Tensor], start: int) -> Tensor:
        left = []
        for change, largest_ones, others in zip(changes, beyond, within, strict=True):
            size = change.abs()
            kept = others.of(size, start) & ~largest_ones.of(size, start)
            left.append(torch.where(kept, change, 0))
        return scale * joined(left, given, settings["consensus"], BREADCRUMBS)

    return join


def _della_pieces(
    tensor: TensorPieces, context: MergeContext, settings: Mapping[str, Any]
) -> PieceJoin:
    seed, scale = settings["seed"], settings["scale"]
    densities = context.densities(settings["density"])
    spreads = _spreads(densities, settings["epsilon"])
    given, how = context.weights(settings["weights"]), DELLA[settings["preset"]]
    plain: Literal["probability", "none"] = "none" if how.rescale == "norm" else "probability"

    def left(changes: list[Tensor], start: int) -> list[Tensor]:
        each = []
        for part, change, own, spread in zip(
            context.parts, changes, densities, spreads, strict=True
        ):
            numbers = uniform(f"{part.name}/{tensor.name}", change.numel(), seed, start)
            each.append(magnitude_drop(change, numbers, own, spread, plain))
        return each

    scales = [1.0] * len(given)
    if how.rescale == "norm" and min(densities) < 1:
        scales = norm_scales(tensor, left)

    def join(changes: list[Tensor], start: int) -> Tensor:
        scaled = [c * f for c, f in zip(left(changes, start), scales, strict=True)]
        return scale * joined(scaled, given, settings["consensus"], how.ties)

    return join


def _kept_ranks(entries: int, density: float, gamma: float) -> tuple[int, int]:
    """How many of the largest entries go, and how many stay after them."""
    count = entries if density == 1 else int(density * entries)
    return min(int(gamma * entries), entries - count), count


def without_extremes(change: Tensor, density: float, gamma: float) -> Tensor:
    """The change without its largest and its smallest entries; of equals the earlier is larger."""
    entries = change.numel()
    top, count = _kept_ranks(entries, density, gamma)
    order = change.abs().flatten().sort(descending=True, stable=True).indices
    kept = torch.zeros(entries, dtype=torch.bool, device=change.device)
    kept[order[top : top + count]] = True
    return torch.where(kept.reshape(change.shape), change, 0)


def magnitude_drop(
    change: Tensor,
    numbers: Tensor,
    density: float,
    epsilon: float,
    rescale: Literal["probability", "norm", "none"],
) -> Tensor:
    """What stays of a change where uniform `numbers`, one per entry, lie below the chance."""
    chance = chances(change, density, epsilon)
    kept = numbers.reshape(change.shape) < chance
    if rescale == "probability":
        return torch.where(kept, change / chance, 0)
    left = drop(change.flatten(), kept.flatten(), density, rescale, [change.numel()])
    return left.reshape(change.shape)


def chances(change: Tensor, density: float, epsilon: float) -> Tensor:
    """How probable it is that an entry stays, by its rank in its row; of equals the later ranks up.

    A row of one entry has the density itself.
    """
    rows = rows_of(change)
    columns = rows.shape[1]
    if columns < 2:
        return torch.full_like(change, density)
    order = rows.abs().argsort(dim=1, stable=True)
    places = torch.arange(columns, dtype=change.dtype, device=change.device)
    ranks = torch.empty_like(rows).scatter_(1, order, places.expand(rows.shape))  # 0 the smallest
    return (density - epsilon + 2 * epsilon * ranks / (columns - 1)).reshape(change.shape)


def joined(
    changes: Sequence[Tensor], weights: Sequence[float], consensus: Consensus, how: ties.Ties
) -> Tensor:
    """The weighted sum, or TIES without a trim."""
    if consensus == "sum":
        return combination(weights, changes)
    flat = [change.flatten() for change in changes]
    return ties.join(flat, weights, [flat[0].numel()], how).reshape(changes[0].shape)


def _spreads(densities: Sequence[float], epsilon: float | None) -> list[float]:
    """Of every part; one that keeps all beside others that do not has none."""
    whole = min(densities) < 1
    return [0.0 if whole and own == 1 else _spread(own, epsilon) for own in densities]


def _spread(density: float, epsilon: float | None) -> float:
    room = min(density, 1 - density)
    if epsilon is None:
        return min(SPREAD, room / 2)
    if epsilon < 0 or (epsilon >= room and epsilon > 0):
        raise RecipeError(
            f"della: epsilon is {epsilon} with density {density}: expected a number from 0, below "
            f"{room:g}, so that chances from density - epsilon to density + epsilon are fractions"
        )
    return epsilon
