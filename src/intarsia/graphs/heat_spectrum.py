"""The spectrum of a graph's Laplacian, and what follows from it: entropy, heat capacity, scales.

With rho = exp(-tau L) / Z and its eigenvalues mu, S = -sum mu log mu / log N is the entropy and
C = -dS / dlog tau = tau^2 Var_mu(lambda) / log N the heat capacity; a peak of C is a scale of the
graph (Villegas et al. 2022, 2023).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from intarsia.errors import DataError, LimitError, RecipeError, shortened
from intarsia.files import stream
from intarsia.graphs.adjacency import Graph, read_graph
from intarsia.graphs.device_arrays import on_device, on_host, product
from intarsia.specs import is_number
from intarsia.training.job import device_of

SMALL = 5_000  # nodes up to which a graph's eigenvalues are computed one and all
PROBES, STEPS = 48, 800  # of stochastic Lanczos: vectors, and products with L at the most
FIRST, GROWTH = 64, 1.5  # steps before the first look at whether more change anything
ENOUGH = 2e-3  # change of the heat capacity, between two looks, below which no more are taken
MEMORY = 4.0  # GiB
GRID = np.logspace(-2, 4, 100)
"""The times at which curves are computed, unless others are given."""
KINDS = ("published", "heat_capacity")
METHODS = ("auto", "exact", "lanczos")


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of a Laplacian with their weights, or an estimate of their density.

    values     of each probe: probes x eigenvalues; an exact spectrum has one probe
    weights    how many eigenvalues each stands for: those of a probe sum to the number of nodes
    largest    the largest eigenvalue, or that of the estimate
    exact      whether it comes from an eigendecomposition
    vectors    of an exact one: nodes x eigenvalues, if they were asked for
    shorter    of an estimate: what fewer steps gave, for the error of ending where it ended
    """

    values: np.ndarray
    weights: np.ndarray
    nodes: int
    largest: float
    exact: bool
    vectors: torch.Tensor | None = None
    shorter: "Spectrum | None" = None

    def __repr__(self) -> str:
        how = "exact" if self.exact else f"estimated by {len(self.values)} probes"
        return f"Spectrum({self.nodes} nodes, largest eigenvalue {self.largest:.4g}, {how})"


@dataclass(frozen=True, eq=False)
class HeatCurve:
    """A curve over times tau, with its errors: 0 where it is exact.

    Of an estimate they are the standard error over probes, and the change that the last steps made.
    """

    tau: np.ndarray
    values: np.ndarray
    errors: np.ndarray

    def __repr__(self) -> str:
        peaks = ", ".join(f"{self.tau[place]:.4g}" for place in self.peaks()) or "none"
        return f"HeatCurve({len(self.tau)} times, peaks at tau {peaks})"

    def peaks(self) -> list[int]:
        """The places of local maxima that stand out by more than twice the error."""
        from scipy.signal import find_peaks  # takes half a second to import

        places, _ = find_peaks(self.values)
        reach = self.values.max() - self.values.min() if len(self.values) else 0.0
        noise = np.maximum(2 * self.errors, 1e-9 * reach)
        return [int(p) for p in places if _prominence(self.values, p) > noise[p]]


def spectrum(
    source: Any,
    *,
    method: str = "auto",
    vectors: bool = False,
    probes: int = PROBES,
    steps: int = STEPS,
    seed: int = 0,
    memory: float = MEMORY,
    device: str = "cpu",
) -> Spectrum:
    """The eigenvalues of L = D - A, exact for up to 5,000 nodes and estimated beyond.

    The estimate is stochastic Lanczos quadrature: `probes` random sign vectors, each taken through
    products with L until the heat capacity no longer changes, or through `steps` of them. What L
    takes to 0 is known, a constant for each component, and is removed first: without that, false
    peaks appear at large times. As many probes go together as `memory` in GiB has room for.
    Either is computed on `device`.
    """
    graph = read_graph(source)
    if method not in METHODS:
        raise RecipeError(f"method is {shortened(method)}: use {', '.join(map(repr, METHODS))}")
    device = str(device_of(device))
    if method == "exact" or (method == "auto" and graph.size <= SMALL):
        return _exact(graph, vectors, device)
    if vectors:
        raise RecipeError(f"{graph.size} nodes have too many eigenvectors to hold: method='exact'")
    if not isinstance(probes, int) or not isinstance(steps, int) or probes < 2 or steps < 1:
        raise RecipeError(f"{probes} probes of {steps} steps: expected at least 2 probes, 1 step")
    if not is_number(memory) or not memory > 0:
        raise RecipeError(f"memory is {shortened(memory)}: expected a number of GiB above 0")
    return _lanczos(graph, probes, steps, seed, memory, device)


def entropy(source: Any, tau: Any = GRID, **settings: Any) -> HeatCurve:
    """S = -sum mu log mu / log N over times: 1 at time 0, and for a connected graph 0 at last.

    `source` is a graph, or a `Spectrum` to spare computing it again; `settings` are those of
    `spectrum`. A graph of one node has entropy 0.
    """
    return _curve(source, tau, _entropies, settings)


