"""The publishers' file formats, read in memory: idx, zip and tar."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np

from intarsia.data.sources.budget import check_entries, file_size, read_bounded
from intarsia.errors import DataError

Arrays = dict[str, np.ndarray]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Damage that shows inside becomes a DataError that names the file.

    The readers of gzip, tar, zip, numpy and parquet files and of pictures raise anything for it.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} is truncated or altered: {error}") from error


def read_idx(path: Path) -> np.ndarray:
    """A gzipped idx file of unsigned bytes: 0, 0, type, dimensions, sizes, data."""
    size = file_size(path)
    with reading(path), gzip.open(path) as file:
        raw = read_bounded(file, size, path)
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08" or len(raw) < 4 + 4 * raw[3]:
        raise DataError(f"{path} is not an idx file of unsigned bytes")
    start = 4 + 4 * raw[3]
    shape = tuple(np.frombuffer(raw[4:start], dtype=">u4").tolist())
    data = np.frombuffer(raw, dtype=np.uint8, offset=start)
    if data.size != prod(shape):
        raise DataError(f"{path} announces shape {shape} but holds {data.size} bytes")
    return data.reshape(shape)


def unzip(raw: bytes, without: str | None = None) -> dict[str, bytes]:
    """Name -> contents of a zip archive, but for names with `without` in them."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        files = [
            info for info in archive.infolist() if without is None or without not in info.filename
        ]
        check_entries(sum(info.file_size for info in files), len(raw), "the archive")
        return {info.filename: archive.read(info) for info in files}


def untar(path: Path) -> dict[str, bytes]:
    """Name -> contents of a gzipped tar archive."""
    size = file_size(path)
    with reading(path), gzip.open(path) as file:
        content = io.BytesIO(read_bounded(file, size, path))
        with tarfile.open(fileobj=content, mode="r:") as archive:
            members = [member for member in archive if member.isreg()]
            check_entries(sum(member.size for member in members), size, path)
            return {m.name: f.read() for m in members if (f := archive.extractfile(m))}


def member(files: Mapping[str, bytes], end: str, path: Path) -> io.BytesIO:
    """The first of an archive's files whose name ends so; `path` is the archive's."""
    for name, data in files.items():
        if name.endswith(end):
            return io.BytesIO(data)
    raise DataError(f"{path} holds no file {end.lstrip('/')!r}")
