"""graphs scale, rewire, train and modules on files of our own."""

from pathlib import Path

import networkx
import numpy as np
import pytest
from command_line import CommandLine

from intarsia import Bank, evaluate
from intarsia.graphs import (
    Graph,
    NodeModel,
    coarsen,
    find_scale,
    load_nodes,
    node_splits,
    read_graph,
    rewire,
    scales,
)
from planted_nodes import planted

graphs, intarsia = CommandLine("graphs"), CommandLine()
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, Graph]:
    """A file whose largest component has 40 nodes, from number 2 on."""
    drawn = networkx.random_labeled_tree(40, seed=2)
    path = tmp_path / "edges.txt"
    path.write_text("0 1\n" + "".join(f"{a + 2} {b + 2}\n" for a, b in drawn.edges))
    return path, read_graph(path, component="largest")


def test_scale_says_both_kinds(tree: tuple[Path, Graph], tmp_path: Path) -> None:
    path, graph = tree
    figure = tmp_path / "capacity.svg"
    answer = graphs.answer("scale", path, "--figure", figure)
    assert (answer["nodes"], answer["edges"]) == (40, 78)
    assert answer["published"] == pytest.approx(scales(graph))
    assert answer["heat_capacity"] == pytest.approx(scales(graph, "heat_capacity"))
    assert "heat capacity" in figure.read_text()
    assert graphs.answer("scale", path, "--all")["nodes"] == 42
    assert "heat capacity" in graphs.call("scale", path).stdout
    assert "no file" in graphs.refusal("scale", tmp_path / "none.txt")
    assert "did you mean 'cora'" in graphs.refusal("scale", "coar")


def test_rewire_writes_what_can_be_read_again(tree: tuple[Path, Graph], tmp_path: Path) -> None:
    path, graph = tree
    expected = rewire(graph, find_scale(graph))
    answer = graphs.answer("rewire", path, "-o", tmp_path / "new.npz")
    assert answer["written_edges"] == expected.edges
    assert answer["tau"] == pytest.approx(find_scale(graph))
    back = read_graph(tmp_path / "new.npz", size=40)
    assert (back.adjacency != expected.adjacency).nnz == 0
    with np.load(tmp_path / "new.npz") as arrays:
        assert arrays["nodes"].tolist() == list(range(2, 42))
    answer = graphs.answer("rewire", path, "--tau", 2, "-o", tmp_path / "new.csv")
    named = read_graph(tmp_path / "new.csv", size=42)
    assert named.edges == answer["written_edges"] == rewire(graph, 2.0).edges
    assert named.adjacency[:2].nnz == 0
    answer = graphs.answer("rewire", path, "--tau", 2, "--coarsen", "-o", tmp_path / "c.npz")
    assert answer["written_nodes"] == answer["supernodes"] == coarsen(graph, 2.0).graph.size
    assert "must end in" in graphs.refusal("rewire", path, "--tau", 1, "-o", tmp_path / "new.pt")
    assert "another file" in graphs.refusal("rewire", path, "-o", path)
    assert read_graph(path).size == 42
    assert "tau is 'x'" in graphs.refusal("rewire", path, "--tau", "x", "-o", tmp_path / "n.npz")


def test_train_prints_a_row_for_each_variant(tmp_path: Path) -> None:
    drawn = networkx.planted_partition_graph(3, 12, 0.5, 0.03, seed=1)
    labels = np.arange(36) // 12
    order = np.random.default_rng(0).permutation(36)
    edges = np.argsort(order)[np.array(drawn.edges)]
    path = tmp_path / "nodes.npz"
    np.savez(path, edges=edges, labels=labels[order], x=np.eye(3)[labels[order]])
    quick = ("--epochs", 3, "--seeds", 2, "--width", 4, "--device", "cpu", "--tau", 0.1)
    answer = graphs.answer("train", path, "--encoder", "gcn,gat", "--variants", "SB,MR", *quick)
    kinds = [(row["encoder"], row["variant"]) for row in answer["rows"]]
    assert kinds == [("gcn", "SB"), ("gcn", "MR"), ("gat", "SB"), ("gat", "MR")]
    for row in answer["rows"]:
        assert row["mean"] == pytest.approx(np.mean(row["test"]))
        assert len(row["seeds"]) == 2
    said = graphs.call("train", path, "--variants", "SB", *quick).stdout
    assert "authors protocol" in said
    assert "variant is 'XX'" in graphs.refusal("train", path, "--variants", "XX", *quick)
    assert "protocol is 'ours'" in graphs.refusal("train", path, "--protocol", "ours", *quick)


