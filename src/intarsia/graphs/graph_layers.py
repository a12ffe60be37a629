"""Graph layers of our own, and the network that sees one set of nodes wired in several ways.

Weights may have a leading axis of copies, one for each seed: a stack of networks is then trained
in one loop, and what differs between them is nothing but their weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from intarsia.errors import ModelError, shortened
from intarsia.graphs.adjacency import Graph, WeightedGraph

CHUNK = {"cpu": 2**22, "cuda": 2**28}  # numbers of a gathered block of edges, by device
BLOCK = 2**24  # entries of a sparse matrix that has several groups on its diagonal
ENCODER_KINDS = ("gcn", "gat")


@dataclass(frozen=True, eq=False)
class Messages:
    """Which nodes send to which: with self-loops, sorted by receiver.

    source, target    of every edge; targets are counted among the receivers
    receivers         the nodes that are asked about, or None for all
    """

    source: Tensor
    target: Tensor
    nodes: int
    receivers: Tensor | None = None
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, graph: Graph | Tensor, nodes: int | None = None) -> "Messages":
        """Of a graph, or of an edge_index of 2 x E, 0 the sender; each node sends to itself."""
        if isinstance(graph, Graph):
            edge_index, nodes = graph.edge_index, graph.size
        else:
            edge_index = graph
        if nodes is None:
            nodes = int(edge_index.max()) + 1
        own = torch.arange(nodes, device=edge_index.device)
        others = edge_index[:, edge_index[0] != edge_index[1]]
        source, target = torch.cat([others, own.expand(2, -1)], dim=1)
        order = torch.argsort(target * nodes + source)
        return cls(source[order], target[order], nodes)

    def to(self, device: Any) -> "Messages":
        """On another device."""
        receivers = None if self.receivers is None else self.receivers.to(device)
        return Messages(self.source.to(device), self.target.to(device), self.nodes, receivers)

    def towards(self, rows: Tensor) -> "Messages":
        """What these nodes alone receive, in their order; kept for the tensor asked for last."""
        return _last(self._cache, rows, self._towards)

    def _towards(self, rows: Tensor) -> "Messages":
        place = torch.full((self.nodes,), -1, device=self.target.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        chosen = place[self.target]
        kept = chosen >= 0
        source, target = self.source[kept], chosen[kept]
        order = torch.argsort(target, stable=True)
        return Messages(source[order], target[order], self.nodes, rows)

    @property
    def count(self) -> int:
        """The number of receivers."""
        return self.nodes if self.receivers is None else len(self.receivers)

    @cached_property
    def normalised(self) -> Tensor:
        """D^-1/2 (A + I) D^-1/2 by Kipf and Welling, sparse: nodes x nodes, whole graphs only."""
        if self.receivers is not None:
            raise ModelError("degrees are those of the whole graph: normalise before choosing rows")
        degree = torch.bincount(self.target, minlength=self.nodes).to(torch.get_default_dtype())
        scale = degree.rsqrt()
        values = scale[self.source] * scale[self.target]
        return self.matrix(values)

    def matrix(self, values: Tensor) -> Tensor:
        """A sparse matrix, receivers x nodes, with a value for each edge."""
        place = torch.stack([self.target, self.source])
        shape = (self.count, self.nodes)
        return torch.sparse_coo_tensor(
            place, values, shape, is_coalesced=True, check_invariants=False
        )

    def diagonal_blocks(self, values: Tensor, back: bool = False) -> Tensor:
        """One sparse matrix with a block on its diagonal for each group of values, edges x groups.

        A block is receivers x nodes, or its transpose to go `back`.
        """
        groups = values.shape[1]
        shape = (groups * self.count, groups * self.nodes)
        if back:
            values, shape = values[self._order_by_source], shape[::-1]
        return torch.sparse_coo_tensor(
            self._block_places(groups, back), values.T.flatten(), shape,
            is_coalesced=True, check_invariants=False,
        )  # fmt: skip

    @cached_property
    def _order_by_source(self) -> Tensor:
        return torch.argsort(self.source, stable=True)

    def _block_places(self, groups: int, back: bool) -> Tensor:
        if (groups, back) not in self._cache:
            ends = [(self.target, self.count), (self.source, self.nodes)]
            if back:
                ends = [(own[self._order_by_source], size) for own, size in reversed(ends)]
            number = torch.arange(groups, device=self.target.device)[:, None]
            places = torch.stack([(own + number * size).flatten() for own, size in ends])
            self._cache[groups, back] = places
        found: Tensor = self._cache[groups, back]
        return found


class _Affine(nn.Module):
    """A weight and a bias, with a leading axis of copies if there is one."""

    def __init__(self, inputs: int, outputs: int, copies: int | None = None) -> None:
        super().__init__()
        lead = () if copies is None else (copies,)
        self.weight = nn.Parameter(torch.empty(*lead, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(*lead, outputs))
        self.reset()

    def reset(self, generator: torch.Generator | None = None) -> None:
        raise NotImplementedError


class GCNLayer(_Affine):
    """Kipf and Welling's convolution: D^-1/2 (A + I) D^-1/2 x W + b.

    `copies` gives the weights a leading axis, as it gives inputs: copies x nodes x features.
    """

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Glorot's uniform weights, and no bias."""
        _glorot(self.weight, generator)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, graph: "Tensor | Messages | GCNInput") -> Tensor:
        """`graph` is an edge_index of 2 x E, or what spares preparing it every time."""
        operator = GCNInput.of(graph, x.shape[-2])
        if operator.matrix.shape[0] < x.shape[-2]:  # fewer rows: multiply those alone
            mixed = spread(operator, x.to_dense() if x.is_sparse else x) @ self.weight
        else:
            mixed = spread(operator, multiply(x, self.weight))
        return mixed + self.bias.unsqueeze(-2)


