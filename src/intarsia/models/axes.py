"""Names for the axes of parameters and buffers: axes that share a name are the same units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from intarsia.errors import WiringError, nearest


@dataclass(frozen=True)
class Axis:
    """The units along one dimension, each of them `block` consecutive entries.

    A flattened convolution channel has block = height * width. `joint` marks units that meet
    outside the weights (LayerNorm divides by their common spread): none can be left out alone.
    """

    name: str
    block: int = 1
    joint: bool = False


@dataclass(frozen=True)
class Parts:
    """Several axes side by side in one dimension, in this order.

    As concatenation and gates make them: the same axis may come several times (a gated layer has
    its units twice, an LSTM four times). A number is that many entries which are not units.
    """

    parts: tuple[Axis | int, ...]


Dimension = Axis | Parts | None
"""What lies along one dimension; None where it is not made of units (kernel taps)."""

TensorAxes = tuple[Dimension, ...]
"""One for each dimension of a tensor."""

Wiring = Mapping[str, TensorAxes]
"""Parameter or buffer name -> its axes. Dimension 0 of a weight gives units, dimension 1 reads."""

INPUT, OUTPUT = "input", "output"


@dataclass(frozen=True)
class UnitRun:
    """Where the units of an axis lie along a dimension: `length` entries from `start`."""

    dimension: int
    axis: Axis
    start: int
    length: int

    @property
    def units(self) -> int:
        return self.length // self.axis.block

    def of(self, tensor: Tensor) -> Tensor:
        """The entries of a tensor that belong to these units."""
        return tensor.narrow(self.dimension, self.start, self.length)

    def by_unit(self, tensor: Tensor) -> Tensor:
        """The same as a table of units x all else."""
        return self.of(tensor).movedim(self.dimension, 0).reshape(self.units, -1)


def axes_of(dimension: Dimension) -> tuple[Axis, ...]:
    """The axes along a dimension, in order; none for what is not made of units."""
    if isinstance(dimension, Parts):
        return tuple(part for part in dimension.parts if isinstance(part, Axis))
    return () if dimension is None else (dimension,)


def all_axes(wiring: Wiring) -> list[Axis]:
    """Every axis wherever it lies, in the order of the parameters."""
    return [a for entry in wiring.values() for dimension in entry for a in axes_of(dimension)]


def names_in(entry: TensorAxes) -> set[str]:
    """The names of all axes of a tensor."""
    return {axis.name for dimension in entry for axis in axes_of(dimension)}


def gives_output(entry: TensorAxes) -> bool:
    """Whether a tensor's first dimension is the output alone."""
    return bool(entry) and isinstance(entry[0], Axis) and entry[0].name == OUTPUT


def joint_axes(wiring: Wiring) -> set[str]:
    """The axes whose units meet outside the weights."""
    return {axis.name for axis in all_axes(wiring) if axis.joint}


def hidden_axes(wiring: Wiring) -> list[str]:
    """All axes but the input and the output, in the order of the parameters."""
    names = dict.fromkeys(axis.name for axis in all_axes(wiring))
    return [name for name in names if name not in (INPUT, OUTPUT)]


def runs(entry: TensorAxes, shape: Sequence[int], sizes: Mapping[str, int]) -> list[UnitRun]:
    """Where the units lie in a tensor of this shape; `sizes` has the units of each axis.

    They are needed where several axes share a dimension, and there all but one of them.
    """
    found = []
    for place, (dimension, entries) in enumerate(zip(entry, shape, strict=True)):
        if isinstance(dimension, Axis):
            found.append(UnitRun(place, dimension, 0, entries))
        elif dimension is not None:
            start = 0
            lengths = part_lengths(dimension, entries, sizes)
            for part, length in zip(dimension.parts, lengths, strict=True):
                if isinstance(part, Axis):
                    found.append(UnitRun(place, part, start, length))
                start += length
    return found


def resized_shape(
    entry: TensorAxes, shape: Sequence[int], sizes: Mapping[str, int], widths: Mapping[str, int]
) -> tuple[int, ...]:
    """The shape with `widths` units on some axes, of which there were `sizes`."""
    after = list(shape)
    for run in runs(entry, shape, sizes):
        if run.axis.name in widths:
            after[run.dimension] += widths[run.axis.name] * run.axis.block - run.length
    return tuple(after)


def axis_sizes(wiring: Wiring, state: Mapping[str, Tensor]) -> dict[str, int]:
    """Units along each axis; the tensors that carry an axis must agree on it."""
    sizes = known_sizes(wiring, state)
    for name in wiring:
        runs(wiring[name], state[name].shape, sizes)  # says so where a size is not known
    return sizes