def heat_capacity(source: Any, tau: Any = GRID, **settings: Any) -> HeatCurve:
    """C = -dS / dlog tau = tau^2 Var_mu(lambda) / log N over times."""
    return _curve(source, tau, _capacities, settings)


def published_capacity(source: Any, tau: Any = GRID, **settings: Any) -> HeatCurve:
    """What the authors' code takes for the heat capacity, and reads its scale from.

    -tau^2 d/dtau sum(lambda exp(-tau lambda)) by finite differences on the grid, without 1 / Z, and
    smoothed over one step of it (Caso et al. 2025).
    """
    return _curve(source, tau, _published, settings)


def scales(source: Any, kind: str = "published", tau: Any = GRID, **settings: Any) -> list[float]:
    """The times at which a graph has a characteristic scale, in order.

    "heat_capacity" has the peaks of C, "published" those of what the authors' code computes; the
    first of these is the tau* of their paper. A graph without edges has none.
    """
    if kind not in KINDS:
        raise RecipeError(f"kind is {shortened(kind)}: use {' or '.join(map(repr, KINDS))}")
    curve = (published_capacity if kind == "published" else heat_capacity)(source, tau, **settings)
    return [float(curve.tau[place]) for place in curve.peaks()]


def find_scale(source: Any, kind: str = "published", **settings: Any) -> float:
    """The first of the `scales`; an error where there is none."""
    taus = scales(source, kind, **settings)
    if not taus:
        raise DataError(
            f"the graph has no scale of the kind {kind!r}: its curve has no peak between "
            f"{GRID[0]:g} and {GRID[-1]:g}; give tau as a number"
        )
    return taus[0]


def check_tau(tau: Any) -> float:
    """A time as a float; an error unless it is a finite number above 0."""
    try:
        value = float(tau)
    except (TypeError, ValueError):
        value = float("nan")
    if isinstance(tau, bool) or not np.isfinite(value) or value <= 0:
        raise RecipeError(f"tau is {shortened(tau)}: expected a finite number above 0")
    return value


def _exact(graph: Graph, vectors: bool, device: str) -> Spectrum:
    dense = torch.from_numpy(graph.laplacian.toarray()).to(device)
    if vectors:
        found, basis = torch.linalg.eigh(dense)
    else:
        found, basis = torch.linalg.eigvalsh(dense), None
    values = found.cpu().numpy().clip(0)
    values[: int(graph.components.max()) + 1] = 0  # one for each component
    values = values[None]
    return Spectrum(
        values, np.ones_like(values), graph.size, float(values[0, -1]), exact=True, vectors=basis
    )


