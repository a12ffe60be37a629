"""Compaction: a module without the units that nothing depends on."""

from dataclasses import replace

import torch
from torch import Tensor

from intarsia.errors import WiringError
from intarsia.files import digest_of
from intarsia.models.axes import hidden_axes
from intarsia.models.custom.trial import trial_inputs
from intarsia.models.units import live_units, take_units
from intarsia.modules.module import Module

CLOSE = 1e-4  # of the answers' size, in float32


def compact(module: Module) -> Module:
    """The same module without its dead hidden units: really smaller, the same logits.

    A unit is dead where no kept weight leads from it to the output. Inputs stay, so that the
    network reads what it always did, and so do units that meet outside the weights (LayerNorm's).
    The origin is another, too: weights can only be added to those of a module with the same units.
    """
    try:
        wiring = module.architecture.wiring(module.factory)
    except WiringError as error:
        raise WiringError(
            f"compacting takes units out and needs the network's wiring: {error}"
        ) from error
    live = live_units(wiring, module.state, module.live)
    keep = {axis: _at_least_one(live[axis]) for axis in hidden_axes(wiring)}
    if all(bool(units.all()) for units in keep.values()):
        return module
    module = module.without_base()  # which has other units
    state = take_units(module.state, wiring, keep)
    kept = {axis: units.nonzero().flatten().tolist() for axis, units in keep.items()}
    smaller = replace(
        module,
        state=state,
        mask=take_units(module.mask, wiring, keep),
        architecture=module.architecture.fitted(state, module.factory),
        origin=digest_of(["compact", module.origin, kept]),
    )
    if module.architecture.is_foreign:
        _check_answers(module, smaller)
    return smaller


def live_hidden_units(module: Module) -> dict[str, Tensor]:
    """The hidden units that reach the output, by axis; none where the network cannot be wired."""
    try:
        wiring = module.architecture.wiring(module.factory)
    except WiringError:
        return {}
    live = live_units(wiring, module.state, module.live)
    return {axis: live[axis] for axis in hidden_axes(wiring)}


def _check_answers(module: Module, smaller: Module) -> None:
    """A custom forward may hold a number of units, such as that of heads, and still run."""
    one, two = (m.architecture.network(m.state, m.factory) for m in (module, smaller))
    x = trial_inputs(one, module.architecture.shape)
    with torch.no_grad():
        before, after = one(x), two(x)
    off = float((before - after).abs().max() / before.abs().max().clamp_min(1e-30))
    if not off <= CLOSE:
        raise WiringError(
            f"compacting cannot take units out of this network: with fewer it answers {off:.2g} of "
            "its size off, so its forward holds a number of units, such as that of its heads: take "
            "it from the tensor's shape"
        )


def _at_least_one(units: Tensor) -> Tensor:
    """A network needs a unit on every axis, be it a dead one."""
    if not bool(units.any()):
        units = units.clone()
        units[0] = True
    return units
