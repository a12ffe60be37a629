"""Data sets of nodes: from files, from folders of PyG, checked, split."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intarsia.errors import DataError, DataWarning
from intarsia.graphs import GRAPH_SETS, NodeData, available_sets, load_nodes, node_data
from intarsia.graphs.graph_sets import content_digest
from planted_nodes import planted

COUNTS = {
    "cora": (2708, 2485, 10138, 1433, 7, 122),
    "citeseer": (3327, 2120, 7358, 3703, 6, 80),
    "photo": (7650, 7487, 238086, 745, 8, 5240),
    "computers": (13752, 13381, 491556, 767, 10, 9366),
    "europe": (399, 399, 11986, 399, 4, 279),
}

SPLIT_KEYS = ("train_idx", "val_idx", "test_idx")


@pytest.mark.parametrize("name", COUNTS)
def test_published_sets_are_what_they_should_be(name: str) -> None:
    if name not in available_sets():
        pytest.skip(f"{name} is not in INTARSIA_DATA")
    data = load_nodes(name)
    part = data.largest_component()
    found = (data.graph.size, part.graph.size, part.graph.edges)
    assert (*found, data.features.shape[1], data.classes, len(part.train)) == COUNTS[name]
    assert part.features.shape[0] == len(part.labels) == part.graph.size
    assert data.published == (name in ("cora", "citeseer"))


def test_a_set_that_was_altered_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"put cora\.npz in"):
        load_nodes("cora")
    (tmp_path / "graphs").mkdir()
    np.savez(tmp_path / "graphs" / "cora.npz", **planted())
    assert available_sets() == ["cora"]
    with pytest.raises(DataError, match="is not cora: the digest"):
        load_nodes("cora")
    with pytest.raises(DataError, match="did you mean 'cora'"):
        load_nodes("coar")


def test_a_set_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the registry, or as a file."""
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    (tmp_path / "graphs").mkdir()
    np.savez(tmp_path / "graphs" / "blocks.npz", **planted())

    @GRAPH_SETS.register("blocks", file="blocks.npz", digest=content_digest(node_data(planted())))
    def blocks(arrays: dict[str, np.ndarray]) -> NodeData:
        return node_data(arrays)

    for source in ("blocks", str(tmp_path / "graphs" / "blocks.npz")):
        data = load_nodes(source)
        assert (data.name, data.graph.size, data.classes) == ("blocks", 60, 3)


