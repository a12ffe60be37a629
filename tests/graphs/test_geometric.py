"""The transform for PyTorch Geometric, with its Data where it is installed and without."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from intarsia.errors import DataError, RecipeError
from intarsia.graphs import Graph, Renormalise, find_scale, graphs_of, read_graph, rewire


class PlainData:
    """What the transform needs of PyG's Data."""

    def __init__(self, graph: Graph) -> None:
        self.edge_index, self.num_nodes = graph.edge_index, graph.size

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, value)

    def __delitem__(self, key: str) -> None:
        delattr(self, key)


def edges_of(edge_index: torch.Tensor) -> set[tuple[int, ...]]:
    return set(map(tuple, edge_index.T.tolist()))


def test_graphs_are_added_to_a_copy(tree: Graph) -> None:
    data = PlainData(tree)
    changed = Renormalise(["auto", 1.0])(data)
    tau = find_scale(tree)
    assert not hasattr(data, "edge_index_1")
    assert changed.tau.tolist() == pytest.approx([tau, 1.0])
    first, second, third = graphs_of(changed)
    assert edges_of(first) == edges_of(tree.edge_index)
    assert edges_of(second) == edges_of(rewire(tree, tau).edge_index)
    assert edges_of(third) == edges_of(rewire(tree, 1.0).edge_index)
    assert len(graphs_of(data)) == 1


def test_the_scale_is_that_of_the_largest_component(tree: Graph) -> None:
    """All nodes stay, those of other components too."""
    wider = read_graph(np.argwhere(tree.adjacency.toarray()), size=90)
    changed = Renormalise()(PlainData(wider))
    assert changed.tau.item() == pytest.approx(find_scale(tree))
    assert edges_of(changed.edge_index_1) == edges_of(rewire(tree, find_scale(tree)).edge_index)
    with pytest.raises(DataError, match="no scale"):
        Renormalise()(PlainData(read_graph([], size=3)))


def test_a_graph_may_take_the_place_of_the_other(tree: Graph) -> None:
    data = PlainData(tree)
    data["edge_weight"] = torch.ones(tree.edges)
    changed = Renormalise(0.5, replace=True)(data)
    assert edges_of(changed.edge_index) == edges_of(rewire(tree, 0.5).edge_index)
    assert not hasattr(changed, "edge_weight")
    assert hasattr(data, "edge_weight")


@pytest.mark.parametrize("wrong", [{"tau": "soon"}, {"tau": -1}, {"tau": []}, {"kind": "x"}])
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(RecipeError):
        Renormalise(**wrong)
    with pytest.raises(RecipeError):
        Renormalise([1.0, 2.0], replace=True)
    assert Renormalise(np.array([1.0, 2.0])).taus == Renormalise([1.0, 2.0]).taus == [1.0, 2.0]


def test_it_works_in_pipelines_and_batches_of_pyg(tree: Graph) -> None:
    """Batches shift the numbers of nodes of the graphs that were added, too."""
    data_of = pytest.importorskip("torch_geometric.data", reason="needs the extra graphs")
    transforms = pytest.importorskip("torch_geometric.transforms")
    data = data_of.Data(edge_index=tree.edge_index, num_nodes=tree.size)
    changed = transforms.Compose([transforms.ToUndirected(), Renormalise(0.5)])(copy.copy(data))
    batch = data_of.Batch.from_data_list([changed, changed])
    once = edges_of(rewire(tree, 0.5).edge_index)
    shifted = {(a + tree.size, b + tree.size) for a, b in once}
    assert edges_of(batch.edge_index_1) == once | shifted
    kinds = data_of.HeteroData()
    kinds["a"].x = torch.zeros(2, 1)
    kinds["a", "to", "a"].edge_index = torch.tensor([[0, 1], [1, 0]])
    for read in (read_graph, Renormalise(0.5)):
        with pytest.raises(DataError, match=r"several kinds.*to_homogeneous"):
            read(kinds)
    with pytest.raises(DataError, match="HeteroData has no edge_index"):
        graphs_of(kinds)
    assert read_graph(kinds.to_homogeneous()).edges == 2
    arrow = data_of.Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    with pytest.raises(DataError, match="directed=True"):
        Renormalise(0.5)(arrow)
