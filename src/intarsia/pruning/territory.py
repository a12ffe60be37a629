"""Territory: each module owns hidden units, so that a sum of weights equals a sum of logits."""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor

from intarsia.errors import RecipeError, WiringError
from intarsia.models.axes import (
    INPUT,
    OUTPUT,
    Axis,
    Wiring,
    all_axes,
    axis_sizes,
    hidden_axes,
    names_in,
    runs,
)
from intarsia.models.units import unit_mask
from intarsia.pruning.group import PRUNINGS, Group, Mask, State


def check_territories(wiring: Wiring, state: State, modules: int) -> None:
    """Our error where so many modules cannot own hidden units of a network."""
    check_separable(wiring)
    if not hidden_axes(wiring) and any(e[0] != Axis(OUTPUT) for e in wiring.values() if e):
        raise RecipeError(
            "territories are made of hidden units, and this network has none (a residual of its "
            "input has the input's): use another network, or another pruning"
        )
    sizes = axis_sizes(wiring, state)
    for axis in hidden_axes(wiring):
        if sizes[axis] < modules:
            raise RecipeError(
                f"{modules} modules cannot share the {sizes[axis]} units of axis {axis!r}: "
                "use a wider network or fewer modules"
            )


@PRUNINGS.register(
    "territory",
    check=check_territories,
    whole_group=True,
    needs_units=True,
    own_sparsity=True,
    before_training=lambda settings: settings["by"] == "share",
)
def territory(group: Group, by: str = "share") -> list[Mask]:
    """Give every hidden unit to one module of its seed and prune what crosses a border.

    `share` hands out equal runs of units before training. `magnitude` lets modules win units by
    the size of their weights after a dense round, in equal numbers, largest claim first.
    """
    if by not in ("share", "magnitude"):
        raise RecipeError(f"unknown territory rule {by!r}: use 'share' or 'magnitude'")
    wiring = group.wiring
    if wiring is None:
        raise WiringError(
            "territories are made of units, and this network's have no names: give it a `wiring`, "
            "or use another pruning"
        )
    masks: list[Mask] = [dict(m) for m in group.masks]
    together = defaultdict(list)
    for position, seed in enumerate(group.seeds):
        together[seed].append(position)
    for members in together.values():
        states = [group.states[m] for m in members]
        check_territories(wiring, states[0], len(states))
        owners = _equal_runs(states, wiring) if by == "share" else _auctioned(states, wiring)
        for rank, member in enumerate(members):
            owned = {axis: owner == rank for axis, owner in owners.items()}
            masks[member] = owned_mask(states[rank], wiring, owned, masks[member])
    return masks


def check_separable(wiring: Wiring) -> None:
    """Our error where hidden units meet outside the weights, so that none stands alone."""
    for axis in all_axes(wiring):
        if axis.joint and axis.name != INPUT:
            raise RecipeError(
                f"the units of axis {axis.name!r} meet in a normalisation over all of them, so "
                "none can be owned alone: use a network without one, or another pruning"
            )


def unit_norms(state: State, wiring: Wiring, axis: str, units: int) -> Tensor:
    """Squared norm of all weights that touch each unit of an axis, in float64 on the CPU."""
    total = torch.zeros(units, dtype=torch.float64)
    sizes = axis_sizes(wiring, state) | {axis: units}
    for name, axes in wiring.items():
        for run in runs(axes, state[name].shape, sizes) if len(axes) > 1 else ():
            if run.axis.name == axis:
                squares = run.of(state[name].detach()).cpu().double().square()
                rest = [d for d in range(squares.ndim) if d != run.dimension]
                total += squares.sum(rest).view(units, run.axis.block).sum(1)
    return total


def owned_mask(state: State, wiring: Wiring, owned: Mapping[str, Tensor], before: Mask) -> Mask:
    """The mask without the parameters that touch a unit which is not owned; statistics stay."""
    after = dict(before)
    for name, axes in wiring.items():
        if not names_in(axes) & owned.keys():
            continue
        value = state[name]
        if not value.is_floating_point() or name.rpartition(".")[2].startswith("running_"):
            continue
        mine = unit_mask(axes, value.shape, owned).to(value.device)
        after[name] = mine & before[name] if name in before else mine
    return after


def _equal_runs(states: list[State], wiring: Wiring) -> dict[str, Tensor]:
    """Owner of every unit of every hidden axis: equal runs, the first modules take the rest."""
    return {
        axis: torch.arange(units) * len(states) // units
        for axis, units in _units(states, wiring).items()
    }


def _auctioned(states: list[State], wiring: Wiring) -> dict[str, Tensor]:
    """Owner of every unit of every hidden axis, by the size of the weights that touch it."""
    owners = {}
    for axis, units in _units(states, wiring).items():
        claims = torch.stack([unit_norms(s, wiring, axis, units) for s in states])  # M, units
        owners[axis] = _auction(claims / claims.sum(1, keepdim=True))
    return owners


def _units(states: list[State], wiring: Wiring) -> dict[str, int]:
    """How many units every hidden axis has."""
    sizes = axis_sizes(wiring, states[0])
    return {axis: sizes[axis] for axis in hidden_axes(wiring)}


def _auction(claims: Tensor) -> Tensor:
    """Hand out units by falling claim; no module takes more than an equal number, rounded up."""
    modules, units = claims.shape
    quota = [units // modules + (m < units % modules) for m in range(modules)]
    owner = torch.full((units,), -1)
    for place in torch.argsort(claims.flatten(), descending=True, stable=True).tolist():
        module, unit = divmod(place, units)
        if owner[unit] < 0 and quota[module]:
            owner[unit] = module
            quota[module] -= 1
    return owner
