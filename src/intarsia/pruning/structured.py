"""Structured pruning: whole hidden units go, channels of a convolution among them."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from intarsia.errors import RecipeError, WiringError
from intarsia.models.axes import (
    Axis,
    Wiring,
    axis_sizes,
    hidden_axes,
    known_sizes,
    names_in,
    resized_shape,
    runs,
)
from intarsia.pruning.group import PRUNINGS, Group, Mask, State
from intarsia.pruning.territory import check_separable, owned_mask, unit_norms

STEPS = 40  # of a bisection


@PRUNINGS.register("units", needs_units=True, check=lambda wiring, *_: check_separable(wiring))
def units(group: Group, by: str = "weights") -> list[Mask]:
    """Prune whole hidden units with all their weights, the same share of every axis.

    As few go as leave no more parameters than were asked for, all of them counted, since units that
    go take those of their normalisations along; one of each axis stays. By `weights` units go whose
    weights, in and out, have the smallest squares; by `scale` those whose normalisations scale them
    least.
    """
    if by not in ("weights", "scale"):
        raise RecipeError(f"unknown rule {by!r} to prune units by: use 'weights' or 'scale'")
    wiring = _checked_wiring(group)

    def scores(member: int, axis: str) -> Tensor:
        state = group.states[member]
        if by == "scale":
            return _scales(state, group, axis)
        return unit_norms(state, wiring, axis, axis_sizes(wiring, state)[axis])

    return _without_lowest(group, scores)


@PRUNINGS.register(
    "similarity",
    needs_units=True,
    needs_samples=True,
    check=lambda wiring, *_: check_separable(wiring),
)
def similarity(group: Group, by: str = "cosine") -> list[Mask]:
    """Prune whole hidden units that answer like others, the same share of every axis.

    Of the two most alike the one that answers less goes, until as few are left as `units` leaves.
    Alike are those whose answers to samples have the largest |cosine|, or |correlation|.
    """
    if by not in ("cosine", "correlation"):
        raise RecipeError(f"unknown likeness {by!r} of units: use 'cosine' or 'correlation'")
    _checked_wiring(group)
    if len(group.activations) != len(group.states):
        raise RecipeError(
            f"similarity compares what units answer, and {len(group.activations)} of "
            f"{len(group.states)} modules of the group bring activations: give those of each"
        )

    def scores(member: int, axis: str) -> Tensor:
        return _last_to_go(group.activations[member][axis], centred=by == "correlation")

    return _without_lowest(group, scores)


def _checked_wiring(group: Group) -> Wiring:
    if group.wiring is None:
        raise WiringError(
            "whole units cannot be pruned where they have no names: give the network a `wiring`, "
            "or prune by magnitude"
        )
    check_separable(group.wiring)
    return group.wiring


def _without_lowest(group: Group, scores: Callable[[int, str], Tensor]) -> list[Mask]:
    """The masks without the units of each module and axis that score lowest."""
    return [
        _kept_best(state, mask, group, partial(scores, member))
        for member, (state, mask) in enumerate(zip(group.states, group.masks, strict=True))
    ]


def _kept_best(state: State, mask: Mask, group: Group, scores: Callable[[str], Tensor]) -> Mask:
    wiring = group.wiring
    assert wiring is not None
    sizes = axis_sizes(wiring, state)
    alive = {axis: _alive(mask, wiring, axis, sizes[axis]) for axis in hidden_axes(wiring)}
    kept = _kept_counts(alive, state, group)
    owned = {}
    for axis, units in alive.items():
        ranked = scores(axis).masked_fill(~units, -math.inf)
        best = torch.argsort(ranked, descending=True, stable=True)[: kept[axis]]
        owned[axis] = torch.zeros_like(units)
        owned[axis][best] = True
    return owned_mask(state, wiring, owned, mask)


def _alive(mask: Mask, wiring: Wiring, axis: str, units: int) -> Tensor:
    """Which units of an axis have a weight left."""
    alive = torch.zeros(units, dtype=torch.bool)
    sizes = known_sizes(wiring, mask) | {axis: units}
    for name, entry in wiring.items():
        if len(entry) < 2 or axis not in names_in(entry):
            continue
        if name not in mask:
            return torch.ones(units, dtype=torch.bool)
        for run in runs(entry, mask[name].shape, sizes):
            if run.axis.name == axis:
                alive |= run.by_unit(mask[name].detach().cpu()).any(1)
    return alive


def _kept_counts(alive: Mapping[str, Tensor], state: State, group: Group) -> dict[str, int]:
    """How many units of each axis stay: the largest share of all that leaves few enough numbers."""
    before = {axis: int(units.sum()) for axis, units in alive.items()}
    most = (1 - group.fraction) * _parameters(before, state, group)

    def shared(share: float) -> dict[str, int]:
        return {axis: max(1, math.floor(share * count)) for axis, count in before.items()}

    low, high = 0.0, 1.0
    if _parameters(shared(high), state, group) <= most:
        return shared(high)
    for _ in range(STEPS):
        middle = (low + high) / 2
        fits = _parameters(shared(middle), state, group) <= most
        low, high = (middle, high) if fits else (low, middle)
    return shared(low)


def _parameters(counts: Mapping[str, int], state: State, group: Group) -> int:
    """The parameters of a network of so many units on each axis."""
    assert group.wiring is not None
    sizes = axis_sizes(group.wiring, state)
    return sum(
        math.prod(resized_shape(entry, state[name].shape, sizes, counts))
        for name, entry in group.wiring.items()
    )


def _scales(state: State, group: Group, axis: str) -> Tensor:
    """How much normalisations scale each unit."""
    assert group.wiring is not None
    scales = [
        state[name].detach().cpu().double().square()
        for name, entry in group.wiring.items()
        if name in group.spared and name.endswith("weight") and entry == (Axis(axis),)
    ]
    if not scales:
        raise RecipeError(
            f"the units of axis {axis!r} have no normalisation that scales them: prune units by "
            "'weights'"
        )
    return torch.stack(scales).sum(0)


def _last_to_go(answers: Tensor, centred: bool) -> Tensor:
    """For each unit, when it goes if of the two most alike always the weaker does: 0 goes first.

    A unit that answers nothing, or never changes where answers are centred, is like all others.
    """
    answers = answers.detach().cpu().double()
    if centred:
        answers = answers - answers.mean(1, keepdim=True)
    norms = answers.norm(dim=1)
    silent = norms <= 1e-10 * norms.max()
    directions = answers / norms.masked_fill(silent, 1.0)[:, None]
    alike = (directions @ directions.T).abs()
    alike[silent], alike[:, silent] = 1.0, 1.0
    alike.fill_diagonal_(-1.0)
    closest, nearest = alike.max(1)
    goes = torch.full((len(norms),), float(len(norms)), dtype=torch.float64)
    for step in range(len(norms) - 1):
        one = int(closest.argmax())
        other = int(nearest[one])
        gone = one if norms[one] < norms[other] else other
        goes[gone] = step
        alike[gone], alike[:, gone], closest[gone] = -1.0, -1.0, -2.0
        orphans = (nearest == gone) & (closest > -2.0)
        if orphans.any():
            closest[orphans], nearest[orphans] = alike[orphans].max(1)
    return goes
