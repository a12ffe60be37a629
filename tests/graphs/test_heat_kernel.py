"""Columns of exp(-tau L) against scipy's matrix exponential, and their error bounds."""

import networkx
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.errors import LimitError, RecipeError, TrainingError
from intarsia.graphs import Graph, heat_capacity, heat_kernel, read_graph, spectrum
from intarsia.graphs.heat_kernel import chebyshev_terms, largest_eigenvalue_bound

EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30)


@settings(max_examples=40, deadline=None)
@given(EDGES, st.floats(0.01, 30), st.sampled_from([1e-3, 1e-6, 1e-12]))
def test_both_ways_are_the_matrix_exponential(edges: list, tau: float, tolerance: float) -> None:
    graph = read_graph(edges, size=10)
    exact = scipy.linalg.expm(-tau * graph.laplacian.toarray())
    series = heat_kernel(graph, tau, method="chebyshev", tolerance=tolerance)
    assert series.error <= tolerance
    assert np.abs(series.columns(range(10)) - exact).max() <= series.error + 1e-11
    assert np.allclose(heat_kernel(graph, tau, method="exact").columns([3, 7]), exact[:, [3, 7]])


@settings(max_examples=60, deadline=None)
@given(EDGES)
def test_no_eigenvalue_passes_the_bound(edges: list) -> None:
    graph = read_graph(edges, size=10)
    largest = np.linalg.eigvalsh(graph.laplacian.toarray())[-1]
    assert largest <= largest_eigenvalue_bound(graph) + 1e-9


@pytest.mark.parametrize(("tau", "bound"), [(1e-9, 1.0), (1.0, 1.0), (0.07, 3000.0), (1e4, 200.0)])
def test_terms_that_are_left_out_are_the_error(tau: float, bound: float) -> None:
    coefficients, error = chebyshev_terms(tau, bound, 1e-8)
    x = np.linspace(0, bound, 501)
    series = np.polynomial.chebyshev.chebval(2 * x / bound - 1, coefficients)
    assert np.abs(series - np.exp(-tau * x)).max() <= error + 1e-12
    assert error <= 1e-8
    assert len(chebyshev_terms(tau, bound, 1e-4)[0]) <= len(coefficients)


def test_no_tolerance_asks_for_more_terms_than_there_are() -> None:
    """Beyond them none is above what a float resolves; the last one is the error then."""
    coefficients, error = chebyshev_terms(100.0, 20.0, 1e-200)
    assert 0 < error < 1e-30
    assert len(coefficients) > len(chebyshev_terms(100.0, 20.0, 1e-17)[0])


def test_blocks_hold_every_column_once(tree: Graph) -> None:
    exact = scipy.linalg.expm(-0.7 * tree.laplacian.toarray())
    for method in ("exact", "chebyshev"):
        memory = 2 * 7 * 48 * 60 / 2**30 * (1 if method == "chebyshev" else 40)
        kernel = heat_kernel(tree, 0.7, method=method, memory=memory)
        seen = []
        for nodes, block in kernel.blocks():
            assert len(nodes) <= kernel.width
            assert np.allclose(block, exact[:, nodes])
            seen += nodes.tolist()
        assert seen == list(range(60))
    assert kernel.width < 60


def test_memory_is_kept(tree: Graph) -> None:
    with pytest.raises(LimitError, match="chebyshev"):
        heat_kernel(tree, 1.0, method="exact", memory=1e-5)
    with pytest.raises(LimitError, match="single column"):
        heat_kernel(tree, 1.0, method="chebyshev", memory=1e-7)
    wide = read_graph(networkx.star_graph(5))
    assert heat_kernel(wide, 1.0, method="chebyshev").width == 128


@pytest.mark.parametrize("tau", [0, -1.0, np.nan, np.inf, "soon", None, True])
def test_times_are_finite_and_positive(tree: Graph, tau: object) -> None:
    with pytest.raises(RecipeError, match="tau is"):
        heat_kernel(tree, tau)  # type: ignore[arg-type]


def test_settings_are_checked(tree: Graph) -> None:
    for wrong in ({"method": "fast"}, {"tolerance": 0}, {"memory": -1}):
        with pytest.raises(RecipeError):
            heat_kernel(tree, 1.0, **wrong)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="0 to 59"):
        heat_kernel(tree, 1.0).columns([60])


@pytest.mark.parametrize("nodes", [[1.5], ["a"], [True]])
def test_columns_are_asked_for_by_whole_numbers(tree: Graph, nodes: list) -> None:
    with pytest.raises(RecipeError, match="whole numbers"):
        heat_kernel(tree, 1.0).columns(nodes)


def test_devices_and_numbers_are_checked(tree: Graph) -> None:
    with pytest.raises(RecipeError, match="tolerance"):
        heat_kernel(tree, 1.0, tolerance="x")
    for function in (
        lambda **own: heat_kernel(tree, 1.0, **own),
        lambda **own: spectrum(tree, **own),
    ):
        with pytest.raises(TrainingError, match="device"):
            function(device="gpu9")
    with pytest.raises(RecipeError, match="probes"):
        spectrum(tree, method="lanczos", probes=2.5)
    with pytest.raises(RecipeError, match="tau is 'x'"):
        heat_capacity(tree, "x")
    with pytest.raises(RecipeError, match="size is"):
        read_graph([(0, 1)], size=4.5)
