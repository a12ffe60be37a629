"""The publishers' file formats, read into the arrays that are kept as NAME.npz.

Each reader takes the files in the order of sources.py. CIFAR is read from its binary release: the
other one is pickle.
"""

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
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
_CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_PIXELS = 3 * 32 * 32


def read_mnist(paths: Sequence[Path]) -> Arrays:
    return _images_and_labels(paths, [str(digit) for digit in range(10)])


def read_fashion_mnist(paths: Sequence[Path]) -> Arrays:
    return _images_and_labels(paths, _CLOTHES)


def read_idx(path: Path) -> np.ndarray:
    """A gzipped idx file of unsigned bytes: 0, 0, type, dimensions, sizes, data."""
    with _reading(path), gzip.open(path) as file:
        raw = file.read()
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08" or len(raw) < 4 + 4 * raw[3]:
        raise DataError(f"{path} is not an idx file of unsigned bytes")
    start = 4 + 4 * raw[3]
    shape = tuple(np.frombuffer(raw[4:start], dtype=">u4").tolist())
    data = np.frombuffer(raw, dtype=np.uint8, offset=start)
    if data.size != int(np.prod(shape)):
        raise DataError(f"{path} announces shape {shape} but holds {data.size} bytes")
    return data.reshape(shape)


def read_har(paths: Sequence[Path]) -> Arrays:
    """The zip of the authors, or the repository's zip around it."""
    (path,) = paths
    with _reading(path):
        files = _unzip(path.read_bytes())
        inner = [data for name, data in files.items() if name.endswith("UCI HAR Dataset.zip")]
        if inner:
            files = _unzip(inner[0])
        names = np.loadtxt(_text(files, "/activity_labels.txt", path), dtype=str, ndmin=2)[:, 1]
        arrays: Arrays = {"classes": names}
        for part in ("train", "test"):
            x = np.loadtxt(_text(files, f"/{part}/X_{part}.txt", path), dtype=np.float32, ndmin=2)
            y = np.loadtxt(_text(files, f"/{part}/y_{part}.txt", path), dtype=np.int64, ndmin=1)
            arrays |= {f"x_{part}": x, f"y_{part}": y - 1}
    return arrays


def read_yeast(paths: Sequence[Path]) -> Arrays:
    """Rows of name, eight numbers and class, parted by blanks; plain or in the repository's zip."""
    (path,) = paths
    with _reading(path):
        data = path.read_bytes()
        if zipfile.is_zipfile(path):
            data = _text(_unzip(data), "yeast.data", path).getvalue()
        rows = [line.split() for line in data.decode("ascii").splitlines() if line.strip()]
        if any(len(row) != 10 for row in rows):
            raise ValueError("expected ten columns in every row")
        x = np.array([row[1:9] for row in rows], dtype=np.float64)
    labels = [row[9] for row in rows]
    classes = list(dict.fromkeys(labels))
    return {
        "x": x,
        "y": np.array([classes.index(label) for label in labels], dtype=np.uint8),
        "classes": np.array(classes),
    }


def read_cifar10(paths: Sequence[Path]) -> Arrays:
    """Records of one label byte and 3 x 32 x 32 pixel bytes."""
    (path,) = paths
    files = _untar(path)
    batches = [_find(files, f"data_batch_{i}.bin", path) for i in range(1, 6)]
    train, test = b"".join(batches), _find(files, "test_batch.bin", path)
    (y_train,), x_train = _records(train, 1, path)
    (y_test,), x_test = _records(test, 1, path)
    return {
        "x_train": x_train,
        "y_train": y_train,
        "x_test": x_test,
        "y_test": y_test,
        "classes": _names(files, "batches.meta.txt", path),
    }


def read_cifar100(paths: Sequence[Path]) -> Arrays:
    """Records of a coarse label byte, a fine label byte and 3 x 32 x 32 pixel bytes."""
    (path,) = paths
    files = _untar(path)
    arrays: Arrays = {
        "classes": _names(files, "fine_label_names.txt", path),
        "coarse_classes": _names(files, "coarse_label_names.txt", path),
    }
    for part in ("train", "test"):
        (coarse, fine), x = _records(_find(files, f"{part}.bin", path), 2, path)
        arrays |= {f"x_{part}": x, f"y_{part}": fine, f"y_{part}_coarse": coarse}
    return arrays


def _images_and_labels(paths: Sequence[Path], classes: Sequence[str]) -> Arrays:
    keys = ("x_train", "y_train", "x_test", "y_test")
    arrays = {key: read_idx(path) for key, path in zip(keys, paths, strict=True)}
    return arrays | {"classes": np.array(classes)}


def _records(raw: bytes, labels: int, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Label bytes (labels, N) and images (N, 3, 32, 32)."""
    if not raw or len(raw) % (labels + _PIXELS):
        raise DataError(f"{path}: {len(raw)} bytes are not whole records of {labels + _PIXELS}")
    table = np.frombuffer(raw, dtype=np.uint8).reshape(-1, labels + _PIXELS)
    return table[:, :labels].T, table[:, labels:].reshape(-1, 3, 32, 32)


def _names(files: dict[str, bytes], end: str, path: Path) -> np.ndarray:
    return np.array(_find(files, end, path).decode("ascii", errors="replace").split())


def _text(files: dict[str, bytes], end: str, path: Path) -> io.BytesIO:
    return io.BytesIO(_find(files, end, path))


def _find(files: dict[str, bytes], end: str, path: Path) -> bytes:
    for name, data in files.items():
        if name.endswith(end):
            return data
    raise DataError(f"{path} holds no file {end.lstrip('/')!r}")


def _unzip(raw: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        # Raw sensor signals make up most of the archive and are not needed.
        names = [n for n in archive.namelist() if "Inertial Signals" not in n]
        return {name: archive.read(name) for name in names}


def _untar(path: Path) -> dict[str, bytes]:
    with _reading(path), tarfile.open(path, "r:gz") as archive:
        return {m.name: f.read() for m in archive if (f := archive.extractfile(m))}


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise DataError(f"{path} is truncated or altered: {error}") from error
