"""Names for the axes of parameters and buffers: axes that share a name are the same units."""

from collections.abc import Mapping
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


TensorAxes = tuple[Axis | None, ...]
"""One axis per dimension; None where a dimension is not made of units (kernel taps)."""

Wiring = Mapping[str, TensorAxes]
"""Parameter or buffer name -> its axes. Dimension 0 of a weight gives units, dimension 1 reads."""

INPUT, OUTPUT = "input", "output"


def hidden_axes(wiring: Wiring) -> list[str]:
    """All axes but the input and the output, in the order of the parameters."""
    names = {axis.name: None for entry in wiring.values() for axis in entry if axis}
    return [name for name in names if name not in (INPUT, OUTPUT)]


def axis_sizes(wiring: Wiring, state: Mapping[str, Tensor]) -> dict[str, int]:
    """Units along each axis; the tensors that carry an axis must agree on it."""
    sizes: dict[str, int] = {}
    first: dict[str, str] = {}
    for name, entry in wiring.items():
        for dimension, axis in enumerate(entry):
            if axis is None:
                continue
            entries = state[name].shape[dimension]
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
    return sizes


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


def norm_wiring(name: str, axis: str) -> dict[str, TensorAxes]:
    """The entries of a BatchNorm layer, which rides along one axis."""
    riding = ("weight", "bias", "running_mean", "running_var")
    entries: dict[str, TensorAxes] = {f"{name}.{key}": (Axis(axis),) for key in riding}
    return entries | {f"{name}.num_batches_tracked": ()}
