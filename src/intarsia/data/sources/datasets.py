"""The named data sets: what is known of each before it is read, its files, and how they are read.

A data set is one function under `@DATASETS.register(name, ...)`, here or in a program of one's own.
It takes the paths of its published files in their order, or nothing where it has none, and returns
arrays: x_train, y_train, x_test, y_test, or x and y; and classes, the names that labels point to.
What rows belong together, such as a person's, is an array beside them: NAME_train, or NAME.

The digests are of the files as published, and the same in several independent public projects.
yeast.zip's is in one only, together with that of its member yeast.data, which is confirmed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from zipfile import is_zipfile

import numpy as np

from intarsia.data.sources import formats
from intarsia.data.sources.budget import file_size
from intarsia.data.sources.formats import Arrays
from intarsia.errors import DataError
from intarsia.specs import Registry

DATASETS = Registry(
    "data set",
    title="",
    note="",  # how to credit the authors
    shape=None,  # of one input; what is None here is not checked
    rows=None,  # all parts together
    classes=None,
    coarse_classes=None,  # groups of classes, where labels="coarse" has a meaning
    files=(),  # of type File, fetched and then kept as arrays; without any, read each time
    own_test=True,  # whether the publisher sets a test part aside
    scale=None,  # the default scaling; None: what load_data takes for arrays
    validation=0.2,  # default fraction of the training part
    keep=None,  # default classes, None for all
    groups=(),  # names of arrays by which splits can be cut, so that a group stays on one side
)
"""The data sets that have a name; `@DATASETS.register(name, ...)` adds one."""


@dataclass(frozen=True)
class File:
    """A published file: its name and (address, digest) of every copy, tried in this order."""

    name: str
    copies: tuple[tuple[str, str], ...]


def _mirrored(folders: Sequence[str], names: Sequence[str], *sha256: str) -> tuple[File, ...]:
    """The files that several folders hold under the same names, each with its SHA-256."""
    return tuple(
        File(name, tuple((folder + name, f"sha256:{digest}") for folder in folders))
        for name, digest in zip(names, sha256, strict=True)
    )


@DATASETS.register(
    "digits",
    title="handwritten digits, 8x8, part of scikit-learn",
    note="Alpaydin and Kaynak 1998, CC BY 4.0",
    shape=(1, 8, 8),
    rows=1797,
    classes=10,
    own_test=False,
    scale="unit",
)
def digits() -> Arrays:
    images, labels = _parsed_digits()
    return {"x": images.copy(), "y": labels.copy()}


@cache
def _parsed_digits() -> tuple[np.ndarray, np.ndarray]:
    """The images and labels, once for a process: they are a text of numbers, slow to parse.

    They are read from scikit-learn's file where it has it, as to import it takes a second.
    """
    package = find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            rows = np.loadtxt(file, delimiter=",")  # of 64 pixels and a label
            return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(int)
    from sklearn.datasets import load_digits

    embedded = load_digits()
    return embedded.images, embedded.target


_IDX_FILES = tuple(
    f"{part}-{what}-ubyte.gz"
    for part in ("train", "t10k")
    for what in ("images-idx3", "labels-idx1")
)
_GREY_28 = {"shape": (1, 28, 28), "rows": 70000, "classes": 10, "scale": "unit"}


@DATASETS.register(
    "mnist",
    title="handwritten digits, 28x28",
    note="LeCun, Cortes and Burges 1998",
    files=_mirrored(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "http://yann.lecun.com/exdb/mnist/",  # the author's own often refuses downloads
        ),
        _IDX_FILES,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    **_GREY_28,
)
def mnist(*paths: Path) -> Arrays:
    return _images_and_labels(paths, [str(digit) for digit in range(10)])


@DATASETS.register(
    "fashion_mnist",
    title="articles of clothing, 28x28",
    note="Xiao, Rasul and Vollgraf 2017, MIT",
    files=_mirrored(
        (
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        _IDX_FILES,
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
    **_GREY_28,
)
def fashion_mnist(*paths: Path) -> Arrays:
    names = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
    return _images_and_labels(paths, names.split(","))


def _images_and_labels(paths: Sequence[Path], classes: Sequence[str]) -> Arrays:
    keys = ("x_train", "y_train", "x_test", "y_test")
    arrays = {key: formats.read_idx(path) for key, path in zip(keys, paths, strict=True)}
    return arrays | {"classes": np.array(classes)}


_UCI = "https://archive.ics.uci.edu/"


@DATASETS.register(
    "har",
    title="human activities from smartphone sensors, 561 features",
    note="Anguita et al. 2013; cite the authors, no commercial use",
    shape=(561,),
    rows=10299,
    classes=6,
    files=(
        File(
            "har.zip",
            (  # the first address serves the second one's archive inside another
                (
                    _UCI + "static/public/240/human+activity+recognition+using+smartphones.zip",
                    "sha256:c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
                ),
                (
                    _UCI + "ml/machine-learning-databases/00240/UCI%20HAR%20Dataset.zip",
                    "sha256:2045e435c955214b38145fb5fa00776c72814f01b203fec405152dac7d5bfeb0",
                ),
            ),
        ),
    ),
    scale="none",
    groups=("subject",),  # windows of one person overlap by half
)
def har(archive: Path) -> Arrays:
    """The zip of the authors, or the repository's zip around it."""
    with formats.reading(archive):
        # Raw sensor signals make up most of the archive and are not needed.
        files = formats.unzip(_bytes(archive), without="Inertial Signals")
        inner = [data for name, data in files.items() if name.endswith("UCI HAR Dataset.zip")]
        if inner:
            files = formats.unzip(inner[0], without="Inertial Signals")

        def table(end: str, dtype: type, ndmin: Literal[1, 2]) -> np.ndarray:
            return np.loadtxt(formats.member(files, end, archive), dtype=dtype, ndmin=ndmin)

        arrays: Arrays = {"classes": table("/activity_labels.txt", str, 2)[:, 1]}
        for part in ("train", "test"):
            arrays[f"x_{part}"] = table(f"/{part}/X_{part}.txt", np.float32, 2)
            arrays[f"y_{part}"] = table(f"/{part}/y_{part}.txt", np.int64, 1) - 1
            arrays[f"subject_{part}"] = table(f"/{part}/subject_{part}.txt", np.int64, 1)
    return arrays


