"""Second graphs to hold rewired ones against: hops, random edges, diffusion."""

import networkx
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from intarsia.errors import LimitError, RecipeError
from intarsia.graphs import (
    Graph,
    NodeData,
    WeightedGraph,
    diffusion_graph,
    hop_graph,
    page_rank,
    random_graph,
    train_nodes,
)
from intarsia.graphs.graph_layers import GCNInput


@pytest.mark.parametrize("hops", [(1,), (2,), (2, 3), (4,)])
def test_hops_are_distances(tree: Graph, hops: tuple[int, ...]) -> None:
    distances = dict(networkx.all_pairs_shortest_path_length(networkx.Graph(tree.adjacency)))
    expected = {(a, b) for a, own in distances.items() for b, d in own.items() if d in hops}
    found = hop_graph(tree, hops)
    assert set(map(tuple, found.edge_index.T.tolist())) == expected
    assert found.adjacency.data.dtype == np.float64
    assert (found.adjacency.data == 1).all()


def test_random_edges_are_as_many_as_asked_for(tree: Graph) -> None:
    found = random_graph(tree, 118)
    assert found.edges == 118
    assert (found.adjacency != found.adjacency.T).nnz == 0
    assert not found.adjacency.diagonal().any()
    assert (found.adjacency != random_graph(tree, 118).adjacency).nnz == 0
    assert (found.adjacency != random_graph(tree, 118, seed=1).adjacency).nnz
    assert random_graph(tree, 60 * 59).edges == 60 * 59


def test_page_rank_is_that_of_pyg(tree: Graph) -> None:
    geometric = pytest.importorskip("torch_geometric.transforms")
    data = pytest.importorskip("torch_geometric.data").Data(
        edge_index=tree.edge_index, num_nodes=tree.size
    )
    how = {"method": "topk", "k": 7, "dim": 0}
    theirs = geometric.GDC(
        self_loop_weight=1, normalization_in="sym", normalization_out=None,
        diffusion_kwargs={"method": "ppr", "alpha": 0.15}, sparsification_kwargs=how, exact=True,
    )(data)  # fmt: skip
    dense = np.zeros((tree.size, tree.size))
    dense[tuple(theirs.edge_index.numpy())] = theirs.edge_attr.numpy()
    ours = page_rank(tree, 0.15, 7)
    assert (np.diff(ours.tocsc().indptr) == 7).all()
    np.testing.assert_allclose(np.sort(ours.toarray(), 0), np.sort(dense, 0), atol=1e-6)


def test_diffusion_weighs_edges_for_gcn(nodes: NodeData) -> None:
    second = diffusion_graph(nodes.graph, top=5)
    assert isinstance(second, WeightedGraph)
    assert ((second.weights > 0) != (second.adjacency > 0)).nnz == 0
    whole = second.weights.toarray() + np.eye(second.size)
    scale = whole.sum(1) ** -0.5
    found = GCNInput.of_graph(second).matrix.to_dense().numpy()
    np.testing.assert_allclose(found, scale[:, None] * whole * scale, atol=1e-6)
    part = second.subgraph(np.arange(10))
    assert (part.weights != second.weights[:10][:, :10]).nnz == 0
    plain = Graph(second.adjacency, second.nodes)
    how = {"seeds": 1, "epochs": 4, "width": 8, "device": "cpu", "learning_rate": 0.01}
    both = [
        train_nodes(nodes, [g], **how).network.state_dict()["head.weight"] for g in (second, plain)
    ]
    assert not torch.equal(*both)


def test_any_graph_will_do(tree: Graph) -> None:
    drawn = networkx.from_scipy_sparse_array(tree.adjacency, edge_attribute="link")
    for make in (
        lambda graph: hop_graph(graph, 2),
        lambda graph: random_graph(graph, 10),
        diffusion_graph,
    ):
        assert torch.equal(make(drawn).edge_index, make(tree).edge_index)
    edges = diffusion_graph(tree).edges // 2
    assert repr(diffusion_graph(tree)) == f"WeightedGraph(60 nodes, {edges} undirected edges)"


def test_what_cannot_be_made_is_said(tree: Graph) -> None:
    for make in (
        lambda: hop_graph(tree, []),
        lambda: hop_graph(tree, [0]),
        lambda: random_graph(tree, 3),
        lambda: random_graph(tree, 4.0),
        lambda: random_graph(tree, 60 * 60),
        lambda: page_rank(tree, alpha=1.0),
        lambda: page_rank(tree, top=0),
    ):
        with pytest.raises(RecipeError, match="expected"):
            make()
    with pytest.raises(LimitError, match="memory"):
        page_rank(tree, memory=1e-6)
    alone = Graph(sp.csr_array((3, 3)), np.arange(3))
    assert diffusion_graph(alone).edges == 0
