"""Layers equal those of PyTorch Geometric, copies equal networks alone, any encoder fits."""

import networkx
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intarsia.errors import ModelError
from intarsia.graphs import GATLayer, GCNLayer, Graph, GraphEncoder, MultiScale, read_graph
from intarsia.graphs.graph_layers import GCNInput, Messages, StackedLinear, StackedNorm

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def graph() -> Graph:
    """With a node that has no edge."""
    drawn = networkx.gnp_random_graph(24, 0.15, seed=3)
    drawn.add_node(24)
    return read_graph(drawn)


@pytest.fixture
def x(graph: Graph) -> Tensor:
    return torch.randn(graph.size, 6, generator=torch.Generator().manual_seed(0))


def gradients(layer: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(layer.parameters())))


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_layers_equal_those_of_pyg(kind: str, graph: Graph, x: Tensor) -> None:
    """Outputs and all gradients, to 1e-6; also of an edge_index with self-loops."""
    pyg = pytest.importorskip("torch_geometric.nn", reason="needs the extra graphs")
    pairs: list[tuple[Tensor, Tensor]]
    if kind == "gcn":
        ours: nn.Module = GCNLayer(6, 8)
        theirs = pyg.GCNConv(6, 8)
        pairs = [(theirs.lin.weight, ours.weight.T)]
    else:
        ours, theirs = GATLayer(6, 8, heads=2), pyg.GATConv(6, 4, heads=2)
        pairs = [(theirs.lin.weight, ours.weight.T), (theirs.att_src[0], ours.sent)]
        pairs += [(theirs.att_dst[0], ours.received)]
    nn.init.normal_(ours.bias)
    with torch.no_grad():
        for their, our in [*pairs, (theirs.bias, ours.bias)]:
            their.copy_(our)
    loops = torch.tensor([[0, 3], [0, 3]])
    edges = torch.cat([graph.edge_index, loops], 1)
    target = torch.randn(graph.size, 8, generator=torch.Generator().manual_seed(1))
    expected = theirs(x, edges)
    for given in (edges, Messages.of(graph)):
        answer = ours(x, given)
        torch.testing.assert_close(answer, expected, atol=1e-6, rtol=1e-6)
        own = gradients(ours, (answer * target).sum())
        own = [g.T if g.shape == (6, 8) else g for g in own]
        (expected * target).sum().backward(retain_graph=True)
        reference = {tuple(p.shape): [] for p in theirs.parameters()}
        for p in theirs.parameters():
            reference[tuple(p.shape)].append(p.grad.clone())
        for gradient in own:
            shape = tuple(gradient.shape)
            close = [
                torch.allclose(gradient, other.reshape(shape), atol=1e-5)
                for shapes in reference.values()
                for other in shapes
                if other.numel() == gradient.numel()
            ]
            assert any(close), shape
        theirs.zero_grad()


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_gradients_are_those_of_finite_differences(kind: str, graph: Graph) -> None:
    layer: nn.Module = GCNLayer(3, 4) if kind == "gcn" else GATLayer(3, 4, heads=2)
    layer.double()
    x = torch.randn(graph.size, 3, dtype=torch.float64, requires_grad=True)
    messages = Messages.of(graph)
    own = GCNInput(messages.normalised.double()) if kind == "gcn" else messages
    assert torch.autograd.gradcheck(lambda value: layer(value, own), (x,))


@pytest.mark.parametrize("kind", ["gcn", "gat"])
@pytest.mark.parametrize("sparse", [False, True])
def test_copies_are_networks_alone(kind: str, sparse: bool, graph: Graph, x: Tensor) -> None:
    alone = [GraphEncoder(kind, 6, 8, heads=2) for _ in range(3)]
    bank = GraphEncoder(kind, 6, 8, heads=2, copies=3)
    states = [own.state_dict() for own in alone]
    bank.load_state_dict({name: torch.stack([s[name] for s in states]) for name in states[0]})
    given = x.to_sparse() if sparse else x
    rows = torch.tensor([5, 0, 24])
    whole = bank(given, graph.edge_index)
    part = bank(given, bank.prepare(graph), rows)
    for own, answers, fewer in zip(alone, whole, part, strict=True):
        expected = own(x, graph.edge_index)
        torch.testing.assert_close(answers, expected)
        torch.testing.assert_close(fewer, expected[rows])


