"""Files: safetensors whose only metadata is intarsia's canonical JSON header; sparse tensors.

A pruned tensor is stored as its surviving values and where they are: the gaps between them, or one
bit per entry, whichever is smaller. The gaps of changes are steps of a byte each, 255 of which only
leads on: one layer with a wide gap would else take two bytes for all of its own.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from intarsia.errors import (
    DamagedError,
    FileError,
    IntarsiaError,
    VersionError,
    nearest,
    shortened,
)
from intarsia.files import canonical, digest_of, write_whole
from intarsia.limits import account, allocating, current, out_of_memory
from intarsia.modules.architecture import TensorSpec
from intarsia.parsing import parse_mapping

VERSION = 1
FORMATS = {
    "intarsia-module": "Module.load",
    "intarsia-composition": "Composition.load",
    "intarsia-base": "Base.load",
    "intarsia-patterns": "sweetspot.PatternBank.load",
}
DTYPES = {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "U16", "BOOL"}
LOW_RANK = "low_rank"  # the encoding of a change by its two factors
LEAP = 255  # a step that leads on
GAP_TYPES = (torch.uint8, torch.uint16, torch.int32)
_AGAIN = "get the file again from where it came"


def write(
    path: str | Path, kind: str, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write header and tensors whole; the same content gives the same bytes."""
    header = {"format": kind, "version": VERSION, **fields}
    header["digest"] = digest_of(header, tensors)
    content = safetensors.torch.save(dict(tensors), {"intarsia": canonical(header)})
    length = int.from_bytes(content[:8], "little")
    if length > (most := current().header):
        raise FileError(
            f"cannot write {path}: its header takes {length} bytes, and the limit 'header' is "
            f"{most}; keep less in the provenance"
        )
    write_whole(path, content)


