"""The publishers' file formats, read in memory: idx, zip and tar."""

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from intarsia.errors import DataError

Arrays = dict[str, np.ndarray]

# What the readers of gzip, tar, zip and numpy files raise for damaged ones.
DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    IndexError,
    SyntaxError,
    MemoryError,  # an altered size
    RuntimeError,  # an altered flag: encrypted, unknown compression
    zlib.error,
    tarfile.TarError,
    zipfile.BadZipFile,
)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Damage that shows inside becomes a DataError that names the file."""
    try:
        yield
    except DAMAGE as error:
        raise DataError(f"{path} is truncated or altered: {error}") from error


def read_idx(path: Path) -> np.ndarray:
    """A gzipped idx file of unsigned bytes: 0, 0, type, dimensions, sizes, data."""
    with reading(path), gzip.open(path) as file:
        raw = file.read()
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08" or len(raw) < 4 + 4 * raw[3]:
        raise DataError(f"{path} is not an idx file of unsigned bytes")
    start = 4 + 4 * raw[3]
    shape = tuple(np.frombuffer(raw[4:start], dtype=">u4").tolist())
    data = np.frombuffer(raw, dtype=np.uint8, offset=start)
    if data.size != int(np.prod(shape)):
        raise DataError(f"{path} announces shape {shape} but holds {data.size} bytes")
    return data.reshape(shape)


def unzip(raw: bytes, without: str | None = None) -> dict[str, bytes]:
    """Name -> contents of a zip archive, but for names with `without` in them."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        names = [name for name in archive.namelist() if without is None or without not in name]
        return {name: archive.read(name) for name in names}


def untar(path: Path) -> dict[str, bytes]:
    """Name -> contents of a gzipped tar archive."""
    with reading(path), tarfile.open(path, "r:gz") as archive:
        return {m.name: f.read() for m in archive if (f := archive.extractfile(m))}


def member(files: Mapping[str, bytes], end: str, path: Path) -> io.BytesIO:
    """The first of an archive's files whose name ends so; `path` is the archive's."""
    for name, data in files.items():
        if name.endswith(end):
            return io.BytesIO(data)
    raise DataError(f"{path} holds no file {end.lstrip('/')!r}")
