"""Networks as people really have them, tiny, each a factory f(shape, outputs)."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from intarsia.data import Data
from intarsia.data.dataset import Split
from intarsia.models import Vit

VOCABULARY = 11
SHAPES = {"rows": (10,), "image": (2, 6, 6), "sequence": (4, 4), "tokens": (4,)}
CATALOGUE = ("a", "b", "c")

Factory = Callable[[tuple[int, ...], int], nn.Module]


@dataclass(frozen=True)
class Foreign:
    """A network by name, what it reads, and how it is made."""

    name: str
    reads: str
    factory: Factory


NETWORKS: dict[str, Foreign] = {}


def foreign(name: str, reads: str) -> Callable[[Factory], Factory]:
    """Register what makes a network of the shape and the number of outputs, such as its class."""

    def add(kind: Factory) -> Factory:
        skeletons: dict[tuple[tuple[int, ...], int], nn.Module] = {}

        def factory(shape: tuple[int, ...], outputs: int) -> nn.Module:
            """Without values it is made once and copied: spectral norm takes long to set up."""
            if not torch.empty(0).is_meta:
                return kind(shape, outputs)
            if (shape, outputs) not in skeletons:
                skeletons[shape, outputs] = kind(shape, outputs)
            return deepcopy(skeletons[shape, outputs])

        NETWORKS[name] = Foreign(name, reads, factory)
        return kind

    return add


def data_for(reads: str) -> Data:
    """Three classes that differ in their mean, or in their commonest token."""
    generator = torch.Generator().manual_seed(0)
    shape = SHAPES[reads]

    def split(rows: int) -> Split:
        y = torch.arange(rows) % len(CATALOGUE)
        if reads == "tokens":
            x = torch.randint(0, VOCABULARY, (rows, *shape), generator=generator)
            return Split(torch.where(x % 2 == 0, y[:, None], x), y)
        x = torch.randn(rows, *shape, generator=generator)
        return Split(x + y.reshape(-1, *[1] * len(shape)), y)

    parts = split(36), split(24), split(24)
    return Data.build(reads, CATALOGUE, *parts, "none" if reads == "tokens" else "standard")


def pooled(outputs: int) -> tuple[nn.Module, ...]:
    """From 8 channels of an image to the outputs."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, outputs)


# Networks that are layers in a row, by what they read: from n channels or features to c outputs.
CHAINS: dict[str, dict[str, Callable[[int, int], tuple[nn.Module, ...]]]] = {
    "sequence": {
        "convolution over time": lambda n, c: (
            nn.Conv1d(n, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, c),
        ),
    },
    "image": {
        "GroupNorm": lambda n, c: (
            nn.Conv2d(n, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), *pooled(c),
        ),
        "InstanceNorm": lambda n, c: (
            nn.Conv2d(n, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
            nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, c),
        ),
        "LayerNorm of images": lambda n, c: (
            nn.Conv2d(n, 8, 3), nn.LayerNorm((8, 4, 4)), nn.ReLU(), *pooled(c),
        ),
        "BatchNorm, convolution": lambda n, c: (
            nn.Conv2d(n, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), *pooled(c),
        ),
        "grouped convolution": lambda n, c: (
            nn.Conv2d(n, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(), *pooled(c),
        ),
        "depthwise-separable convolution": lambda n, c: (
            nn.Conv2d(n, 6, 3), nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 8, 1), nn.ReLU(),
            *pooled(c),
        ),
    },
    "rows": {
        "LayerNorm": lambda n, c: (
            nn.Linear(n, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, c),
        ),
        "BatchNorm": lambda n, c: (
            nn.Linear(n, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, c),
        ),
        "gated linear unit": lambda n, c: (nn.Linear(n, 16), nn.GLU(), nn.Linear(8, c)),
        "weight norm": lambda n, c: (
            parametrizations.weight_norm(nn.Linear(n, 8)), nn.ReLU(), nn.Linear(8, c),
        ),
        "spectral norm": lambda n, c: (
            parametrizations.spectral_norm(nn.Linear(n, 8)), nn.ReLU(), nn.Linear(8, c),
        ),
        "PReLU, one slope a unit": lambda n, c: (nn.Linear(n, 8), nn.PReLU(8), nn.Linear(8, c)),
        "log_softmax at the end": lambda n, c: (
            nn.Linear(n, 8), nn.ReLU(), nn.Linear(8, c), nn.LogSoftmax(dim=1),
        ),
    },
}  # fmt: skip


def _chain(
    layers: Callable[[int, int], tuple[nn.Module, ...]], shape: tuple[int, ...], outputs: int
) -> nn.Module:
    return nn.Sequential(*layers(shape[0], outputs))


for _reads, _chains in CHAINS.items():
    for _name, _layers in _chains.items():
        foreign(_name, _reads)(partial(_chain, _layers))


