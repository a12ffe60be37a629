"""The wiring of a network: the one that it carries, or one inferred by tracing it."""

import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from intarsia.errors import WiringError
from intarsia.models.axes import (
    INPUT,
    OUTPUT,
    Axis,
    Parts,
    TensorAxes,
    Wiring,
    axis_sizes,
    check_wiring,
    hidden_axes,
)
from intarsia.models.custom.infer import REMEDY, infer_wiring
from intarsia.models.custom.symmetry import check_units, with_joint
from intarsia.models.custom.trial import is_foreign
from intarsia.models.units import live_units, put_units, take_units, unit_mask

__all__ = [
    "INPUT",
    "OUTPUT",
    "Axis",
    "Parts",
    "TensorAxes",
    "Wiring",
    "axis_sizes",
    "carries_wiring",
    "check_wiring",
    "hidden_axes",
    "infer_wiring",
    "live_units",
    "put_units",
    "take_units",
    "unit_mask",
    "wiring_of",
]


def wiring_of(network: nn.Module, shape: tuple[int, ...]) -> Wiring:
    """The checked wiring of a network for inputs of a shape.

    A network carries its own as `wiring`, a mapping or a method of the shape, whose entries may
    name an axis by a plain string; any other network is traced. Either is tried out: units that
    change places must leave the answers as they were (see symmetry.py). A network on the meta
    device has no answers, so that its wiring is taken as it is.
    """
    if carries_wiring(network):
        wiring = _carried(network, shape)
        if is_foreign(network) and not check_units(network, wiring, shape):
            warnings.warn(
                f"the wiring of {type(network).__name__} is taken as it is, unproven: the network "
                "does not repeat its answers to fixed inputs in float64 or float32; make sure that "
                "aligned modules answer as they did",
                stacklevel=2,
            )
        return wiring
    wiring = with_joint(network, infer_wiring(network, shape), shape)
    try:
        tried = check_units(network, wiring, shape)
    except WiringError as error:
        raise WiringError(
            f"cannot read the axes of {type(network).__name__}: its forward does more than its "
            f"trace shows ({error}); {REMEDY}"
        ) from error
    if not tried:
        raise WiringError(
            f"cannot prove the axes of {type(network).__name__}: it does not repeat its answers to "
            f"fixed inputs in float64 or float32, so it cannot be tried out; {REMEDY}"
        )
    return wiring


def carries_wiring(network: nn.Module) -> bool:
    """Whether a network brings a wiring of its own."""
    return getattr(network, "wiring", None) is not None


def _carried(network: nn.Module, shape: tuple[int, ...]) -> Wiring:
    carried: Any = network.wiring
    given = carried(shape) if callable(carried) else carried
    if not isinstance(given, Mapping):
        raise WiringError(
            f"the wiring of {type(network).__name__} is {given!r}: expected a mapping from "
            "parameter names to tuples of axes"
        )
    wiring = {name: _entry(name, entry) for name, entry in given.items()}
    check_wiring(wiring, network.state_dict())
    return wiring


def _entry(name: str, entry: Any) -> TensorAxes:
    if isinstance(entry, tuple | list) and all(
        isinstance(a, Axis | Parts | str | None) for a in entry
    ):
        return tuple(Axis(axis) if isinstance(axis, str) else axis for axis in entry)
    raise WiringError(
        f"the wiring of {name!r} is {entry!r}: expected one Axis, name or None per dimension"
    )
