"""Banks of node classifiers: each network as it would be alone, protocols, variants."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from intarsia.errors import DataError, RecipeError
from intarsia.graphs import (
    PROTOCOLS,
    VARIANTS,
    GraphEncoder,
    NodeData,
    find_scale,
    read_graph,
    rewire,
    train_nodes,
    tune_nodes,
    variant_graphs,
)
from intarsia.graphs.node_training import _network, resolve_settings

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK: dict[str, Any] = {"device": "cpu", "width": 8, "learning_rate": 0.01, "epochs": 6}


@pytest.mark.parametrize("encoder", ["gcn", "gat"])
@pytest.mark.parametrize("transductive", [False, True])
def test_a_bank_is_its_networks_alone(nodes: NodeData, encoder: str, transductive: bool) -> None:
    settings = {**QUICK, "encoder": encoder, "transductive": transductive}
    graphs = [nodes.graph, rewire(nodes.graph, 0.05)]
    bank = train_nodes(nodes, graphs, seeds=[3, 5], **settings)
    for place, seed in enumerate(bank.seeds):
        alone = train_nodes(nodes, graphs, seeds=[seed], **settings)
        assert alone.test[0] == pytest.approx(bank.test[place], abs=1e-6)
        for name, value in alone.network.state_dict().items():
            together = bank.network.state_dict()[name][place]
            torch.testing.assert_close(value[0], together, atol=1e-4, rtol=1e-3)


def test_training_is_that_of_a_plain_loop(nodes: NodeData) -> None:
    """The authors' protocol, written out: train nodes and their edges alone, Adam, best epoch."""
    graph, width, epochs = nodes.graph, 8, 5
    bank = train_nodes(nodes, [graph], seeds=[0], **{**QUICK, "epochs": epochs})
    own = resolve_settings(nodes, "authors", {"width": width})
    start = _network(nodes, 1, own, [0]).state_dict()
    encoder, head = GraphEncoder("gcn", 12, width), nn.Linear(width, 3)
    state = {k.removeprefix("encoders.0."): v[0] for k, v in start.items() if "encoders" in k}
    encoder.load_state_dict(state)
    head.load_state_dict({"weight": start["head.weight"][0].T, "bias": start["head.bias"][0]})
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.01)
    seen = graph.subgraph(nodes.train).edge_index
    best, test = -1.0, 0.0
    for _ in range(epochs):
        optimiser.zero_grad()
        logits = head(encoder(nodes.x[nodes.train], seen))
        nn.functional.cross_entropy(logits, nodes.y[nodes.train]).backward()
        optimiser.step()
        with torch.no_grad():
            right = head(encoder(nodes.x, graph.edge_index)).argmax(1) == nodes.y
        score = right[nodes.validation].float().mean().item()
        if score > best:
            best, test = score, right[nodes.test].float().mean().item()
    assert (bank.validation[0], bank.test[0]) == pytest.approx((best, test))


def test_it_learns_and_budgets_are_the_best_so_far(nodes: NodeData) -> None:
    settings = {**QUICK, "epochs": 60}
    long = train_nodes(nodes, [nodes.graph], seeds=2, budgets=[6, 60], **settings)
    short = train_nodes(nodes, [nodes.graph], seeds=2, **QUICK)
    assert min(long.validation) > 0.9
    assert long.budgets[6] == pytest.approx(short.test)
    assert long.budgets[60] == pytest.approx(long.test)
    assert all(1 <= epoch <= 60 for epoch in long.epochs)
    answer = long.to_json()
    assert answer["test"] == list(long.test)
    assert answer["settings"]["epochs"] == 60


def test_the_honest_protocol_splits_anew_and_repeats_itself(nodes: NodeData) -> None:
    settings = {"device": "cpu", "epochs": 30, "width": 8, "protocol": "honest", "seeds": 3}
    first, again = (train_nodes(nodes, [nodes.graph], **settings) for _ in range(2))
    assert first.settings.dropout == 0.5
    assert first.test == again.test
    assert first.mean > 0.6
    published = replace(nodes, published=True)
    assert train_nodes(published, [nodes.graph], **settings).test != first.test


def test_variants_see_what_they_are_called_for(nodes: NodeData) -> None:
    rewired = rewire(nodes.graph, 0.05)
    for name, wanted in VARIANTS.items():
        graphs = variant_graphs(name, nodes.graph, rewired)
        assert [graph is rewired for graph in graphs] == list(wanted)
    found = variant_graphs("SR", nodes.graph)[0]
    expected = rewire(nodes.graph, find_scale(nodes.graph))
    assert (found.adjacency != expected.adjacency).nnz == 0
    with pytest.raises(RecipeError, match="variant"):
        variant_graphs("XR", nodes.graph)