@foreign("attention", "sequence")
class Attention(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(shape[1], 2, batch_first=True)
        self.head = nn.Linear(shape[1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attend(x, x, x, need_weights=False)[0].mean(1))


@foreign("attention by hand", "sequence")
class AttentionByHand(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(shape[1], 8) for _ in range(3))
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 8**0.5
        return self.head((scores.softmax(-1) @ self.value(x)).mean(1))


@foreign("transformer block", "sequence")
class Block(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(shape[1], 2, 8, dropout=0.0, batch_first=True)
        self.head = nn.Linear(shape[1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x).mean(1))


@foreign("positions as a parameter", "sequence")
class Positions(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.embed = nn.Linear(shape[1], 8)
        self.position = nn.Parameter(torch.randn(1, shape[0], 8))
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.embed(x) + self.position).mean(1))


class Recurrent(nn.Module):
    """Cells over a sequence, and a head for what they end with."""

    def __init__(self, cells: nn.RNNBase, outputs: int) -> None:
        super().__init__()
        self.cells, self.head = cells, nn.Linear(8, outputs)


@foreign("LSTM", "sequence")
class Lstm(Recurrent):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(nn.LSTM(shape[1], 8, batch_first=True), outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0][:, -1])


@foreign("GRU", "sequence")
class Gru(Recurrent):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(nn.GRU(shape[1], 8, batch_first=True), outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[1][0])


@foreign("token embedding", "tokens")
class Tokens(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.embed(x)).mean(1))


@foreign("tokens through an LSTM", "tokens")
class TokenLstm(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 4)
        self.cells = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(self.embed(x))[0][:, -1])


@foreign("DenseNet, by concatenation", "image")
class Dense(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(shape[0], 4, 3, padding=1)
        self.two = nn.Conv2d(shape[0] + 4, 4, 3, padding=1)
        self.head = nn.Linear(shape[0] + 8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x, torch.relu(self.one(x))], dim=1)
        x = torch.cat([x, torch.relu(self.two(x))], dim=1)
        return self.head(x.mean((2, 3)))


@foreign("squeeze and excite", "image")
class Excite(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(shape[0], 8, 3)
        self.squeeze, self.excite = nn.Linear(8, 3), nn.Linear(3, 8)
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(x))
        scale = torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3))))))
        return self.head((x * scale[:, :, None, None]).mean((2, 3)))


