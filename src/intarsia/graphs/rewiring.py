"""Nodes that belong together at a time tau: groups, graphs coarsened by them, graphs rewired."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from intarsia.errors import LimitError
from intarsia.graphs.adjacency import Graph, read_graph
from intarsia.graphs.heat_kernel import MEMORY, heat_kernel

ROUNDING = 1e-13  # of entries of a kernel, which are at most 1
ROUGH, CAUTION = np.float32, 8.0  # a first pass; times its rounding is how far it is trusted
AHEAD = 2**22  # entries of a block of a product of which we know the number of operations


@dataclass(frozen=True, eq=False)
class NodeGroups:
    """Which nodes have exchanged so much heat by a time that they belong together.

    relation     zeta_ij = [rho_ij >= min(rho_ii, rho_jj)], the diagonal included: symmetric, not
                 transitive (scipy CSR of booleans)
    error        an upper bound for that of the entries compared
    undecided    comparisons of two nodes whose difference is below twice that error
    """

    graph: Graph
    tau: float
    relation: sp.csr_array
    error: float
    undecided: int

    def __repr__(self) -> str:
        return f"NodeGroups({self.number} supernodes of {self.graph} at tau {self.tau:g})"

    @property
    def labels(self) -> np.ndarray:
        """For each node its supernode: the connected component of the relation."""
        from scipy.sparse.csgraph import connected_components  # slow to import

        return np.asarray(connected_components(self.relation, directed=False)[1])

    @property
    def number(self) -> int:
        """How many supernodes there are."""
        return int(self.labels.max()) + 1


@dataclass(frozen=True, eq=False)
class CoarseGraph:
    """Supernodes and the edges between them; `labels` says where each node went."""

    graph: Graph
    labels: np.ndarray


def groups(source: Any, tau: float, *, memory: float = MEMORY, **settings: Any) -> NodeGroups:
    """The relation of nodes that belong together at a time, by columns of the heat kernel.

    rho_ij >= min(rho_ii, rho_jj) where rho_ij >= rho_jj or rho_ij >= rho_ii, so a column decides
    with its own diagonal entry, and its transpose has the rest. A Chebyshev series is summed in
    float32 first; columns with a comparison that is closer than eight times the rounding measured
    on a sample of them are computed anew in float64, and decide in that. `settings` are those of
    `heat_kernel`; where the relation itself takes more than `memory` GiB, it is refused.
    """
    kernel = heat_kernel(source, tau, memory=memory, **settings)
    error = kernel.error + ROUNDING
    found = _Pairs(kernel.graph.size, memory)
    left = None  # all columns
    if kernel.terms:
        margin = 2 * (error + CAUTION * kernel.rounding())
        left = np.concatenate([found.decide(*own, margin) for own in kernel.blocks(dtype=ROUGH)])
    undecided = 0
    for nodes, block in kernel.blocks(left):
        undecided += found.decide_all(nodes, block, 2 * error)
    return NodeGroups(kernel.graph, kernel.tau, found.relation(), error, undecided)


class _Pairs:
    """Pairs of nodes that belong together, as columns of the kernel tell them."""

    def __init__(self, size: int, memory: float) -> None:
        self.size, self.memory, self.held = size, memory, 0
        self.rows: list[np.ndarray] = []
        self.columns: list[np.ndarray] = []

    def decide(self, nodes: np.ndarray, block: np.ndarray, margin: float) -> np.ndarray:
        """Keeps what columns say; the nodes of those with a gap below the margin are returned."""
        row, column, gap = _gaps(nodes, block, margin)
        close = (np.abs(gap) <= margin) & (row != nodes[column])
        open_columns = np.zeros(len(nodes), bool)
        open_columns[column[close]] = True
        self._keep(nodes, row, column, ((gap >= 0) & ~open_columns[column]))
        return nodes[open_columns]

    def decide_all(self, nodes: np.ndarray, block: np.ndarray, margin: float) -> int:
        """Keeps what columns say; how many gaps are below the margin is returned."""
        row, column, gap = _gaps(nodes, block, margin)
        self._keep(nodes, row, column, gap >= 0)
        return int(((np.abs(gap) <= margin) & (row != nodes[column])).sum())

    def _keep(
        self, nodes: np.ndarray, row: np.ndarray, column: np.ndarray, belongs: np.ndarray
    ) -> None:
        self.rows.append(row[belongs].astype(np.int32))
        self.columns.append(nodes[column[belongs]].astype(np.int32))
        self.held += len(self.rows[-1])
        _check_entries(self.held, self.memory, "the groups")

    def relation(self) -> sp.csr_array:
        """All pairs, either way round."""
        place = (np.concatenate(self.rows), np.concatenate(self.columns))
        ones = np.ones(len(place[0]), bool)
        half = sp.csr_array((ones, place), shape=(self.size, self.size))
        return _ones(half + half.T)


def _gaps(
    nodes: np.ndarray, block: np.ndarray, margin: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and how far the entry is above the column's diagonal one, if not far below."""
    own = block[nodes, np.arange(len(nodes))]
    row, column = (block >= own - block.dtype.type(margin)).nonzero()
    return row, column, block[row, column] - own[column]


