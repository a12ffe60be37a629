"""Classifiers of nodes that see a graph at one scale or several: a bank over seeds at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.errors import RecipeError, TrainingError, nearest, shortened
from intarsia.files import plain, stream
from intarsia.graphs.adjacency import Graph, read_graph
from intarsia.graphs.graph_layers import (
    GATLayer,
    GCNLayer,
    GraphEncoder,
    MultiScale,
    StackedLinear,
    StackedNorm,
)
from intarsia.graphs.graph_sets import GRAPH_SETS, NodeData, check_nodes
from intarsia.graphs.heat_spectrum import find_scale
from intarsia.graphs.rewiring import rewire
from intarsia.specs import check_keys, is_number, seed_numbers
from intarsia.training.job import device_of

VARIANTS: dict[str, tuple[bool, ...]] = {
    "SB": (False,),
    "MB": (False, False),
    "SR": (True,),
    "MR": (False, True),
}
"""The paper's networks: for each graph that one sees, whether it is the rewired one."""

SPARSE = 0.2  # share of features that are not 0, below which they stay sparse


@dataclass(frozen=True)
class NodeSettings:
    """How nodes are learned; `PROTOCOLS` has the two that are named.

    encoder          "gcn" or "gat"
    width            of the encoders; None: for GCN that of the features, for GAT what the authors
                     give it on this data set
    epochs           of the whole batch; the epoch with the best validation counts
    transductive     train on the whole graph; else on the edges between training nodes alone
    resplit          a random split of the nodes for each seed; else the one of the data
    """

    encoder: str = "gcn"
    width: int | None = None
    layers: int = 2
    heads: int = 4
    epochs: int = 100
    learning_rate: float = 1e-4
    weight_decay: float = 0.0
    dropout: float = 0.0
    transductive: bool = False
    resplit: bool = False


PROTOCOLS: dict[str, NodeSettings] = {
    "authors": NodeSettings(),
    "honest": NodeSettings(
        width=64, epochs=200, learning_rate=1e-2, weight_decay=5e-4, dropout=0.5,
        transductive=True, resplit=True,
    ),
}  # fmt: skip
"""The settings of the paper, and those of who trains on all edges, over random splits."""


@dataclass(frozen=True, eq=False)
class NodeResult:
    """What a bank of networks came to, one for each seed.

    test, validation     accuracies at the best epoch, by seed
    epochs               those best epochs, from 1
    budgets              test accuracies by seed, of the best epoch among the first so many
    network              the whole bank, with its best weights
    """

    seeds: tuple[int, ...]
    test: tuple[float, ...]
    validation: tuple[float, ...]
    epochs: tuple[int, ...]
    budgets: Mapping[int, tuple[float, ...]]
    settings: NodeSettings
    network: MultiScale

    @property
    def mean(self) -> float:
        """Of the test accuracies."""
        return float(np.mean(self.test))

    @property
    def deviation(self) -> float:
        """Their standard deviation; 0 of one seed."""
        return float(np.std(self.test, ddof=1)) if len(self.test) > 1 else 0.0

    def to_json(self) -> dict[str, Any]:
        """All but the network."""
        kept = {name: value for name, value in vars(self).items() if name != "network"}
        result: dict[str, Any] = plain({**kept, "settings": asdict(self.settings)})
        return result


def train_nodes(
    data: NodeData,
    graphs: Any,
    *,
    protocol: str = "authors",
    seeds: int | Sequence[int] = 10,
    budgets: Sequence[int] = (),
    device: str = "auto",
    **settings: Any,
) -> NodeResult:
    """Train one network per seed, all in one stack, to classify nodes by all of the graphs.

    The graphs, one or a list of those that `read_graph` reads, have the nodes of the data, in its
    order. `settings` are those of `NodeSettings`, on top of the protocol's. Validation and test see
    the whole graphs by either protocol.
    """
    own = resolve_settings(data, protocol, settings)
    if odd := [budget for budget in budgets if not 1 <= budget <= own.epochs]:
        raise RecipeError(f"a budget is {odd[0]}: expected epochs from 1 to {own.epochs}")
    numbers = seed_numbers(seeds)
    graphs = _several(data, graphs)
    splits = [_split_of(data, own, seed) for seed in numbers]
    return _Bank(data, graphs, [own], numbers, splits, device_of(device)).train(tuple(budgets))