@pytest.mark.filterwarnings("ignore::intarsia.errors.HealthWarning")
def test_modules_are_joined_and_saved(tmp_path: Path) -> None:
    path, folder = tmp_path / "nodes.npz", tmp_path / "bank"
    np.savez(path, **planted())
    quick = ("--epochs", 8, "--hidden", 4, "--dropout", 0, "--device", "cpu")
    answer = graphs.answer("modules", path, "-o", folder, *quick)
    tests = {row["network"]: row["test"] for row in answer["rows"]}
    assert list(tests) == ["joint training", "modules by logits", "modules by inlay"]
    assert tests["modules by logits"] == tests["modules by inlay"]
    nodes = load_nodes(str(path)).largest_component()
    assert Bank.load(folder, model=NodeModel(nodes, 4), quiet=True).names == ("0", "1", "2")
    assert "per cent" in graphs.call("modules", path, *quick).stdout
    assert "dropout" in graphs.refusal("modules", path, "--dropout", 2)


@pytest.mark.filterwarnings("ignore::intarsia.errors.HealthWarning")
def test_modules_are_opened_with_the_graph_that_they_name(tmp_path: Path) -> None:
    path, folder = tmp_path / "nodes.npz", tmp_path / "bank"
    whole, small = tmp_path / "whole.safetensors", tmp_path / "small.safetensors"
    np.savez(path, **planted())
    graphs.call("modules", path, "-o", folder, "--epochs", 8, "--hidden", 4, "--device", "cpu")
    nodes = load_nodes(str(path)).largest_component()
    bank = Bank.load(folder, model=NodeModel(nodes, 4), quiet=True)
    assert [own["name"] for own in intarsia.answer("inspect", folder)["modules"]] == ["0", "1", "2"]
    answer = intarsia.answer("evaluate", folder / "1.safetensors")["models"]["1"]
    expected = evaluate(bank["1"], node_splits(nodes).test)
    assert answer["entropy"] == pytest.approx(expected.entropy)
    intarsia.call("compose", folder, "--operator", "inlay", "-o", whole)
    intarsia.call("compact", whole, "-o", small)
    one, other = (
        next(iter(intarsia.answer("evaluate", at)["models"].values()))["accuracy"]
        for at in (whole, small)
    )
    assert one == other
    assert intarsia.answer("compatibility", folder, "--samples", path)["samples"] == 9
    intarsia.call("report", folder, "-o", tmp_path / "report.html")
    assert "rows of 'nodes' alone" in intarsia.refusal("evaluate", folder, "--data", "digits")
    assert "leave seed" in intarsia.refusal("evaluate", folder, "--set", "seed=1")
    recipe = tmp_path / "recipe.yaml"
    samples = f"samples: {{data: {path}, options: {{seed: 1}}}}"
    recipe.write_text(f"models: [{folder}]\nmerge_method: inlay\n{samples}\n")
    assert "leave seed" in intarsia.refusal("compose", recipe, "-o", whole)

    np.savez(path, **planted(seed=1))
    assert "another graph" in intarsia.refusal("evaluate", folder)
    path.unlink()
    said = intarsia.refusal("inspect", folder)
    assert "no file" in said
    assert "model=NodeModel(nodes, hidden=4)" in said
