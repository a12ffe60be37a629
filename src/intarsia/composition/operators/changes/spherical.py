"""Tensors joined as directions with lengths: SLERP of two, multi-SLERP and Karcher mean of many.

A tensor is taken as a vector, and joined by itself. By default it is the weights that are joined,
as in mergekit 0.1.5; with base="origin", the default of multi-SLERP, the changes.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.arithmetic import (
    Weights,
    combination,
    combination_,
    normalised,
)
from intarsia.composition.operators.changes.tensor_changes import TensorJoin, tensor_operator
from intarsia.composition.operators.pieces import PieceJoin, TensorPieces, gram, gram_of
from intarsia.composition.operators.registry import copies
from intarsia.errors import RecipeError

PARALLEL = 0.9995  # of a cosine: beyond it directions are taken for one, and lengths interpolated
NOTHING = 1e-8  # a length below it has no direction
CANCELLED = 1e-6  # of a mean of directions: what is shorter, inner products do not tell from 0


@tensor_operator(
    "slerp",
    base="zero",
    paper="https://doi.org/10.1145/325334.325242",
    most=2,
    pieces=lambda tensor, context, settings: _combined(
        tensor, lambda products: arc_weights(products, settings["t"])
    ),
    memory=copies(8),
)
def slerp(context: MergeContext, t: float = 0.5) -> TensorJoin:
    """v = (sin((1 - t) a) v_1 + sin(t a) v_2) / sin a, with a the angle between v_1 and v_2.

    v_i is a tensor of part i, by name the first and the second. Where v_1 and v_2 are parallel or
    opposite, v = (1 - t) v_1 + t v_2.
    """
    if not 0 <= t <= 1:
        raise RecipeError(f"slerp: t is {t}: expected a fraction from 0 to 1")
    return lambda name, each: slerp_tensors(each, t)


@tensor_operator(
    "multislerp",
    paper="https://goddard.blog/posts/multislerp-wow-what-a-cool-idea",
    pieces=lambda tensor, context, settings: _combined(
        tensor,
        lambda products: direction_weights(
            products, normalised(context.weights(settings["weights"]), "multislerp")
        ),
    ),
    memory=copies(8),
)
def multislerp(context: MergeContext, weights: Weights = 1.0) -> TensorJoin:
    """v = (sum of w_i |v_i|) m / |m| with m = sum of w_i v_i / |v_i|, the weights adding up to 1.

    That is the step in the tangent space at the mean direction, whose length is 0 there. Where
    directions cancel out, v is the weighted mean.
    """
    given = normalised(context.weights(weights), "multislerp")
    return lambda name, each: mean_direction(each, given)


@tensor_operator(
    "karcher",
    base="zero",
    paper="https://doi.org/10.1002/cpa.3160300502",
    pieces=lambda tensor, context, settings: _combined(
        tensor,
        lambda products: karcher_weights(
            products,
            normalised(context.weights(settings["weights"]), "karcher"),
            settings["steps"],
            settings["tolerance"],
        ),
    ),
    memory=copies(8),
)
def karcher(
    context: MergeContext, weights: Weights = 1.0, steps: int = 10, tolerance: float = 1e-5
) -> TensorJoin:
    """v = (sum of w_i |v_i|) m, with m of length 1 and the least sum of w_i angle(m, v_i)^2.

    The weights add up to 1. It is found from the mean direction by at most so many `steps` along
    the sphere, until one is shorter than the tolerance; so short a tensor has no direction.
    """
    if steps < 0:
        raise RecipeError(f"karcher: steps is {steps}: expected 0 or more")
    if tolerance <= 0:
        raise RecipeError(f"karcher: tolerance is {tolerance}: expected a number above 0")
    given = normalised(context.weights(weights), "karcher")
    return lambda name, each: karcher_mean(each, given, steps, tolerance)


def slerp_tensors(each: Sequence[Tensor], t: float) -> Tensor:
    """One tensor, or the point at t on the arc from the first to the second."""
    return combination(arc_weights(gram(each), t), each)


def mean_direction(each: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The mean of the directions, as long as the tensors are in the mean."""
    return combination(direction_weights(gram(each), weights), each)