TUNED = ("dropout", "learning_rate", "weight_decay")


@dataclass(frozen=True, eq=False)
class TunedNodes:
    """What came of a grid of settings, of which each seed took the one that validated best.

    chosen      by seed the place of its settings in `grid`
    grid        all settings that were tried, as mappings
    """

    seeds: tuple[int, ...]
    test: tuple[float, ...]
    validation: tuple[float, ...]
    chosen: tuple[int, ...]
    grid: tuple[Mapping[str, float], ...]


def tune_nodes(
    data: NodeData,
    graphs: Any,
    grid: Mapping[str, Sequence[float]],
    *,
    protocol: str = "honest",
    seeds: int | Sequence[int] = 10,
    device: str = "auto",
    **settings: Any,
) -> TunedNodes:
    """Train with every combination of `grid`, and let each seed choose by its own validation nodes.

    The grid may have several values of dropout, learning_rate and weight_decay; networks that
    differ in the last two are trained in one stack. No test node has a say: those of one seed may
    be validation nodes of another, so that a choice for all seeds together would not be clean.
    """
    check_keys("the grid", dict(grid), list(TUNED))
    numbers = seed_numbers(seeds)
    base = resolve_settings(data, protocol, settings)
    graphs = _several(data, graphs)
    if any(isinstance(own, str) or not isinstance(own, Iterable) for own in grid.values()):
        raise RecipeError(f"the grid is {shortened(dict(grid))}: expected a list for each setting")
    values = [list(grid.get(key, [getattr(base, key)])) for key in TUNED]
    if not all(values):
        raise RecipeError("the grid has a setting without values: give at least one of each")
    splits = [_split_of(data, base, seed) for seed in numbers]
    tried: list[Mapping[str, float]] = []
    test: list[tuple[float, ...]] = []
    validation: list[tuple[float, ...]] = []
    for dropout in values[0]:
        stacked = [
            resolve_settings(
                data, protocol,
                {**settings, "dropout": dropout, "learning_rate": rate, "weight_decay": decay},
            )
            for rate, decay in product(*values[1:])
        ]  # fmt: skip
        bank = _Bank(data, graphs, stacked, numbers, splits, device_of(device))
        result = bank.train(())
        for place, own in enumerate(stacked):
            part = slice(place * len(numbers), (place + 1) * len(numbers))
            tried.append({key: getattr(own, key) for key in TUNED})
            test.append(result.test[part])
            validation.append(result.validation[part])
    chosen = np.argmax(np.array(validation), axis=0)  # the first of equals
    best = [(test[c][place], validation[c][place]) for place, c in enumerate(chosen)]
    return TunedNodes(
        numbers, tuple(t for t, _ in best), tuple(v for _, v in best),
        tuple(int(c) for c in chosen), tuple(tried),
    )  # fmt: skip


def variant_graphs(variant: str, graph: Graph, rewired: Graph | None = None) -> list[Graph]:
    """The graphs that a variant of the paper sees: "SB", "MB", "SR" or "MR"."""
    if variant not in VARIANTS:
        raise RecipeError(f"the variant is {shortened(variant)}: {nearest(variant, VARIANTS)}")
    wanted = VARIANTS[variant]
    if any(wanted) and rewired is None:
        rewired = rewire(graph, find_scale(graph))
    return [rewired if own and rewired is not None else graph for own in wanted]


def resolve_settings(
    data: NodeData, protocol: str, settings: Mapping[str, Any] | None = None
) -> NodeSettings:
    """The settings of a protocol with changes, checked, and the width that they mean."""
    check_nodes(data)
    if protocol not in PROTOCOLS:
        raise RecipeError(f"the protocol is {shortened(protocol)}: {nearest(protocol, PROTOCOLS)}")
    given = dict(settings or {})
    check_keys("training of nodes", given, list(asdict(PROTOCOLS[protocol])))
    own = replace(PROTOCOLS[protocol], **given)
    for name in ("layers", "heads", "epochs", "width"):
        value = getattr(own, name)
        if name == "width" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise RecipeError(f"{name} is {shortened(value)}: expected 1 or more")
    rates = (own.learning_rate, own.weight_decay, own.dropout)
    fits = all(map(is_number, rates)) and rates[0] > 0 and rates[1] >= 0 and 0 <= rates[2] < 1
    if not fits:
        raise RecipeError(
            f"learning_rate {shortened(rates[0])}, weight_decay {shortened(rates[1])} and dropout "
            f"{shortened(rates[2])}: expected above 0, from 0, and from 0 to below 1"
        )
    if own.resplit and not own.transductive:
        raise RecipeError(
            "resplit without transductive: seeds would train on different graphs; set both, or "
            "train one seed at a time on data.resplit(seed)"
        )
    if own.width is None and own.encoder == "gat":
        entry = GRAPH_SETS.get(data.name)
        own = replace(own, width=entry.gat_width if entry else 64)
    return own if own.width else replace(own, width=data.features.shape[1])