@dataclass(frozen=True, eq=False)
class GCNInput:
    """The normalised matrix of a graph, perhaps of some receivers alone."""

    matrix: Tensor
    receivers: Tensor | None = None
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of_graph(cls, graph: Graph) -> "GCNInput":
        """Of a graph, by its weights if it has some; each node has a loop of weight 1."""
        if not isinstance(graph, WeightedGraph):
            return cls(Messages.of(graph).normalised)
        whole = sp.csr_array(graph.weights + sp.eye_array(graph.size))
        scale = sp.diags_array(1 / np.sqrt(whole.sum(1)))
        entries = sp.csr_array(scale @ whole @ scale).sorted_indices().tocoo()
        place = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
        values = torch.from_numpy(entries.data).to(torch.get_default_dtype())
        shape = (graph.size, graph.size)
        return cls(
            torch.sparse_coo_tensor(place, values, shape, is_coalesced=True, check_invariants=False)
        )

    @classmethod
    def of(cls, graph: "Tensor | Messages | GCNInput", nodes: int) -> "GCNInput":
        """Prepared, unless it is already."""
        if isinstance(graph, GCNInput):
            return graph
        messages = graph if isinstance(graph, Messages) else Messages.of(graph, nodes)
        return cls(messages.normalised)

    def to(self, device: Any) -> "GCNInput":
        """On another device."""
        receivers = None if self.receivers is None else self.receivers.to(device)
        return GCNInput(self.matrix.to(device), receivers)

    def towards(self, rows: Tensor) -> "GCNInput":
        """These rows alone; kept for the tensor asked for last."""
        return _last(self._cache, rows, self._towards)

    def _towards(self, rows: Tensor) -> "GCNInput":
        return GCNInput(self.matrix.index_select(0, rows).coalesce(), rows)

    @cached_property
    def transposed(self) -> Tensor:
        """For the way back: to sort its entries anew every time takes longer than to use it."""
        return self.matrix.t().coalesce()


