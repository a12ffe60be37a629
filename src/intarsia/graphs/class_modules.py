"""Modules of a graph network, one per class: what `train`, `compose` and `evaluate` take.

The nodes of a fixed graph are numbered, and an input is a node's number. Graph and features belong
to the model, not to its weights: files hold the weights, and the model is given again to load them.
Modules may say where their graph lies, for those who open a folder without one.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.data import Data, Split
from intarsia.errors import DataError, IntarsiaError, RecipeError, shortened
from intarsia.graphs.graph_layers import GCNInput, Messages, spread
from intarsia.graphs.graph_sets import NodeData, check_nodes, content_digest, load_nodes
from intarsia.models.axes import OUTPUT, Axis, Wiring, linear_wiring
from intarsia.modules import Bank
from intarsia.specs import is_number
from intarsia.training import train

SETTINGS: dict[str, Any] = {
    "epochs": 200, "learning_rate": 1e-2, "optimiser": "adamw(decay=0.05)", "schedule": "constant",
    "rounds": 0, "select": "accuracy", "silent": True, "balance": 0.0, "temperature": 1.0,
}  # fmt: skip
"""How class modules are trained unless settings of a recipe say otherwise: unpruned, Adam with
decay over the whole graph, and the epoch that validates best."""

HIDDEN, DROPOUT = 64, 0.5
UNITS = "hidden"  # the axis of the units between the two layers
GRAPH = "graph"  # of a module's provenance: where the graph of its network lies


class NodeModel:
    """A factory of graph networks of two layers over the nodes of a data set.

    It is what `train`, `Module.load` and `Bank.load` take as `model`. Every network shares the
    graph and the features, which are moved to a device once. `nodes` is the data set.
    """

    def __init__(self, nodes: NodeData, hidden: int = HIDDEN, dropout: float = DROPOUT) -> None:
        check_nodes(nodes)
        drops = is_number(dropout) and 0 <= dropout < 1
        if not isinstance(hidden, int) or hidden < 1 or not drops:
            raise RecipeError(
                f"hidden is {shortened(hidden)} and dropout {shortened(dropout)}: expected 1 or "
                "more units, and a dropout from 0 to below 1"
            )
        self.nodes, self.hidden, self.dropout = nodes, hidden, dropout
        self.size, self.features = nodes.graph.size, int(nodes.features.shape[1])
        entries = nodes.features.tocoo()
        place = torch.stack([torch.as_tensor(own).long() for own in (entries.row, entries.col)])
        shape = (self.size, self.features)
        features = torch.sparse_coo_tensor(
            place, torch.as_tensor(entries.data), shape, check_invariants=False
        ).coalesce()
        self._own = (Messages.of(nodes.graph).normalised, features)
        self._on: dict[Any, tuple[GCNInput, Tensor]] = {}

    def __call__(self, shape: tuple[int, ...], outputs: int) -> "NodeNetwork":
        if tuple(shape) != (1,):
            raise DataError(
                f"inputs have the shape {tuple(shape)}: a graph network reads numbers of nodes, of "
                "shape (1,), as node_splits makes them"
            )
        return NodeNetwork(self, outputs)

    @property
    def data(self) -> Data:
        """The splits that its networks are measured on: an input means nothing to other graphs."""
        return node_splits(self.nodes)

    def like(self, weight: Tensor) -> tuple[GCNInput, Tensor]:
        """The normalised adjacency and the features, both sparse, for such weights."""
        key = (weight.device, weight.dtype)
        if key not in self._on:
            matrix, features = self._own
            self._on[key] = (GCNInput(matrix.to(weight)), features.to(weight))
        return self._on[key]

    def __deepcopy__(self, memo: Any) -> "NodeModel":
        return self  # never changed

    def __repr__(self) -> str:
        return f"NodeModel({self.size} nodes, {self.features} features, hidden {self.hidden})"


class NodeNetwork(nn.Module):
    """Kipf and Welling's graph network: z = P relu(P X W + b) V + c, with P the normalised graph.

    Its input is N x 1, the numbers of nodes. P mixes nodes and never units, so that networks side
    by side are one network whose logits are their sum.
    """

    def __init__(self, model: NodeModel, outputs: int) -> None:
        super().__init__()
        self.model = model
        self.layers = nn.ModuleList(
            [nn.Linear(model.features, model.hidden), nn.Linear(model.hidden, outputs)]
        )

    def forward(self, x: Tensor) -> Tensor:
        enter, leave = self.layers
        assert isinstance(enter, nn.Linear) and isinstance(leave, nn.Linear)
        if enter.weight.is_meta:
            return x.new_zeros((len(x), leave.out_features), device="meta")
        rows = self._rows(x)
        matrix, features = self.model.like(enter.weight)
        units = torch.sparse.mm(self._dropped(features), enter.weight.T)
        units = torch.relu(spread(matrix, units) + enter.bias)
        units = nn.functional.dropout(units, self.model.dropout, self.training)
        return leave(spread(matrix, units)[rows])

    def wiring(self, shape: tuple[int, ...]) -> Wiring:
        """The hidden units are an axis; features are the graph's own, and stay as they are."""
        enter: Wiring = {"layers.0.weight": (Axis(UNITS), None), "layers.0.bias": (Axis(UNITS),)}
        return {**enter, **linear_wiring("layers.1", OUTPUT, UNITS)}

    def _rows(self, x: Tensor) -> Tensor:
        rows = x.reshape(len(x)).long()
        if len(rows) and not bool(((rows == x.reshape(len(x))) & (rows >= 0)).all()):
            raise DataError("inputs are not numbers of nodes: expected whole numbers from 0")
        if len(rows) and int(rows.max()) >= self.model.size:
            raise DataError(
                f"inputs name node {int(rows.max())}: the graph has {self.model.size} nodes"
            )
        return rows

    def _dropped(self, features: Tensor) -> Tensor:
        if not (self.training and self.model.dropout):
            return features
        values = nn.functional.dropout(features.values(), self.model.dropout, True)
        return torch.sparse_coo_tensor(
            features.indices(), values, features.shape, is_coalesced=True, check_invariants=False
        )