def coarsen(source: Any, tau: float | None = None, **settings: Any) -> CoarseGraph:
    """The graph of supernodes at a time: all nodes that groups connect become one.

    Villegas et al. contract in this way. `source` may be `NodeGroups` already.
    """
    own = _groups_of(source, tau, settings)
    labels, number = own.labels, own.number
    size = own.graph.size
    member = sp.csr_array((np.ones(size), (labels, np.arange(size))), shape=(number, size))
    return CoarseGraph(read_graph(member @ own.graph.adjacency @ member.T, weighted=True), labels)


def rewire(
    source: Any, tau: float | None = None, *, memory: float = MEMORY, **settings: Any
) -> Graph:
    """The same nodes, with an edge where groups are neighbours and do not overlap.

    rewired = (zeta A zeta^T > 0) and not (zeta zeta zeta^T > 0), the second for sparsity inside of
    supernodes (Caso et al. 2025). Rows are made in blocks; a rewired graph that takes more than
    `memory` GiB is refused. `source` may be `NodeGroups` already.
    """
    own = _groups_of(source, tau, {**settings, "memory": memory})
    near = own.relation.astype(np.float32)
    adjacency = own.graph.adjacency.astype(np.float32)
    across, within = _counted(near @ adjacency), _counted(near @ near)
    blocks, held = [], 0
    for start, stop in _row_blocks(across, within, near, memory):
        linked = _counted(across[start:stop] @ near)
        inside = _counted(within[start:stop] @ near)
        blocks.append(_ones(linked - linked.multiply(inside)))
        held += blocks[-1].nnz
        _check_entries(held, memory, "the rewired graph")
    rewired = sp.csr_array(sp.vstack(blocks, format="csr"))
    # One array of ones for all: the numbers are never read one by one.
    whole = sp.csr_array(
        (np.ones(rewired.nnz), rewired.indices, rewired.indptr), shape=rewired.shape
    )
    whole.sort_indices()
    return Graph(whole, own.graph.nodes)


def _groups_of(source: Any, tau: float | None, settings: dict[str, Any]) -> NodeGroups:
    if isinstance(source, NodeGroups):
        return source
    return groups(source, tau, **settings)  # type: ignore[arg-type]  # None is refused there


def _row_blocks(
    across: sp.csr_array, within: sp.csr_array, near: sp.csr_array, memory: float
) -> list[tuple[int, int]]:
    """Rows whose products have few enough entries, before equal ones are added, for the memory."""
    width = np.diff(near.indptr)
    entries = np.zeros(near.shape[0])
    for left in (across, within):
        lengths = width[left.indices]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        entries += ends[left.indptr[1:]] - ends[left.indptr[:-1]]
    most = min(AHEAD, memory * 2**30 / 64)
    rows, blocks, start, held = len(entries), [], 0, 0.0
    for row in range(rows):
        if row > start and held + entries[row] > most:
            blocks.append((start, row))
            start, held = row, 0.0
        held += min(entries[row], rows)
    return [*blocks, (start, rows)]


def _counted(product: Any) -> sp.csr_array:
    """A product with ones in place of how often each entry was met."""
    result = sp.csr_array(product)
    result.data[:] = 1
    return result


def _ones(matrix: Any) -> sp.csr_array:
    result = sp.csr_array(matrix).astype(bool)
    result.eliminate_zeros()
    result.sum_duplicates()
    return result


def _check_entries(count: int, memory: float, what: str) -> None:
    needed = 16 * count / 2**30  # a number and its place, twice while it is put together
    if needed > memory:
        raise LimitError(
            f"{what} would take more than {needed:.3g} GiB, and memory is {memory:.3g} GiB: raise "
            "it, or choose a smaller tau"
        )
