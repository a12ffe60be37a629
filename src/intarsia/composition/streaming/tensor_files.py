"""Tensors of safetensors files, read one by one or piece by piece, once the headers are checked.

A model is a .safetensors file, or a folder as Hugging Face's libraries write it: model.safetensors,
or shards and model.safetensors.index.json. Bytes are read and not mapped: pages of a map count as
memory of the process, and a file that is cut off meanwhile would end it.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from intarsia.errors import FileError, shortened
from intarsia.files import is_no_file
from intarsia.limits import current
from intarsia.parsing import parse_json, parse_mapping

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LARGEST_INDEX = 2**26  # bytes
MOST_AXES = 64  # as many as torch and numpy can have
MOST_OPEN = 64  # files, of the few hundred that a process may have open
SAMPLE = 2**12  # bytes from the middle of a tensor that a file is known by
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "U16": torch.uint16, "BOOL": torch.bool,
}  # fmt: skip
CODES = {dtype: code for code, dtype in DTYPES.items()}
_AGAIN = "get the file again from where it came"


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies, and what it is; with a handle, its file is kept open by others."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    handle: int | None = None

    @property
    def entries(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.entries * self.dtype.itemsize

    def read(self, start: int = 0, count: int | None = None) -> Tensor:
        """Its entries, flat, from one place on."""
        count = self.entries - start if count is None else count
        size = self.dtype.itemsize
        content = torch.empty(count * size, dtype=torch.uint8)
        view, place = content.numpy().data, self.offset + start * size
        try:
            if (handle := self.handle) is not None:
                _fill(view, lambda rest, done: os.preadv(handle, [rest], place + done), self.path)
            else:
                with self.path.open("rb", buffering=0) as file:
                    file.seek(place)
                    _fill(view, lambda rest, done: file.readinto(rest), self.path)
        except OSError as error:
            raise FileError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        return content.view(self.dtype)


class OpenFiles:
    """Files that stay open from one read to the next, where several threads can read from one."""

    def __init__(self) -> None:
        self.handles: dict[Path, int] = {}

    def hold(self, tensors: Sequence[StoredTensor]) -> list[StoredTensor]:
        """The tensors, with handles for a while; files that are not theirs are closed."""
        wanted = dict.fromkeys(tensor.path for tensor in tensors)
        for path in self.handles.keys() - wanted.keys():
            os.close(self.handles.pop(path))
        for path in list(wanted)[: MOST_OPEN if hasattr(os, "preadv") else 0]:
            if path not in self.handles:
                with suppress(OSError):  # whoever reads from it opens it, and says what is wrong
                    self.handles[path] = os.open(path, os.O_RDONLY)
        return [replace(tensor, handle=self.handles.get(tensor.path)) for tensor in tensors]

    def close(self) -> None:
        """Close all of them, once nobody reads any more."""
        self.hold([])


class TensorFiles:
    """All tensors of a model by name, in the order of their names, none of them in memory."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.files, placed = _files_of(self.path)
        # of each file its size, its time, and a digest of its header and a sample of its tensors
        self.headers: dict[str, list[Any]] = {}
        tensors: dict[str, StoredTensor] = {}
        for file in self.files:
            own, self.headers[file.name] = _read_header(file)
            if placed is not None:
                own = _indexed(own, placed, file)
            if twice := tensors.keys() & own.keys():
                raise FileError(f"{self.path}: tensor {min(twice)!r} lies in two of its files")
            tensors |= own
        if placed is not None and (missing := placed.keys() - tensors.keys()):
            name = min(missing)
            raise FileError(
                f"{self.path}: its index says that tensor {name!r} lies in "
                f"{shortened(placed[name])}, which does not have it: {_AGAIN}"
            )
        if not tensors:
            raise FileError(f"{self.path}: holds no tensors")
        self.tensors = dict(sorted(tensors.items()))

    @property
    def folder(self) -> Path | None:
        """The folder, with config and tokenizer; None of a single file."""
        return self.path if self.path.is_dir() else None

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def check_unchanged(self) -> None:
        """Refuse files that were written to since their headers were read."""
        for file in self.files:
            if _read_header(file)[1] != self.headers[file.name]:
                raise FileError(
                    f"{file}: was written to while it was read: merge into a new folder"
                )


def is_model(path: Path) -> bool:
    """Whether a path holds tensors that another library wrote, by a look at names and a header."""
    if os.path.isdir(path):
        return any((path / name).is_file() for name in (INDEX, WEIGHTS)) and not (
            (path / WEIGHTS).is_file() and _is_ours(path / WEIGHTS)
        )
    return path.suffix == ".safetensors" and os.path.isfile(path) and not _is_ours(path)


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return "intarsia" in _metadata(_entries(file)[0])
    except (FileError, OSError):
        return False


def _files_of(path: Path) -> tuple[list[Path], dict[str, str] | None]:
    """The files of a model, and where its index says that each tensor is."""
    if os.path.isfile(path):  # False also of a name that no file can have
        return [path], None
    if not os.path.isdir(path):
        raise FileError(
            f"{path}: there is no such file or folder: give a .safetensors file, or the folder of "
            "a model that lies on this machine; nothing is fetched"
        )
    if (path / INDEX).is_file():
        placed = _read_index(path / INDEX)
        if WEIGHTS not in placed.values() and (path / WEIGHTS).is_file():
            raise FileError(
                f"{path}: has both {WEIGHTS} and {INDEX}, which names other files, and libraries "
                f"differ in which of them counts: move one away, or give {path / WEIGHTS} itself"
            )
        return [path / name for name in sorted(set(placed.values()))], placed
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS], None
    why = "it is an adapter: merge it into its base with peft first"
    if not (path / "adapter_model.safetensors").exists():
        pickled = any(path.glob("*.bin")) or any(path.glob("*.pt"))
        why = "pickled weights are never read: save them as safetensors" if pickled else "no model"
    raise FileError(f"{path}: has neither {WEIGHTS} nor {INDEX} ({why})")


