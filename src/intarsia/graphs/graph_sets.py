"""Data sets of one graph with features and labels: Cora, CiteSeer, Photo, Computers, Europe."""

import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from intarsia.data.arrays import read_npz
from intarsia.errors import DataError, DataWarning, nearest, shortened
from intarsia.files import cache_folder
from intarsia.graphs.adjacency import Graph, from_edges
from intarsia.graphs.geometric import read_processed
from intarsia.specs import Registry

FOLDER = "graphs"  # in the folder that INTARSIA_DATA names, and in the cache
ARRAYS = (
    "edges", "labels", "x", "feat_indptr", "feat_indices", "feat_data", "feat_shape",
    "train_idx", "val_idx", "test_idx",
)  # fmt: skip
SPLIT = (0.7, 0.15)  # train and validation, where the publisher has no split
MANY = 20  # nodes of a class, of which a split should have some
GRAPH_SETS = Registry(
    "graph data set", given=("arrays",), file="", digest="", geometric=(), gat_width=64
)
"""Data sets by name: a function from arrays to `NodeData`, and as traits the file, the digest of
what it holds, where PyTorch Geometric keeps its own, the width that the authors give GAT."""


@dataclass(frozen=True, eq=False)
class NodeData:
    """A graph whose nodes have features and labels, and which of them are for what.

    features      N x F, float32 (scipy CSR)
    labels        a whole number for each node, from 0; -1 where none is known
    train, validation, test      numbers of nodes
    published     whether that split came with the data
    """

    name: str
    graph: Graph
    features: sp.csr_array
    labels: np.ndarray
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    published: bool

    def __repr__(self) -> str:
        return (
            f"NodeData({self.name!r}, {self.graph}, {self.features.shape[1]} features, "
            f"{self.classes} classes, train {len(self.train)}, validation {len(self.validation)}, "
            f"test {len(self.test)})"
        )

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.labels.max()) + 1

    @property
    def x(self) -> Tensor:
        """The features, dense."""
        return torch.from_numpy(self.features.toarray())

    @property
    def y(self) -> Tensor:
        """The labels."""
        return torch.from_numpy(self.labels.astype(np.int64))

    def largest_component(self) -> "NodeData":
        """Its nodes alone; a split by index is cut anew, others lose what is not in it."""
        graph = self.graph.largest_component()
        rows = np.flatnonzero(np.isin(self.graph.nodes, graph.nodes))
        place = np.full(self.graph.size, -1)
        place[rows] = np.arange(len(rows))
        if self.published:
            parts = [place[own] for own in (self.train, self.validation, self.test)]
            parts = [own[own >= 0] for own in parts]
        else:
            parts = _by_index(self.labels[rows])
        return replace(
            self, graph=graph, features=sp.csr_array(self.features[rows]),
            labels=self.labels[rows], train=parts[0], validation=parts[1], test=parts[2],
        )  # fmt: skip

    def resplit(self, seed: int, per_class: int | None = None) -> "NodeData":
        """A random split of the same sizes.

        All its parts have classes in the same shares, or the training nodes as many of each.
        """
        draw = np.random.default_rng(seed)
        order = draw.permutation(np.flatnonzero(self.labels >= 0))
        if per_class is None:
            order = order[np.argsort(_ranks(self.labels[order], draw), kind="stable")]
            train = order[: len(self.train)]
        else:
            own = self.labels[order]
            chosen = [order[own == label][:per_class] for label in range(self.classes)]
            train = np.concatenate(chosen)
        rest = order[~np.isin(order, train)]
        ends = len(self.validation), len(self.validation) + len(self.test)
        return replace(self, train=train, validation=rest[: ends[0]], test=rest[ends[0] : ends[1]])