class _Bank:
    """Networks of all seeds, and the tensors they are trained on.

    `stacked` settings differ in learning rate and weight decay alone; each has a network per seed.
    """

    def __init__(
        self,
        data: NodeData,
        graphs: Sequence[Graph],
        stacked: Sequence[NodeSettings],
        seeds: tuple[int, ...],
        splits: Sequence[NodeData],
        device: torch.device,
    ) -> None:
        self.stacked, self.settings = stacked, stacked[0]
        self.seeds, self.device = seeds * len(stacked), device
        self.network = _network(data, len(graphs), self.settings, self.seeds, device)
        self.y = data.y.to(device)
        self.whole = [self._prepared(graph) for graph in graphs]
        x = data.x
        sparse = data.features.nnz < SPARSE * x.numel()
        self.x = (x.to_sparse() if sparse else x).to(device)
        every = list(splits) * len(stacked)
        self.parts = {
            name: torch.from_numpy(np.stack([getattr(own, name) for own in every])).to(device)
            for name in ("train", "validation", "test")
        }  # copies x nodes of the part
        self.rows = {name: torch.unique(own) for name, own in self.parts.items()}
        self.place = {name: self._places(rows) for name, rows in self.rows.items()}
        if self.settings.transductive:
            self.train_x, self.train_graphs = self.x, self.whole
        else:
            nodes = np.sort(splits[0].train)
            self.train_x = x[nodes].to(device)
            self.train_graphs = [self._prepared(graph.subgraph(nodes)) for graph in graphs]

    def train(self, budgets: tuple[int, ...]) -> NodeResult:
        """All epochs; what was best of each network comes back."""
        own, network = self.settings, self.network
        parameters = list(network.parameters())
        optimiser, slices = self._optimiser(parameters)
        best = torch.full((len(self.seeds),), -1.0, device=self.device)
        epochs = torch.zeros(len(self.seeds), dtype=torch.long, device=self.device)
        kept = {name: value.detach().clone() for name, value in network.state_dict().items()}
        reached: dict[int, tuple[float, ...]] = {}
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(stream("dropout", *self.seeds))
            for epoch in range(1, own.epochs + 1):
                network.train()
                network.zero_grad()
                loss = self._loss()
                loss.backward()
                for view, parameter, part in slices:
                    assert parameter.grad is not None
                    view.grad = parameter.grad[part]
                optimiser.step()
                scores = self.accuracy("validation")
                better = scores > best
                # The one moment of an epoch at which a device is waited for.
                sound, improved = torch.stack([torch.isfinite(loss), better.any()]).tolist()
                if not sound:
                    raise TrainingError(
                        f"the loss is {loss:.3g} in epoch {epoch}: lower learning_rate"
                    )
                if improved:
                    which = better.nonzero()[:, 0]
                    best[which], epochs[which] = scores[which], epoch
                    for name, value in network.state_dict().items():
                        kept[name].index_copy_(0, which, value.index_select(0, which))
                if epoch in budgets:
                    reached[epoch] = self._at(kept)
        test = self._at(kept)
        network.load_state_dict(kept)
        return NodeResult(
            self.seeds, test, tuple(best.tolist()), tuple(epochs.tolist()), reached, own, network
        )

    @torch.no_grad()
    def accuracy(self, part: str) -> Tensor:
        """Of each network on its nodes of this part, seen in the whole graphs."""
        self.network.eval()
        answers = self.network(self.x, self.whole, self.rows[part]).argmax(-1)  # copies x rows
        nodes = self.parts[part]
        given = answers.gather(1, self.place[part][nodes])
        return (given == self.y[nodes]).float().mean(1)

    def _optimiser(self, parameters: Sequence[nn.Parameter]) -> tuple[torch.optim.Adam, Any]:
        """Adam on the networks of each of the stacked settings, by views of their parameters."""
        count = len(self.seeds) // len(self.stacked)
        groups, slices = [], []
        for place, own in enumerate(self.stacked):
            part = slice(place * count, (place + 1) * count)
            views = [parameter.detach()[part].requires_grad_() for parameter in parameters]
            slices += [(view, p, part) for view, p in zip(views, parameters, strict=True)]
            rates = {"lr": own.learning_rate, "weight_decay": own.weight_decay}
            groups.append({"params": views, **rates})
        return torch.optim.Adam(groups, fused=self.device.type == "cuda"), slices

    def _loss(self) -> Tensor:
        """Summed over networks, so that each has the gradient it would have alone."""
        nodes = self.parts["train"]
        rows = self.rows["train"] if self.settings.transductive else None
        logits = self.network(self.train_x, self.train_graphs, rows)
        place = self.place["train"][nodes][..., None].expand(-1, -1, logits.shape[-1])
        chosen = logits.gather(1, place).flatten(0, 1)
        total = nn.functional.cross_entropy(chosen, self.y[nodes].flatten(), reduction="sum")
        return total / nodes.shape[1]

    def _places(self, rows: Tensor) -> Tensor:
        """For each node its place among these rows."""
        place = torch.full((len(self.y),), -1, device=self.device)
        place[rows] = torch.arange(len(rows), device=self.device)
        return place

    @torch.no_grad()
    def _at(self, state: Mapping[str, Tensor]) -> tuple[float, ...]:
        """Test accuracies with other weights, which are put back after."""
        before = {name: value.clone() for name, value in self.network.state_dict().items()}
        self.network.load_state_dict(state)
        scores = tuple(self.accuracy("test").tolist())
        self.network.load_state_dict(before)
        return scores

    def _prepared(self, graph: Graph) -> Any:
        encoder = self.network.encoders[0]
        assert isinstance(encoder, GraphEncoder)
        return encoder.prepare(graph).to(self.device)