def _read_index(path: Path) -> dict[str, str]:
    if path.stat().st_size > LARGEST_INDEX:
        raise FileError(f"{path}: has {path.stat().st_size} bytes, too many for an index")
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: is damaged ({error}): {_AGAIN}") from error
    placed = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(placed, dict) or not placed:
        raise FileError(f"{path}: has no weight_map: {_AGAIN}")
    for name, file in placed.items():
        plain = isinstance(file, str) and file.endswith(".safetensors")
        if not plain or Path(file).name != file or "\\" in file:
            raise FileError(
                f"{path}: tensor {shortened(name)} lies in {shortened(file)}: expected the name of "
                "a .safetensors file beside the index"
            )
    return placed


def _indexed(
    own: Mapping[str, StoredTensor], placed: Mapping[str, str], file: Path
) -> dict[str, StoredTensor]:
    for name in own:
        if placed.get(name) != file.name:
            raise FileError(
                f"{file}: has the tensor {shortened(name)}, against the index: {_AGAIN}"
            )
    return dict(own)


def _read_header(path: Path) -> tuple[dict[str, StoredTensor], list[Any]]:
    """The tensors of a file, and what it is known by.

    That is its size, its time, and a digest of its header and of a few bytes of every tensor: files
    may share a time, such as those that were unpacked from an archive that has none.
    """
    try:
        if is_no_file(path):
            raise FileError(f"{path}: is not a file")
        with path.open("rb") as file:
            entries, start, digest = _entries(file)
            status = os.fstat(file.fileno())
            if "intarsia" in _metadata(entries):
                raise FileError("intarsia wrote it: join modules with compose")
            tensors = _placed(entries, path, start, status.st_size)
            for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
                count = min(SAMPLE, tensor.nbytes)
                file.seek(tensor.offset + (tensor.nbytes - count) // 2)
                digest.update(file.read(count))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except FileError as error:
        raise error if str(path) in str(error) else FileError(f"{path}: {error}") from error
    return tensors, [status.st_size, status.st_mtime_ns, digest.hexdigest()]


def _entries(file: BinaryIO) -> tuple[dict[str, Any], int, "hashlib._Hash"]:
    """The JSON of a header, where tensors begin, and the header's digest."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if 8 + length > size or not length:
        raise FileError("is not a safetensors file, or truncated")
    current().check("header", length, "has a header of {}")
    text = file.read(length)
    try:
        entries = parse_mapping(text)
    except ValueError as error:
        raise FileError(f"is not a sound safetensors file ({error}): {_AGAIN}") from error
    return entries, 8 + length, hashlib.sha256(text)


def _metadata(entries: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = entries.get("__metadata__")
    return metadata if isinstance(metadata, dict) else {}


def _placed(
    entries: Mapping[str, Any], path: Path, start: int, size: int
) -> dict[str, StoredTensor]:
    """Every tensor with its place; together they fill the file without gap or overlap."""
    tensors, spans = {}, []
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        first, last, shape, code = _checked(name, entry)
        tensor = StoredTensor(path, start + first, shape, DTYPES[code])
        if last - first != tensor.nbytes:
            raise FileError(
                f"tensor {shortened(name)} has {last - first} bytes, and {tensor.nbytes} by its "
                f"shape: {_AGAIN}"
            )
        tensors[name] = tensor
        spans.append((first, last))
    end = 0
    for first, last in sorted(spans):
        if first != end:
            raise FileError(f"its tensors overlap, or leave a gap, at byte {first}: {_AGAIN}")
        end = last
    if start + end != size:
        what = "was cut off" if size < start + end else "has bytes beyond its end"
        raise FileError(f"{what}: {size} bytes where its header says {start + end}: {_AGAIN}")
    return tensors


def _checked(name: str, entry: Any) -> tuple[int, int, tuple[int, ...], str]:
    fields = entry if isinstance(entry, dict) else {}
    shape, offsets, code = (fields.get(key) for key in ("shape", "data_offsets", "dtype"))
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise FileError(f"no shape or place is given for tensor {shortened(name)}: {_AGAIN}")
    assert isinstance(shape, list) and isinstance(offsets, list)
    if len(shape) > MOST_AXES or any(n >= 2**63 for n in shape):
        raise FileError(f"tensor {shortened(name)} has a shape that torch cannot have: {_AGAIN}")
    if len(offsets) != 2:
        raise FileError(f"no place is given for tensor {shortened(name)}: {_AGAIN}")
    if not isinstance(code, str) or code not in DTYPES:
        raise FileError(
            f"tensor {shortened(name)} has the type {shortened(code)}: expected one of "
            f"{', '.join(DTYPES)}; quantised weights are to be unpacked first"
        )
    return offsets[0], offsets[1], tuple(shape), code


def _fill(view: memoryview, read: Callable[[memoryview, int], int | None], path: Path) -> None:
    """Read until all is there, by a function of what is left and of how much is done."""
    done = 0
    while done < len(view):
        count = read(view[done:], done)
        if not count:
            raise FileError(f"{path}: was cut off while it was read: {_AGAIN}")
        done += count
