"""Structured pruning: whole hidden units go, channels of a convolution among them."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from intarsia.errors import RecipeError, WiringError
from intarsia.models.wiring import Wiring, axis_sizes, hidden_axes
from intarsia.pruning.group import (
    PRUNINGS,
    Group,
    Mask,
    State,
    check_separable,
    owned_mask,
    unit_norms,
)

STEPS = 40  # of a bisection


@PRUNINGS.register("units", needs_units=True)
def units(group: Group, by: str = "weights") -> list[Mask]:
    """Prune whole hidden units with all their weights, the same share of every axis.

    As few go as leave no more parameters than were asked for, all of them counted, since units that
    go take those of their normalisations along; one of each axis stays. By `weights` units go whose
    weights, in and out, have the smallest squares; by `scale` those whose normalisations scale them
    least.
    """
    if by not in ("weights", "scale"):
        raise RecipeError(f"unknown rule {by!r} to prune units by: use 'weights' or 'scale'")
    if group.wiring is None:
        raise WiringError(
            "whole units cannot be pruned where they have no names: give the network a `wiring`, "
            "or prune by magnitude"
        )
    check_separable(group.wiring)
    return [
        _without_smallest(state, mask, group, by)
        for state, mask in zip(group.states, group.masks, strict=True)
    ]


def _without_smallest(state: State, mask: Mask, group: Group, by: str) -> Mask:
    wiring = group.wiring
    assert wiring is not None
    sizes = axis_sizes(wiring, state)
    alive = {axis: _alive(mask, wiring, axis, sizes[axis]) for axis in hidden_axes(wiring)}
    kept = _kept_counts(alive, state, group)
    owned = {}
    for axis, units in alive.items():
        scores = _scores(state, group, axis, sizes[axis], by).masked_fill(~units, -math.inf)
        best = torch.argsort(scores, descending=True, stable=True)[: kept[axis]]
        owned[axis] = torch.zeros_like(units)
        owned[axis][best] = True
    return owned_mask(state, wiring, owned, mask)


def _alive(mask: Mask, wiring: Wiring, axis: str, units: int) -> Tensor:
    """Which units of an axis have a weight left."""
    alive = torch.zeros(units, dtype=torch.bool)
    for name, entry in wiring.items():
        for dimension, each in enumerate(entry if len(entry) > 1 else ()):
            if each is None or each.name != axis:
                continue
            if name not in mask:
                return torch.ones(units, dtype=torch.bool)
            kept = mask[name].detach().cpu().movedim(dimension, 0)
            alive |= kept.reshape(units, -1).any(1)
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
    return sum(
        math.prod(
            counts[axis.name] * axis.block if axis and axis.name in counts else size
            for axis, size in zip(entry, state[name].shape, strict=True)
        )
        for name, entry in group.wiring.items()
    )


def _scores(state: State, group: Group, axis: str, units: int, by: str) -> Tensor:
    assert group.wiring is not None
    if by == "weights":
        return unit_norms(state, group.wiring, axis, units)
    scales = [
        state[name].detach().cpu().double().square()
        for name, entry in group.wiring.items()
        if name in group.spared
        and name.endswith("weight")
        and [a and a.name for a in entry] == [axis]
    ]
    if not scales:
        raise RecipeError(
            f"the units of axis {axis!r} have no normalisation that scales them: prune units by "
            "'weights'"
        )
    return torch.stack(scales).sum(0)