@DATASETS.register(
    "yeast",
    title="where proteins sit in yeast cells, 8 features",
    note="Nakai 1991, CC BY 4.0",
    shape=(8,),
    rows=1484,
    classes=10,
    files=(
        File(
            "yeast.data",
            (
                (
                    _UCI + "ml/machine-learning-databases/yeast/yeast.data",
                    "sha256:7cf61776fc04f527f93bf57a327b863893a1225d82df02d457e8950173218258",
                ),
                (
                    _UCI + "static/public/110/yeast.zip",
                    "sha256:8fe9a4490edfa67532f1dee7ec11f1804437ad43f9f8b7536e32d5be8bce0bb5",
                ),
            ),
        ),
    ),
    own_test=False,
    scale="standard",
    validation=0.1875,  # 15/80: with a fifth for test, the paper's 65/15/20
    keep=("CYT", "NUC", "MIT", "ME3"),  # the four largest, as in the paper
)
def yeast(path: Path) -> Arrays:
    """Rows of name, eight numbers and class, parted by blanks; plain or in the repository's zip."""
    with formats.reading(path):
        data = _bytes(path)
        if is_zipfile(path):
            data = formats.member(formats.unzip(data), "yeast.data", path).getvalue()
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


def _bytes(path: Path) -> bytes:
    file_size(path)  # that it is a file
    return path.read_bytes()


# CIFAR is read from its binary release: the other one is pickle.
_TORONTO = ("https://www.cs.toronto.edu/~kriz/",)
_CIFAR10_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
_CIFAR100_SHA256 = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
_CIFAR = {"note": "Krizhevsky 2009", "shape": (3, 32, 32), "rows": 60000, "scale": "unit"}


@DATASETS.register(
    "cifar10",
    title="photographs of ten kinds of things, 32x32",
    classes=10,
    files=_mirrored(_TORONTO, ["cifar-10-binary.tar.gz"], _CIFAR10_SHA256),
    **_CIFAR,
)
def cifar10(archive: Path) -> Arrays:
    """Records of one label byte and 3 x 32 x 32 pixel bytes."""
    files = formats.untar(archive)
    arrays: Arrays = {}
    batches = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
    for part, names in batches.items():
        raw = b"".join(formats.member(files, name, archive).getvalue() for name in names)
        (labels,), images = _records(raw, 1, archive)
        arrays |= {f"x_{part}": images, f"y_{part}": labels}
    return arrays | {"classes": _words(files, "batches.meta.txt", archive)}


@DATASETS.register(
    "cifar100",
    title="photographs of 100 kinds of things in 20 groups, 32x32",
    classes=100,
    coarse_classes=20,
    files=_mirrored(_TORONTO, ["cifar-100-binary.tar.gz"], _CIFAR100_SHA256),
    **_CIFAR,
)
def cifar100(archive: Path) -> Arrays:
    """Records of a coarse label byte, a fine label byte and 3 x 32 x 32 pixel bytes."""
    files = formats.untar(archive)
    arrays: Arrays = {
        "classes": _words(files, "fine_label_names.txt", archive),
        "coarse_classes": _words(files, "coarse_label_names.txt", archive),
    }
    for part in ("train", "test"):
        raw = formats.member(files, f"{part}.bin", archive).getvalue()
        (coarse, fine), images = _records(raw, 2, archive)
        arrays |= {f"x_{part}": images, f"y_{part}": fine, f"y_{part}_coarse": coarse}
    return arrays


def _records(raw: bytes, labels: int, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Label bytes (labels, N) and images (N, 3, 32, 32)."""
    size = labels + 3 * 32 * 32
    if not raw or len(raw) % size:
        raise DataError(f"{path}: {len(raw)} bytes are not whole records of {size}")
    table = np.frombuffer(raw, dtype=np.uint8).reshape(-1, size)
    return table[:, :labels].T, table[:, labels:].reshape(-1, 3, 32, 32)


def _words(files: Mapping[str, bytes], end: str, path: Path) -> np.ndarray:
    text = formats.member(files, end, path).getvalue()
    return np.array(text.decode("ascii", errors="replace").split())