def load_nodes(name: str, *, root: str | os.PathLike[str] | None = None) -> NodeData:
    """A data set by name, whose content is checked against the digest that is known of it.

    Or an .npz of your own, with the arrays of `node_data`. A name is looked for as an .npz in the
    folder `graphs` of the one that INTARSIA_DATA names, then of the cache. `root` names a folder of
    PyTorch Geometric instead: what one gives its `Planetoid` or `Amazon`. Nothing is downloaded:
    some publishers' files are pickles, which intarsia never reads.
    """
    if str(name).endswith(".npz"):
        own = read_npz(Path(name))
        _warn_of_unread(own, str(name))
        return replace(node_data(own, str(name)), name=Path(name).stem)
    if name not in GRAPH_SETS and Path(name).exists():
        raise DataError(
            f"{name} is not an .npz with edges and labels: a list of edges alone has a scale and "
            "can be rewired, but nodes need labels to be learned"
        )
    if name not in GRAPH_SETS:
        raise DataError(f"there is no graph {shortened(name)}: {nearest(str(name), GRAPH_SETS)}")
    entry = GRAPH_SETS[name]
    path = _locate(entry) if root is None else _processed(entry, Path(root))
    if path is None:
        raise DataError(_advice(entry, root))
    arrays = read_npz(path) if path.suffix == ".npz" else read_processed(path)
    data: NodeData = replace(entry(arrays=arrays), name=name)
    if entry.digest and content_digest(data) != entry.digest:
        raise DataError(
            f"{path} is not {name}: the digest of its edges, features and labels is "
            f"{content_digest(data)[:12]}..., expected {entry.digest[:12]}...; get it again"
        )
    return data


def available_sets() -> list[str]:
    """The names that can be loaded on this machine without a folder of PyTorch Geometric."""
    return [name for name, entry in GRAPH_SETS.items() if _locate(entry) is not None]


def node_data(arrays: Mapping[str, np.ndarray], where: str = "the data") -> NodeData:
    """Nodes from arrays, checked: `edges` (E x 2), `labels`, and features and splits if there are.

    Features are `x`, dense, or `feat_indptr`, `feat_indices`, `feat_data` and `feat_shape` of a CSR
    matrix; without them each node has one of its own. `train_idx`, `val_idx` and `test_idx` are the
    split; without them nodes that have a label are split by index, 70 to 15 to 15.
    """
    try:
        labels, given = np.asarray(arrays["labels"]), np.asarray(arrays["edges"])
    except KeyError as error:
        raise DataError(f"{where} has no array {error}: expected edges and labels") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) or labels.min() < -1:
        raise DataError(
            f"{where}: labels must be whole numbers from 0, one for each node, or -1 for none"
        )
    if labels.max() < 0:
        raise DataError(f"{where}: no node has a label: give at least one from 0")
    edges = _whole_numbers(given, "edges", where)
    if edges.ndim != 2 or edges.shape[1] != 2 or (edges.size and edges.max() >= len(labels)):
        raise DataError(f"{where}: edges must be E x 2, of nodes 0 to {len(labels) - 1}")
    if edges.size and edges.min() < 0:
        raise DataError(f"{where}: edges name node {edges.min()}: nodes are numbered from 0")
    features = _features(arrays, len(labels), where)
    parts = _split(arrays, labels, where)
    published = "train_idx" in arrays
    if not published:
        _warn_of_order(labels, parts, where)
    train, validation, test = parts
    graph = from_edges(edges, len(labels))
    labels = labels.astype(np.int64)
    return NodeData(where, graph, features, labels, train, validation, test, published)


def check_nodes(data: Any) -> None:
    """What others call data of nodes, such as PyTorch Geometric's Data, is not read as ours."""
    if not isinstance(data, NodeData):
        raise DataError(
            f"a {type(data).__name__} is not a NodeData: give that of load_nodes(name or .npz), or "
            "of node_data({'edges': edges, 'labels': labels, 'x': features}), arrays of E x 2, N "
            "and N x F"
        )