def karcher_mean(
    each: Sequence[Tensor], weights: Sequence[float], steps: int, tolerance: float
) -> Tensor:
    """The mean on the sphere, as long as the tensors are in the mean; 0 where all are 0."""
    return combination(karcher_weights(gram(each), weights, steps, tolerance), each)


def arc_weights(products: Tensor, t: float) -> list[float]:
    """The weights of one or two tensors in SLERP, from their inner products."""
    if len(products) == 1:
        return [1.0]
    lengths = [length if length > NOTHING else 1.0 for length in _lengths(products)]
    cosine = _clamped(float(products[0, 1]) / lengths[0] / lengths[1])
    if abs(cosine) > PARALLEL:
        return [1 - t, t]
    angle = math.acos(cosine)
    return [math.sin((1 - t) * angle) / math.sin(angle), math.sin(t * angle) / math.sin(angle)]


def direction_weights(products: Tensor, weights: Sequence[float]) -> list[float]:
    """The weights of the tensors in their mean direction, from their inner products."""
    if len(products) == 1:
        return [1.0]
    lengths = _lengths(products)
    pairs = zip(weights, lengths, strict=True)
    own = [weight / length if length > NOTHING else weight for weight, length in pairs]
    length = _length(torch.tensor(own, dtype=torch.float64), products)
    if length < CANCELLED:
        return list(weights)
    mean = sum(weight * own for weight, own in zip(weights, lengths, strict=True))
    return [factor * mean / length for factor in own]


def karcher_weights(
    products: Tensor, weights: Sequence[float], steps: int, tolerance: float
) -> list[float]:
    """The weights of the tensors in their Karcher mean, from their inner products.

    The mean lies in the span of the directions, so that all steps are taken in weights of these.
    """
    if len(products) == 1:
        return [1.0]
    lengths = _lengths(products)
    pairs = enumerate(zip(weights, lengths, strict=True))
    chosen = [i for i, (weight, length) in pairs if weight != 0 and length > tolerance]
    if not chosen:
        return [0.0] * len(lengths)
    shares = normalised([weights[i] for i in chosen], "karcher")
    scale = torch.tensor([lengths[i] for i in chosen], dtype=torch.float64)
    cosines = products[chosen][:, chosen] / scale[:, None] / scale
    mean = torch.tensor(shares, dtype=torch.float64)
    length = _length(mean, cosines)
    mean = torch.eye(len(chosen), dtype=torch.float64)[0] if length < tolerance else mean / length
    for _ in range(steps):
        tangent = _tangent(mean, cosines, shares, tolerance)
        length = _length(tangent, cosines)
        if length < tolerance:
            break
        mean = math.cos(length) * mean + (math.sin(length) / length) * tangent
        mean = mean / _length(mean, cosines)
    radius = sum(weight * own for weight, own in zip(weights, lengths, strict=True))
    found = [0.0] * len(lengths)
    for i, factor in zip(chosen, (radius * mean / scale).tolist(), strict=True):
        found[i] = factor
    return found


def _tangent(mean: Tensor, cosines: Tensor, shares: Sequence[float], tolerance: float) -> Tensor:
    """The shares' sum of tangents at the mean along the arcs to the directions.

    The tangent to one is 0 where it is the mean, or opposite.
    """
    tangent = torch.zeros_like(mean)
    for i, (share, cosine) in enumerate(zip(shares, (cosines @ mean).tolist(), strict=True)):
        cosine = _clamped(cosine)
        angle = math.acos(cosine)
        if tolerance <= angle <= math.pi - tolerance:
            factor = share * angle / math.sin(angle)
            tangent -= factor * cosine * mean
            tangent[i] += factor
    return tangent


def _lengths(products: Tensor) -> list[float]:
    lengths: list[float] = products.diagonal().sqrt().tolist()
    return lengths


def _length(weights: Tensor, products: Tensor) -> float:
    """Of a sum of tensors with these weights."""
    return math.sqrt(max(float(weights @ products @ weights), 0.0))


def _clamped(cosine: float) -> float:
    return min(max(cosine, -1.0), 1.0)


def _combined(tensor: TensorPieces, weights: Callable[[Tensor], Sequence[float]]) -> PieceJoin:
    """A combination by weights that are found from the inner products of the parts."""
    found = weights(gram_of(tensor))
    return lambda changes, start: combination_(found, changes)