def test_gcn_without_a_width_keeps_that_of_its_inputs(graph: Graph, x: Tensor) -> None:
    encoder = GraphEncoder("gcn", 6)
    assert encoder.enter is None
    messages = Messages.of(graph)
    expected = x
    for layer, norm in zip(encoder.convolutions, encoder.norms, strict=True):
        wide = messages.normalised.to_dense() @ expected @ layer.weight + layer.bias
        reference = nn.functional.layer_norm(wide, (6,), norm.weight, norm.bias)
        expected = expected + torch.relu(reference)
    torch.testing.assert_close(encoder(x, graph.edge_index), expected)


def test_the_normalised_matrix_is_that_of_the_paper(graph: Graph) -> None:
    loops = graph.adjacency.toarray() + np.eye(graph.size)
    scale = loops.sum(0) ** -0.5
    matrix = Messages.of(graph).normalised.to_dense().numpy()
    assert np.allclose(matrix, scale[:, None] * loops * scale, atol=1e-6)
    with pytest.raises(ModelError, match="whole graph"):
        _ = Messages.of(graph).towards(torch.tensor([1])).normalised


def test_several_scales_are_laid_side_by_side(graph: Graph, x: Tensor) -> None:
    network = MultiScale(lambda: GraphEncoder("gcn", 6, 4), 2, 3, width=8)
    other = read_graph([(0, 24)], size=25).edge_index
    answer = network(x, [graph.edge_index, other])
    first, second = network.encoders
    both = torch.cat([first(x, graph.edge_index), second(x, other)], 1)
    torch.testing.assert_close(answer, network.head(both))
    rows = torch.tensor([2, 1])
    torch.testing.assert_close(network(x, [graph.edge_index, other], rows), answer[rows])


@pytest.mark.parametrize("name", ["GCN", "GAT", "GraphSAGE", "GIN"])
def test_encoders_of_pyg_fit(name: str, graph: Graph, x: Tensor) -> None:
    pyg = pytest.importorskip("torch_geometric.nn", reason="needs the extra graphs")
    network = MultiScale(lambda: getattr(pyg, name)(6, 8, num_layers=2), 3, 4)
    rows = torch.tensor([2, 1])
    answer = network(x, [graph.edge_index] * 3)
    assert answer.shape == (25, 4)
    torch.testing.assert_close(network(x, [graph.edge_index] * 3, rows), answer[rows])


def test_linear_and_norm_equal_those_of_torch() -> None:
    x = torch.randn(5, 6)
    ours, theirs = StackedLinear(6, 3), nn.Linear(6, 3)
    theirs.load_state_dict({"weight": ours.weight.T, "bias": ours.bias})
    torch.testing.assert_close(ours(x), theirs(x))
    assert ours.weight.abs().max() <= 6**-0.5
    torch.testing.assert_close(StackedNorm(6)(x), nn.LayerNorm(6)(x))


def test_what_does_not_fit_is_refused(graph: Graph, x: Tensor) -> None:
    with pytest.raises(ModelError, match="heads"):
        GATLayer(6, 7, heads=2)
    with pytest.raises(ModelError, match="'gcn' or 'gat'"):
        GraphEncoder("sage", 6)
    with pytest.raises(ModelError, match="one for each"):
        MultiScale([GraphEncoder("gcn", 6)], 2, 3)
    with pytest.raises(ModelError, match="width"):
        MultiScale(lambda: GraphEncoder("gcn", 6), 1, 3, copies=2)
    with pytest.raises(ModelError, match="1 graphs for 2 encoders"):
        MultiScale(lambda: GraphEncoder("gcn", 6), 2, 3)(x, [graph.edge_index])
    with pytest.raises(ModelError, match="one tensor for 2 encoders"):  # of 2 rows
        MultiScale(lambda: GraphEncoder("gcn", 6), 2, 3)(x, graph.edge_index)
    with pytest.raises(ModelError, match=r"as in lambda: GraphEncoder\(\.\.\.\)"):
        MultiScale(GraphEncoder("gcn", 6), 2, 3)
    listed = torch.nn.ModuleList([GraphEncoder("gcn", 6), GraphEncoder("gcn", 6)])
    assert MultiScale(listed, 2, 3)(x, [graph.edge_index] * 2).shape == (graph.size, 3)
