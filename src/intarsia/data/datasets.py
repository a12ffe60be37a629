"""The named data sets: what they are, who publishes them, and the digests of the published files.

The digests are of the files as published and stand alike in several independent public projects.
yeast.zip's stands in one only, beside that of its member yeast.data, which is confirmed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intarsia.data import formats


@dataclass(frozen=True)
class File:
    """A published file: its name and (address, digest) of every copy, tried in this order."""

    name: str
    copies: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Source:
    """What is known about a data set before it is read."""

    title: str
    shape: tuple[int, ...]  # of one input
    rows: int  # all parts together
    classes: int
    scale: str  # the default scaling
    note: str  # how to credit the authors
    files: tuple[File, ...] = ()
    read: Callable[[Sequence[Path]], dict[str, np.ndarray]] | None = None
    validation: float = 0.2  # default share of the training part
    keep: tuple[str, ...] | None = None  # default classes, None for all


def _mirrored(folders: Sequence[str], name: str, sha256: str) -> File:
    return File(name, tuple((folder + name, f"sha256:{sha256}") for folder in folders))


# The author's own page comes last because it often refuses downloads.
_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
_FASHION = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)
_UCI = "https://archive.ics.uci.edu/"
_TORONTO = ("https://www.cs.toronto.edu/~kriz/",)
_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_MNIST_SHA256 = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
_FASHION_SHA256 = (
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
)

_CIFAR10_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
_CIFAR100_SHA256 = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
_HAR = (  # the first address serves the second one's archive inside another
    (
        _UCI + "static/public/240/human+activity+recognition+using+smartphones.zip",
        "sha256:c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
    ),
    (
        _UCI + "ml/machine-learning-databases/00240/UCI%20HAR%20Dataset.zip",
        "sha256:2045e435c955214b38145fb5fa00776c72814f01b203fec405152dac7d5bfeb0",
    ),
)
_YEAST = (
    (
        _UCI + "ml/machine-learning-databases/yeast/yeast.data",
        "sha256:7cf61776fc04f527f93bf57a327b863893a1225d82df02d457e8950173218258",
    ),
    (
        _UCI + "static/public/110/yeast.zip",
        "sha256:8fe9a4490edfa67532f1dee7ec11f1804437ad43f9f8b7536e32d5be8bce0bb5",
    ),
)

DATASETS: dict[str, Source] = {
    "digits": Source(
        "handwritten digits, 8x8, part of scikit-learn",
        shape=(1, 8, 8),
        rows=1797,
        classes=10,
        scale="unit",
        note="Alpaydin and Kaynak 1998, CC BY 4.0",
    ),
    "mnist": Source(
        "handwritten digits, 28x28",
        shape=(1, 28, 28),
        rows=70000,
        classes=10,
        scale="unit",
        note="LeCun, Cortes and Burges 1998",
        files=tuple(_mirrored(_MNIST, *pair) for pair in zip(_IDX, _MNIST_SHA256, strict=True)),
        read=formats.read_mnist,
    ),
    "fashion_mnist": Source(
        "articles of clothing, 28x28",
        shape=(1, 28, 28),
        rows=70000,
        classes=10,
        scale="unit",
        note="Xiao, Rasul and Vollgraf 2017, MIT",
        files=tuple(_mirrored(_FASHION, *pair) for pair in zip(_IDX, _FASHION_SHA256, strict=True)),
        read=formats.read_fashion_mnist,
    ),
    "har": Source(
        "human activities from smartphone sensors, 561 features",
        shape=(561,),
        rows=10299,
        classes=6,
        scale="none",
        note="Anguita et al. 2013; cite the authors, no commercial use",
        files=(File("har.zip", _HAR),),
        read=formats.read_har,
    ),
    "yeast": Source(
        "where proteins sit in yeast cells, 8 features",
        shape=(8,),
        rows=1484,
        classes=10,
        scale="standard",
        note="Nakai 1991, CC BY 4.0",
        files=(File("yeast.data", _YEAST),),
        read=formats.read_yeast,
        validation=0.1875,  # 15/80: with a fifth for test, the paper's 65/15/20
        keep=("CYT", "NUC", "MIT", "ME3"),  # the four largest, as in the paper
    ),
    "cifar10": Source(
        "photographs of ten kinds of things, 32x32",
        shape=(3, 32, 32),
        rows=60000,
        classes=10,
        scale="unit",
        note="Krizhevsky 2009",
        files=(_mirrored(_TORONTO, "cifar-10-binary.tar.gz", _CIFAR10_SHA256),),
        read=formats.read_cifar10,
    ),
    "cifar100": Source(
        "photographs of 100 kinds of things in 20 groups, 32x32",
        shape=(3, 32, 32),
        rows=60000,
        classes=100,
        scale="unit",
        note="Krizhevsky 2009",
        files=(_mirrored(_TORONTO, "cifar-100-binary.tar.gz", _CIFAR100_SHA256),),
        read=formats.read_cifar100,
    ),
}
"""The data sets that have a name, with what is known of them before they are loaded."""
