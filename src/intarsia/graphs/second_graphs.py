"""Graphs over the same nodes to hold a rewired one against: hops, random edges, diffusion."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from intarsia.errors import LimitError, RecipeError, shortened
from intarsia.files import stream
from intarsia.graphs.adjacency import Graph, WeightedGraph, read_graph
from intarsia.graphs.heat_kernel import MEMORY


def hop_graph(graph: Any, hops: int | Sequence[int] = (2,)) -> Graph:
    """An edge between nodes whose distance is one of `hops`."""
    graph = read_graph(graph)
    wanted = {hops} if isinstance(hops, int) else set(hops)
    if not wanted or not all(type(hop) is int and hop >= 1 for hop in wanted):
        raise RecipeError(f"hops are {shortened(list(wanted))}: expected whole numbers from 1")
    step = graph.adjacency.astype(np.float32)
    reached = sp.csr_array(sp.eye_array(graph.size, dtype=np.float32))
    shell, chosen = reached, sp.csr_array(step.shape, dtype=np.float32)
    for hop in range(1, max(wanted) + 1):
        product = _ones(shell @ step)
        shell = _ones(product - product.multiply(reached))
        reached = _ones(reached + shell)
        if hop in wanted:
            chosen = chosen + shell
    return Graph(_ones(chosen).astype(np.float64), graph.nodes)


def random_graph(graph: Any, edges: int, seed: int = 0) -> Graph:
    """The same nodes with so many directed edges, half of them drawn without replacement."""
    graph = read_graph(graph)
    most = graph.size * (graph.size - 1)
    if not isinstance(edges, int | np.integer) or edges % 2 or not 0 <= edges <= most:
        raise RecipeError(f"edges are {shortened(edges)}: expected an even number from 0 to {most}")
    draw = np.random.default_rng(stream("random graph", seed))
    pairs = np.sort(draw.choice(most // 2, edges // 2, replace=False, shuffle=False))
    # Pair k of the strict upper triangle lies in the last row that begins at k or before.
    begins = np.concatenate([[0], np.cumsum(np.arange(graph.size - 1, 0, -1))])
    row = np.searchsorted(begins, pairs, side="right") - 1
    column = pairs - begins[row] + row + 1
    half = sp.coo_array((np.ones(len(row)), (row, column)), shape=graph.adjacency.shape)
    return Graph(sp.csr_array(half + half.T), graph.nodes)


def page_rank(
    graph: Any, alpha: float = 0.15, top: int = 32, *, memory: float = MEMORY
) -> sp.csr_array:
    """Personalised PageRank, of every column the `top` largest entries: S = a (1 - (1 - a) T)^-1.

    T = D^-1/2 (A + I) D^-1/2 with the degrees of A + I. Graph diffusion convolution (Gasteiger et
    al. 2019) puts S in the place of the adjacency matrix. It is inverted whole, which `memory` GiB
    must have room for.
    """
    if not 0 < alpha < 1 or type(top) is not int or top < 1:
        raise RecipeError(f"alpha {alpha} and top {top}: expected one from 0 to 1, one from 1")
    graph = read_graph(graph)
    needed = 4 * 8 * graph.size**2 / 2**30
    if needed > memory:
        raise LimitError(
            f"the diffusion of {graph.size} nodes takes {needed:.3g} GiB, and memory is "
            f"{memory:.3g} GiB: raise it"
        )
    scale = 1 / np.sqrt(graph.degrees + 1)
    dense = graph.adjacency.toarray() + np.eye(graph.size)
    dense *= (alpha - 1) * scale[:, None] * scale
    dense += np.eye(graph.size)
    whole = alpha * np.linalg.inv(dense)
    kept = min(top, graph.size)
    rows = np.argpartition(-whole, kept - 1, axis=0)[:kept]
    columns = np.broadcast_to(np.arange(graph.size), rows.shape)
    values = np.take_along_axis(whole, rows, axis=0)
    place = (rows.ravel(), columns.ravel())
    result = sp.csr_array((values.ravel(), place), shape=whole.shape)
    result.sort_indices()
    return result


def diffusion_graph(
    graph: Any, alpha: float = 0.15, top: int = 32, *, memory: float = MEMORY
) -> WeightedGraph:
    """The edges that `page_rank` keeps in either direction, with the mean of both as weights.

    A node's own entry is left out, since networks here add a loop to every node.
    """
    graph = read_graph(graph)
    kept = page_rank(graph, alpha, top, memory=memory)
    mean = sp.csr_array((kept + kept.T) / 2)
    mean.setdiag(0)
    mean.eliminate_zeros()
    mean.sort_indices()
    adjacency = sp.csr_array((np.ones(mean.nnz), mean.indices, mean.indptr), shape=mean.shape)
    return WeightedGraph(adjacency, graph.nodes, mean)


def _ones(matrix: sp.csr_array) -> sp.csr_array:
    result = sp.csr_array(matrix)
    result.eliminate_zeros()
    result.data[:] = 1
    result.sort_indices()
    return result
