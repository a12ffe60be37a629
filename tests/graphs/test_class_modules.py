"""Modules of a graph network: real ones, joined, taken apart, saved and loaded."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.errors import DataError, HealthWarning, ModelError, RecipeError
from intarsia.graphs import (
    GCNLayer,
    NodeData,
    NodeModel,
    graph_model,
    joint_partition,
    node_data,
    node_splits,
    train_class_modules,
    with_graph,
)
from planted_nodes import planted


@pytest.fixture(scope="module")
def model(nodes: NodeData) -> NodeModel:
    return NodeModel(nodes, hidden=8, dropout=0.2)


@pytest.fixture(scope="module")
def bank(nodes: NodeData, model: NodeModel) -> ia.Bank:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)
        return train_class_modules(nodes, model=model, epochs=25, device="cpu")


def test_the_network_is_a_graph_convolutional_one(nodes: NodeData, model: NodeModel) -> None:
    network = model((1,), 3).eval()
    first, second = GCNLayer(12, 8), GCNLayer(8, 3)
    for layer, own in zip((first, second), network.layers, strict=True):
        layer.weight.data, layer.bias.data = own.weight.data.T, own.bias.data
    edges = nodes.graph.edge_index
    expected = second(torch.relu(first(nodes.x, edges)), edges)
    rows = torch.tensor([[5.0], [0.0], [59.0]])
    assert torch.allclose(network(rows), expected[[5, 0, 59]], atol=1e-6)


def test_modules_join_by_logits_and_inlay(nodes: NodeData, bank: ia.Bank) -> None:
    data = node_splits(nodes)
    assert [module.rewarded for module in bank] == [("0",), ("1",), ("2",)]
    whole, inlay = ia.compose(bank, "logits"), ia.compose(bank, "inlay")
    with torch.no_grad():
        parts = sum(module.to_module()(data.test.x) for module in bank)
        assert torch.allclose(whole(data.test.x), parts, atol=1e-5)
        assert torch.allclose(inlay(data.test.x), parts, atol=1e-5)
    assert ia.evaluate(inlay, data.test).accuracy > 0.7
    assert ia.evaluate(bank["1"], data.test).entropy > 0.5


def test_a_class_is_removed_and_added_bit_for_bit(nodes: NodeData, bank: ia.Bank) -> None:
    x = node_splits(nodes).test.x
    whole = ia.compose(bank, "logits").remove("1")
    with torch.no_grad():
        assert torch.equal(whole(x), ia.compose([bank["0"], bank["2"]], "logits")(x))
        whole.add(bank["1"])
        expected = ia.compose([bank["0"], bank["2"], bank["1"]], "logits")
        assert torch.equal(whole(x), expected(x))


def test_a_bank_is_saved_and_needs_its_graph_again(
    nodes: NodeData, model: NodeModel, bank: ia.Bank, tmp_path: Path
) -> None:
    bank.save(tmp_path)
    loaded = ia.Bank.load(tmp_path, model=model, quiet=True)
    assert [m.digest for m in loaded] == [m.digest for m in bank]
    x = node_splits(nodes).test.x
    assert torch.equal(loaded["2"].to_module()(x), bank["2"].to_module()(x))
    other = NodeModel(node_data(planted(seed=3), "other"), hidden=8)
    with pytest.raises((ModelError, ia.errors.FileError), match="another network"):
        ia.Bank.load(tmp_path, model=other, quiet=True)


def test_joint_training_is_one_set_of_all_classes(nodes: NodeData, model: NodeModel) -> None:
    settings = {"epochs": 25, "device": "cpu", "partition": joint_partition(nodes)}
    (joint,) = train_class_modules(nodes, model=model, **settings)
    assert joint.rewarded == ("0", "1", "2")
    assert ia.evaluate(joint, node_splits(nodes).test).accuracy > 0.7


@pytest.mark.parametrize(
    ("numbers", "words"), [([[60.0]], "node 60"), ([[-1.0]], "whole"), ([[0.5]], "whole")]
)
def test_inputs_are_numbers_of_nodes(model: NodeModel, numbers: list, words: str) -> None:
    with pytest.raises(DataError, match=words):
        model((1,), 3)(torch.tensor(numbers))


def test_settings_are_checked(nodes: NodeData, model: NodeModel) -> None:
    with pytest.raises(RecipeError, match="hidden"):
        NodeModel(nodes, hidden=0)
    with pytest.raises(RecipeError, match="dropout 'x'"):
        NodeModel(nodes, dropout="x")
    with pytest.raises(DataError, match="numbers of nodes"):
        model((784,), 3)
    with pytest.raises(DataError, match="no test nodes"):
        node_splits(NodeData(**{**vars(nodes), "test": nodes.test[:0]}))
    with pytest.raises(DataError, match="one class alone"):
        node_splits(NodeData(**{**vars(nodes), "labels": 0 * nodes.labels}))


def test_a_model_is_made_of_what_modules_say_of_their_graph(
    nodes: NodeData, model: NodeModel, bank: ia.Bank, tmp_path: Path
) -> None:
    path = tmp_path / "planted.npz"
    np.savez(path, **planted())
    told = with_graph(bank, str(path), model)
    assert [own.digest for own in told] != [own.digest for own in bank]
    place = told["0"].provenance["graph"]
    made = graph_model(place)
    assert (made.hidden, made.dropout) == (model.hidden, model.dropout)
    assert made.data.digest == bank["0"].provenance["data"]["digest"]
    for wrong in ({"source": 3}, {"source": "cora", "root": 4}, {"hidden": "8"}, {"digest": "0"}):
        with pytest.raises((DataError, RecipeError), match=r"graph|hidden"):
            graph_model({**place, **wrong})
