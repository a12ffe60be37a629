"""Tensors as they lie in a file: whole, or only the surviving entries with where they are.

dense  NAME: the tensor (nothing is pruned)
bits   NAME/values: the survivors in order; NAME/bits: one bit per entry, first entry highest
gaps   NAME/values; NAME/gaps: pruned entries before each survivor, in the smallest integer type
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.errors import FileError
from intarsia.modules.architecture import Entry

GAP_TYPES = (torch.uint8, torch.uint16, torch.int32)


def encode(
    name: str, tensor: Tensor, mask: Tensor | None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header entry and the stored tensors, in the smallest encoding that keeps the mask.

    Survivors are kept bit for bit, -0.0 and survivors that happen to be 0.0 included.
    """
    entry: dict[str, Any] = {"shape": list(tensor.shape)}
    if mask is None:
        return entry | {"encoding": "dense"}, {name: tensor.contiguous()}
    flat = mask.reshape(-1).numpy()
    values = {f"{name}/values": tensor.reshape(-1)[mask.reshape(-1)]}
    bits, gaps = np.packbits(flat), _gaps(flat)
    if gaps.nbytes < bits.nbytes:
        return entry | {"encoding": "gaps"}, values | {f"{name}/gaps": torch.from_numpy(gaps)}
    return entry | {"encoding": "bits"}, values | {f"{name}/bits": torch.from_numpy(bits)}


def stored_names(name: str, encoding: str) -> tuple[str, ...]:
    """The names under which a tensor of this encoding is stored."""
    if encoding == "dense":
        return (name,)
    if encoding in ("bits", "gaps"):
        return (f"{name}/values", f"{name}/{encoding}")
    raise FileError(
        f"tensor {name!r} has the unknown encoding {encoding!r} (known: dense, bits, gaps): "
        "get the file again from where it came"
    )


def decode(
    name: str, encoding: str, expected: Entry, stored: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor | None]:
    """The tensor and its mask (None if nothing is pruned), every count and index checked."""
    values, *index = (stored[key] for key in stored_names(name, encoding))
    if values.dtype != expected.dtype:
        raise _broken(name, f"holds {values.dtype}, the network needs {expected.dtype}")
    if encoding == "dense":
        if tuple(values.shape) != expected.shape:
            raise _broken(name, f"has shape {tuple(values.shape)}, expected {expected.shape}")
        return values, None
    if values.dim() != 1:
        raise _broken(name, f"has values of shape {tuple(values.shape)}, expected one row")
    flat = _from_bits if encoding == "bits" else _from_gaps
    mask = torch.from_numpy(flat(name, index[0], len(values), prod(expected.shape)))
    tensor = torch.zeros(len(mask), dtype=values.dtype)
    tensor[mask] = values
    return tensor.reshape(expected.shape), mask.reshape(expected.shape)


def _gaps(flat: np.ndarray) -> np.ndarray:
    gaps = np.diff(np.flatnonzero(flat), prepend=-1) - 1
    largest = int(gaps.max(initial=0))
    return gaps.astype(
        np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32,
    )


def _from_gaps(name: str, gaps: Tensor, count: int, size: int) -> np.ndarray:
    if gaps.dtype not in GAP_TYPES or gaps.dim() != 1:
        raise _broken(name, f"has gaps of type {gaps.dtype} and shape {tuple(gaps.shape)}")
    if len(gaps) != count:
        raise _broken(name, f"has {count} values but {len(gaps)} gaps")
    steps = gaps.numpy().astype(np.int64)
    if (steps < 0).any():
        raise _broken(name, "has a negative gap")
    places = np.cumsum(steps + 1) - 1
    if count and places[-1] >= size:
        raise _broken(name, f"has gaps that lead to entry {places[-1]} of {size}")
    mask = np.zeros(size, dtype=bool)
    mask[places] = True
    return mask


def _from_bits(name: str, bits: Tensor, count: int, size: int) -> np.ndarray:
    if bits.dtype != torch.uint8 or tuple(bits.shape) != ((size + 7) // 8,):
        raise _broken(name, f"has bits of type {bits.dtype} and shape {tuple(bits.shape)}")
    flat = np.unpackbits(bits.numpy()).view(bool)
    if flat[size:].any():
        raise _broken(name, "has bits beyond its last entry")
    if int(flat.sum()) != count:
        raise _broken(name, f"has {count} values but {int(flat.sum())} bits set")
    return flat[:size]


def _broken(name: str, what: str) -> FileError:
    return FileError(f"tensor {name!r} {what}: get the file again from where it came")
