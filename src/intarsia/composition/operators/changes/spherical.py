"""Tensors joined as directions with lengths: SLERP of two, multi-SLERP and Karcher mean of many.

A tensor is taken as a vector, and joined by itself. By default it is the weights that are joined,
as in mergekit 0.1.5; with base="origin", the default of multi-SLERP, the changes.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.arithmetic import Weights, combination, normalised
from intarsia.composition.operators.changes.tensor_changes import TensorJoin, tensor_operator
from intarsia.composition.operators.registry import copies
from intarsia.errors import RecipeError

PARALLEL = 0.9995  # of a cosine: beyond it directions are taken for one, and lengths interpolated
NOTHING = 1e-8  # a length below it has no direction


@tensor_operator(
    "slerp", base="zero", paper="https://doi.org/10.1145/325334.325242", most=2, memory=copies(8)
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
    "karcher", base="zero", paper="https://doi.org/10.1002/cpa.3160300502", memory=copies(8)
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
    if len(each) == 1:
        return each[0]
    first, second = each
    cosine = float((_unit(first) * _unit(second)).sum().clamp(-1, 1))
    if abs(cosine) > PARALLEL:
        return (1 - t) * first + t * second
    angle = math.acos(cosine)
    weights = math.sin((1 - t) * angle), math.sin(t * angle)
    return combination([weight / math.sin(angle) for weight in weights], each)


def mean_direction(each: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The mean of the directions, as long as the tensors are in the mean."""
    if len(each) == 1:
        return each[0]
    direction = combination(weights, [_unit(tensor) for tensor in each])
    length = float(direction.norm())
    if length < NOTHING:
        return combination(weights, each)
    return direction * (_mean_length(each, weights) / length)


def karcher_mean(
    each: Sequence[Tensor], weights: Sequence[float], steps: int, tolerance: float
) -> Tensor:
    """The mean on the sphere, as long as the tensors are in the mean; 0 where all are 0."""
    if len(each) == 1:
        return each[0]
    pairs = [(w, t / t.norm()) for w, t in zip(weights, each, strict=True) if t.norm() > tolerance]
    if not pairs:
        return torch.zeros_like(each[0])
    shares = normalised([weight for weight, _ in pairs], "karcher")
    units = [unit for _, unit in pairs]
    mean = combination(shares, units)
    length = float(mean.norm())
    mean = units[0] if length < tolerance else mean / length
    for _ in range(steps):
        tangent = combination(shares, [_towards(mean, unit, tolerance) for unit in units])
        length = float(tangent.norm())
        if length < tolerance:
            break
        mean = math.cos(length) * mean + (math.sin(length) / length) * tangent
        mean = mean / mean.norm()
    return _mean_length(each, weights) * mean


def _towards(start: Tensor, end: Tensor, tolerance: float) -> Tensor:
    """The tangent at `start` along the arc to `end`; 0 where they are one or opposite."""
    cosine = float((start * end).sum().clamp(-1, 1))
    angle = math.acos(cosine)
    if angle < tolerance or angle > math.pi - tolerance:
        return torch.zeros_like(start)
    return (angle / math.sin(angle)) * (end - cosine * start)


def _unit(tensor: Tensor) -> Tensor:
    length = tensor.norm()
    return tensor / length if length > NOTHING else tensor


def _mean_length(each: Sequence[Tensor], weights: Sequence[float]) -> float:
    return sum(w * float(tensor.norm()) for w, tensor in zip(weights, each, strict=True))