def _lanczos(
    graph: Graph, probes: int, steps: int, seed: int, memory: float, device: str
) -> Spectrum:
    """All probes, in blocks of columns; the first block says after how many steps to stop."""
    together = int(memory * 2**30 // (6 * 8 * graph.size))
    if together < min(2, probes):
        raise LimitError(
            f"two probes of {graph.size} nodes take {2 * 48 * graph.size / 2**30:.3g} GiB, and "
            f"memory is {memory:.3g} GiB: raise it"
        )
    draw = np.random.default_rng(stream("lanczos", seed))
    steps = min(steps, max(graph.size - int(graph.components.max()) - 1, 1))
    looks, blocks = _looks(steps), []
    for start in range(0, probes, together):
        columns = min(together, probes - start)
        signs = draw.choice([-1.0, 1.0], size=(graph.size, columns))
        blocks.append(_tridiagonal(graph, on_device(signs, device), looks, not start, device))
        looks = [look for look in looks if look <= blocks[0][0].shape[1]]
    diagonal, below = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    shorter = _quadrature(graph, diagonal, below, looks[-2]) if len(looks) > 1 else None
    return _quadrature(graph, diagonal, below, looks[-1], shorter)


def _looks(steps: int) -> list[int]:
    """The numbers of steps after which to look whether more are needed; the last is all."""
    looks = [min(FIRST, max(1, steps // 2))]
    while looks[-1] < steps:
        looks.append(min(steps, int(np.ceil(GROWTH * looks[-1]))))
    return looks


def _tridiagonal(
    graph: Graph, signs: Any, looks: list[int], stop: bool, device: str
) -> tuple[np.ndarray, np.ndarray]:
    """What Lanczos makes of L from each column: diagonals and subdiagonals, probes x steps."""
    multiply, centre = product(graph.laplacian, device), _without_constants(graph, device)
    vector = centre(signs)
    vector /= ((vector * vector).sum(0) ** 0.5).clip(1e-300)
    before, link = 0 * vector, 0 * vector[0]
    diagonal: list[np.ndarray] = []
    below: list[np.ndarray] = []
    tiny = 1e-10 * (2 * graph.degrees.max() + 1)
    last = None
    for step in range(1, looks[-1] + 1):
        new = centre(multiply(vector))
        new -= link * before
        along = (vector * new).sum(0)
        new -= along * vector
        link = (new * new).sum(0) ** 0.5
        link[link < tiny] = 0  # an invariant subspace: the quadrature is exact from here on
        diagonal.append(on_host(along))
        below.append(on_host(link))
        new /= link + 1.0 * (link == 0)
        new[:, link == 0] = 0
        before, vector = vector, new
        if stop and step in looks:
            own = _quadrature(graph, np.stack(diagonal, 1), np.stack(below, 1), step)
            curve = heat_capacity(own).values
            if last is not None and np.abs(curve - last).max() < ENOUGH:
                break
            last = curve
    return np.stack(diagonal, 1), np.stack(below, 1)


def _quadrature(
    graph: Graph,
    diagonal: np.ndarray,
    below: np.ndarray,
    steps: int,
    shorter: Spectrum | None = None,
) -> Spectrum:
    """Ritz values with their weights, and as many zeros as there are components."""
    from scipy.linalg import eigh_tridiagonal  # slow to import

    kernel = int(graph.components.max()) + 1
    pairs = [
        eigh_tridiagonal(a[:steps], b[: steps - 1]) for a, b in zip(diagonal, below, strict=True)
    ]
    values = np.stack([found.clip(0) for found, _ in pairs])
    weights = (graph.size - kernel) * np.stack([basis[0] ** 2 for _, basis in pairs])
    rest = np.zeros((len(values), 1))
    return Spectrum(
        np.hstack([rest, values]), np.hstack([rest + kernel, weights]), graph.size,
        float(values.max()), exact=False, shorter=shorter,
    )  # fmt: skip


def _without_constants(graph: Graph, device: str) -> Any:
    """Removes from columns their mean over every component, which L takes to 0."""
    labels = graph.components
    sizes = np.bincount(labels)
    if len(sizes) == 1:
        return lambda x: x - x.mean(0)
    shape = (len(sizes), graph.size)
    means = sp.csr_array((1 / sizes[labels], (labels, np.arange(graph.size))), shape=shape)
    mean, place = product(means, device), on_device(labels.astype(np.int64), device)
    return lambda x: x - mean(x)[place]


def _curve(source: Any, tau: Any, formula: Any, settings: dict[str, Any]) -> HeatCurve:
    """The formula of the mean over all probes, and the jackknife's error over them."""
    own = source if isinstance(source, Spectrum) else spectrum(source, **settings)
    try:
        times = np.atleast_1d(np.asarray(tau, dtype=float))
    except (TypeError, ValueError):
        times = np.array([np.nan])
    if times.ndim != 1 or not np.isfinite(times).all() or (times <= 0).any():
        raise RecipeError(f"tau is {shortened(tau)}: expected finite numbers above 0")
    count = len(own.values)
    sums = _sums(own, times)  # probes x 3 x times
    values = formula(sums.mean(0), times, own.nodes)
    if own.exact:
        return HeatCurve(times, values, np.zeros_like(values))
    without = [
        formula((sums.sum(0) - one) / (count - 1), times, own.nodes) for one in sums
    ]  # each probe left out in turn
    spread = np.stack(without)
    errors = np.sqrt((count - 1) * ((spread - spread.mean(0)) ** 2).mean(0))
    if own.shorter is not None:
        fewer = formula(_sums(own.shorter, times).mean(0), times, own.nodes)
        errors = errors + np.abs(values - fewer)
    return HeatCurve(times, values, errors)


def _sums(own: Spectrum, times: np.ndarray) -> np.ndarray:
    """Of exp(-tau lambda), times lambda^0, lambda^1 and lambda^2: probes x 3 x times."""
    values, weights = own.values[:, None], own.weights[:, None]
    result = np.empty((len(own.values), 3, len(times)))
    for place, time in enumerate(times):
        decay = weights * np.exp(-time * values)
        result[:, :, place] = np.stack([(decay * values**k).sum(-1)[:, 0] for k in range(3)], 1)
    return result


def _entropies(sums: np.ndarray, tau: np.ndarray, nodes: int) -> np.ndarray:
    if nodes == 1:
        return np.zeros_like(tau)
    partition, mean = sums[0], sums[1] / sums[0]
    return np.asarray((np.log(partition) + tau * mean) / np.log(nodes))


def _capacities(sums: np.ndarray, tau: np.ndarray, nodes: int) -> np.ndarray:
    if nodes == 1:
        return np.zeros_like(tau)
    variance = sums[2] / sums[0] - (sums[1] / sums[0]) ** 2
    return np.asarray(tau**2 * variance.clip(0) / np.log(nodes))


def _published(sums: np.ndarray, tau: np.ndarray, nodes: int) -> np.ndarray:
    if len(tau) < 2 or not (np.diff(tau) > 0).all():
        raise RecipeError(
            "the published curve is one of differences: give at least two times, in rising order"
        )
    from scipy.ndimage import gaussian_filter1d  # slow to import

    return np.asarray(gaussian_filter1d(-(tau**2) * np.gradient(sums[1], tau), 1))


def _prominence(values: np.ndarray, peak: int) -> float:
    """How far one must go down from a peak before there is a higher place, to either side."""
    lowest = []
    for side in (values[peak::-1], values[peak:]):
        higher = np.flatnonzero(side > values[peak])
        lowest.append(side[: higher[0] if len(higher) else None].min())
    return float(values[peak] - max(lowest))