@foreign("residual, BatchNorm", "image")
class Residual(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(shape[0], 6, 3, padding=1), nn.BatchNorm2d(6)
        self.inner, self.head = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        return self.head((x + self.inner(torch.relu(self.norm(x)))).mean((2, 3)))


@foreign("RMSNorm of one's own", "rows")
class Rms(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.gain = nn.Linear(*shape, 8), nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        size = (x * x).mean(-1, keepdim=True) + 1e-6
        return self.head(torch.relu(x / size.sqrt() * self.gain))


@foreign("BatchNorm behind a slice", "rows")
class BatchNormSlice(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(*shape, 12), nn.BatchNorm1d(6)
        self.head = nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.head(torch.relu(self.norm(x[:, :6] - x[:, 6:])))


@foreign("maxout", "rows")
class Maxout(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(*shape, 16), nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.head(torch.maximum(x[:, ::2], x[:, 1::2]))


@foreign("mixture of experts", "rows")
class Mixture(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.gate = nn.Linear(*shape, 2)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(*shape, 6), nn.ReLU(), nn.Linear(6, outputs)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        each = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (self.gate(x).softmax(-1)[..., None] * each).sum(1)


@foreign("bilinear", "rows")
class Bilinear(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(*shape, 6), nn.Linear(*shape, 5)
        self.meet, self.head = nn.Bilinear(6, 5, 8), nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.meet(torch.tanh(self.one(x)), torch.tanh(self.two(x)))))


@foreign("einsum", "rows")
class Einsum(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*shape, 8) / 3)
        self.head = nn.Parameter(torch.randn(8, outputs) / 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum(
            "nh,ho->no", torch.relu(torch.einsum("ni,ih->nh", x, self.weight)), self.head
        )


@foreign("einsum, wired by hand", "rows")
class Wired(nn.Module):
    wiring = {"weight": ("hidden", "input"), "head": ("output", "hidden")}  # noqa: RUF012

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, *shape) / 3)
        self.head = nn.Parameter(torch.randn(outputs, 8) / 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum(
            "nh,oh->no", torch.relu(torch.einsum("ni,hi->nh", x, self.weight)), self.head
        )


@foreign("learned scale of the logits", "rows")
class Scaled(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(*shape, 8), nn.Linear(8, outputs)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.head(torch.relu(self.first(x)))


@foreign("a layer used twice", "rows")
class Twice(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.again = nn.Linear(*shape, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        return self.head(torch.relu(self.again(torch.relu(self.again(x)))))


@foreign("a Linear with a forward of its own", "rows")
class Centred(nn.Module):
    class Layer(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight - self.weight.mean(1, keepdim=True), self.bias)

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.head = self.Layer(*shape, 8), nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.first(x)))


@foreign("a mask as a bool buffer", "rows")
class Masked(nn.Module):
    seen: Tensor

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.register_buffer("seen", torch.arange(shape[0]) % 3 > 0)
        self.first, self.head = nn.Linear(*shape, 8), nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.first(torch.where(self.seen, x, 0.0))))


@foreign("tied weights", "rows")
class Tied(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(*shape, *shape), nn.Linear(*shape, *shape)
        self.two.weight = self.one.weight
        self.head = nn.Linear(*shape, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.two(torch.relu(self.one(x)))))


@foreign("a dict of outputs", "rows")
class Dict(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(*shape, outputs)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head(x)}


@foreign("complex weights", "rows")
class Complex(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, *shape, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight).abs()


@foreign("ViT", "image")
class SmallVit(Vit):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__((shape[0], shape[1], shape[2]), outputs, 3, 8, 1, 2)


@foreign("ViT with a class token, heads by view", "image")
class TokenVit(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(shape[0], 8, 3, stride=3)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 5, 8))
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.wide, self.narrow = nn.Linear(8, 12), nn.Linear(12, 8)
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        rows, count, width = x.shape
        qkv = self.qkv(self.norms[0](x)).reshape(rows, count, 3, 2, width // 2)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query @ key.transpose(-2, -1)) * (width // 2) ** -0.5
        seen = (scores.softmax(-1) @ value).transpose(1, 2).reshape(rows, count, width)
        x = x + self.out(seen)
        x = x + self.narrow(F.gelu(self.wide(self.norms[1](x))))
        return self.head(self.norms[2](x)[:, 0])


class Heads(nn.Module):
    """Queries, keys and values by layers of their own; fewer heads of keys and values."""

    def __init__(self, width: int, heads: int, shared: int, *, bias: bool, rotates: bool) -> None:
        super().__init__()
        self.each, self.rotates = width // heads, rotates
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, shared * self.each, bias=bias)
        self.value = nn.Linear(width, shared * self.each, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = (
            layer(x).view(x.shape[0], x.shape[1], -1, self.each).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        if self.rotates:
            query, key = self._rotated(query), self._rotated(key)
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out(seen.transpose(1, 2).flatten(2))

    def _rotated(self, x: Tensor) -> Tensor:
        half = self.each // 2
        angles = torch.arange(x.shape[2])[:, None] / 10.0 ** torch.arange(half)
        angles = torch.cat([angles, angles], dim=-1).to(x.dtype)
        turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
        return x * angles.cos() + turned * angles.sin()


@foreign("BERT-like", "tokens")
class Bert(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, 8), nn.Embedding(shape[0], 8)
        self.heads = Heads(8, 2, 2, bias=True, rotates=False)
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        self.wide, self.narrow = nn.Linear(8, 12), nn.Linear(12, 8)
        self.pool, self.head = nn.Linear(8, 8), nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        mask = (x != VOCABULARY)[:, None, None]
        places = torch.arange(x.shape[1], device=x.device)
        x = self.norms[0](self.words(x) + self.places(places))
        x = self.norms[1](x + self.heads(x, mask))
        x = self.norms[2](x + self.narrow(F.gelu(self.wide(x))))
        return {"logits": self.head(torch.tanh(self.pool(x[:, 0])))}


@foreign("Llama-like", "tokens")
class Llama(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 16)
        self.heads = Heads(16, 4, 2, bias=False, rotates=True)
        self.norms = nn.ModuleList(nn.RMSNorm(16) for _ in range(3))
        self.gate, self.up = nn.Linear(16, 12, bias=False), nn.Linear(16, 12, bias=False)
        self.down, self.head = nn.Linear(12, 16, bias=False), nn.Linear(16, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.words(x)
        x = x + self.heads(self.norms[0](x))
        y = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self.norms[2](x)[:, -1])


@foreign("EfficientNet", "image")
class Efficient(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(shape[0], 6, 3, padding=1), nn.BatchNorm2d(6))
        self.widen = nn.Sequential(nn.Conv2d(6, 12, 1, bias=False), nn.BatchNorm2d(12), nn.SiLU())
        self.depth = nn.Sequential(
            nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False), nn.BatchNorm2d(12), nn.SiLU()
        )
        self.squeeze, self.excite = nn.Conv2d(12, 3, 1), nn.Conv2d(3, 12, 1)
        self.project = nn.Sequential(nn.Conv2d(12, 6, 1, bias=False), nn.BatchNorm2d(6))
        self.head = nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.stem(x))
        y = self.depth(self.widen(x))
        scale = F.silu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))
        x = x + self.project(y * torch.sigmoid(self.excite(scale)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


@foreign("ConvNeXt", "image")
class ConvNext(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.stem, self.depth = nn.Conv2d(shape[0], 8, 2, 2), nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.norm, self.last = nn.LayerNorm(8), nn.LayerNorm(8)
        self.wide, self.narrow = nn.Linear(8, 12), nn.Linear(12, 8)
        self.scale = nn.Parameter(torch.full((8,), 0.5))
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(F.gelu(self.wide(y)))
        x = x + y.permute(0, 3, 1, 2)
        return self.head(self.last(x.mean((2, 3))))
