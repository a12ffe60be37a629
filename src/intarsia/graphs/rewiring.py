"""Nodes that belong together at a time tau: groups, graphs coarsened by them, graphs rewired."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from intarsia.errors import LimitError
from intarsia.graphs.adjacency import Graph, read_graph
from intarsia.graphs.heat_kernel import MEMORY, heat_kernel

ROUNDING = 1e-13  # of entries of a kernel, which are at most 1
ENTRIES = 4  # in a block of a product, for each that its memory has room for
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

    @property
    def labels(self) -> np.ndarray:
        """For each node its supernode: the connected component of the relation."""
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
    """The relation of nodes that belong together at a time, one pass over the heat kernel.

    rho_ij >= min(rho_ii, rho_jj) where rho_ij >= rho_jj or rho_ij >= rho_ii, so a column decides
    with its own diagonal entry, and its transpose has the rest. `settings` are those of
    `heat_kernel`; where the relation itself takes more than `memory` GiB, it is refused.
    """
    kernel = heat_kernel(source, tau, memory=memory, **settings)
    error = kernel.error + ROUNDING
    rows, columns, undecided, held = [], [], 0, 0
    for nodes, block in kernel.blocks():
        own = block[nodes, np.arange(len(nodes))]
        near = block >= own - 2 * error
        row, column = near.nonzero()
        gap = block[row, column] - own[column]
        off = row != nodes[column]
        undecided += int((np.abs(gap[off]) <= 2 * error).sum())
        belongs = (gap >= 0) | ~off
        rows.append(row[belongs].astype(np.int32))
        columns.append(nodes[column[belongs]].astype(np.int32))
        held += len(rows[-1])
        _check_entries(held, memory, "the groups")
    place = (np.concatenate(rows), np.concatenate(columns))
    shape = (kernel.graph.size, kernel.graph.size)
    half = sp.csr_array((np.ones(len(place[0]), bool), place), shape=shape)
    relation = _ones(half + half.T)
    return NodeGroups(kernel.graph, kernel.tau, relation, error, undecided)


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
