"""How inputs may lie in an array: channels first, channels last, one channel, or flat."""

from math import prod
from typing import TypeVar

import numpy as np
import torch

from intarsia.errors import DataError

Array = TypeVar("Array", np.ndarray, torch.Tensor)
CHANNELS = (1, 3)  # grey and colour: what tells images with channels last apart


def shape_of(given: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that inputs given as `given` (one of them, without N) have once laid out."""
    if len(given) == 2:
        return (1, *given)
    if len(given) == 3 and given[2] in CHANNELS and given[0] not in CHANNELS:
        return (given[2], *given[:2])
    return given


def lay_out(x: Array, shape: tuple[int, ...], where: str) -> Array:
    """`x` as N x *shape, from that, N x H x W x C, N x H x W for one channel, or flat N x D."""
    given = tuple(x.shape[1:])
    if given == shape:
        return x
    image = len(shape) == 3
    if image and given == (*shape[1:], shape[0]):
        return x.swapaxes(1, 3).swapaxes(2, 3)
    if given == (prod(shape),) or (image and shape[0] == 1 and given == shape[1:]):
        return x.reshape(x.shape[0], *shape)
    raise DataError(f"{where} have shape {tuple(x.shape)}: expected {_forms(shape)}")


def _forms(shape: tuple[int, ...]) -> str:
    forms = [shape, (prod(shape),)] if len(shape) > 1 else [shape]
    if len(shape) == 3:
        forms.append((*shape[1:], shape[0]))
        if shape[0] == 1:
            forms.append(shape[1:])
    return " or ".join(" x ".join(map(str, ("N", *form))) for form in forms)
