"""Weights joined entry by entry: sum, mean, weighted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.arithmetic import (
    Weights,
    combination,
    combination_,
    mean,
    normalised,
)
from intarsia.composition.operators.pieces import PieceJoin
from intarsia.composition.operators.registry import States, copies, operator
from intarsia.modules.architecture import Plan
from intarsia.modules.statistics import is_half, joint_buffer, mean_where, sibling_name, total

Affine = Literal["sum", "mean"]
SOUPS = "https://arxiv.org/abs/2203.05482"  # model soups


@operator(
    "sum",
    on="weights",
    paper="https://openreview.net/forum?id=Z0j9NJt08I",
    colour="#1d120a",
    label="weights added",
    weight_sum=True,
    tensorwise=lambda settings: settings["affine"] == "sum",  # else it asks for running means
    entrywise=True,
    pieces=lambda tensor, context, settings: lambda changes, start: _sum_(changes),
    memory=copies(1),
)
def sum_of_weights(
    states: States, context: MergeContext, affine: Affine = "sum"
) -> dict[str, Tensor]:
    """theta = sum of theta_i; a unit's statistics are averaged over the modules that keep it.

    `affine="mean"` averages the gamma and beta of normalisations too, each over the modules in
    which it is not pruned.
    """
    plan = context.plan

    def join(name: str, tensors: list[Tensor]) -> Tensor:
        if affine == "mean" and _is_affine(name, plan):
            return mean_where(tensors, [t != 0 for t in tensors], [1.0] * len(tensors))
        return total(tensors)

    return join_states(states, plan, join)


@operator(
    "mean",
    on="weights",
    paper=SOUPS,
    colour="#e8b32a",
    tensorwise=True,
    entrywise=True,
    pieces=lambda tensor, context, settings: lambda c, start: _sum_(c).div_(len(c)),
    memory=copies(1),
)
def mean_of_weights(states: States, context: MergeContext) -> dict[str, Tensor]:
    """theta = sum of theta_i / K over all K modules, also those in which an entry is pruned."""
    return join_states(states, context.plan, lambda name, tensors: mean(tensors))


@operator(
    "weighted",
    on="weights",
    paper=SOUPS,
    tensorwise=True,
    entrywise=True,
    pieces=lambda tensor, context, settings: _weighted_pieces(context, settings),
    memory=copies(2),
)
def weighted_sum(
    states: States, context: MergeContext, weights: Weights = 1.0, normalise: bool = False
) -> dict[str, Tensor]:
    """theta = sum of w_i theta_i, or that divided by the sum of w_i."""
    factors = _factors(context, weights, normalise)
    return join_states(states, context.plan, lambda name, tensors: combination(factors, tensors))


def _weighted_pieces(context: MergeContext, settings: Mapping[str, Any]) -> PieceJoin:
    factors = _factors(context, settings["weights"], settings["normalise"])
    return lambda changes, start: combination_(factors, changes)


def _factors(context: MergeContext, weights: Weights, normalise: bool) -> list[float]:
    given = context.weights(weights)
    return normalised(given, "weighted") if normalise else given


def _sum_(tensors: Sequence[Tensor]) -> Tensor:
    return combination_([1.0] * len(tensors), tensors)


def join_states(
    states: States, plan: Plan, learned: Callable[[str, list[Tensor]], Tensor]
) -> dict[str, Tensor]:
    """Parameters by a function of name and tensors; buffers by the rule that all operators keep.

    The statistics of a unit are the mean over the modules whose normalisation weight is not pruned
    there, or over all where it is pruned everywhere; of counts the largest is taken. What is in
    half precision is joined in float64, and rounded once.
    """

    def joined(name: str) -> Tensor:
        tensors = [state[name] for state in states]
        if not is_half(tensors[0]):
            return learned(name, tensors)
        return learned(name, [tensor.double() for tensor in tensors]).to(tensors[0].dtype)

    return {
        name: joined(name) if entry.learned else joint_buffer(name, states, [1.0] * len(states))
        for name, entry in plan.items()
    }


def _is_affine(name: str, plan: Plan) -> bool:
    """Whether a tensor scales or shifts the units whose running mean its layer keeps."""
    statistics = sibling_name(name, "running_mean")
    return statistics in plan and plan[statistics].shape == plan[name].shape
