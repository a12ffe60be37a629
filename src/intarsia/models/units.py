"""What follows from axis names alone: own, find, take out and put back units of any network."""

from collections.abc import Mapping

import torch
from torch import Tensor

from intarsia.errors import WiringError
from intarsia.models.axes import OUTPUT, Axis, TensorAxes, Wiring, axis_sizes


def unit_mask(entry: TensorAxes, shape: tuple[int, ...], owned: Mapping[str, Tensor]) -> Tensor:
    """True where all axes of a tensor's entry are owned; axes that `owned` leaves out are free.

    `owned` maps an axis name to a bool tensor over its units.
    """
    device = next((units.device for units in owned.values()), None)
    mask = torch.ones(shape, dtype=torch.bool, device=device)
    for dimension, axis in enumerate(entry):
        if axis is None or axis.name not in owned:
            continue
        entries = owned[axis.name].repeat_interleave(axis.block)
        if len(entries) != shape[dimension]:
            raise WiringError(
                f"axis {axis.name!r}: {len(owned[axis.name])} units in blocks of {axis.block} do "
                f"not make dimension {dimension} of shape {tuple(shape)}"
            )
        others = [1] * len(shape)
        others[dimension] = -1
        mask = mask & entries.reshape(others)
    return mask


def live_units(
    wiring: Wiring, state: Mapping[str, Tensor], mask: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The units of each hidden axis, and the inputs, that can still reach the output.

    A unit lives if a kept weight of a live unit, in any layer, reads it; tensors absent from `mask`
    are kept whole. A dead unit may still have incoming weights: nothing depends on them. The way is
    from the output back, so that units which only read each other are dead.
    """
    sizes = axis_sizes(wiring, state)
    device = next((tensor.device for tensor in state.values()), None)
    live = {
        axis: torch.zeros(size, dtype=torch.bool, device=device) for axis, size in sizes.items()
    }
    for axis in {axis for entry in wiring.values() for axis in entry if axis}:
        if axis.joint or axis.name == OUTPUT:
            live[axis.name] = torch.ones_like(live[axis.name])
    readers = [
        (
            entry[0].name if entry[0] else None,
            entry[1].name,
            _who_reads(entry, state[name], mask.get(name)),
        )
        for name, entry in reversed(list(wiring.items()))
        if len(entry) > 1 and entry[1] is not None
    ]
    before = -1
    while (now := sum(int(units.sum()) for units in live.values())) != before:
        before = now
        for gives, reads, table in readers:
            givers = table.new_ones(len(table)) if gives is None else live[gives].to(table.dtype)
            live[reads] = live[reads] | (givers @ table > 0)
    return {axis: units for axis, units in live.items() if axis != OUTPUT}


def take_units(
    state: Mapping[str, Tensor], wiring: Wiring, keep: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """A state with only the kept units of the named axes, in the order given.

    `keep` maps an axis to unit indices or to a bool tensor over its units. A permutation of all
    indices relabels the units and leaves the network's function as it was.
    """
    smaller = {}
    for name, tensor in state.items():
        for dimension, axis in enumerate(_entry(wiring, name)):
            if axis is not None and axis.name in keep:
                entries = _entries(axis, keep[axis.name], tensor.shape[dimension])
                tensor = tensor.index_select(dimension, entries.to(tensor.device))
        smaller[name] = tensor.clone()
    return smaller


def put_units(
    small: Mapping[str, Tensor],
    base: Mapping[str, Tensor],
    wiring: Wiring,
    keep: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The base with its kept units replaced by those of the small state: undoes `take_units`."""
    return {name: _put(small[name], base[name], _entry(wiring, name), keep) for name in base}


def _put(small: Tensor, base: Tensor, entry: TensorAxes, keep: Mapping[str, Tensor]) -> Tensor:
    places = [
        torch.arange(size)
        if axis is None or axis.name not in keep
        else _entries(axis, keep[axis.name], size).cpu()
        for axis, size in zip(entry, base.shape, strict=True)
    ]
    if not places:
        return small.clone()
    filled = base.clone()
    open_grid = [p.reshape(-1, *[1] * (base.ndim - 1 - d)) for d, p in enumerate(places)]
    filled[tuple(open_grid)] = small
    return filled


def _entry(wiring: Wiring, name: str) -> TensorAxes:
    if name not in wiring:
        raise WiringError(f"the wiring has no entry for {name!r}: pass the wiring of this network")
    return wiring[name]


def _entries(axis: Axis, keep: Tensor, size: int) -> Tensor:
    """Positions along a dimension of the kept units' blocks."""
    units = size // axis.block
    if keep.dtype == torch.bool:
        if len(keep) != units:
            raise WiringError(f"axis {axis.name!r} has {units} units, keep names {len(keep)}")
        keep = keep.nonzero().flatten()
    if keep.numel() and not 0 <= int(keep.min()) <= int(keep.max()) < units:
        raise WiringError(f"axis {axis.name!r} has units 0 to {units - 1}, keep has others")
    return (keep[:, None] * axis.block + torch.arange(axis.block, device=keep.device)).flatten()


def _who_reads(entry: TensorAxes, weight: Tensor, kept: Tensor | None) -> Tensor:
    """Giving units x reading units: 1 where a kept weight joins the two, to be multiplied."""
    gives, reads = (axis.block if axis else 1 for axis in entry[:2])
    rows, columns = weight.shape[:2]
    if kept is None:
        return weight.new_ones((rows // gives, columns // reads), dtype=torch.float32)
    table = kept.to(weight.device).reshape(rows // gives, gives, columns // reads, reads, -1)
    for dimension in (4, 3, 1):  # torch is slow to reduce dimensions of one entry
        single = table.shape[dimension] == 1
        table = table.squeeze(dimension) if single else table.any(dimension)
    return table.to(torch.float32)