def test_widths_are_those_of_the_authors(nodes: NodeData) -> None:
    assert resolve_settings(nodes, "authors").width == 12
    assert resolve_settings(nodes, "authors", {"encoder": "gat"}).width == 64
    named = replace(nodes, name="cora")
    assert resolve_settings(named, "authors", {"encoder": "gat"}).width == 1024
    assert PROTOCOLS["authors"].learning_rate == 1e-4


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"protocol": "ours"}, "protocol"),
        ({"epoch": 3}, "did you mean 'epochs'"),
        ({"epochs": 0}, "epochs is 0"),
        ({"epochs": True}, "epochs is True"),
        ({"width": -3}, "width is -3"),
        ({"width": 2.5}, "width is 2.5"),
        ({"dropout": 1.0}, "dropout"),
        ({"weight_decay": float("nan")}, "weight_decay nan"),
        ({"learning_rate": "fast"}, "learning_rate 'fast'"),
        ({"seeds": []}, r"seeds is \[\]: expected how many"),
        ({"epochs": 3, "budgets": [1, 4]}, "a budget is 4"),
    ],
)
def test_settings_are_checked(nodes: NodeData, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        train_nodes(nodes, [nodes.graph], **{**QUICK, **settings})


def test_one_graph_needs_no_list(nodes: NodeData) -> None:
    one, listed = (train_nodes(nodes, g, seeds=1, **QUICK) for g in (nodes.graph, [nodes.graph]))
    assert one.test == listed.test
    both = train_nodes(nodes, [nodes.graph.edge_index, nodes.graph.adjacency], seeds=1, **QUICK)
    twice = train_nodes(nodes, [nodes.graph, nodes.graph], seeds=1, **QUICK)
    assert both.test == twice.test


def test_graphs_and_splits_must_fit(nodes: NodeData) -> None:
    with pytest.raises(RecipeError, match="no graph"):
        train_nodes(nodes, [], **QUICK)
    with pytest.raises(RecipeError, match="a graph has 2 nodes"):
        train_nodes(nodes, [read_graph([(0, 1)])], **QUICK)
    for call in (train_nodes, tune_nodes):
        more = ({"dropout": [0]},) if call is tune_nodes else ()
        with pytest.raises(DataError, match=r"Tensor is not a NodeData.*load_nodes"):
            call(nodes.x, [nodes.graph], *more, **QUICK)
    empty = replace(nodes, test=np.array([], dtype=int))
    with pytest.raises(RecipeError, match="no test nodes"):
        train_nodes(empty, [nodes.graph], **QUICK)


def test_a_grid_in_one_stack_is_that_of_single_banks(nodes: NodeData) -> None:
    grid = {"learning_rate": [0.01, 0.001], "weight_decay": [0.0, 0.1]}
    how: dict[str, Any] = {"device": "cpu", "width": 8, "epochs": 8, "dropout": 0.0, "seeds": 2}
    tuned = tune_nodes(nodes, [nodes.graph], grid, **how)
    each = [
        train_nodes(nodes, [nodes.graph], protocol="honest", **{**how, **own}) for own in tuned.grid
    ]
    assert len(each) == 4
    assert {(own["learning_rate"], own["weight_decay"]) for own in tuned.grid} == {
        (0.01, 0.0), (0.01, 0.1), (0.001, 0.0), (0.001, 0.1),
    }  # fmt: skip
    for place, chosen in enumerate(tuned.chosen):
        scores = [one.validation[place] for one in each]
        assert chosen == int(np.argmax(scores))
        assert tuned.validation[place] == pytest.approx(max(scores))
        assert tuned.test[place] == pytest.approx(each[chosen].test[place])


def test_grids_are_checked(nodes: NodeData) -> None:
    with pytest.raises(RecipeError, match="momentum"):
        tune_nodes(nodes, [nodes.graph], {"momentum": [0.9]})
    with pytest.raises(RecipeError, match="without values"):
        tune_nodes(nodes, [nodes.graph], {"dropout": []})
    with pytest.raises(RecipeError, match="expected a list for each"):
        tune_nodes(nodes, [nodes.graph], {"dropout": 0.5})
    with pytest.raises(RecipeError, match="resplit without transductive"):
        train_nodes(nodes, [nodes.graph], **QUICK, resplit=True)


def test_random_splits_hold_classes_alike(nodes: NodeData) -> None:
    for seed in range(3):
        split = nodes.resplit(seed)
        counts = np.bincount(nodes.labels[split.train], minlength=3)
        assert counts.max() - counts.min() <= 1
        every = np.concatenate([split.train, split.validation, split.test])
        assert len(np.unique(every)) == len(every) == nodes.graph.size
    assert (nodes.resplit(0).train != nodes.resplit(1).train).any()
