"""Relabel the hidden units of modules, so that units which do the same lie in the same place."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from intarsia.composition.alignment.activations import match_activations
from intarsia.composition.alignment.matching import Orders, match_weights
from intarsia.composition.merge_context import MergeContext
from intarsia.errors import CompositionError, nearest
from intarsia.models.axes import OUTPUT, Wiring, axis_sizes, hidden_axes, names_in, runs
from intarsia.models.units import live_units, take_units
from intarsia.modules import Module

How = Literal["weights", "activations"]


def align(
    modules: Sequence[Module], how: How = "weights", samples: Tensor | None = None, seed: int = 0
) -> list[Module]:
    """The modules with the units of all but the first in the order of the first one's.

    The first is the reference and comes back as it is. The others keep all they have; their states
    and masks are relabelled along every hidden axis, which leaves their function as it was. By
    "weights" nothing else is looked at, by "activations" the answers to `samples`, inputs as the
    networks read them. Units that match none, such as dead ones, stay where they are if they can.
    Changes of a base come back as modules of their own, since the base's units are not moved.
    """
    orders = unit_orders(modules, how, samples, seed)
    if len(modules) < 2:
        return list(modules)
    wiring = MergeContext(tuple(modules)).wiring_for("aligning", "moves")
    modules = [module.without_base() for module in modules]
    others = zip(modules[1:], orders[1:], strict=True)
    return [modules[0], *(_relabelled(module, order, wiring) for module, order in others)]


def unit_orders(
    modules: Sequence[Module], how: How = "weights", samples: Tensor | None = None, seed: int = 0
) -> list[Orders]:
    """For each module, which of its units `align` takes to each place of each hidden axis."""
    if how not in get_args(How):
        raise CompositionError(f"cannot align by {how!r}: {nearest(how, get_args(How))}")
    if not modules:
        return []
    first, context = modules[0], MergeContext(tuple(modules))
    for module in modules[1:]:
        _check_shapes(first, module)
    wiring = context.wiring_for("aligning", "moves")
    sizes = axis_sizes(wiring, first.state)
    stay = {axis: torch.arange(sizes[axis]) for axis in hidden_axes(wiring)}
    if how == "weights":
        others = [match_weights(first.state, m.state, wiring, seed) for m in modules[1:]]
    else:
        others = match_activations(context.networks(), _checked(samples, first), wiring)
    return [stay, *others]


def disjoint_units(modules: Sequence[Module], wiring: Wiring) -> bool:
    """Whether no hidden unit that lives in one module has any weight in another.

    Then, as with territories, the sum of the weights is exactly the sum of the logits, and the
    statistics of every unit are those of the one module that has it. A unit that is dead in a
    module but still has incoming weights there would disturb the unit it is added to.
    """
    return not _share_weights(modules, wiring) and disjoint_hidden_units(modules, wiring)


def disjoint_hidden_units(modules: Sequence[Module], wiring: Wiring) -> bool:
    """The same, whatever weights of no unit the modules have in common."""
    live = [live_units(wiring, module.state, module.live) for module in modules]
    held = [held_units(module, wiring) for module in modules]
    for axis in hidden_axes(wiring):
        lives = torch.stack([units[axis] for units in live])  # modules, units
        holders = (lives | torch.stack([units[axis] for units in held])).sum(0)
        if bool((lives.any(0) & (holders > 1)).any()):
            return False
    return True


def _share_weights(modules: Sequence[Module], wiring: Wiring) -> bool:
    """Whether several modules have weights of no unit and no output, such as one slope for all.

    Those that give the input's own axis, as residuals of it, are among them.
    """
    own = {*hidden_axes(wiring), OUTPUT}
    names = [n for n, e in wiring.items() if modules[0].plan[n].learned and not names_in(e) & own]
    return any(sum(bool(m.state[n].any()) for m in modules) > 1 for n in names)


def held_units(module: Module, wiring: Wiring) -> dict[str, Tensor]:
    """The units of each hidden axis that have a learned value other than zero."""
    sizes = axis_sizes(wiring, module.state)
    held = {axis: torch.zeros(size, dtype=torch.bool) for axis, size in sizes.items()}
    for name, entry in wiring.items():
        if not module.plan[name].learned:
            continue
        for run in runs(entry, module.state[name].shape, sizes):
            held[run.axis.name] |= (run.by_unit(module.state[name]) != 0).any(1)
    return held


def _relabelled(module: Module, orders: Orders, wiring: Wiring) -> Module:
    state, mask = (take_units(tensors, wiring, orders) for tensors in (module.state, module.mask))
    return replace(module, state=state, mask=mask)


def _check_shapes(first: Module, module: Module) -> None:
    mine, other = ({n: e.shape for n, e in m.plan.items()} for m in (first, module))
    if mine != other:
        name = min(mine.keys() ^ other.keys() or {n for n in mine if mine[n] != other[n]})
        raise CompositionError(
            f"module {module.name!r} cannot be aligned to {first.name!r}: their tensors {name!r} "
            f"are {other.get(name, 'absent')} and {mine.get(name, 'absent')}; "
            "train both with one model, or join them by logits or as an inlay"
        )


def _checked(samples: Tensor | None, first: Module) -> Tensor:
    shape = first.architecture.shape
    seen = None if samples is None else tuple(samples.shape)
    if samples is None or seen is None or len(seen) < 1 or seen[0] < 2 or seen[1:] != shape:
        raise CompositionError(
            f"aligning by activations needs at least two samples of shape {shape}, scaled as the "
            f"networks read them; given: {seen}. Give samples, or align by weights"
        )
    return samples.cpu()  # where the modules are