def known_sizes(wiring: Wiring, state: Mapping[str, Tensor]) -> dict[str, int]:
    """Units along each axis as far as the tensors given tell it."""
    sizes: dict[str, int] = {}
    first: dict[str, str] = {}
    shared = []
    for name, entry in wiring.items():
        for dimension, axis in enumerate(entry if name in state else ()):
            entries = state[name].shape[dimension]
            if isinstance(axis, Parts):
                shared.append((name, dimension, axis, entries))
            if not isinstance(axis, Axis):
                continue
            units, rest = divmod(entries, axis.block)
            if rest:
                raise WiringError(
                    f"axis {axis.name!r}: dimension {dimension} of {name!r} has "
                    f"{entries} entries, not a multiple of the block {axis.block}"
                )
            if sizes.setdefault(axis.name, units) != units:
                raise WiringError(
                    f"axis {axis.name!r} has {sizes[axis.name]} units in {first[axis.name]!r} but "
                    f"{units} in {name!r} (dimension {dimension}): axes with one name are the same "
                    "units; correct the wiring or the tensors"
                )
            first.setdefault(axis.name, name)
    before = -1
    while len(sizes) != before:
        before = len(sizes)
        for name, dimension, parts, entries in shared:
            lengths = _lengths(parts, entries, sizes)
            if lengths is None:
                continue
            if sum(lengths) != entries or min(lengths) < 0:
                raise WiringError(
                    f"dimension {dimension} of {name!r} has {entries} entries, and the axes side "
                    f"by side in it have others: {lengths}; correct the wiring or the tensors"
                )
            for part, length in zip(parts.parts, lengths, strict=True):
                if isinstance(part, Axis):
                    sizes.setdefault(part.name, length // part.block)
    return sizes


def part_lengths(parts: Parts, entries: int, sizes: Mapping[str, int]) -> list[int]:
    """How many entries each of several axes has in a dimension."""
    lengths = _lengths(parts, entries, sizes)
    if lengths is None or sum(lengths) != entries:
        names = ", ".join(map(repr, dict.fromkeys(axis.name for axis in axes_of(parts))))
        raise WiringError(
            f"a dimension of {entries} entries has the axes {names} side by side, and how many "
            "units each has cannot be told: give tensors that have them alone"
        )
    return lengths


def _lengths(parts: Parts, entries: int, sizes: Mapping[str, int]) -> list[int] | None:
    """Entries of each part; at most one axis may be of unknown size, else None."""
    unknown = {axis.name for axis in axes_of(parts)} - sizes.keys()
    if len(unknown) > 1:
        return None
    taken = sum(
        part if isinstance(part, int) else sizes.get(part.name, 0) * part.block
        for part in parts.parts
    )
    blocks = sum(axis.block for axis in axes_of(parts) if axis.name in unknown)
    units = (entries - taken) // blocks if blocks else 0
    return [
        part if isinstance(part, int) else sizes.get(part.name, units) * part.block
        for part in parts.parts
    ]


def check_wiring(wiring: Wiring, state: Mapping[str, Tensor]) -> None:
    """Raise WiringError unless the wiring names every tensor of the state and its sizes agree."""
    for name in wiring:
        if name not in state:
            raise WiringError(
                f"the wiring names {name!r}, not in the state: {nearest(name, state)}"
            )
    for name, tensor in state.items():
        if name not in wiring:
            raise WiringError(
                f"the wiring has no entry for {name!r} of shape {tuple(tensor.shape)}"
            )
        if len(wiring[name]) != tensor.ndim:
            raise WiringError(
                f"the wiring of {name!r} names {len(wiring[name])} dimensions, the tensor has "
                f"{tensor.ndim}: give one axis per dimension, None for kernel taps"
            )
    axis_sizes(wiring, state)


def linear_wiring(
    name: str, gives: str, reads: str, *, block: int = 1, bias: bool = True
) -> dict[str, TensorAxes]:
    """The entries of a Linear layer that reads `block` entries per unit."""
    weight: dict[str, TensorAxes] = {f"{name}.weight": (Axis(gives), Axis(reads, block))}
    return weight | ({f"{name}.bias": (Axis(gives),)} if bias else {})


def conv_wiring(name: str, gives: str, reads: str, *, bias: bool = False) -> dict[str, TensorAxes]:
    """The entries of a two-dimensional convolution."""
    weight: dict[str, TensorAxes] = {f"{name}.weight": (Axis(gives), Axis(reads), None, None)}
    return weight | ({f"{name}.bias": (Axis(gives),)} if bias else {})


def chain_wiring(layers: int) -> tuple[dict[str, TensorAxes], str]:
    """The entries of convs.0 and norms.0, convs.1 and so on, and the axis of the last channels.

    Every convolution's channels are an axis, named after it.
    """
    entries: dict[str, TensorAxes] = {}
    reads = INPUT
    for layer in range(layers):
        gives = f"convs.{layer}"
        entries |= conv_wiring(gives, gives, reads) | norm_wiring(f"norms.{layer}", gives)
        reads = gives
    return entries, reads


def norm_wiring(name: str, axis: str) -> dict[str, TensorAxes]:
    """The entries of a BatchNorm layer, which rides along one axis."""
    riding = ("weight", "bias", "running_mean", "running_var")
    entries: dict[str, TensorAxes] = {f"{name}.{key}": (Axis(axis),) for key in riding}
    return entries | {f"{name}.num_batches_tracked": ()}
