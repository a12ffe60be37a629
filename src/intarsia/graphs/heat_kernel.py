"""The heat kernel exp(-tau L), by column: eigenvectors for small graphs, Chebyshev beyond."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from intarsia.errors import LimitError, RecipeError, shortened
from intarsia.graphs.adjacency import Graph, read_graph
from intarsia.graphs.device_arrays import is_cpu, on_device, on_host, product
from intarsia.graphs.heat_spectrum import SMALL, check_tau, spectrum
from intarsia.specs import is_number
from intarsia.training.job import device_of

MEMORY = 4.0  # GiB
SAMPLE = 64  # columns of which the rounding is measured
WIDEST = 128  # columns of a block: more no longer fit a processor's cache
TOLERANCE = 1e-9
KERNEL_METHODS = ("auto", "exact", "chebyshev")


@dataclass(frozen=True, eq=False)
class HeatKernel:
    """exp(-tau L) as something that gives columns; it is never held as a whole.

    error     an upper bound for that of any entry, rounding apart: the coefficients left out
    terms     of the Chebyshev series; 0 where eigenvectors are used
    width     columns that one block may have
    columns_of    of some nodes, as many as a block may have, in this type of numbers
    """

    graph: Graph
    tau: float
    error: float
    terms: int
    width: int
    columns_of: Callable[[np.ndarray, Any], np.ndarray]
    workers: int = 1

    def columns(self, nodes: Any) -> np.ndarray:
        """The columns of these nodes: N x number of nodes."""
        given = np.asarray(nodes).reshape(-1)
        if given.size and given.dtype.kind not in "iu":
            raise RecipeError(f"nodes are {shortened(given.tolist())}: expected whole numbers")
        chosen = given.astype(np.int64)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= self.graph.size):
            raise RecipeError(
                f"nodes are {shortened(chosen.tolist())}: expected numbers from 0 to "
                f"{self.graph.size - 1}"
            )
        parts = np.split(chosen, range(self.width, len(chosen), self.width))
        return np.concatenate([self.columns_of(part, np.float64) for part in parts], axis=1)

    def blocks(
        self, nodes: np.ndarray | None = None, dtype: Any = np.float64
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All columns, or those of `nodes`, a block at a time: the nodes, and their columns.

        In float32 a Chebyshev series takes a third of the time; its rounding is then the error.
        """
        wanted = np.arange(self.graph.size) if nodes is None else nodes
        chosen = np.split(wanted, range(self.width, len(wanted), self.width))
        with ThreadPoolExecutor(self.workers) as pool:
            for start in range(0, len(chosen), self.workers):  # no more at once than were counted
                group = chosen[start : start + self.workers]
                made = pool.map(lambda own: self.columns_of(own, dtype), group)
                yield from zip(group, made, strict=True)

    def rounding(self, dtype: Any = np.float32) -> float:
        """How far columns in this type are off those in float64, at the most, in a sample.

        Half of it are the nodes with the most neighbours, where most numbers are added up.
        """
        hubs = np.argsort(-self.graph.degrees, kind="stable")[: SAMPLE // 2]
        spaced = np.linspace(0, self.graph.size - 1, SAMPLE // 2).astype(np.int64)
        sample = np.unique(np.concatenate([hubs, spaced]))
        off = 0.0
        for nodes, rough in self.blocks(sample, dtype):
            off = max(off, float(np.abs(rough - self.columns_of(nodes, np.float64)).max()))
        return off


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

    Up to 5,000 nodes by eigenvectors. Beyond, by a Chebyshev series whose error is below
    `tolerance`: no eigenvalue is above a bound by degrees, and the coefficients that are left out
    sum to the error's. `memory` in GiB is what a block of columns and its recurrence may take.
    Either is computed on `device`; columns come back to the CPU.
    """
    graph, time = read_graph(source), check_tau(tau)
    if method not in KERNEL_METHODS:
        names = ", ".join(map(repr, KERNEL_METHODS))
        raise RecipeError(f"method is {shortened(method)}: use {names}")
    numbers = is_number(tolerance) and is_number(memory)
    if not numbers or not 0 < tolerance < 1 or not memory > 0:
        raise RecipeError(
            f"tolerance is {tolerance} and memory {memory}: expected a tolerance between 0 and 1, "
            "and some memory"
        )
    device = str(device_of(device))
    if method == "exact" or (method == "auto" and graph.size <= SMALL):
        return _by_eigenvectors(graph, time, memory, device)
    return _by_chebyshev(graph, time, tolerance, memory, device)


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
    from scipy.special import ive  # slow to import

    half = tau * bound / 2
    count = int(np.ceil(12 * np.sqrt(half))) + 60  # beyond, none is above what a float resolves
    coefficients = 2 * ive(np.arange(count + 1), half) * (-1.0) ** np.arange(count + 1)
    coefficients[0] /= 2
    left_out = np.cumsum(np.abs(coefficients)[::-1])[::-1]
    keep = min(int(np.flatnonzero(left_out > tolerance)[-1]) + 1, count)
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

    def columns(nodes: np.ndarray, dtype: Any) -> np.ndarray:
        made = (decayed @ basis[torch.from_numpy(nodes).to(basis.device)].T).cpu().numpy()
        return np.asarray(made, dtype=dtype)

    return HeatKernel(graph, tau, 0.0, 0, _width(graph, memory), columns)


def _by_chebyshev(
    graph: Graph, tau: float, tolerance: float, memory: float, device: str
) -> HeatKernel:
    bound = largest_eigenvalue_bound(graph)
    coefficients, error = chebyshev_terms(tau, bound, tolerance)
    # y = 2 L / bound - 1, whose spectrum lies in [-1, 1]
    scaled = graph.laplacian * (2 / bound if bound else 0.0)
    twice = 2 * sp.csr_array(scaled - sp.eye_array(graph.size))

    @cache
    def multiply_in(dtype: np.dtype[Any]) -> Callable[[Any], Any]:
        return product(sp.csr_array(twice.astype(dtype, copy=False)), device)

    def columns(nodes: np.ndarray, dtype: Any) -> np.ndarray:
        start = np.zeros((graph.size, len(nodes)), dtype)
        start[nodes, np.arange(len(nodes))] = 1
        series = _series(coefficients, multiply_in(np.dtype(dtype)), on_device(start, device))
        return on_host(series)

    width = _width(graph, memory)
    workers = torch.get_num_threads() if is_cpu(device) else 1
    return HeatKernel(graph, tau, error, len(coefficients), width, columns, workers)


def _series(coefficients: np.ndarray, twice: Callable[[Any], Any], start: Any) -> Any:
    """sum_k c_k T_k(y) of columns, where `twice` multiplies by 2 y: numpy's or torch's arrays."""
    values = coefficients.tolist()  # plain numbers, which leave float32 as it is
    total = values[0] * start
    if len(values) == 1:
        return total
    before, last = start, twice(start) * 0.5
    total += values[1] * last
    for value in values[2:]:
        new = twice(last)
        new -= before
        before, last = last, new
        total += value * last
    return total


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