def content_digest(data: NodeData) -> str:
    """sha256 (hex) of edges, features and labels, whatever file they come from.

    Nodes without a label count as class 0, as PyTorch Geometric has them.
    """
    upper = sp.triu(data.graph.adjacency).tocoo()
    edges = np.stack([upper.row, upper.col], 1).astype("<i8")
    edges = edges[np.lexsort(edges.T[::-1])]
    features = data.features.tocsr().sorted_indices()
    features.eliminate_zeros()
    parts = (
        edges, data.labels.clip(0).astype("<i8"), features.indptr.astype("<i8"),
        features.indices.astype("<i8"), features.data.astype("<f4"),
    )  # fmt: skip
    digest = hashlib.sha256()
    for part in parts:
        digest.update(str(part.shape).encode() + np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def _features(arrays: Mapping[str, np.ndarray], size: int, where: str) -> sp.csr_array:
    if "x" in arrays:
        given = np.asarray(arrays["x"])
        if given.ndim != 2 or given.dtype.kind not in "biuf":
            raise DataError(
                f"{where}: x has shape {given.shape} of {given.dtype}: expected numbers, N x F"
            )
        with np.errstate(over="ignore"):  # infinity is refused below
            features = sp.csr_array(given.astype(np.float32))
    elif "feat_indices" in arrays:
        try:
            indices = np.asarray(arrays["feat_indices"]).astype(np.int32)
            values = np.broadcast_to(np.asarray(arrays["feat_data"], np.float32), indices.shape)
            shape = tuple(int(n) for n in arrays["feat_shape"])
            place = (values.copy(), indices, np.asarray(arrays["feat_indptr"]))
            features = sp.csr_array(place, shape=shape)
            features.check_format(full_check=True)
        except (KeyError, ValueError) as error:
            raise DataError(f"{where}: its features are not a CSR matrix ({error})") from error
    else:
        features = sp.csr_array(sp.eye_array(size, dtype=np.float32))
    if features.shape[0] != size:
        raise DataError(f"{where}: {features.shape[0]} rows of features for {size} nodes")
    if not np.isfinite(features.data).all():
        row = int(np.searchsorted(features.indptr, (~np.isfinite(features.data)).argmax(), "right"))
        raise DataError(
            f"{where}: the features of node {row - 1} hold nan or infinity: fill or remove them"
        )
    return features


def _split(arrays: Mapping[str, np.ndarray], labels: np.ndarray, where: str) -> list[np.ndarray]:
    size = len(labels)
    names = [key for key in ("train_idx", "val_idx", "test_idx") if key in arrays]
    if not names:
        return _by_index(labels)
    if len(names) < 3:
        raise DataError(f"{where} has {', '.join(names)}: expected all of train, val and test_idx")
    parts = [_whole_numbers(np.asarray(arrays[key]), key, where) for key in names]
    if any(part.ndim != 1 for part in parts):
        raise DataError(f"{where}: {', '.join(names)} must each be a list of nodes")
    every = np.concatenate(parts)
    if not len(every):
        raise DataError(f"{where}: its split names no nodes: leave it out, or give some")
    if len(np.unique(every)) != len(every) or every.min() < 0 or every.max() >= size:
        raise DataError(f"{where}: a split names nodes twice, or nodes that are not there")
    if (labels[every] < 0).any():
        raise DataError(f"{where}: a split names nodes that have no label")
    return parts


def _warn_of_unread(arrays: Mapping[str, np.ndarray], where: str) -> None:
    """Masks of a split, or features under another name, would be missed without a word."""
    if unread := [key for key in arrays if key not in ARRAYS]:
        warnings.warn(
            f"{where}: not read: {', '.join(unread)}; expected {', '.join(ARRAYS)}",
            DataWarning,
            stacklevel=3,
        )


def _warn_of_order(labels: np.ndarray, parts: list[np.ndarray], where: str) -> None:
    """Nodes that are sorted by class are not to be split by their numbers."""
    names, counts = np.unique(labels[labels >= 0], return_counts=True)
    for part, doing in ((parts[0], "train"), (parts[2], "are tested")):
        unseen = np.setdiff1d(names[counts >= MANY], labels[part])
        if len(unseen):
            warnings.warn(
                f"{where}: nodes are split by their numbers, and none of class {unseen[0]} is "
                f"among those that {doing}: give train_idx, val_idx and test_idx, or take "
                "resplit(seed) of it",
                DataWarning,
                stacklevel=3,
            )


def _ranks(labels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """For each node its place among those of its class, from 0 to 1: any cut has all classes."""
    ranks = np.empty(len(labels))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        ranks[own] = (np.arange(len(own)) + draw.random()) / len(own)
    return ranks


def _whole_numbers(values: np.ndarray, key: str, where: str) -> np.ndarray:
    """The values as int64; an error where that would change one."""
    whole = values.dtype.kind in "iu" or not values.size
    if not whole and values.dtype.kind == "f":
        whole = bool(np.isfinite(values).all() and (values % 1 == 0).all())
    if not whole:
        raise DataError(f"{where}: {key} holds what is not a whole number: nodes count from 0")
    return values.astype(np.int64)


def _by_index(labels: np.ndarray) -> list[np.ndarray]:
    """First, next and last nodes of those with a label, as the authors cut them."""
    known = np.flatnonzero(labels >= 0)
    ends = int(SPLIT[0] * len(known)), int((SPLIT[0] + SPLIT[1]) * len(known))
    return [known[: ends[0]], known[ends[0] : ends[1]], known[ends[1] :]]


def _locate(entry: Any) -> Path | None:
    return next((p for place in _folders() if (p := place / entry.file).is_file()), None)


def _processed(entry: Any, root: Path) -> Path | None:
    """PyG's processed file below its root, under whichever of its names it is."""
    places = [root / name / "processed" / "data.pt" for name in (*entry.geometric, ".")]
    return next((place for place in places if place.is_file()), None)


def _folders() -> list[Path]:
    data = os.environ.get("INTARSIA_DATA")
    own = [Path(data).expanduser() / FOLDER] if data else []
    return [*own, cache_folder() / FOLDER]


def _advice(entry: Any, root: Any) -> str:
    if root is not None:
        names = " or ".join(f"{name}/processed/data.pt" for name in entry.geometric)
        return f"{root} has no {names}: load {entry.name} once with PyTorch Geometric into it"
    places = " or ".join(map(str, _folders()))
    return (
        f"{entry.name} is not on this machine: put {entry.file} in {places}, with the arrays that "
        "docs/guide/graphs.md names, or give root, a folder of PyTorch Geometric that has it"
    )


# By name: the file, what PyTorch Geometric calls it, and how wide the paper's GAT is.
_SETS = {
    "cora": ("cora.npz", "Cora", 1024),
    "citeseer": ("citeseer.npz", "CiteSeer", 1024),
    "photo": ("amazon_photo.npz", "Photo", 64),
    "computers": ("amazon_computers.npz", "Computers", 16),
    "europe": ("airports_europe.npz", "europe", 64),
}
_DIGESTS = {
    "cora": "f8821cabe6b6525c88131e8b2cac7ec210900fc844a5cc11a4b0d3805658501c",
    "citeseer": "7ada63d328b339e5f2a0f67451a79a0713372dcd5e3311b66090880f384be19e",
    "photo": "14d9ca5f547085fa29c145e5311e4c14857dcb661e5c2d010e9265e8c8f5efa2",
    "computers": "48e27eeec4ed60c434a21061219bbebcdf3628a5ffc8389c845bf6ad20f09786",
    "europe": "ee9ae2f34332ee394e9396a211671a83116cec8b615174838548dd6959695a12",
}


def _register(name: str, file: str, geometric: str, width: int) -> None:
    def read(arrays: Mapping[str, np.ndarray]) -> NodeData:
        return node_data(arrays, name)

    traits = {"geometric": (geometric,), "gat_width": width, "digest": _DIGESTS[name]}
    GRAPH_SETS.register(name, file=file, **traits)(read)


for _name, _known in _SETS.items():
    _register(_name, *_known)