def read(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header's fields and the stored tensors, once container, format and digest are right."""
    header, tensors = _content(Path(path), lambda entries: _own_header(entries, kind))
    if header.pop("digest") != digest_of(header, tensors):
        raise DamagedError(f"was altered or damaged, its digest does not fit its content: {_AGAIN}")
    return {k: v for k, v in header.items() if k not in ("format", "version")}, tensors


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """The tensors of any safetensors file, counted before they are read; it has no digest."""
    return _content(Path(path), lambda entries: {})[1]


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Every error inside becomes a FileError that names the file; memory has one account."""
    try:
        with account(), allocating("reading it"):
            yield
    except IntarsiaError as error:
        kind = DamagedError if isinstance(error, DamagedError) else FileError
        raise kind(f"{path}: {error}") from error
    except RecursionError as error:
        raise FileError(f"{path}: its header is nested too deeply: {_AGAIN}") from error


def header(path: Path, kind: str) -> dict[str, Any]:
    """The header of a file of this kind, without a look at its tensors."""
    with path.open("rb") as opened:
        return _own_header(_container_header(opened)[1], kind)


def encode(
    name: str, tensor: Tensor, mask: Tensor | None, steps: bool = False
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header entry and the stored tensors, in the smallest encoding that keeps the mask.

    Survivors are kept bit for bit, -0.0 and survivors that happen to be 0.0 included. With `steps`
    gaps are written as such.
    """
    entry: dict[str, Any] = {"shape": list(tensor.shape)}
    if mask is None:
        return entry | {"encoding": "dense"}, {name: tensor.contiguous()}
    flat = mask.reshape(-1).numpy()
    values = {f"{name}/values": tensor.reshape(-1)[mask.reshape(-1)]}
    bits, gaps = np.packbits(flat), _steps(flat) if steps else _gaps(flat)
    if gaps.nbytes < bits.nbytes:
        kind = "steps" if steps else "gaps"
        return entry | {"encoding": kind}, values | {f"{name}/{kind}": torch.from_numpy(gaps)}
    return entry | {"encoding": "bits"}, values | {f"{name}/bits": torch.from_numpy(bits)}


def decode(
    name: str,
    encoding: str,
    expected: TensorSpec,
    stored: Mapping[str, Tensor],
    base: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The tensor and its mask (None if nothing is pruned), every count and index checked.

    Entries that are not stored are those of the base, or 0 where there is none.
    """
    values, *index = (stored[key] for key in stored_names(name, encoding))
    if values.dtype != expected.dtype:
        raise _broken(name, f"holds {values.dtype}, the network needs {expected.dtype}")
    if encoding == "dense":
        if tuple(values.shape) != expected.shape:
            raise _broken(name, f"has shape {tuple(values.shape)}, expected {expected.shape}")
        return values, None
    if values.dim() != 1:
        raise _broken(name, f"has values of shape {tuple(values.shape)}, expected one row")
    flat = {"bits": _from_bits, "gaps": _from_gaps, "steps": _from_steps}[encoding]
    mask = torch.from_numpy(flat(name, index[0], len(values), prod(expected.shape)))
    tensor = torch.zeros(len(mask), dtype=values.dtype) if base is None else base.flatten().clone()
    tensor[mask] = values
    return tensor.reshape(expected.shape), mask.reshape(expected.shape)


def stored_names(name: str, encoding: str) -> tuple[str, ...]:
    """The names under which a tensor of this encoding is stored."""
    if encoding == "dense":
        return (name,)
    if encoding in ("bits", "gaps", "steps"):
        return (f"{name}/values", f"{name}/{encoding}")
    if encoding == LOW_RANK:
        return (f"{name}/up", f"{name}/down")
    raise FileError(
        f"tensor {name!r} has the unknown encoding {shortened(encoding)} (known: dense, bits, "
        "gaps, steps, low_rank): "
        f"{_AGAIN}"
    )


def _content(
    path: Path, read_header: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A header made of safetensors' own JSON, and the tensors; sizes come first, then memory."""
    try:
        if not path.exists():
            raise FileError("there is no such file: check the path")
        if not path.is_file():
            raise FileError("is not a file: give the path of one .safetensors file")
        with path.open("rb") as file:
            start, entries = _container_header(file)
            header = read_header(entries)
            with account() as taken:
                taken.read(start)
                taken.take("reading it takes {} of memory", 0, passing=2 * start)
            file.seek(0)
            content = file.read(start)
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror or error}") from error
    try:
        return header, safetensors.torch.load(content)
    except (SafetensorError, ValueError, RuntimeError) as error:
        if out_of_memory(error):
            raise
        raise FileError(f"is not a sound safetensors file ({error}): {_AGAIN}") from error


def _container_header(file: BinaryIO) -> tuple[int, dict[str, Any]]:
    """The file's expected size and safetensors' own JSON, checked before anything is allocated."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if 8 + length > size:
        raise FileError(
            f"is not a safetensors file, or truncated: its header would end at byte {8 + length}, "
            f"the file has {size} bytes; expected the file of a module or a composition, such as "
            "modules/3.safetensors"
        )
    current().check("header", length, "has a header of {}")
    entries = parse(file.read(length), "safetensors header")
    expected = 8 + length + _data_size(entries)
    if expected != size:
        what = "was cut off" if size < expected else "has bytes beyond its end"
        raise FileError(f"{what}: {size} bytes where its header says {expected}: {_AGAIN}")
    return expected, entries


def parse(text: str | bytes, what: str) -> dict[str, Any]:
    """A JSON object without repeated keys, special numbers or text that is not Unicode."""
    try:
        return parse_mapping(text)
    except ValueError as error:  # bad JSON, bad UTF-8, numbers too large
        raise FileError(
            f"is not a safetensors file of intarsia's: its {what} is not a JSON object ({error})"
        ) from error


def _data_size(entries: Mapping[str, Any]) -> int:
    end = 0
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if (
            not isinstance(offsets, list)
            or len(offsets) != 2
            or not all(type(offset) is int for offset in offsets)
        ):
            raise FileError(f"is not a sound safetensors file: no place given for tensor {name!r}")
        dtype = entry.get("dtype")
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise FileError(f"tensor {name!r} has the unknown type {dtype!r}: {_AGAIN}")
        end = max(end, *offsets)
    return end


def _own_header(entries: Mapping[str, Any], kind: str) -> dict[str, Any]:
    metadata = entries.get("__metadata__")
    text = metadata.get("intarsia") if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise FileError(
            "is a safetensors file, but intarsia did not write it: it has no header 'intarsia'; "
            "read its tensors with safetensors, and make a module of them with Module.of"
        )
    header = parse(text, "header 'intarsia'")
    stated, version = header.get("format"), header.get("version")
    if stated != kind:
        reader = FORMATS.get(str(stated))
        advice = f"read it with {reader}" if reader else nearest(str(stated), FORMATS)
        raise FileError(f"has format {shortened(stated)} where {kind!r} was expected: {advice}")
    if type(version) is int and version > VERSION:
        raise VersionError(
            f"was written by a newer intarsia (format version {version}, this one reads "
            f"{VERSION}): upgrade intarsia"
        )
    if version != VERSION or type(version) is not int:
        raise FileError(f"has the unknown format version {shortened(version)}: {_AGAIN}")
    if not isinstance(header.get("digest"), str):
        raise FileError(f"has no digest: {_AGAIN}")
    return header


def _gaps(flat: np.ndarray) -> np.ndarray:
    gaps = np.diff(np.flatnonzero(flat), prepend=-1) - 1
    largest = int(gaps.max(initial=0))
    return gaps.astype(
        np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32,
    )


def _steps(flat: np.ndarray) -> np.ndarray:
    """Gaps as bytes: one below LEAP leads to a survivor, LEAP as far and to none."""
    gaps = np.diff(np.flatnonzero(flat), prepend=-1) - 1
    leaps = gaps // LEAP
    steps = np.full(len(gaps) + int(leaps.sum()), LEAP, dtype=np.uint8)
    steps[np.arange(len(gaps)) + np.cumsum(leaps)] = gaps % LEAP
    return steps


def _from_steps(name: str, steps: Tensor, count: int, size: int) -> np.ndarray:
    if steps.dtype != torch.uint8 or steps.dim() != 1:
        raise _broken(name, f"has steps of type {steps.dtype} and shape {tuple(steps.shape)}")
    lands = steps.numpy() < LEAP
    if int(lands.sum()) != count or (len(lands) and not lands[-1]):
        raise _broken(name, f"has {count} values but steps to {int(lands.sum())}")
    places = np.cumsum(np.where(lands, steps.numpy().astype(np.int64) + 1, LEAP))[lands] - 1
    return _mask_at(name, "steps", places, size)


def _from_gaps(name: str, gaps: Tensor, count: int, size: int) -> np.ndarray:
    if gaps.dtype not in GAP_TYPES or gaps.dim() != 1:
        raise _broken(name, f"has gaps of type {gaps.dtype} and shape {tuple(gaps.shape)}")
    if len(gaps) != count:
        raise _broken(name, f"has {count} values but {len(gaps)} gaps")
    steps = gaps.numpy().astype(np.int64)
    if (steps < 0).any():
        raise _broken(name, "has a negative gap")
    places = np.cumsum(steps + 1) - 1
    return _mask_at(name, "gaps", places, size)


def _mask_at(name: str, kind: str, places: np.ndarray, size: int) -> np.ndarray:
    """True at these places, which rise."""
    if len(places) and places[-1] >= size:
        raise _broken(name, f"has {kind} that lead to entry {places[-1]} of {size}")
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
    return FileError(f"tensor {name!r} {what}: {_AGAIN}")