def _network(
    data: NodeData,
    graphs: int,
    settings: NodeSettings,
    seeds: Sequence[int],
    device: torch.device | str = "cpu",
) -> MultiScale:
    """The stack of the networks that each seed draws by itself, where it is to be trained.

    Drawn on a CPU, the weights of ten wide networks would take longer than many epochs of them.
    """
    assert settings.width is not None

    def built(copies: int | None) -> MultiScale:
        def encoder() -> nn.Module:
            return GraphEncoder(
                settings.encoder, data.features.shape[1], settings.width,
                layers=settings.layers, heads=settings.heads, dropout=settings.dropout,
                copies=copies,
            )  # fmt: skip

        width = graphs * (settings.width or 0)
        return MultiScale(encoder, graphs, data.classes, width=width, copies=copies)

    states = []
    single = built(None).to(device)
    for seed in seeds:
        generator = torch.Generator(device).manual_seed(stream("nodes", seed))
        for module in single.modules():
            if isinstance(module, StackedLinear | StackedNorm | GCNLayer | GATLayer):
                module.reset(generator)
        states.append({name: value.clone() for name, value in single.state_dict().items()})
    with torch.device("meta"):
        bank = built(len(seeds))
    stacked = {name: torch.stack([s[name] for s in states]) for name in states[0]}
    bank.load_state_dict(stacked, assign=True)
    return bank


def _split_of(data: NodeData, settings: NodeSettings, seed: int) -> NodeData:
    if not settings.resplit:
        split = data
    else:
        per_class = len(data.train) // data.classes if data.published else None
        split = data.resplit(seed, per_class)
    for part in ("train", "validation", "test"):
        if not len(getattr(split, part)):
            raise RecipeError(f"{data.name} has no {part} nodes: split it otherwise")
    return split


def _several(data: NodeData, given: Any) -> Sequence[Graph]:
    """One graph or several, each with the nodes of the data."""
    several = given if isinstance(given, list | tuple) else [given]
    if not several:
        raise RecipeError("there is no graph to train on: give at least one")
    graphs = [read_graph(own) for own in several]
    for graph in graphs:
        if graph.size != data.graph.size:
            raise RecipeError(
                f"a graph has {graph.size} nodes and {data.name} {data.graph.size}: rewire the "
                "graph of the data that is trained on"
            )
    return graphs
