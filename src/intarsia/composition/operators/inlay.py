"""Inlay: the parts side by side in one network, whose output is exactly the sum of their logits.

Every hidden axis gets the live units of one part after another; the input and the output are
common. A tensor of two hidden axes becomes block diagonal, one that gives the output becomes a row
of blocks, and what only the output has (its bias) is added up.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.arithmetic import louder, off_the_sum
from intarsia.composition.operators.inlay_network import (
    BlockNetwork,
    block_layers,
    build_blocks,
    runs_in_blocks,
)
from intarsia.composition.operators.registry import State, States, copies, operator
from intarsia.errors import CompositionError
from intarsia.models.axes import (
    INPUT,
    OUTPUT,
    Parts,
    TensorAxes,
    all_axes,
    axes_of,
    axis_sizes,
    hidden_axes,
    known_sizes,
    names_in,
    part_lengths,
    resized_shape,
)
from intarsia.models.custom.trial import trial_inputs
from intarsia.models.units import live_units, take_units
from intarsia.modules.statistics import total

REMEDY = 'join them by "logits", which gives the same sum from networks that stay apart'
LARGEST = 2**30  # entries of one tensor


@operator(
    "inlay",
    on="units",
    paper="https://doi.org/10.1162/089976602760128018",
    colour="#7fb2e5",
    label="side by side (inlay)",
    logit_sum=True,
    mask=lambda context: inlay_mask(context),
    blocks=lambda context: inlay_blocks(context),
    memory=copies(3),
)
def inlay(states: States, context: MergeContext) -> dict[str, Tensor]:
    """z = sum of z_i as one network: the live units of all parts side by side."""
    context.wiring_for("inlay")
    _check_parts(context)
    live = _live_parts(states, states, context)
    sizes = _sizes(live, context)
    built = {name: _join(name, live, sizes, context) for name in context.plan}
    if context.parts[0].architecture.is_foreign:
        _check_sum(built, states, context)
        if len(states) > 1:
            _check_loud_sum(built, states, context)
    return built


def inlay_blocks(context: MergeContext, grouped: bool = True) -> BlockNetwork | None:
    """The same network as it runs where the parts are convolutional: see inlay_network.py.

    None where the state of the whole is what runs.
    """
    if not runs_in_blocks(context):
        return None
    context.wiring_for("inlay")
    _check_parts(context)
    first, wiring = context.parts[0], context.wiring
    states = [part.state for part in context.parts]
    live = _live_parts(states, states, context)
    masks = _live_parts(_full_masks(context), states, context)
    sizes = _sizes(live, context)
    shapes = {
        name: torch.empty(
            _joint_shape([state[name].shape for state in live], wiring[name], sizes), device="meta"
        )
        for name in context.plan
    }
    architecture = first.architecture.fitted(shapes, first.factory)
    layers = block_layers(architecture.skeleton(), wiring)
    split = {f"{path}.weight" for path in layers}
    rest = {name: _join(name, live, sizes, context) for name in context.plan if name not in split}
    return BlockNetwork(
        build_blocks(architecture, wiring, live, rest, grouped),
        architecture,
        sum(_survivors([mask[name] for mask in masks], wiring[name]) for name in context.learned),
    )


def inlay_size(context: MergeContext) -> int:
    """How many numbers the inlay of the parts would hold, counted without building it."""
    wiring = context.wiring_for("inlay")
    live = [live_units(wiring, part.state, part.live) for part in context.parts]
    wide = {a: sum(int(units[a].sum()) for units in live) for a in hidden_axes(wiring)}
    state = context.parts[0].state
    sizes = axis_sizes(wiring, state)
    return sum(
        prod(resized_shape(entry, state[name].shape, sizes, wide)) for name, entry in wiring.items()
    )


def inlay_mask(context: MergeContext) -> dict[str, Tensor]:
    """The mask of the inlay of the parts: theirs side by side, and pruned between them."""
    live = _live_parts(_full_masks(context), [part.state for part in context.parts], context)
    sizes = _sizes(live, context)
    return {
        name: _side_by_side([mask[name] for mask in live], context.wiring[name], sizes)
        if _hidden(context.wiring[name])
        else reduce(torch.logical_or, [mask[name] for mask in live])
        for name in context.learned
    }


def _full_masks(context: MergeContext) -> list[dict[str, Tensor]]:
    """What survives of every parameter of each part, where nothing is left out."""
    return [
        {
            name: part.live.get(name, torch.ones_like(part.state[name], dtype=torch.bool))
            for name in context.learned
        }
        for part in context.parts
    ]


def _survivors(masks: Sequence[Tensor], entry: TensorAxes) -> int:
    """How many entries of the joined tensor survive: `inlay_mask`, counted."""
    if _hidden(entry):
        return sum(int(mask.sum()) for mask in masks)
    return int(reduce(torch.logical_or, masks).sum())


def _live_parts(
    values: Sequence[State], states: States, context: MergeContext
) -> list[dict[str, Tensor]]:
    """Of the values (states or masks) what belongs to live units."""
    keep = inlay_units(states, context)
    return [take_units(own, context.wiring, kept) for own, kept in zip(values, keep, strict=True)]


def inlay_units(states: States, context: MergeContext) -> list[dict[str, Tensor]]:
    """By hidden axis, which units of each part an inlay holds: the live ones."""
    wiring = context.wiring
    live = [
        live_units(wiring, state, part.live)
        for state, part in zip(states, context.parts, strict=True)
    ]
    for axis in hidden_axes(wiring):
        if not any(bool(units[axis].any()) for units in live):
            live[0][axis][0] = True  # a network needs a unit on every axis, be it a dead one
    return [{axis: units[axis] for axis in hidden_axes(wiring)} for units in live]


def _sizes(live: Sequence[State], context: MergeContext) -> list[dict[str, int]]:
    """The units of every axis of each part."""
    return [known_sizes(context.wiring, state) for state in live]


def _join(
    name: str,
    live: Sequence[State],
    sizes: Sequence[Mapping[str, int]],
    context: MergeContext,
) -> Tensor:
    entry, tensors = context.wiring[name], [state[name] for state in live]
    if _hidden(entry):
        return _side_by_side(tensors, entry, sizes)
    if not tensors[0].is_floating_point():
        return reduce(torch.maximum, tensors)
    if context.plan[name].learned and OUTPUT in names_in(entry):
        return total(tensors)
    for part, tensor in zip(context.parts, tensors, strict=True):
        if not torch.equal(tensor, tensors[0]):
            raise CompositionError(
                f"inlay cannot join {name!r}: one network has it once for all units, and modules "
                f"{context.parts[0].name!r} and {part.name!r} have other values: {REMEDY}"
            )
    return tensors[0].clone()


def _side_by_side(
    tensors: Sequence[Tensor], entry: TensorAxes, sizes: Sequence[Mapping[str, int]]
) -> Tensor:
    """One after another along every hidden axis; nothing between the blocks.

    What lies beside hidden axes and is common to all parts, such as an input that is concatenated
    to them, is added up.
    """
    hidden = _hidden(entry)
    shape = [
        sum(t.shape[d] for t in tensors) if d in hidden else size
        for d, size in enumerate(tensors[0].shape)
    ]
    if prod(shape) > LARGEST:
        raise CompositionError(
            f"an inlay of these parts would have a tensor of {prod(shape)} entries, most of them 0 "
            f"(at most {LARGEST}): {REMEDY}"
        )
    joined = tensors[0].new_zeros(shape)
    place = joined
    for tensor in tensors:
        corner = place
        for d in hidden:
            size = tensor.shape[d]
            corner = corner.narrow(d, 0, size)
            place = place.narrow(d, size, place.shape[d] - size)
        corner.copy_(tensor)
    for d in hidden:
        dimension = entry[d]
        if isinstance(dimension, Parts):
            places, length = _places(dimension, [t.shape[d] for t in tensors], sizes)
            joined = _summed(joined, d, places, length)
    return joined


def _places(
    dimension: Parts, entries: Sequence[int], sizes: Sequence[Mapping[str, int]]
) -> tuple[Tensor, int]:
    """Where the entries of all parts' dimensions go, axis by axis, and how many there are then."""
    own = [part_lengths(dimension, n, size) for n, size in zip(entries, sizes, strict=True)]
    rows: list[list[Tensor]] = [[] for _ in own]
    start = 0
    for column, part in enumerate(dimension.parts):
        common = isinstance(part, int) or part.name in (INPUT, OUTPUT)
        for row, lengths in zip(rows, own, strict=True):
            row.append(torch.arange(start, start + lengths[column]))
            start += 0 if common else lengths[column]
        start += own[0][column] if common else 0
    return torch.cat([piece for row in rows for piece in row]), start


