"""Spectrum, entropy, heat capacity and scales against plain formulas and each other."""

import networkx
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.errors import DataError, LimitError, RecipeError
from intarsia.graphs import (
    Graph,
    entropy,
    find_scale,
    heat_capacity,
    load_nodes,
    published_capacity,
    read_graph,
    scales,
    spectrum,
)
from intarsia.graphs.graph_sets import available_sets
from intarsia.graphs.heat_spectrum import GRID, HeatCurve

EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30)


@settings(max_examples=30, deadline=None)
@given(EDGES, st.floats(0.05, 20))
def test_entropy_is_that_of_the_density_matrix(edges: list[tuple[int, int]], tau: float) -> None:
    """Of any graph, disconnected ones and those without edges too."""
    graph = read_graph(edges, size=10)
    rho = scipy.linalg.expm(-tau * graph.laplacian.toarray())
    mu = np.linalg.eigvalsh(rho / np.trace(rho)).clip(1e-300)
    expected = -(mu * np.log(mu)).sum() / np.log(10)
    assert entropy(graph, tau).values[0] == pytest.approx(expected, abs=1e-6)


def test_heat_capacity_is_the_slope_of_entropy(tree: Graph) -> None:
    own = spectrum(tree)
    step = 1e-4
    above, below = entropy(own, GRID * np.exp(step)), entropy(own, GRID * np.exp(-step))
    slope = (above.values - below.values) / (2 * step)
    assert np.allclose(heat_capacity(own).values, -slope, atol=1e-6)
    assert not heat_capacity(own).errors.any()


def test_the_complete_graph_has_one_known_peak() -> None:
    """Its eigenvalues are 0 and N, N - 1 times: C = x^2 p (1 - p) / log N with x = tau N."""
    size = 12
    graph = read_graph(networkx.complete_graph(size))
    tau = np.logspace(-3, 2, 2000)
    x = tau * size
    p = 1 / (1 + (size - 1) * np.exp(-x))
    curve = heat_capacity(graph, tau)
    assert np.allclose(curve.values, x**2 * p * (1 - p) / np.log(size), atol=1e-9)
    assert scales(graph, "heat_capacity", tau) == [tau[curve.values.argmax()]]


def test_the_published_curve_leaves_out_the_partition_function(tree: Graph) -> None:
    own = spectrum(tree)
    heat = np.array([(own.values * np.exp(-tau * own.values)).sum() for tau in GRID])
    raw = -(GRID**2) * np.gradient(heat, GRID)
    smooth = published_capacity(own).values
    weights = np.exp(-0.5 * np.arange(-4, 5) ** 2)
    expected = np.convolve(raw, weights / weights.sum(), "same")
    assert np.allclose(smooth[4:-4], expected[4:-4])
    assert scales(own) != scales(own, "heat_capacity")
    assert find_scale(tree) == scales(own)[0]


@pytest.mark.parametrize("parts", [1, 3])
def test_lanczos_estimates_the_exact_curves(parts: int) -> None:
    """Also of a disconnected graph, each of whose components has a constant of its own."""
    one = networkx.random_regular_graph(3, 80, seed=1)
    graph = read_graph(networkx.disjoint_union_all([one] * parts + [networkx.empty_graph(2)]))
    exact = spectrum(graph, method="exact")
    guess = spectrum(graph, method="lanczos", probes=40)
    assert (exact.exact, guess.exact) == (True, False)
    assert guess.weights.sum(1) == pytest.approx(np.full(40, graph.size))
    assert guess.largest == pytest.approx(exact.largest, rel=1e-3)
    for curve in (entropy, heat_capacity):
        own, other = curve(exact), curve(guess)
        assert (other.errors > 0).any()
        assert (np.abs(own.values - other.values) < 5 * other.errors + 1e-3).all()
    last = heat_capacity(guess, [1e4])
    assert last.values[0] < 1e-6  # nothing is left of what L takes to 0 but its count


def test_more_steps_are_taken_until_nothing_changes() -> None:
    """A path has a spectrum whose low end few steps cannot see."""
    graph = read_graph(networkx.path_graph(400))
    own = spectrum(graph, method="lanczos", probes=8)
    few = spectrum(graph, method="lanczos", probes=8, steps=10)
    exact = heat_capacity(graph, [300.0]).values[0]
    assert own.values.shape[1] > 64
    assert abs(heat_capacity(few, [300.0]).values[0] - exact) > 0.05
    found = heat_capacity(own, [300.0])
    assert abs(found.values[0] - exact) < 5 * found.errors[0] + 5e-3
    assert heat_capacity(few, [300.0]).errors[0] > found.errors[0]


def test_blocks_of_probes_and_seeds() -> None:
    graph = read_graph(networkx.cycle_graph(2000))
    room = 10 * 48 * 2000 / 2**30
    parted = spectrum(graph, method="lanczos", probes=25, steps=20, memory=room)
    whole = spectrum(graph, method="lanczos", probes=25, steps=20)
    assert parted.values.shape == whole.values.shape == (25, 21)
    other = spectrum(graph, method="lanczos", probes=25, steps=20, seed=1)
    assert not np.allclose(whole.weights, other.weights)
    with pytest.raises(LimitError, match="two probes"):
        spectrum(graph, method="lanczos", memory=1e-6)


@pytest.mark.parametrize("edges", [[(0, 0)], []])
def test_one_node_and_no_edges_have_no_scale(edges: list[tuple[int, int]]) -> None:
    graph = read_graph(edges, size=1 if edges else 4)
    for method in ("exact", "lanczos"):
        assert not heat_capacity(graph, method=method).values.any()
        expected = 0.0 if graph.size == 1 else 1.0
        assert np.allclose(entropy(graph, method=method).values, expected)
        assert scales(graph, method=method) == scales(graph, "heat_capacity", method=method) == []
    with pytest.raises(DataError, match="no scale"):
        find_scale(graph)


def test_peaks_must_stand_out_of_the_noise() -> None:
    values = np.array([0, 1, 0.9, 2, 0])
    curve = HeatCurve(GRID[:5], values, np.zeros(5))
    assert curve.peaks() == [1, 3]
    assert HeatCurve(GRID[:5], values, np.full(5, 0.06)).peaks() == [3]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "guess"}, "method"),
        ({"probes": 1, "method": "lanczos"}, "probes"),
        ({"memory": np.nan, "method": "lanczos"}, "memory is nan"),
        ({"tau": [0.0]}, "tau"),
        ({"tau": [np.nan]}, "tau"),
    ],
)
def test_settings_are_checked(tree: Graph, settings: dict, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        heat_capacity(tree, **settings)
    with pytest.raises(RecipeError, match="kind"):
        scales(tree, "true")
    with pytest.raises(RecipeError, match="rising order"):
        scales(tree, "published", [1.0, 1.0, 2.0])


@pytest.mark.skipif("europe" not in available_sets(), reason="europe is not in INTARSIA_DATA")
def test_the_scales_of_european_airports() -> None:
    graph = load_nodes("europe").largest_component().graph
    assert (graph.size, graph.edges) == (399, 11986)
    assert scales(graph)[0] == pytest.approx(0.0614, abs=5e-5)
    assert scales(graph, "heat_capacity") == pytest.approx([4.037], abs=5e-4)
