"""Graphs of any make, read into one form: undirected, without weights or self-loops."""

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from intarsia.data.arrays import read_npz
from intarsia.data.sources.budget import check_entries, file_size
from intarsia.errors import DataError, DataWarning, RecipeError, shortened
from intarsia.limits import current

COMPONENTS = ("largest", "all")


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph.

    adjacency    N x N, symmetric, ones off the diagonal (scipy CSR, float64)
    nodes        for each node its number in the source it was read from
    """

    adjacency: sp.csr_array
    nodes: np.ndarray

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size} nodes, {self.edges // 2} undirected edges)"

    @property
    def size(self) -> int:
        """The number of nodes."""
        return int(self.adjacency.shape[0])

    @property
    def edges(self) -> int:
        """The number of directed edges: twice that of the undirected ones."""
        return int(self.adjacency.nnz)

    @cached_property
    def degrees(self) -> np.ndarray:
        """Of every node."""
        return np.diff(self.adjacency.indptr).astype(np.float64)

    @cached_property
    def components(self) -> np.ndarray:
        """For each node the number of its connected component."""
        from scipy.sparse.csgraph import connected_components  # slow to import

        return np.asarray(connected_components(self.adjacency, directed=False)[1])

    @property
    def laplacian(self) -> sp.csr_array:
        """L = D - A."""
        return sp.csr_array(sp.diags_array(self.degrees) - self.adjacency)

    @cached_property
    def edge_index(self) -> Tensor:
        """2 x edges, as PyTorch Geometric has it: both directions of every edge."""
        entries = self.adjacency.tocoo()
        return torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))

    def largest_component(self) -> "Graph":
        """The component with the most nodes; of equally large ones, that of the first node."""
        sizes = np.bincount(self.components)
        return self.subgraph(np.flatnonzero(self.components == sizes.argmax()))

    def subgraph(self, rows: np.ndarray) -> "Graph":
        """These nodes, and the edges between them."""
        rows = np.asarray(rows)
        return Graph(sp.csr_array(self.adjacency[rows][:, rows]), self.nodes[rows])


@dataclass(frozen=True, eq=False, repr=False)
class WeightedGraph(Graph):
    """A graph some of whose edges count more than others, to networks that know how to weigh.

    weights      N x N, symmetric, above 0 where the graph has an edge (scipy CSR)
    """

    weights: sp.csr_array

    def subgraph(self, rows: np.ndarray) -> "WeightedGraph":
        """These nodes, and the edges between them with their weights."""
        plain, rows = super().subgraph(rows), np.asarray(rows)
        weights = sp.csr_array(self.weights[rows][:, rows])
        return WeightedGraph(plain.adjacency, plain.nodes, weights)


def read_graph(
    source: Any,
    *,
    size: int | None = None,
    component: str = "all",
    directed: bool = False,
    weighted: bool = False,
) -> Graph:
    """A graph of a scipy matrix, an edge_index tensor, networkx, an edge list or PyG's Data.

    Edge lists, as pairs, as an array of E x 2 or as a file of two columns, name each edge once or
    twice; an .npz has them as `edges`. Nodes are numbered from 0; `size` says how many there are,
    where some have no edge, and is checked where the source says so itself. Nodes of networkx are
    taken by their numbers where they are 0 to N - 1, else in its order. Self-loops, which change
    nothing in D - A, and repeated edges are dropped. A matrix, a tensor or a networkx graph whose
    edges have directions is refused unless `directed` allows to forget them; weights other than 1
    are refused unless `weighted` does. Further columns of a file are not read; there is a warning
    where they look like weights. `component` may keep the largest alone.
    """
    if component not in COMPONENTS:
        raise RecipeError(f"component is {shortened(component)}: use 'largest' or 'all'")
    graph = source if isinstance(source, Graph) else _read(source, size, directed, weighted)
    if size is not None and graph.size != size:
        raise DataError(
            f"size is {shortened(size)}, but the {type(source).__name__} has {graph.size} nodes: "
            "leave size out, or give it a graph with nodes that have no edge"
        )
    return graph.largest_component() if component == "largest" else graph


def from_edges(edges: np.ndarray, size: int) -> Graph:
    """The graph of checked edges, E x 2, each given once or twice."""
    ones = np.ones(len(edges))
    half = sp.coo_array((ones, (edges[:, 0], edges[:, 1])), shape=(size, size))
    return _plain(half + half.T)


def _read(source: Any, size: int | None, directed: bool, weighted: bool) -> Graph:
    if sp.issparse(source):
        return _from_matrix(source, directed, weighted)
    if isinstance(source, Tensor):
        return _from_edge_index(source, size, directed)
    if hasattr(source, "edge_types"):  # PyG's HeteroData
        raise DataError(
            f"a {type(source).__name__} has nodes and edges of several kinds: give the edge_index "
            "of one kind whose ends are the same nodes, as in data['paper', 'cites', "
            "'paper'].edge_index, or data.to_homogeneous()"
        )
    if hasattr(source, "edge_index"):  # PyG's Data
        edge_index, values = source.edge_index, getattr(source, "edge_weight", None)
        if edge_index is None:
            raise DataError(f"the {type(source).__name__} has no edge_index: give it one of 2 x E")
        if values is not None:
            weights = values.detach().cpu()
            _check_weights(weights.double().numpy(), weighted, "edge_weight")
            edge_index = edge_index[:, (weights != 0).to(edge_index.device)]
        return _from_edge_index(edge_index, size or source.num_nodes, directed)
    if hasattr(source, "is_directed") and hasattr(source, "nodes"):
        return _from_networkx(source, directed, weighted)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return _from_edges(_edges_of_file(path, weighted), size, str(path))
    if isinstance(source, Iterable):
        return _from_edges(_pairs(source), size, "the edge list")
    raise DataError(
        f"a {type(source).__name__} is not a graph: give a scipy sparse matrix, an edge_index of "
        "2 x E, a networkx graph, pairs of nodes, a file of them, or Data of PyTorch Geometric"
    )


def _from_matrix(matrix: Any, directed: bool, weighted: bool) -> Graph:
    rows, columns = matrix.shape
    if rows != columns:
        raise DataError(f"the adjacency matrix is {rows} x {columns}: expected a square one")
    _check_size(rows, "the adjacency matrix")
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"the adjacency matrix is of {matrix.dtype}: expected real numbers")
    adjacency = sp.csr_array(matrix.astype(np.float64))
    adjacency.sum_duplicates()
    adjacency.eliminate_zeros()
    _check_weights(adjacency.data, weighted, "the adjacency matrix")
    pattern = adjacency.astype(bool)
    if not directed and (pattern != pattern.T).nnz:
        raise DataError(_advice_on_directions("the adjacency matrix is not symmetric"))
    return _plain(adjacency + adjacency.T)


def _from_edge_index(edge_index: Any, size: int | None, directed: bool) -> Graph:
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise DataError(
            f"edge_index has shape {tuple(edge_index.shape)}: expected 2 x E; an edge list of "
            "E x 2 is given as a numpy array or as pairs"
        )
    edges = edge_index.detach().cpu().numpy().T
    count = _checked_size(edges, size, "edge_index")
    edges = edges.astype(np.int64)
    graph = from_edges(edges, count)
    if not directed:
        given = sp.coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), (count, count))
        loops = given.diagonal() > 0
        if given.tocsr().nnz - int(loops.sum()) != graph.edges:
            raise DataError(_advice_on_directions("edge_index lacks the way back of some edges"))
    return graph


def _from_networkx(source: Any, directed: bool, weighted: bool) -> Graph:
    import networkx

    if not len(source):
        _check_size(0, "the networkx graph")
    weight = "weight" if any("weight" in own for *_, own in source.edges(data=True)) else None
    if source.is_multigraph() and weight is None:
        source = networkx.DiGraph(source) if source.is_directed() else networkx.Graph(source)
    numbers = range(len(source))
    order = numbers if set(source) == set(numbers) else None  # it has them as they were added
    matrix = networkx.to_scipy_sparse_array(source, order, np.float64, weight)
    return _from_matrix(matrix, directed, weighted)


def _edges_of_file(path: Path, weighted: bool) -> np.ndarray:
    size = file_size(path)
    if path.suffix == ".npz":
        arrays = read_npz(path)
        if "edges" not in arrays:
            raise DataError(f"{path} has no array 'edges': it has {', '.join(arrays)}")
        return _pairs(arrays["edges"])
    check_entries(size // 2, size, path)
    words = [
        line.replace(",", " ").replace(";", " ").split()
        for line in path.read_text(errors="replace").splitlines()
        if line.strip() and line.lstrip()[0] not in "#%"
    ]
    try:
        edges = np.array([(int(w[0]), int(w[1])) for w in words], np.int64).reshape(-1, 2)
    except (ValueError, IndexError, OverflowError) as error:
        odd = next((" ".join(w) for w in words if not _is_pair(w)), "")
        raise DataError(
            f"{path} is not a list of edges, see {shortened(odd)}: expected two node numbers on a "
            "line, from 0; a line that begins with # is left out"
        ) from error
    odd = next((" ".join(w) for w in words if _has_weight(w)), "")
    if odd and not weighted:
        warnings.warn(
            f"{path}: what follows two node numbers is not read, see {shortened(odd)}: all edges "
            "are alike",
            DataWarning,
            stacklevel=4,
        )
    return edges


def _has_weight(words: list[str]) -> bool:
    """Whether a number other than 1 follows the nodes, by itself or as networkx writes it."""
    named = len(words) > 3 and words[2].strip("{'\":") == "weight"
    try:
        return len(words) > 2 and float(words[3].rstrip("}") if named else words[2]) != 1
    except ValueError:
        return False


def _is_pair(words: list[str]) -> bool:
    return len(words) > 1 and all(word.lstrip("+-").isdecimal() for word in words[:2])


def _pairs(source: Iterable[Any]) -> np.ndarray:
    try:
        array = isinstance(source, np.ndarray) or hasattr(source, "to_numpy")  # as pandas' frames
        edges = np.asarray(source if array else list(source))
        edges = edges.reshape(0, 2) if edges.size == 0 else edges
    except ValueError as error:
        raise DataError(f"the edge list cannot be read ({error}): give pairs of nodes") from error
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise DataError(
            f"the edge list has shape {edges.shape}: expected E x 2; an edge_index of 2 x E is "
            "given as a torch tensor, an adjacency matrix as one of scipy.sparse"
        )
    return edges


def _from_edges(edges: np.ndarray, size: int | None, where: str) -> Graph:
    count = _checked_size(edges, size, where)
    return from_edges(edges.astype(np.int64), count)


def _checked_size(edges: np.ndarray, size: int | None, where: str) -> int:
    """How many nodes there are, after a check of their numbers."""
    kind = edges.dtype.kind
    whole = kind in "iu" or (kind == "f" and np.isfinite(edges).all() and (edges % 1 == 0).all())
    if edges.size and not whole:
        raise DataError(f"{where} names nodes that are not whole numbers: number them from 0")
    if edges.size and edges.min() < 0:
        raise DataError(f"{where} names node {edges.min()}: nodes are numbered from 0")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int | np.integer)):
        raise RecipeError(f"size is {shortened(size)}: expected how many nodes there are")
    least = int(edges.max()) + 1 if edges.size else 0
    count = least if size is None else int(size)
    if count < least:
        raise DataError(f"{where} names node {least - 1}, but there are {count} nodes")
    _check_size(count, where)
    return count


def _check_size(count: int, where: str) -> None:
    if count < 1:
        raise DataError(f"{where} has no nodes: a graph needs at least one")
    current().check("numbers", count, f"{where} has {{}} nodes")


def _check_weights(values: np.ndarray, weighted: bool, where: str) -> None:
    if not np.isfinite(values).all():
        raise DataError(f"{where} holds nan or infinity: remove these entries")
    if weighted and (values < 0).any():
        raise DataError(f"{where} holds negative weights: expected positive ones")
    odd = values[values != 1]
    if len(odd) and not weighted:
        raise DataError(
            f"the graph has weights, as {odd[0]:.6g}: heat here spreads over edges that are all "
            "alike; allow to forget them with weighted=True, as in read_graph(..., weighted=True)"
        )


def _advice_on_directions(what: str) -> str:
    return (
        f"{what}: its edges have directions; allow to forget them with directed=True, as in "
        "read_graph(..., directed=True)"
    )


def _plain(matrix: Any) -> Graph:
    """Ones where the matrix is not 0, off its diagonal."""
    entries = sp.coo_array(matrix)
    entries.sum_duplicates()
    off = (entries.row != entries.col) & (entries.data != 0)
    rows, columns = entries.row[off], entries.col[off]
    adjacency = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=entries.shape)
    adjacency.sort_indices()
    return Graph(adjacency, np.arange(entries.shape[0]))
