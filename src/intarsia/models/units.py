"""What follows from axis names alone: own, find, take out and put back units of any network."""

from collections.abc import Mapping

import torch
from torch import Tensor

from intarsia.errors import WiringError
from intarsia.models.axes import (
    OUTPUT,
    Axis,
    Parts,
    TensorAxes,
    UnitRun,
    Wiring,
    all_axes,
    axes_of,
    axis_sizes,
    known_sizes,
    runs,
)


def unit_mask(entry: TensorAxes, shape: tuple[int, ...], owned: Mapping[str, Tensor]) -> Tensor:
    """True where all axes of a tensor's entry are owned; axes that `owned` leaves out are free.

    `owned` maps an axis name to a bool tensor over its units.
    """
    device = next((units.device for units in owned.values()), None)
    mask = torch.ones(shape, dtype=torch.bool, device=device)
    sizes = {axis: len(units) for axis, units in owned.items()}
    for run in runs(entry, shape, sizes):
        if run.axis.name not in owned:
            continue
        entries = owned[run.axis.name].repeat_interleave(run.axis.block)
        if len(entries) != run.length:
            raise WiringError(
                f"axis {run.axis.name!r}: {sizes[run.axis.name]} units in blocks of "
                f"{run.axis.block} do not make dimension {run.dimension} of shape {tuple(shape)}"
            )
        others = [1] * len(shape)
        others[run.dimension] = -1
        run.of(mask).logical_and_(entries.reshape(others))
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
    for axis in set(all_axes(wiring)):
        if axis.joint or axis.name == OUTPUT:
            live[axis.name] = torch.ones_like(live[axis.name])
    readers = [
        reader
        for name, entry in reversed(list(wiring.items()))
        if len(entry) > 1
        for reader in _readers(entry, state[name], mask.get(name), sizes)
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
    sizes = known_sizes(wiring, state) | _sizes(keep)
    smaller = {}
    for name, tensor in state.items():
        for dimension, entries in _kept(_entry(wiring, name), tensor.shape, keep, sizes).items():
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
    sizes = known_sizes(wiring, base) | _sizes(keep)
    return {name: _put(small[name], base[name], _entry(wiring, name), keep, sizes) for name in base}


def _put(
    small: Tensor,
    base: Tensor,
    entry: TensorAxes,
    keep: Mapping[str, Tensor],
    sizes: Mapping[str, int],
) -> Tensor:
    if not entry:
        return small.clone()
    kept = _kept(entry, base.shape, keep, sizes)
    places = [
        kept[dimension].cpu() if dimension in kept else torch.arange(size)
        for dimension, size in enumerate(base.shape)
    ]
    filled = base.clone()
    open_grid = [p.reshape(-1, *[1] * (base.ndim - 1 - d)) for d, p in enumerate(places)]
    filled[tuple(open_grid)] = small
    return filled


def _sizes(keep: Mapping[str, Tensor]) -> dict[str, int]:
    """The units of the axes of which every one is kept or not by name."""
    return {axis: len(units) for axis, units in keep.items() if units.dtype == torch.bool}


def _kept(
    entry: TensorAxes,
    shape: tuple[int, ...],
    keep: Mapping[str, Tensor],
    sizes: Mapping[str, int],
) -> dict[int, Tensor]:
    """Dimension -> the positions along it that stay, for those that lose or move any."""
    plain: dict[int, list[UnitRun]] = {}
    for dimension, axes in enumerate(entry):
        if any(axis.name in keep for axis in axes_of(axes)):
            alone = tuple(axes if d == dimension else None for d in range(len(entry)))
            plain[dimension] = runs(alone, shape, sizes)
    kept = {}
    for dimension, own in plain.items():
        pieces, end = [], 0
        for run in own:
            pieces.append(torch.arange(end, run.start))
            end = run.start + run.length
            pieces.append(
                run.start + _entries(run.axis, keep[run.axis.name], run.length).cpu()
                if run.axis.name in keep
                else torch.arange(run.start, end)
            )
        kept[dimension] = torch.cat([*pieces, torch.arange(end, shape[dimension])])
    return kept


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


def _readers(
    entry: TensorAxes, weight: Tensor, kept: Tensor | None, sizes: Mapping[str, int]
) -> list[tuple[str | None, str, Tensor]]:
    """The axis that is given, the one that is read, and which units of the two a weight joins.

    Dimension 1 reads, and where dimension 0 gives units so do all after it, as in a bilinear layer.
    """
    tensor = weight if kept is None else kept.to(weight.device)
    every = runs(entry, weight.shape, sizes)
    given: list[UnitRun | None] = [run for run in every if run.dimension == 0]
    if isinstance(entry[0], Parts) and len(given) < len(entry[0].parts):
        given = [None]  # rows that are not units read as well
    readers = []
    for reads in (run for run in every if run.dimension == 1 or (run.dimension and given)):
        for gives in given or [None]:
            part = reads.of(tensor).movedim(reads.dimension, 1)
            part = part if gives is None else gives.of(part)
            table = _who_reads(gives.axis.block if gives else 1, reads.axis.block, part, kept)
            readers.append((gives.axis.name if gives else None, reads.axis.name, table))
    return readers


def _who_reads(gives: int, reads: int, weight: Tensor, kept: Tensor | None) -> Tensor:
    """Giving units x reading units: 1 where a kept weight joins the two, to be multiplied."""
    rows, columns = weight.shape[:2]
    if kept is None:
        return weight.new_ones((rows // gives, columns // reads), dtype=torch.float32)
    table = weight.reshape(rows // gives, gives, columns // reads, reads, -1)
    for dimension in (4, 3, 1):  # torch is slow to reduce dimensions of one entry
        single = table.shape[dimension] == 1
        table = table.squeeze(dimension) if single else table.any(dimension)
    return table.to(torch.float32)
