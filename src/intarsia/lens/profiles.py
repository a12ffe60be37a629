"""Entropy profiles: how sure a network is behind each of its blocks, as its own head reads them.

After Caso et al., Entropy-Lens (arXiv 2502.16570): residual stream, final norm, head, softmax,
entropy; means over windows of positions. The norm is applied once: blocks are read by hooks, before
the model's own norm.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.errors import DataError, ModelError, RecipeError, nearest, shortened
from intarsia.files import plain
from intarsia.lens.entropies import check_alpha
from intarsia.lens.language_models import open_model, tokens_of, vocabulary_of
from intarsia.lens.lens_parts import ALIKE, Decoder, LensParts, naming_misfits
from intarsia.measure.evaluation import Renderable
from intarsia.models.custom.trial import evaluation_mode
from intarsia.modules import Bank, Module, Predicting

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

Positions = Literal["all", "last", "first", "mean"]
TEXT_POSITIONS = ("all", "last", "first")
POSITIONS = (*TEXT_POSITIONS, "mean")
CLASS_MODULES = (Module, Bank)
SHOWN = 6  # texts of a printed table, which 80 columns have room for


@dataclass(frozen=True, eq=False)
class Profile(Renderable):
    """Entropies of N texts in W windows behind L layers, and simpler numbers to compare with.

    `log_probability` is the mean over a text's next tokens, `spread` the standard deviation of the
    last layer's logits, mean over positions; nan where there is none. `per_token` has T x L
    entropies for each text, where they were asked for.
    """

    values: np.ndarray  # N, W, L
    tokens: np.ndarray  # N: positions that count
    alpha: float
    model: str
    log_probability: np.ndarray
    spread: np.ndarray
    per_token: tuple[np.ndarray, ...] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def layers(self) -> int:
        return int(self.values.shape[2])

    @property
    def windows(self) -> int:
        return int(self.values.shape[1])

    @property
    def mean(self) -> np.ndarray:
        """By text and layer, over windows.  # N, L"""
        result: np.ndarray = self.values.mean(1)
        return result

    @property
    def signs(self) -> np.ndarray:
        """By text and layer from the second on: 1 where entropy grows (expansion), -1 where it
        falls (pruning).  # N, L - 1
        """
        result: np.ndarray = np.sign(np.diff(self.mean, axis=1)).astype(int)
        return result

    @property
    def expansion(self) -> np.ndarray:
        """The fraction of texts of which a layer raises the entropy.  # L - 1"""
        result: np.ndarray = (self.signs > 0).mean(0)
        return result

    def features(self, layers: Sequence[int] | None = None) -> np.ndarray:
        """One row for each text: all windows of these layers, or of all."""
        chosen = self.values if layers is None else self.values[:, :, list(layers)]
        return chosen.reshape(len(self), -1)

    def interpolated(self, points: int) -> "Profile":
        """The same over a common depth of so many points, so that depth itself tells nothing."""
        check_counts(points=points)
        own, wanted = np.linspace(0, 1, self.layers), np.linspace(0, 1, points)
        rows = self.values.reshape(-1, self.layers)
        values = np.stack([np.interp(wanted, own, row) for row in rows])
        shape = (len(self), self.windows, points)
        return Profile(
            values.reshape(shape), self.tokens, self.alpha, self.model, self.log_probability,
            self.spread,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Plain values, text by text."""
        rows = zip(self.values, self.signs, self.tokens, self.log_probability, self.spread,
                   strict=True)  # fmt: skip
        texts = [
            {"entropies": v, "signs": s, "positions": n, "log_probability": float(p),
             "logit_spread": float(d)}
            for v, s, n, p, d in rows
        ]  # fmt: skip
        alpha: float | str = self.alpha if math.isfinite(self.alpha) else "inf"
        about = {"model": self.model, "alpha": alpha, "layers": self.layers}
        result: dict[str, Any] = plain({**about, "windows": self.windows, "texts": texts})
        return result

    def __rich__(self) -> "Table":
        from rich import box
        from rich.table import Table

        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        drawn.add_column("layer", justify="right")
        shown = min(len(self), SHOWN)
        for place in range(shown):
            drawn.add_column(f"text {place}", justify="right")
        drawn.add_column("mean", justify="right")
        drawn.add_column("expands", justify="right")
        for layer in range(self.layers):
            own = [f"{self.mean[text, layer]:.3f}" for text in range(shown)]
            grows = f"{self.expansion[layer - 1]:.0%}" if layer else ""
            drawn.add_row(str(layer + 1), *own, f"{self.mean[:, layer].mean():.3f}", grows)
        more = [f"and {len(self) - shown} more"] if len(self) > shown else []
        more += [f"means over {self.windows} windows"] if self.windows > 1 else []
        drawn.caption = "; ".join(more) or None
        return drawn

    def plot(self, labels: Sequence[str] | None = None) -> "Figure":
        """The mean by layer with a band of one standard deviation, for each label."""
        from intarsia.plots import profile_bands

        names = ["all"] * len(self) if labels is None else [str(label) for label in labels]
        if len(names) != len(self):
            raise DataError(f"there are {len(names)} labels for {len(self)} texts")
        groups = {name: self.mean[[own == name for own in names]] for name in dict.fromkeys(names)}
        return profile_bands(groups, title=f"entropy by layer, {self.model}")


def profile(
    model: Any,
    inputs: Any,
    alpha: float = 1.0,
    windows: int = 1,
    *,
    positions: Positions = "all",
    stride: int = 1,
    per_token: bool = False,
    batch: int = 16,
    block: int | None = None,
    precision: str = "float32",
    blocks: Any = None,
    norm: Any = None,
    head: Any = None,
    tokenizer: Any = None,
    gguf_file: str | None = None,
) -> Profile:
    """The entropy behind every block at every position of texts, mean in each of so many windows.

    `model` is a causal language model of Hugging Face's, a path (see `open_model`), or any
    nn.Module whose blocks, norm and head are found or named. `inputs` are texts or tokens, or
    float numbers for networks that read other things. `positions` "last" and "first" read one
    position alone. "mean" is for samples that are not texts: it reads the mean over all positions,
    taken behind the norm as networks of pictures do. With a `stride` of n, "all" decodes every
    n-th position, counted back from the last. At most `block` logits are in memory at a time.
    """
    order = check_alpha(alpha)
    if positions not in POSITIONS:
        raise RecipeError(f"positions is {shortened(positions)}: {nearest(positions, POSITIONS)}")
    check_counts(windows=windows, stride=stride, batch=batch, block=1 if block is None else block)
    named = any(part is not None for part in (blocks, norm, head))
    if isinstance(model, CLASS_MODULES) or (isinstance(model, Predicting) and not named):
        raise ModelError(
            f"the layers of a {type(model).__name__} have no head of their own: tuned(model, data) "
            "fits one to each"
        )
    opened = open_model(model, gguf_file=gguf_file, tokenizer=tokenizer)
    parts = LensParts.of(opened.network, blocks, norm, head)
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind == "f":
        inputs = torch.from_numpy(inputs)
    samples = isinstance(inputs, Tensor) and inputs.is_floating_point()
    if samples and vocabulary_of(opened.network) is not None:
        raise DataError(f"the tokens are of {inputs.dtype}: expected whole numbers")
    if positions == "mean" and not samples:
        raise RecipeError(
            "positions is 'mean', which is for samples that are not texts: take 'all'"
        )
    decoded = replace(parts, norm=nn.Identity()) if positions == "mean" else parts
    reader = _Reader(parts, Decoder(decoded, order, block, precision), positions, stride)
    with evaluation_mode(opened.network):
        if samples:
            rows = reader.read_samples(inputs, batch)
        else:
            rows = reader.read_tokens(tokens_of(opened, inputs), batch)
    return profile_of_rows(rows, order, windows, opened.name, per_token)


def check_counts(**given: Any) -> None:
    """Refuse settings that are not whole numbers from 1."""
    for name, value in given.items():
        if type(value) is not int or value < 1:
            raise RecipeError(f"{name} is {shortened(value)}: expected a whole number from 1")


@dataclass
class Row:
    """Of one text: T x L entropies, log-probabilities and spreads of the last layer by position."""

    entropy: np.ndarray
    chance: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True)
class _Chosen:
    """Positions of a batch that are decoded, counted through all of it, and how many of each."""

    shape: torch.Size  # texts, positions
    places: Tensor
    targets: Tensor | None  # next tokens
    counts: list[int]


class _Reader:
    """Batches through the blocks, of which one layer's rows are decoded at a time."""

    def __init__(self, parts: LensParts, decoder: Decoder, positions: str, stride: int) -> None:
        self.parts, self.decoder, self.positions = parts, decoder, positions
        self.stride = stride

    @torch.no_grad()
    def read_tokens(self, texts: list[list[int]], batch: int) -> list[Row]:
        """Rows of all texts."""
        result: dict[int, Row] = {}
        self.parts.check(texts[0])
        alike = len(set(map(len, texts))) == 1  # none is padded
        causal = alike or (self.parts.causal and self._is_causal(texts))
        for places in _batches(texts, batch, causal):
            padded, following, lengths = _padded([texts[place] for place in places])
            kept = self._kept(lengths, padded.shape[1])
            found = self._read(padded.to(self.parts.device), kept, following)
            result |= dict(zip(places, found, strict=True))
        return [result[place] for place in range(len(texts))]

    @torch.no_grad()
    def read_samples(self, x: Tensor, batch: int) -> list[Row]:
        """Rows of samples that are not tokens: N x anything that the network reads."""
        if not len(x) or not torch.isfinite(x).all():
            raise DataError(f"the inputs, {tuple(x.shape)}, are empty or not finite")
        kind = next((p.dtype for p in self.parts.model.parameters()), x.dtype)
        self.parts.answer(x[:1].to(self.parts.device, kind))  # every block runs once, or is refused
        return [
            row for part in x.split(batch) for row in self._read(part.to(self.parts.device, kind))
        ]

    def _kept(self, lengths: Tensor, longest: int) -> Tensor:
        """Which positions of texts of these lengths are decoded.  # texts, positions"""
        place, ends = torch.arange(longest), lengths[:, None]
        if self.positions == "all":
            return (place < ends) & ((ends - 1 - place) % self.stride == 0)
        # The mean of a sample is one row, the first.
        return place == (ends - 1 if self.positions == "last" else torch.zeros_like(ends))

    def _read(
        self, inputs: Tensor, kept: Tensor | None = None, following: Tensor | None = None
    ) -> list[Row]:
        """Rows of a batch, at the positions that are `kept`, a mask on the CPU.

        On the network's device, selecting by it would wait for the network at every block.
        """
        last = len(self.parts.blocks) - 1
        columns: list[Tensor] = []
        more: list[Tensor | None] = []
        chosen = None if kept is None else self._chosen(kept, following)

        def see(place: int, hidden: Tensor) -> None:
            hidden = hidden[:, None] if hidden.dim() == 2 else hidden
            if hidden.dim() != 3 or len(hidden) != len(inputs):
                raise ModelError(
                    f"block {place} gives {tuple(hidden.shape)}: expected samples x positions x d"
                )
            if self.positions == "mean":
                with naming_misfits():
                    hidden = self.parts.norm(hidden).mean(1, keepdim=True)
            nonlocal chosen
            if kept is None and (chosen is None or chosen.shape != hidden.shape[:2]):
                chosen = self._chosen(self._all_kept(hidden), None)
            if chosen is None or chosen.shape != hidden.shape[:2]:
                raise ModelError(
                    f"block {place} gives {tuple(hidden.shape)} for {tuple(inputs.shape)} tokens: "
                    "expected a row for each"
                )
            rows = hidden.flatten(0, 1)[chosen.places.to(hidden.device)]
            targets = chosen.targets if place == last else None
            with naming_misfits():
                answer = self.decoder(rows, targets, place == last)
            columns.append(answer.entropy[:, 0])
            if place == last:
                more.extend([answer.log_probability, answer.spread])

        with self.parts.watching(see):
            self.parts.read(inputs)
        if len(columns) != len(self.parts.blocks):
            raise ModelError(
                f"the model ran {len(columns)} of its {len(self.parts.blocks)} blocks once: name "
                "those that it runs one after another, blocks=..."
            )
        counts = list(dict.fromkeys(len(column) // len(inputs) for column in columns))
        if kept is None and len(counts) > 1:
            raise ModelError(
                f"blocks give different numbers of positions ({shortened(counts)} of a sample): "
                "read one row of each, positions='mean', 'first' or 'last'"
            )
        values = torch.stack(columns, 1).float().cpu().numpy()  # rows, L
        if not np.isfinite(values).all():
            raise ModelError("entropies are not finite: the network's numbers leave their range")
        chance, spread = (
            np.full(len(values), np.nan) if own is None else own.float().cpu().numpy()
            for own in more
        )
        assert chosen is not None
        ends = np.cumsum(chosen.counts)[:-1]
        split = (np.split(own, ends) for own in (values, chance, spread))
        return [Row(*own) for own in zip(*split, strict=True)]

    def _all_kept(self, hidden: Tensor) -> Tensor:
        return self._kept(torch.full((len(hidden),), hidden.shape[1]), hidden.shape[1])

    def _chosen(self, kept: Tensor, following: Tensor | None) -> "_Chosen":
        places = kept.flatten().nonzero()[:, 0]
        targets = None if following is None else following.flatten()[places].to(self.parts.device)
        counts = kept.sum(1).tolist()
        return _Chosen(kept.shape, places.to(self.parts.device), targets, counts)

    def _is_causal(self, texts: list[list[int]]) -> bool:
        """Whether positions are read alike with padding behind them; those of an encoder are not.

        Tried on different tokens: where all are one, their mean does not say how many there are.
        """
        longest = max(map(len, texts))
        known = dict.fromkeys(token for text in texts for token in text if token)
        probe = (list(known) or [0])[: max(1, min(4, longest // 2))]
        padding = [0] * min(len(probe), longest - len(probe))
        alone, padded = (
            self.parts.behind(torch.tensor([tokens], device=self.parts.device))[:, : len(probe)]
            for tokens in (probe, probe + padding)
        )
        off = float((padded - alone).abs().max())
        return off <= ALIKE * max(1.0, float(alone.abs().max()))


def _batches(texts: list[list[int]], size: int, padded: bool) -> Iterator[list[int]]:
    """Places of texts by length; without padding only of one length together."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    batch: list[int] = []
    for place in order:
        other = batch and not padded and len(texts[place]) != len(texts[batch[0]])
        if len(batch) == size or other:
            yield batch
            batch = []
        batch.append(place)
    yield batch


def _padded(texts: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens with zeros behind short texts, the token after each or -1, and lengths."""
    lengths = torch.tensor([len(text) for text in texts])
    inside = torch.arange(int(lengths.max())) < lengths[:, None]
    padded = torch.zeros(inside.shape, dtype=torch.long)
    padded[inside] = torch.tensor([token for text in texts for token in text])
    following = torch.full_like(padded, -1)
    following[:, :-1] = padded[:, 1:].masked_fill(~inside[:, 1:], -1)
    return padded, following, lengths


def profile_of_rows(
    rows: list[Row], alpha: float, windows: int, name: str, per_token: bool = False
) -> Profile:
    """Means over windows of each text's positions."""
    short = min(len(row.entropy) for row in rows)
    if short < windows:
        raise DataError(f"a text has {short} positions: too few for {windows} windows")
    split = (np.array_split(row.entropy, windows) if windows > 1 else [row.entropy] for row in rows)
    values = [[part.mean(0) for part in own] for own in split]
    return Profile(
        np.array(values, dtype=np.float64),
        np.array([len(row.entropy) for row in rows]),
        alpha,
        name,
        np.array([_mean(row.chance) for row in rows]),
        np.array([_mean(row.spread) for row in rows]),
        tuple(row.entropy for row in rows) if per_token else None,
    )


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan
