"""Targets: what networks are fitted to, by name, from a file, or from an array.

The embedded "totem" is a genome of our own. The evolved networks skull, butterfly and apple, and
their twins that were trained by gradient descent (skull-sgd and so on), come from Kumar, Clune,
Lehman and Stanley (arXiv 2505.11581, "FER"; Apache-2.0). They are not shipped, and not fetched:
FER publishes them as pickles, which are never read here. They lie in the folder `cppn` of
INTARSIA_DATA or of the cache: `cppn.json` and one NAME.npz each.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.data.arrays import read_npz
from intarsia.data.sources.fetch import matches
from intarsia.errors import DataError, IntarsiaError, nearest, shortened
from intarsia.files import cache_folder
from intarsia.parsing import parse_json
from intarsia.sweetspot.genomes import Genome, read_genome
from intarsia.sweetspot.networks import PatternLayout, PatternNetwork
from intarsia.sweetspot.pictures import read_picture, resized

EMBEDDED = "totem"
PUBLISHED = ("skull", "butterfly", "apple")
TWIN = "-sgd"
NAMES = (EMBEDDED, *PUBLISHED, *(name + TWIN for name in PUBLISHED))
FOLDER, LISTING = "cppn", "cppn.json"
SOURCE = "https://github.com/akarshkumar0101/fer"

_NODES = {
    "x": "identity", "y": "identity", "d": "identity", "bias": "identity",
    "stem": "gaussian", "belly": "gaussian", "rings": "sin", "shade": "gaussian",
    "folds": "sin", "glow": "sigmoid", "hue": "identity", "saturation": "sigmoid",
    "value": "gaussian",
}  # fmt: skip
_LINKS = (
    ("x", "stem", 2.2),
    ("y", "belly", 1.5), ("stem", "belly", 0.6),
    ("d", "rings", 5.0), ("bias", "rings", -1.0),
    ("belly", "shade", 1.2), ("rings", "shade", 0.5),
    ("shade", "folds", 1.5), ("y", "folds", 2.0), ("stem", "folds", 4.0),
    ("folds", "glow", 1.2), ("d", "glow", -2.6), ("bias", "glow", 2.6),
    ("glow", "hue", 0.16), ("belly", "hue", 0.08), ("bias", "hue", 0.02),
    ("glow", "saturation", 1.5), ("bias", "saturation", 1.2),
    ("glow", "value", -1.1), ("rings", "value", 0.15), ("bias", "value", 0.95),
)  # fmt: skip
_SPECIAL = {
    "x": "x", "y": "y", "d": "d", "bias": "bias",
    "h": "hue", "s": "saturation", "v": "value",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class TargetPicture:
    """A picture of a file or an array: size x size x 3, RGB from 0 to 1."""

    pixels: Tensor
    name: str = ""

    def __repr__(self) -> str:
        return f"TargetPicture({self.name!r}, {self.pixels.shape[0]} x {self.pixels.shape[1]})"

    def image(self, size: int | None = None) -> Tensor:
        """At its own size, or at another."""
        return self.pixels if size is None else resized(self.pixels, size)


Target = PatternNetwork | TargetPicture


def load(source: Any = EMBEDDED) -> Target:
    """A pattern network or a picture: by name, from a file, or as it is given.

    A name is one of `NAMES`. A file is a network that was saved (.safetensors), a genome (.json),
    or an image. An array is H x W x 3; a genome is laid out in layers.
    """
    if isinstance(source, PatternNetwork | TargetPicture):
        return source
    if isinstance(source, Genome):
        return source.network()
    if isinstance(source, Mapping):
        return Genome.from_json(source).network()
    if not isinstance(source, str | os.PathLike):
        return TargetPicture(read_picture(source))
    if str(source) in NAMES:
        return _named(str(source))
    path = Path(source)
    if not path.exists():
        raise DataError(
            f"there is no pattern {shortened(str(source))}: neither a file nor a known name; "
            f"{nearest(str(source), NAMES)}"
        )
    if path.is_dir():
        held = sorted(path.rglob("*.safetensors"))
        example = f", such as {held[0]}" if held else ""
        raise DataError(f"{path} is a folder: give a file of it{example}")
    if path.suffix == ".safetensors":
        return PatternNetwork.load(path)
    if path.suffix == ".json":
        return read_genome(path).network()
    return TargetPicture(read_picture(path), path.stem)


def load_network(source: Any = EMBEDDED) -> PatternNetwork:
    """What `load` finds, where it is a network."""
    target = load(source)
    if not isinstance(target, PatternNetwork):
        raise DataError(
            f"{target.name or 'the picture'} is a picture, not a network: fit networks to it "
            "first, as in sweetspot.fit(picture, depth=12)"
        )
    return target


def load_genome(name: str = EMBEDDED) -> Genome:
    """The genome of a name: the embedded one, or an evolved one that is on this machine."""
    if name == EMBEDDED:
        return totem()
    if name not in PUBLISHED:
        known = (EMBEDDED, *PUBLISHED)
        raise DataError(f"there is no genome {shortened(name)}: {nearest(name, known)}")
    entry, _ = _published(name)
    return Genome.from_json(entry["genome"], name)


def published_picture(name: str) -> Tensor:
    """The picture that was published with an evolved network, 256 x 256 x 3."""
    if name not in PUBLISHED:
        raise DataError(f"there is no picture of {shortened(name)}: {nearest(name, PUBLISHED)}")
    return read_picture(_published(name)[1]["image"])


def available() -> list[str]:
    """The names that can be loaded on this machine."""
    here = [name for name in PUBLISHED if _folder(name) is not None]
    return [EMBEDDED, *here, *(name + TWIN for name in here)]


@cache
def totem() -> Genome:
    """A small genome that needs copies, depth and several kinds of units."""
    return Genome(_NODES, _LINKS, _SPECIAL, EMBEDDED)


def _named(name: str) -> PatternNetwork:
    if name == EMBEDDED:
        return totem().network()
    plain = name.removesuffix(TWIN)
    entry, arrays = _published(plain)
    kind = "sgd" if name != plain else "picbreeder"
    try:
        layout = PatternLayout(entry["blocks"], entry["hidden_layers"])
        weights = tuple(
            torch.tensor(arrays[f"{kind}_{layer:02}"]) for layer in range(layout.depth + 1)
        )
        return PatternNetwork(layout, weights, name=name)
    except (KeyError, IntarsiaError) as error:
        raise DataError(f"{plain}.npz does not fit {LISTING} beside it: {error}") from error


def _published(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A network's entry in the listing, and its arrays, whose digest the listing has."""
    folder = _folder(name)
    if folder is None:
        raise DataError(_advice(name))
    listing, path = folder / LISTING, folder / f"{name}.npz"
    try:
        entry = parse_json(listing.read_bytes())["targets"][name]
        digest = f"sha256:{entry['sha256']}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{listing} says nothing of {name} ({error}): get it again") from error
    if not matches(path, digest):
        raise DataError(
            f"{path} was altered: its digest is not that of {listing}; get it again from where it "
            "came"
        )
    return entry, read_npz(path)


def _folder(name: str) -> Path | None:
    """Where the network and the listing lie, if anywhere."""
    for folder in _folders():
        if (folder / LISTING).is_file() and (folder / f"{name}.npz").is_file():
            return folder
    return None


def _folders() -> list[Path]:
    data = os.environ.get("INTARSIA_DATA")
    own = [Path(data).expanduser() / FOLDER] if data else []
    return [*own, cache_folder() / FOLDER]


def _advice(name: str) -> str:
    places = " or ".join(str(folder) for folder in _folders())
    hint = (
        ""
        if os.environ.get("INTARSIA_DATA")
        else ", or in cppn/ of a folder that INTARSIA_DATA names"
    )
    return (
        f"{name} is not on this machine, and is not fetched: {SOURCE} publishes it as a pickle, "
        f"which intarsia never reads. Put {LISTING} and {name}.npz, plain arrays as "
        f"docs/guide/sweetspot.md describes them, in {places}{hint}; or use {EMBEDDED!r}, which "
        "is always there"
    )
