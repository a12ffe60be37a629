"""Files of llama2.c: a small Llama as float32 numbers, and its tokenizer; plain bytes, no pickle.

A model file has seven int32 (d, hidden, layers, heads, key-value heads, vocabulary, context; the
vocabulary is negative where the head is not the embedding), then every weight by kind.
"""

import math
import struct
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from intarsia.errors import DataError, FileError, ModelError, shortened
from intarsia.limits import account, allocating

HEADER = struct.Struct("<7i")
MAGIC = 0x616B3432  # of later versions of the format
MOST = 2**20  # of any number in a header: beyond that it is another file
BOS, EOS, BYTES = 1, 2, 3  # tokens: begin, end, the first of 256 single bytes
PIECE = 1 << 10  # bytes of one token
THETA = 10000.0


@dataclass(frozen=True)
class LlamaShape:
    """The sizes of a model."""

    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    context: int
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("width", "hidden", "layers", "heads", "kv_heads", "vocabulary", "context"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= MOST:
                raise ModelError(f"{name} is {shortened(value)}: expected 1 to {MOST:,}")
        if self.width % self.heads or self.heads % self.kv_heads or (self.width // self.heads) % 2:
            raise ModelError(
                f"{self.heads} heads of which {self.kv_heads} have keys do not divide a width of "
                f"{self.width} into pairs"
            )

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shape of everything in a file, in its order."""
        d, h, n = self.width, self.hidden, self.layers
        kv, half = d // self.heads * self.kv_heads, d // self.heads // 2
        shapes: dict[str, tuple[int, ...]] = {
            "embedding": (self.vocabulary, d), "attention_norm": (n, d), "query": (n, d, d),
            "key": (n, kv, d), "value": (n, kv, d), "out": (n, d, d), "feed_norm": (n, d),
            "gate": (n, h, d), "down": (n, d, h), "up": (n, h, d), "norm": (d,),
            "cosines": (self.context, half), "sines": (self.context, half),
        }  # fmt: skip
        return shapes if self.tied else {**shapes, "head": (self.vocabulary, d)}


class _Block(nn.Module):
    """Attention and feed-forward, each behind a norm and added to the stream."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        d, kv = shape.width, shape.width // shape.heads * shape.kv_heads
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.attention_norm, self.feed_norm = nn.RMSNorm(d, 1e-5), nn.RMSNorm(d, 1e-5)
        self.query, self.out = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.key, self.value = nn.Linear(d, kv, bias=False), nn.Linear(d, kv, bias=False)
        self.gate = nn.Linear(d, shape.hidden, bias=False)
        self.up = nn.Linear(d, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, d, bias=False)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        batch, length, width = x.shape
        y = self.attention_norm(x)
        split = (batch, length, -1, width // self.heads)
        query, key, value = (
            own(y).reshape(split).transpose(1, 2) for own in (self.query, self.key, self.value)
        )
        query, key = _turned(query, turns), _turned(key, turns)
        times = self.heads // self.kv_heads
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.feed_norm(x)
        result: Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return result


class LlamaNetwork(nn.Module):
    """A Llama: tokens in, N x T, logits out; RMSNorm, rotated pairs of neighbours, SwiGLU."""

    is_causal_lens = True

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, 1e-5)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.head.weight = self.embedding.weight
        half = shape.width // shape.heads // 2
        rates = THETA ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(shape.context)[:, None] * rates
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.shape.context:
            raise DataError(
                f"the texts have {length} tokens: the model reads up to {self.shape.context}"
            )
        turns = (self.get_buffer("cosines")[:length], self.get_buffer("sines")[:length])
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, turns)
        logits: Tensor = self.head(self.norm(x))
        return logits


def _turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Every pair of neighbours as a point of a plane, turned by its position."""
    cosines, sines = turns
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cosines - b * sines, a * sines + b * cosines], -1).flatten(-2)


def read_llama(path: str | Path) -> LlamaNetwork:
    """The network of a llama2.c file; its size is compared with its header before it is read."""
    path = Path(path)
    size = _size(path)
    with path.open("rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size:
        raise FileError(f"{path}: has {size} bytes: expected a llama2.c model")
    numbers = HEADER.unpack(head)
    if numbers[0] == MAGIC:
        raise FileError(f"{path}: is of a later llama2.c version: export it as version 0")
    width, hidden, layers, heads, kv_heads, vocabulary, context = numbers
    try:
        shape = LlamaShape(
            width, hidden, layers, heads, kv_heads, abs(vocabulary), context, vocabulary > 0
        )
    except ModelError as error:
        raise FileError(f"{path}: is not a llama2.c model: {error}") from None
    expected = HEADER.size + 4 * sum(math.prod(own) for own in shape.tensors().values())
    if size != expected:
        raise FileError(
            f"{path}: has {size:,} bytes, and its header asks for {expected:,}: it is damaged, or "
            "not a llama2.c model of version 0"
        )
    with account() as taken, allocating(f"the model of {path}"):
        taken.read(size)
        taken.take(f"the model of {path} takes {{}}", 3 * size)
        values = np.fromfile(path, "<f4", offset=HEADER.size)
        if not np.isfinite(values).all():
            raise FileError(f"{path}: has numbers that are not finite: it is damaged")
        return _filled(shape, values)


def _filled(shape: LlamaShape, values: np.ndarray) -> LlamaNetwork:
    network, place = LlamaNetwork(shape), 0
    tensors: dict[str, Tensor] = {}
    for name, own in shape.tensors().items():
        count = math.prod(own)
        tensors[name] = torch.from_numpy(values[place : place + count].reshape(own).copy())
        place += count
    state = {"embedding.weight": tensors.pop("embedding"), "norm.weight": tensors.pop("norm")}
    state["head.weight"] = tensors.pop("head", state["embedding.weight"])
    for name in ("cosines", "sines"):  # computed anew, in more digits
        tensors.pop(name)
    for name, stacked in tensors.items():
        for layer, weight in enumerate(stacked):
            state[f"blocks.{layer}.{name}.weight"] = weight
    network.load_state_dict(state)
    return network.eval().requires_grad_(False)


class LlamaTokenizer:
    """Text as tokens and back: pieces of bytes with scores, joined from the best pair on."""

    def __init__(self, pieces: list[bytes], scores: list[float]) -> None:
        self.pieces, self.scores = pieces, scores
        self._place = {piece: place for place, piece in reversed(list(enumerate(pieces)))}

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str, begin: bool = True) -> list[int]:
        """With the token that begins a text, and a space before its first letter."""
        if not isinstance(text, str):
            raise DataError(f"a text is {shortened(text)}: expected a string")
        tokens: list[int] = []
        for letter in f" {text}" if text else "":
            raw = letter.encode("utf-8", "replace")
            known = self._place.get(raw)
            tokens += [known] if known is not None else [BYTES + byte for byte in raw]
        if any(token >= len(self) for token in tokens):
            raise DataError(f"the text {shortened(text)} has letters that the tokenizer lacks")
        tokens = self._merged(tokens)
        return [BOS, *tokens] if begin else tokens

    def _merged(self, tokens: list[int]) -> list[int]:
        """Neighbours joined, the pair of the best score first, of equal ones the leftmost.

        Pairs wait in a heap, where those that are gone by their turn are passed over: the time
        grows little faster than the length of the text.
        """
        left: list[int | None] = list(tokens)  # a joined pair lies where its first token lay
        after = list(range(1, len(tokens) + 1))
        before = list(range(-1, len(tokens) - 1))
        pairs: list[tuple[float, int, int, int, int]] = []

        def offer(place: int) -> None:
            """The pair that begins at a place, where it makes a piece."""
            if place < 0 or after[place] >= len(left):
                return
            a, b = left[place], left[after[place]]
            assert a is not None and b is not None
            joined = self._place.get(self.pieces[a] + self.pieces[b])
            if joined is not None:
                heappush(pairs, (-self.scores[joined], place, joined, a, b))

        for place in range(len(tokens)):
            offer(place)
        while pairs:
            _, place, joined, a, b = heappop(pairs)
            following = after[place]
            if left[place] != a or following >= len(left) or left[following] != b:
                continue
            left[place], left[following] = joined, None
            after[place] = after[following]
            if after[place] < len(left):
                before[after[place]] = place
            offer(before[place])
            offer(place)
        return [token for token in left if token is not None]

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens, without those that begin or end one."""
        raw = b""
        for token in tokens:
            if not 0 <= token < len(self):
                raise DataError(f"token {shortened(token)} is none of {len(self)}")
            if token in (BOS, EOS):
                continue
            single = BYTES <= token < BYTES + 256
            raw += bytes([token - BYTES]) if single else self.pieces[token]
        text = raw.decode("utf-8", "replace")
        return text[1:] if text.startswith(" ") and tokens[:1] == [BOS] else text


def read_llama_tokenizer(path: str | Path) -> LlamaTokenizer:
    """The tokenizer of a llama2.c file."""
    path = Path(path)
    if _size(path) > 64 * 2**20:
        raise FileError(f"{path}: is larger than any tokenizer")
    raw, place = path.read_bytes(), 4
    pieces: list[bytes] = []
    scores: list[float] = []
    while place < len(raw):
        if place + 8 > len(raw):
            raise FileError(f"{path}: ends within a token: it is damaged")
        score, length = struct.unpack_from("<fi", raw, place)
        place += 8
        if not 0 <= length <= PIECE or place + length > len(raw) or not math.isfinite(score):
            raise FileError(f"{path}: token {len(pieces)} is damaged")
        pieces.append(raw[place : place + length])
        scores.append(score)
        place += length
    if len(pieces) < BYTES + 256:
        raise FileError(f"{path}: has {len(pieces)} tokens: expected 259 or more")
    return LlamaTokenizer(pieces, scores)


def _size(path: Path) -> int:
    try:
        if not path.is_file():
            raise FileError(f"{path}: is not a file")
        return path.stat().st_size
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error