def node_splits(nodes: NodeData) -> Data:
    """The splits of a data set of nodes as `train` and `evaluate` read them: inputs are numbers.

    The catalogue names classes by their numbers, as the data does.
    """
    check_nodes(nodes)
    if nodes.graph.size > 2**24:
        raise DataError(f"{nodes.graph.size} nodes: float32 counts to {2**24} without a gap")
    if nodes.classes < 2:
        raise DataError(f"{nodes.name} has one class alone: at least 2 are needed")
    parts = []
    for name in ("train", "validation", "test"):
        rows = getattr(nodes, name)
        if not len(rows):
            raise DataError(f"{nodes.name} has no {name} nodes: split it otherwise")
        numbers = torch.from_numpy(rows).reshape(-1, 1).float()
        parts.append(Split(numbers, nodes.y[torch.from_numpy(rows)]))
    catalogue = [str(label) for label in range(nodes.classes)]
    first, second, third = parts
    return Data.build(nodes.name, catalogue, first, second, third, scale="none")


def train_class_modules(
    nodes: NodeData,
    *,
    partition: str | list[list[str]] = "each",
    model: NodeModel | None = None,
    seed: int = 0,
    **settings: Any,
) -> Bank:
    """Maximum-entropy modules of a graph network, one for each class or set of classes.

    Training is transductive: every step sees the whole graph, and the labels of training nodes
    alone. `settings` are those of `train`, on top of SETTINGS; one set of all classes is joint
    training. What comes back is a bank like any other: `compose` joins it by "logits" or "inlay".
    """
    data = node_splits(nodes)
    given: dict[str, Any] = {"batch": len(data.train), "engine": "plain", "progress": False}
    given |= SETTINGS | settings
    return train(data, model=model or NodeModel(nodes), partition=partition, seeds=(seed,), **given)


def joint_partition(nodes: NodeData) -> list[list[str]]:
    """One set of all classes: what joint training learns."""
    return [[str(label) for label in range(nodes.classes)]]


def with_graph(
    bank: Bank, source: str, model: NodeModel, root: str | os.PathLike[str] | None = None
) -> Bank:
    """The bank with modules that say where their graph lies, as `load_nodes` reads it.

    It is the largest component of that, with the split that comes with it.
    """
    place = {
        "source": str(source), "root": None if root is None else str(root), "hidden": model.hidden,
        "dropout": model.dropout, "digest": content_digest(model.nodes),
    }  # fmt: skip
    modules = [replace(own, provenance={**own.provenance, GRAPH: place}) for own in bank]
    return Bank(modules, bank.diverged, bank.report)


def graph_model(place: Mapping[str, Any]) -> NodeModel:
    """The model that a module's provenance means under `graph`, as `with_graph` wrote it."""
    source, root = place.get("source"), place.get("root")
    said = f"the modules are of the nodes of {shortened(source)}"
    advice = (
        "open them where it lies, or in Python: Bank.load(folder, model=NodeModel(nodes, "
        f"hidden={shortened(place.get('hidden'))})), with the nodes of load_nodes(...)."
        "largest_component()"
    )
    if not isinstance(source, str) or not isinstance(root, str | None):
        raise DataError(f"{said}, which is not the name or the path of a graph: {advice}")
    try:
        nodes = load_nodes(source, root=root).largest_component()
    except IntarsiaError as error:
        raise DataError(f"{said}, which cannot be read here ({error}): {advice}") from error
    if content_digest(nodes) != place.get("digest"):
        raise DataError(f"{said}, but what lies there now is another graph: {advice}")
    return NodeModel(nodes, place.get("hidden", HIDDEN), place.get("dropout", DROPOUT))