def test_nodes_in_the_order_of_their_classes_are_told(tmp_path: Path) -> None:
    arrays = planted() | {"labels": np.arange(60) // 20}
    with pytest.warns(
        DataWarning, match=r"none of class 0 is among those that are tested.*resplit"
    ):
        data = node_data(arrays)
    assert set(data.labels[data.resplit(0).train].tolist()) == {0, 1, 2}
    assert repr(data).startswith("NodeData('the data', Graph(60 nodes, ")
    (tmp_path / "edges.txt").write_text("0 1\n")
    with pytest.raises(DataError, match="nodes need labels"):
        load_nodes(str(tmp_path / "edges.txt"))


def test_arrays_that_are_not_read_are_told(tmp_path: Path) -> None:
    """As the masks of PyTorch Geometric, in whose place a split by numbers would be taken."""
    path = tmp_path / "own.npz"
    np.savez(path, **planted(), train_mask=np.ones(60, bool))
    with pytest.warns(DataWarning, match=r"not read: train_mask; expected .*train_idx"):
        load_nodes(str(path))


def test_the_digest_sees_content_and_not_its_form(nodes: NodeData) -> None:
    arrays = planted()
    first = content_digest(nodes)
    same = arrays | {"edges": arrays["edges"][::-1, ::-1]}
    features = nodes.features
    same |= {"feat_indptr": features.indptr, "feat_indices": features.indices.astype(np.uint16)}
    same |= {"feat_data": np.float32(1), "feat_shape": np.array(features.shape)}
    same.pop("x")
    assert content_digest(node_data(same)) == first
    changes: list[Callable[[dict], Any]] = [
        lambda a: a["x"].__setitem__((0, 11), 0.5),
        lambda a: a["labels"].__setitem__(0, 1),
        lambda a: a.__setitem__("edges", a["edges"][1:]),
    ]
    for change in changes:
        other = planted()
        change(other)
        assert content_digest(node_data(other)) != first


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": None}, "no array 'labels'"),
        ({"labels": np.full(60, 0.5)}, "whole numbers"),
        ({"labels": np.full(60, -2)}, "whole numbers"),
        ({"edges": np.array([[0, 60]])}, "0 to 59"),
        ({"edges": np.array([[0, -1]])}, "numbered from 0"),
        ({"x": np.ones((59, 2))}, "59 rows"),
        ({"x": np.where(np.arange(60)[:, None] == 7, np.nan, 1.0)}, "node 7 hold nan"),
        ({"x": np.where(np.arange(60)[:, None] == 0, np.inf, 1.0)}, "node 0 hold nan"),
        ({"train_idx": np.array([0])}, "expected all"),
        (
            {"train_idx": np.array([0]), "val_idx": np.array([0]), "test_idx": np.array([1])},
            "twice",
        ),
        ({"x": None, "feat_indices": np.array([5])}, "CSR"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    arrays = {k: v for k, v in (planted() | changes).items() if v is not None}
    with pytest.raises(DataError, match=words):
        node_data(arrays)


def test_splits_and_components() -> None:
    arrays = planted()
    arrays["edges"] = arrays["edges"][(arrays["edges"] > 9).all(1)]  # ten nodes are alone now
    data = node_data(arrays)
    assert [len(own) for own in (data.train, data.validation, data.test)] == [42, 9, 9]
    part = data.largest_component()
    assert part.graph.nodes.tolist() == list(range(10, 60))
    assert part.train.tolist() == list(range(35))
    assert part.y.tolist() == (np.arange(10, 60) % 3).tolist()
    assert torch.equal(part.x, torch.from_numpy(arrays["x"][10:]))
    own = {"train_idx": np.array([3, 12]), "val_idx": np.array([13]), "test_idx": np.array([59])}
    given = node_data(arrays | own).largest_component()
    assert (given.train.tolist(), given.test.tolist()) == ([2], [49])
    labels = np.where(np.arange(60) == 12, -1, arrays["labels"])
    with pytest.raises(DataError, match="no label"):
        node_data(arrays | own | {"labels": labels})
    some = node_data(arrays | {"labels": np.where(np.arange(60) % 2, -1, arrays["labels"])})
    for own_data in (some, some.largest_component(), some.resplit(0)):
        parts = [own_data.train, own_data.validation, own_data.test]
        assert all(len(part) and (own_data.labels[part] >= 0).all() for part in parts)
    assert some.train.tolist() == list(range(0, 42, 2))


def test_random_splits_have_the_sizes_asked_for(nodes: NodeData) -> None:
    for per_class in (None, 4):
        split = nodes.resplit(1, per_class)
        parts = [split.train, split.validation, split.test]
        every = np.concatenate(parts)
        assert len(np.unique(every)) == len(every)
        if per_class:
            assert np.bincount(split.labels[split.train]).tolist() == [4, 4, 4]
        else:
            assert list(map(len, parts)) == [42, 9, 9]
    assert not np.array_equal(nodes.resplit(1).train, nodes.resplit(2).train)


def test_a_folder_of_pyg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_of = pytest.importorskip("torch_geometric.data", reason="needs the extra graphs")
    arrays, nodes = planted(), node_data(planted())
    one = data_of.Data(x=nodes.x, edge_index=nodes.graph.edge_index, y=nodes.y)
    for part, rows in (("train", [0, 1]), ("val", [2]), ("test", [3])):
        mask = torch.zeros(60, dtype=torch.bool)
        mask[rows] = True
        one[f"{part}_mask"] = mask
    path = tmp_path / "Blocks" / "processed" / "data.pt"
    path.parent.mkdir(parents=True)
    data_of.InMemoryDataset.save([one], path)

    @GRAPH_SETS.register("blocks", geometric=("Blocks",), digest=content_digest(nodes))
    def blocks(arrays: dict[str, np.ndarray]) -> NodeData:
        return node_data(arrays)

    read = load_nodes("blocks", root=tmp_path)
    assert read.train.tolist() == [0, 1]
    assert read.labels.tolist() == arrays["labels"].tolist()
    with pytest.raises(DataError, match="load blocks once"):
        load_nodes("blocks", root=tmp_path / "elsewhere")
    one.x = torch.zeros(1, 1).expand(60, 10**9)  # few bytes, and a shape that says much
    data_of.InMemoryDataset.save([one], path)
    with pytest.raises(DataError, match="would unpack to"):
        load_nodes("blocks", root=tmp_path)
    path.write_bytes(b"no tensor")
    with pytest.raises(DataError, match="process it anew"):
        load_nodes("blocks", root=tmp_path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"edges": np.array([[0.5, 1.0]])}, "edges holds what is not a whole number"),
        ({"edges": np.array([[np.nan, 1.0]])}, "edges holds what is not a whole number"),
        ({"edges": np.array([["a", "b"]])}, "edges holds what is not a whole number"),
        ({"x": np.ones(60)}, "expected numbers, N x F"),
        ({"x": np.ones((60, 1, 1))}, "expected numbers, N x F"),
        ({"x": np.full((60, 1), "a")}, "expected numbers, N x F"),
        ({"x": np.full((60, 1), 1e300)}, "nan or infinity"),
        ({"labels": np.full(60, -1)}, "no node has a label"),
        (dict.fromkeys(SPLIT_KEYS, np.array([], int)), "names no nodes"),
        (dict(zip(SPLIT_KEYS, np.array([[[0]], [[1]], [[2]]]), strict=True)), "a list of nodes"),
        (dict(zip(SPLIT_KEYS, np.array([[0.5], [1], [2]]), strict=True)), "train_idx holds"),
    ],
)
def test_arrays_that_are_not_of_nodes_are_refused(changed: dict, words: str) -> None:
    with pytest.raises(DataError, match=words):
        node_data({**planted(), **changed})
