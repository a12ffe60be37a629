"""Graphs of every make become the same thing, or are refused in words."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.errors import DataError, DataWarning, LimitError, RecipeError
from intarsia.graphs import read_graph

PAIRS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40)


@settings(max_examples=25, deadline=None)
@given(PAIRS)
def test_all_makes_agree(pairs: list[tuple[int, int]]) -> None:
    """Directions, repeats and self-loops of an edge list count for nothing."""
    dense = np.zeros((12, 12))
    for a, b in pairs:
        dense[a, b] = dense[b, a] = a != b
    drawn = networkx.Graph(pairs)
    drawn.add_nodes_from(range(12))
    backwards = networkx.Graph()
    backwards.add_nodes_from(range(11, -1, -1))
    backwards.add_edges_from(drawn.edges)
    both = np.array([*pairs, *((b, a) for a, b in pairs)], np.int64).reshape(-1, 2)
    sources: list[Any] = [
        pairs,
        both,
        torch.from_numpy(both.T.copy()),
        drawn,  # whose nodes are in the order of the pairs
        backwards,
        sp.coo_array(dense),
        sp.csr_matrix(dense + np.eye(12)),
        SimpleNamespace(edge_index=torch.from_numpy(both.T.copy()), num_nodes=12),
    ]
    for source in sources:
        graph = read_graph(source, size=12)
        assert np.array_equal(graph.adjacency.toarray(), dense)
        assert graph.edges == dense.sum()
        assert np.allclose(graph.laplacian.toarray(), np.diag(dense.sum(0)) - dense)
        again = read_graph(graph.edge_index, size=12)
        assert np.array_equal(again.adjacency.toarray(), dense)


@settings(max_examples=25, deadline=None)
@given(PAIRS)
def test_the_largest_component_is_that_of_networkx(pairs: list[tuple[int, int]]) -> None:
    graph = read_graph(pairs, size=12, component="largest")
    drawn = networkx.Graph(pairs)
    drawn.add_nodes_from(range(12))
    most = max(map(len, networkx.connected_components(drawn)))
    assert graph.size == most
    assert set(graph.nodes.tolist()) in [
        set(own) for own in networkx.connected_components(drawn) if len(own) == most
    ]
    assert graph.components.max() == 0


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([], "no nodes"),
        (networkx.Graph(), "no nodes"),
        (sp.csr_array((0, 0)), "no nodes"),
        (sp.csr_array((2, 3)), "square"),
        (sp.csr_array(np.array([[0, 1], [0, 0]])), "directed=True"),
        (sp.csr_array(np.array([[0, 2.5], [2.5, 0]])), "weighted=True"),
        (sp.csr_array(np.array([[0, np.nan], [np.nan, 0]])), "nan"),
        (sp.csr_array(np.array([[0, 1j], [1j, 0]])), "complex128: expected real"),
        (networkx.DiGraph([(0, 1)]), "directed=True"),
        (networkx.Graph([(0, 1, {"weight": 3})]), "weighted=True"),
        (torch.tensor([[0], [1]]), "directed=True"),
        (torch.tensor([[0, 1, 2]]), "2 x E"),
        ([(0, -1)], "numbered from 0"),
        ([(0, 1.5)], "whole numbers"),
        ([(0, float("nan"))], "whole numbers"),
        ([(0, 1, 2)], "E x 2"),
        ([("a", "b")], "whole numbers"),
        (np.eye(3), "an adjacency matrix as one of scipy"),
        (3, "not a graph"),
        (SimpleNamespace(edge_index=None, num_nodes=3), "has no edge_index"),
    ],
)
def test_what_is_not_a_plain_graph_is_refused(source: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_graph(source)


def test_directions_and_weights_may_be_forgotten() -> None:
    arrow = sp.csr_array(np.array([[0, 2.5, 0], [0, 0, 0], [0, 0.5, 0]]))
    graph = read_graph(arrow, directed=True, weighted=True)
    assert graph.edges == 4
    assert set(graph.adjacency.data) == {1.0}
    with pytest.raises(DataError, match="negative"):
        read_graph(-arrow, directed=True, weighted=True)
    weighted = SimpleNamespace(
        edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2, edge_weight=torch.tensor([2.0, 2.0])
    )
    assert read_graph(weighted, weighted=True).edges == 2
    with pytest.raises(DataError, match="weighted=True"):
        read_graph(weighted)
    for values, words in (([-1.0, -1.0], "negative"), ([float("nan"), 1.0], "nan")):
        weighted.edge_weight = torch.tensor(values)
        with pytest.raises(DataError, match=words):
            read_graph(weighted, weighted=True)
    weighted.edge_weight = torch.zeros(2)  # as of a matrix, where 0 is no edge
    assert read_graph(weighted, weighted=True).edges == 0


def test_sizes_and_settings_are_checked() -> None:
    assert read_graph([], size=3).edges == 0
    assert read_graph([(0, 0)]).size == 1
    with pytest.raises(DataError, match="there are 2 nodes"):
        read_graph([(0, 5)], size=2)
    pair = networkx.Graph([("b", "a")])  # names: the nodes are in networkx' order
    for source in (sp.eye_array(2), pair, read_graph(pair)):
        assert read_graph(source, size=2).size == 2
        with pytest.raises(DataError, match="size is 3, but"):
            read_graph(source, size=3)
    with pytest.raises(RecipeError, match="component"):
        read_graph([(0, 1)], component="some")
    with pytest.raises(LimitError, match="numbers"):
        read_graph([(0, 10**12)])


def test_files_of_edges(tmp_path: Path) -> None:
    text = tmp_path / "edges.txt"
    text.write_text("# comment\n0 1\n1, 2\n\n2;0\n")
    assert read_graph(text).edges == 6
    np.savez(tmp_path / "edges.npz", edges=np.array([[0, 1]], np.uint16))
    assert read_graph(str(tmp_path / "edges.npz")).edges == 2
    np.savez(tmp_path / "others.npz", other=np.zeros(2))
    assert repr(read_graph(text)) == "Graph(3 nodes, 3 undirected edges)"
    text.write_text("from,to\n0 1\n")
    with pytest.raises(DataError, match="see 'from to'"):
        read_graph(text)
    text.write_text("0 one\n")
    for name, words in (
        ("others.npz", "no array 'edges'"), ("edges.txt", "two node numbers"), ("none", "no file")
    ):  # fmt: skip
        with pytest.raises(DataError, match=words):
            read_graph(tmp_path / name)


@pytest.mark.parametrize("line", ["2;0 0.5", "2 0 {'weight': 3.0}", "2 0 {'weight': 2, 'a': 1}"])
def test_weights_of_a_file_are_not_forgotten_in_silence(tmp_path: Path, line: str) -> None:
    text = tmp_path / "edges.txt"
    text.write_text(f"0 1 1\n1, 2\n{line}\n")
    with pytest.warns(DataWarning, match="not read, see .2 0 "):
        assert read_graph(text).edges == 6
    assert read_graph(text, weighted=True).edges == 6


def test_files_as_networkx_writes_them(tmp_path: Path) -> None:
    drawn = networkx.path_graph(4)
    networkx.write_edgelist(drawn, tmp_path / "plain.txt")  # with {} behind every edge
    assert read_graph(tmp_path / "plain.txt").edges == 6