class GATLayer(nn.Module):
    """Attention over neighbours by Velickovic et al.: `heads` of them, side by side.

    Every node attends to itself, too. `outputs` are those of all heads together.
    """

    slope = 0.2  # of the leaky ReLU below 0

    def __init__(
        self, inputs: int, outputs: int, heads: int = 4, copies: int | None = None
    ) -> None:
        super().__init__()
        if outputs % heads:
            raise ModelError(f"{outputs} outputs do not divide into {heads} heads: choose others")
        lead = () if copies is None else (copies,)
        self.heads, self.copies = heads, copies
        self.weight = nn.Parameter(torch.empty(*lead, inputs, outputs))
        self.sent = nn.Parameter(torch.empty(*lead, heads, outputs // heads))
        self.received = nn.Parameter(torch.empty(*lead, heads, outputs // heads))
        self.bias = nn.Parameter(torch.zeros(*lead, outputs))
        self.reset()

    def reset(self, generator: torch.Generator | None = None) -> None:
        """Glorot's uniform weights, and no bias."""
        for weight in (self.weight, self.sent, self.received):
            _glorot(weight, generator)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, graph: Tensor | Messages) -> Tensor:
        messages = graph if isinstance(graph, Messages) else Messages.of(graph, x.shape[-2])
        values = multiply(x, self.weight)  # copies x nodes x outputs
        values = values.unflatten(-1, (self.heads, -1))
        sent = (values * self.sent.unsqueeze(-3)).sum(-1)
        received = (values * self.received.unsqueeze(-3)).sum(-1)
        # Copies and heads become one axis at the end: nodes x groups (x channels).
        values, sent, received = (
            (own.movedim(0, 1).flatten(1, 2) if self.copies is not None else own)
            for own in (values, sent, received)
        )
        if messages.receivers is not None:
            received = received[messages.receivers]
        scores = sent[messages.source] + received[messages.target]
        attention = _softmax(nn.functional.leaky_relu(scores, self.slope), messages)
        mixed = _WeightedSum.apply(attention, values, messages)
        if self.copies is not None:
            mixed = mixed.unflatten(1, (self.copies, self.heads)).movedim(1, 0)
        return mixed.flatten(-2) + self.bias.unsqueeze(-2)


class GraphEncoder(nn.Module):
    """Layers that add to what came in: x += ReLU(LayerNorm(conv(x))), twice.

    "gat" begins with a linear map to `width`; "gcn" without one works at the width of its inputs,
    unless another is asked for.
    """

    def __init__(
        self,
        kind: str,
        inputs: int,
        width: int | None = None,
        *,
        layers: int = 2,
        heads: int = 4,
        dropout: float = 0.0,
        copies: int | None = None,
    ) -> None:
        super().__init__()
        if kind not in ENCODER_KINDS:
            raise ModelError(f"the encoder is {shortened(kind)}: use 'gcn' or 'gat'")
        self.kind, self.width, self.dropout = kind, width or inputs, dropout
        linear = kind == "gat" or self.width != inputs
        self.enter = StackedLinear(inputs, self.width, copies) if linear else None
        convolutions = [
            GCNLayer(self.width, self.width, copies)
            if kind == "gcn"
            else GATLayer(self.width, self.width, heads, copies)
            for _ in range(layers)
        ]
        self.convolutions = nn.ModuleList(convolutions)
        self.norms = nn.ModuleList(StackedNorm(self.width, copies) for _ in range(layers))

    def prepare(self, graph: Graph) -> "Messages | GCNInput":
        """What `forward` takes for this graph."""
        return GCNInput.of_graph(graph) if self.kind == "gcn" else Messages.of(graph)

    def forward(self, x: Tensor, graph: Any, rows: Tensor | None = None) -> Tensor:
        """For all nodes, or in the last layer for these `rows` alone; `x` may be sparse."""
        if self.enter is not None:
            x = self.enter(self._drop(x))
        if not isinstance(graph, Messages | GCNInput):
            messages = Messages.of(graph, x.shape[-2])
            graph = GCNInput(messages.normalised) if self.kind == "gcn" else messages
        last = len(self.convolutions) - 1
        for place, (layer, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            own = graph
            inputs = self._drop(x)
            x = x.to_dense() if x.is_sparse else x
            if place == last and rows is not None:
                own, x = graph.towards(rows), x.index_select(-2, rows)
            x = x + torch.relu(norm(layer(inputs, own)))
        return x

    def _drop(self, x: Tensor) -> Tensor:
        """Copies share what is dropped of their common input; zeros of a sparse one stay zeros."""
        if not self.dropout or not self.training:
            return x
        if not x.is_sparse:
            return nn.functional.dropout(x, self.dropout)
        values = nn.functional.dropout(x.values(), self.dropout)
        return torch.sparse_coo_tensor(
            x.indices(), values, x.shape, is_coalesced=True, check_invariants=False
        )


class MultiScale(nn.Module):
    """One encoder for each of several graphs over the same nodes, and a linear map of all they say.

    `encoder` is a function that makes one, or the encoders themselves: anything that takes
    (x, graph), as GCN, GAT, GraphSAGE or GIN of PyTorch Geometric, or a `GraphEncoder`. Graphs are
    what the encoders take. The linear map learns its number of inputs from the first call, unless
    `width`, the sum of the encoders' outputs, says it.
    """

    def __init__(
        self,
        encoder: Callable[[], nn.Module] | Sequence[nn.Module] | nn.ModuleList,
        graphs: int,
        classes: int,
        *,
        width: int | None = None,
        copies: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(encoder, nn.Module) and not isinstance(encoder, nn.ModuleList):
            name = type(encoder).__name__
            raise ModelError(
                f"the encoder is one {name}, and every graph has its own: give a function that "
                f"makes one, as in lambda: {name}(...), or a list of them"
            )
        if isinstance(encoder, Sequence | nn.ModuleList):
            made = list(encoder)
        else:
            made = [encoder() for _ in range(graphs)]
        if len(made) != graphs or graphs < 1:
            raise ModelError(f"{len(made)} encoders for {graphs} graphs: give one for each")
        self.encoders = nn.ModuleList(made)
        if width is None and copies is not None:
            raise ModelError("a stack of networks needs width, the encoders' outputs together")
        self.head: nn.Module = (
            nn.LazyLinear(classes) if width is None else StackedLinear(width, classes, copies)
        )

    def forward(self, x: Tensor, graphs: Sequence[Any], rows: Tensor | None = None) -> Tensor:
        """Logits of all nodes, or of `rows` alone."""
        if isinstance(graphs, Tensor) or len(graphs) != len(self.encoders):
            given = "one tensor" if isinstance(graphs, Tensor) else f"{len(graphs)} graphs"
            raise ModelError(
                f"{given} for {len(self.encoders)} encoders: give a list with a graph for each, "
                "as graphs_of(data)"
            )
        parts = []
        for encoder, graph in zip(self.encoders, graphs, strict=True):
            if rows is not None and isinstance(encoder, GraphEncoder):
                parts.append(encoder(x, graph, rows))
            else:
                part = encoder(x, graph)
                parts.append(part if rows is None else part.index_select(-2, rows))
        return self.head(torch.cat(parts, dim=-1))


class StackedLinear(_Affine):
    """torch's Linear, with a leading axis of copies if there is one."""

    def reset(self, generator: torch.Generator | None = None) -> None:
        """As torch's: uniform, by the number of inputs."""
        bound = self.weight.shape[-2] ** -0.5
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return multiply(x, self.weight) + self.bias.unsqueeze(-2)


class StackedNorm(nn.Module):
    """torch's LayerNorm over features, with a leading axis of copies if there is one."""

    def __init__(self, width: int, copies: int | None = None) -> None:
        super().__init__()
        lead = () if copies is None else (copies,)
        self.weight = nn.Parameter(torch.ones(*lead, width))
        self.bias = nn.Parameter(torch.zeros(*lead, width))

    def reset(self, generator: torch.Generator | None = None) -> None:
        """One and zero: nothing is drawn."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        normal = nn.functional.layer_norm(x, x.shape[-1:])
        return normal * self.weight.unsqueeze(-2) + self.bias.unsqueeze(-2)


def multiply(x: Tensor, weight: Tensor) -> Tensor:
    """Features times weights, which may have copies; features may be sparse."""
    if not x.is_sparse:
        return x @ weight
    if weight.ndim == 2:
        return torch.sparse.mm(x, weight)
    flat = torch.sparse.mm(x, weight.movedim(0, 1).flatten(1))
    return flat.unflatten(1, (weight.shape[0], -1)).movedim(1, 0)


def spread(operator: GCNInput, x: Tensor) -> Tensor:
    """A sparse matrix, rows x nodes, times features of nodes; copies go through together."""
    if x.ndim == 2:
        return _product(operator, x)
    flat = x.movedim(0, 1).flatten(1)
    return _product(operator, flat).unflatten(1, (x.shape[0], -1)).movedim(1, 0)


def _product(operator: GCNInput, x: Tensor) -> Tensor:
    result: Tensor = _SparseProduct.apply(operator, x)
    return result


class _SparseProduct(torch.autograd.Function):
    """A fixed sparse matrix times a dense one."""

    @staticmethod
    def forward(ctx: Any, operator: GCNInput, x: Tensor) -> Tensor:
        ctx.operator = operator
        return torch.sparse.mm(operator.matrix, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, torch.sparse.mm(ctx.operator.transposed, gradients[0].contiguous())


class _WeightedSum(torch.autograd.Function):
    """sum over edges of weight x value, by receiver and group; edges are gathered in chunks."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, messages: Messages) -> Tensor:
        # weights: edges x groups; values: nodes x groups x channels
        ctx.save_for_backward(weights, values)
        ctx.messages = messages
        return _by_blocks(messages, weights, values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), messages = gradients, ctx.messages
        weights, values = ctx.saved_tensors
        to_weights = torch.empty_like(weights)
        chunk = CHUNK.get(values.device.type, CHUNK["cpu"])
        step = max(1, chunk // max(1, values[0].numel()))
        for start in range(0, len(weights), step):
            part = slice(start, start + step)
            received = gradient[messages.target[part]]
            to_weights[part] = (received * values[messages.source[part]]).sum(-1)
        return to_weights, _by_blocks(messages, weights, gradient, back=True), None


def _by_blocks(messages: Messages, weights: Tensor, values: Tensor, back: bool = False) -> Tensor:
    """As many groups in one sparse product as BLOCK has room for: nodes x groups x channels."""
    groups = values.shape[1]
    step = min(groups, max(1, BLOCK // max(1, len(weights))))
    parts = []
    for start in range(0, groups, step):
        own = slice(start, start + step)
        matrix = messages.diagonal_blocks(weights[:, own], back)
        flat = values[:, own].movedim(1, 0).flatten(0, 1)
        product = torch.sparse.mm(matrix, flat)
        parts.append(product.unflatten(0, (len(weights[0, own]), -1)).movedim(0, 1))
    return torch.cat(parts, dim=1)


def _last(cache: dict[Any, Any], rows: Tensor, make: Callable[[Tensor], Any]) -> Any:
    """What was made for this very tensor, or is made now and takes the place of the last."""
    if "rows" not in cache or cache["rows"][0] is not rows:
        cache["rows"] = (rows, make(rows))
    return cache["rows"][1]


def _softmax(scores: Tensor, messages: Messages) -> Tensor:
    """Over the edges that each receiver has; edges x groups."""
    index = messages.target[:, None].expand_as(scores)
    empty = scores.new_full((messages.count, scores.shape[1]), -torch.inf)
    highest = empty.scatter_reduce(0, index, scores.detach(), "amax")
    powers = (scores - highest[messages.target]).exp()
    sums = torch.zeros_like(empty).index_add(0, messages.target, powers)
    return powers / sums[messages.target]


def _glorot(weight: Tensor, generator: torch.Generator | None) -> None:
    bound = float(np.sqrt(6 / (weight.shape[-2] + weight.shape[-1])))
    nn.init.uniform_(weight, -bound, bound, generator=generator)
