"""Groups, coarse and rewired graphs against dense matrices, and the paper's edge counts."""

import networkx
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.errors import LimitError, RecipeError
from intarsia.graphs import Graph, coarsen, groups, load_nodes, read_graph, rewire, rewiring
from intarsia.graphs.graph_sets import available_sets

EDGES = st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13)), max_size=40)


def dense(graph: Graph, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """The relation and the rewired matrix, as they are written down."""
    rho = scipy.linalg.expm(-tau * graph.laplacian.toarray())
    own = np.diag(rho)
    zeta = (rho >= np.minimum(own[:, None], own)).astype(int)
    adjacency = graph.adjacency.toarray()
    rewired = (zeta @ adjacency @ zeta.T > 0) & ~(zeta @ zeta @ zeta.T > 0)
    return zeta.astype(bool), rewired


@settings(max_examples=60, deadline=None)
@given(EDGES, st.floats(0.1, 5))
def test_rewiring_is_what_is_written_down(edges: list, tau: float) -> None:
    """Of any graph: disconnected, without edges, of one node. Ties may go either way."""
    graph = read_graph(edges, size=14)
    own = groups(graph, tau, method="chebyshev", tolerance=1e-12)
    if own.undecided or groups(graph, tau).undecided:
        return
    zeta, rewired = dense(graph, tau)
    for method in ("exact", "chebyshev"):
        own = groups(graph, tau, method=method)
        assert np.array_equal(own.relation.toarray(), zeta)
        made = rewire(own)
        assert np.array_equal(made.adjacency.toarray() > 0, rewired)
    assert not made.adjacency.diagonal().any()
    assert (made.adjacency != made.adjacency.T).nnz == 0


def test_ties_are_counted() -> None:
    """All that a path of three has near a tie is none; two hubs of a star graph's leaves are."""
    assert groups(read_graph([(0, 1), (1, 2)]), 0.5).undecided == 0
    star = read_graph(networkx.star_graph(40))
    own = groups(star, 1.0, method="chebyshev")
    assert own.undecided == 40  # the hub's heat is that of its leaves to e^-41
    assert own.error < 1e-8


def test_supernodes_are_components_of_the_relation(tree: Graph) -> None:
    own = groups(tree, 1.0)
    coarse = coarsen(own)
    assert coarse.graph.size == own.number < tree.size
    expected = networkx.quotient_graph(
        networkx.from_scipy_sparse_array(tree.adjacency),
        [set(np.flatnonzero(coarse.labels == n)) for n in range(own.number)],
    )
    assert coarse.graph.edges == 2 * expected.number_of_edges()
    assert coarsen(tree, 1.0).graph.edges == coarse.graph.edges
    assert coarsen(tree, 1e3).graph.size == 1


def test_nodes_keep_their_numbers_and_blocks_change_nothing(
    tree: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tree.subgraph(np.arange(20, 60)).largest_component()
    assert np.array_equal(rewire(part, 0.5).nodes, part.nodes)
    whole = rewire(tree, 0.8)
    monkeypatch.setattr(rewiring, "AHEAD", 50)
    small = rewire(tree, 0.8)
    assert whole.edges > 0
    assert (whole.adjacency != small.adjacency).nnz == 0


@pytest.mark.usefixtures("one_thread")  # each has a column of its own
def test_what_does_not_fit_the_memory_is_refused(tree: Graph) -> None:
    own = groups(tree, 1.0)
    with pytest.raises(LimitError, match="rewired graph"):
        rewire(own, memory=1e-7)
    with pytest.raises(LimitError, match="the groups"):
        groups(tree, 1e3, memory=1e-5, method="chebyshev")
    with pytest.raises(RecipeError, match="tau is None"):
        rewire(tree)


def test_a_node_alone_stays_alone() -> None:
    alone = read_graph([], size=1)
    assert rewire(alone, 1.0).edges == 0
    assert coarsen(alone, 1.0).graph.size == 1


@pytest.mark.skipif("citeseer" not in available_sets(), reason="citeseer is not in INTARSIA_DATA")
def test_the_edge_counts_of_citeseer() -> None:
    graph = load_nodes("citeseer").largest_component().graph
    assert (graph.size, graph.edges) == (2120, 7358)
    own = groups(graph, 10 ** (-2 + 6 * 29 / 99), method="chebyshev")
    assert (rewire(own).edges, own.number) == (39040, 1331)


def test_close_comparisons_are_made_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    star = read_graph([(0, leaf) for leaf in range(1, 100)])
    tau = 17.0  # where a leaf's entry is above another's by exp(-tau), which float32 cannot resolve

    def among_leaves() -> int:
        relation = groups(star, tau, method="chebyshev").relation
        return int(relation[1:][:, 1:].nnz)

    assert among_leaves() == 99  # each with itself
    monkeypatch.setattr(rewiring, "CAUTION", 0.0)
    assert among_leaves() > 99


def test_most_columns_are_decided_in_single_precision(
    tree: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = groups(tree, 1.0, method="exact").relation
    decided = []
    own = rewiring._Pairs.decide_all
    monkeypatch.setattr(
        rewiring._Pairs,
        "decide_all",
        lambda pairs, nodes, *rest: decided.append(len(nodes)) or own(pairs, nodes, *rest),
    )
    assert (groups(tree, 1.0, method="chebyshev").relation != expected).nnz == 0
    assert sum(decided) < tree.size / 2
