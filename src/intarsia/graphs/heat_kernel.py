"""The heat kernel exp(-tau L), by column: eigenvectors for small graphs, Chebyshev beyond."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.special import ive

from intarsia.errors import LimitError, RecipeError, shortened
from intarsia.graphs.adjacency import Graph, read_graph
from intarsia.graphs.heat_spectrum import SMALL, check_tau, spectrum

MEMORY = 4.0  # GiB
WIDEST = 128  # columns of a block: more no longer fit a processor's cache
TOLERANCE = 1e-9
KERNEL_METHODS = ("auto", "exact", "chebyshev")


@dataclass(frozen=True, eq=False)
class HeatKernel:
    """exp(-tau L) as something that gives columns; it is never held as a whole.

    error     an upper bound for that of any entry, rounding apart: the coefficients left out
    terms     of the Chebyshev series; 0 where eigenvectors are used
    width     columns that one block may have
    """

    graph: Graph
    tau: float
    error: float
    terms: int
    width: int
    columns_of: Callable[[np.ndarray], np.ndarray]

    def columns(self, nodes: Any) -> np.ndarray:
        """The columns of these nodes: N x number of nodes."""
        chosen = np.asarray(nodes, dtype=np.int64).reshape(-1)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= self.graph.size):
            raise RecipeError(
                f"nodes are {shortened(chosen.tolist())}: expected numbers from 0 to "
                f"{self.graph.size - 1}"
            )
        parts = np.split(chosen, range(self.width, len(chosen), self.width))
        return np.concatenate([self.columns_of(part) for part in parts], axis=1)

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All columns, a block at a time: the nodes, and their columns."""
        every = np.arange(self.graph.size)
        chosen = np.split(every, range(self.width, self.graph.size, self.width))
        if self.terms == 0:
            yield from ((own, self.columns_of(own)) for own in chosen)
            return
        workers = torch.get_num_threads()
        with ThreadPoolExecutor(workers) as pool:
            for start in range(0, len(chosen), workers):  # no more blocks at once than were counted
                group = chosen[start : start + workers]
                yield from zip(group, pool.map(self.columns_of, group), strict=True)


def heat_kernel(
    source: Any,
    tau: float,
    *,
    method: str = "auto",
    tolerance: float = TOLERANCE,
    memory: float = MEMORY,
    device: str = "cpu",
) -> HeatKernel:
    """exp(-tau L) of a graph, whose columns are computed when they are asked for.

    Up to 5,000 nodes by eigenvectors, on `device`. Beyond, by a Chebyshev series whose error is
    below `tolerance`: no eigenvalue is above a bound by degrees, and the coefficients that are left
    out sum to the error's. `memory` in GiB is what a block of columns and
    its recurrence may take.
    """
    graph, time = read_graph(source), check_tau(tau)
    if method not in KERNEL_METHODS:
        names = ", ".join(map(repr, KERNEL_METHODS))
        raise RecipeError(f"method is {shortened(method)}: use {names}")
    if not 0 < tolerance < 1 or not memory > 0:
        raise RecipeError(
            f"tolerance is {tolerance} and memory {memory}: expected a tolerance between 0 and 1, "
            "and some memory"
        )
    if method == "exact" or (method == "auto" and graph.size <= SMALL):
        return _by_eigenvectors(graph, time, memory, device)
    return _by_chebyshev(graph, time, tolerance, memory)


def largest_eigenvalue_bound(graph: Graph) -> float:
    """No eigenvalue of D - A is larger than a node's degree and its neighbours' mean together.

    Merris 1998: the largest of d_v + m_v over all nodes.
    """
    degrees = graph.degrees
    means = (graph.adjacency @ degrees) / np.maximum(degrees, 1)
    return float((degrees + means).max())


def chebyshev_terms(tau: float, bound: float, tolerance: float) -> tuple[np.ndarray, float]:
    """Coefficients of exp(-tau x) on [0, bound], and the sum of those that are left out.

    exp(-a (1 + y)) = sum_k c_k T_k(y) with a = tau bound / 2, c_0 = e^-a I_0(a) and
    c_k = 2 (-1)^k e^-a I_k(a).
    """
    half = tau * bound / 2
    count = int(np.ceil(12 * np.sqrt(half))) + 60  # beyond, none is above what a float resolves
    coefficients = 2 * ive(np.arange(count + 1), half) * (-1.0) ** np.arange(count + 1)
    coefficients[0] /= 2
    left_out = np.cumsum(np.abs(coefficients)[::-1])[::-1]
    keep = int(np.flatnonzero(left_out > tolerance)[-1]) + 1
    return coefficients[:keep], float(left_out[keep])


def _by_eigenvectors(graph: Graph, tau: float, memory: float, device: str) -> HeatKernel:
    needed = 3 * 8 * graph.size**2 / 2**30
    if needed > memory:
        raise LimitError(
            f"the eigenvectors of {graph.size} nodes take {needed:.3g} GiB, and memory is "
            f"{memory:.3g} GiB: raise it, or use method='chebyshev'"
        )
    own = spectrum(graph, method="exact", vectors=True, device=device)
    assert own.vectors is not None
    basis = own.vectors
    decayed = basis * torch.from_numpy(np.exp(-tau * own.values[0])).to(basis)

    def columns(nodes: np.ndarray) -> np.ndarray:
        return (decayed @ basis[torch.from_numpy(nodes).to(basis.device)].T).cpu().numpy()

    return HeatKernel(graph, tau, 0.0, 0, _width(graph, memory), columns)


def _by_chebyshev(graph: Graph, tau: float, tolerance: float, memory: float) -> HeatKernel:
    bound = largest_eigenvalue_bound(graph)
    coefficients, error = chebyshev_terms(tau, bound, tolerance)
    # y = 2 L / bound - 1, whose spectrum lies in [-1, 1]
    shifted = graph.laplacian * (2 / bound if bound else 0.0)
    shifted = sp.csr_array(shifted - sp.eye_array(graph.size))

    def columns(nodes: np.ndarray) -> np.ndarray:
        before = np.zeros((graph.size, len(nodes)))
        before[nodes, np.arange(len(nodes))] = 1
        total = coefficients[0] * before
        if len(coefficients) == 1:
            return total
        last = shifted @ before
        total += coefficients[1] * last
        for coefficient in coefficients[2:]:
            new = shifted @ last
            new *= 2
            new -= before
            before, last = last, new
            total += coefficient * last
        return total

    width = _width(graph, memory)
    return HeatKernel(graph, tau, error, len(coefficients), width, columns)


def _width(graph: Graph, memory: float) -> int:
    """How many columns a block may have: six arrays of them, for every thread, are in work."""
    threads = torch.get_num_threads()
    column = 6 * 8 * graph.size * threads
    fitting = int(memory * 2**30 / 2 // column)
    if not fitting:
        raise LimitError(
            f"a single column of {graph.size} nodes takes {2 * column / 2**30:.3g} GiB with "
            f"{threads} threads, and memory is {memory:.3g} GiB: raise it"
        )
    return min(WIDEST, fitting)