def _summed(joined: Tensor, dimension: int, places: Tensor, length: int) -> Tensor:
    shape = [length if d == dimension else size for d, size in enumerate(joined.shape)]
    flags = joined.dtype == torch.bool
    values = joined.to(torch.uint8) if flags else joined
    after = values.new_zeros(shape).index_add(dimension, places.to(joined.device), values)
    return after > 0 if flags else after


def _joint_shape(
    shapes: Sequence[torch.Size], entry: TensorAxes, sizes: Sequence[Mapping[str, int]]
) -> list[int]:
    hidden = set().union(*sizes) - {INPUT, OUTPUT}
    wide = {axis: sum(own[axis] for own in sizes) for axis in hidden}
    return list(resized_shape(entry, shapes[0], sizes[0], wide))


def _hidden(entry: TensorAxes) -> list[int]:
    return [
        d
        for d, dimension in enumerate(entry)
        if any(axis.name not in (INPUT, OUTPUT) for axis in axes_of(dimension))
    ]


def _check_parts(context: MergeContext) -> None:
    first = context.parts[0]
    outputs, classes = first.architecture.outputs, len(first.catalogue)
    if outputs != classes:
        raise CompositionError(
            f"inlay adds logits inside the network, but module {first.name!r} has {outputs} "
            f"outputs for {classes} classes: an explicit other is divided after the network; "
            f"{REMEDY}"
        )
    for axis in all_axes(context.wiring):
        if axis.joint and axis.name != INPUT:
            raise CompositionError(
                f"inlay cannot join axis {axis.name!r} side by side: its units meet outside "
                f"the weights (as in LayerNorm), so the parts would meet there too; {REMEDY}"
            )


def _check_loud_sum(built: State, states: States, context: MergeContext) -> None:
    """Where logits are small or all of one sign, a clamp or a ReLU behind them does not show."""
    names = context.output_weights
    loud = louder(states, names)
    live = _live_parts(loud, loud, context)
    sizes = _sizes(live, context)
    joined = {name: _join(name, live, sizes, context) for name in names}
    _check_sum({**built, **joined}, loud, context)


def _check_sum(built: State, states: States, context: MergeContext) -> None:
    """A custom forward may do to the output what is not additive, such as a sigmoid."""
    first = context.parts[0]
    architectures = [part.architecture for part in context.parts]
    architectures.append(first.architecture.fitted(built, first.factory))
    networks = [
        architecture.network(state, first.factory)
        for architecture, state in zip(architectures, (*states, built), strict=True)
    ]
    x = trial_inputs(networks[0], first.architecture.shape)
    with torch.no_grad():
        *logits, joined = (network(x) for network in networks)
    off = off_the_sum(joined, logits)
    if off is not None:
        raise CompositionError(
            f"inlay cannot join this network: side by side it is {off:.3g} off the sum of logits, "
            f"so its forward does more to its outputs than adding up weighted units; {REMEDY}"
        )
