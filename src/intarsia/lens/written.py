"""Profiles of what a model writes: entropies at the last position, read while it writes.

Every step reads one new position alone: keys and values of earlier ones are kept where the network
can, and the head meets no position of the prompt but the last.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import RecipeError
from intarsia.files import stream
from intarsia.lens.entropies import check_alpha
from intarsia.lens.language_models import (
    TOGETHER,
    check_sampling,
    keeps_cache,
    of_one_length,
    open_model,
    tokens_of,
)
from intarsia.lens.lens_parts import Decoder, LensParts
from intarsia.lens.profiles import Profile, Row, check_counts, profile_of_rows
from intarsia.models.custom.trial import evaluation_mode


@dataclass(frozen=True, eq=False)
class Written:
    """What was written behind prompts, and its profiles by Renyi's order."""

    profiles: Mapping[float, Profile]
    texts: list[list[int]]  # the prompts with what follows them


def profile_generated(
    model: Any,
    prompts: Any,
    tokens: int = 32,
    alpha: float = 1.0,
    windows: int = 1,
    *,
    temperature: float = 0.7,
    seed: int = 0,
    per_token: bool = False,
    batch: int = TOGETHER,
    block: int | None = None,
    precision: str = "float32",
    tokenizer: Any = None,
    gguf_file: str | None = None,
) -> tuple[Profile, list[list[int]]]:
    """Entropies at the last position for each token that is sampled, and the texts with them."""
    opened = open_model(model, gguf_file=gguf_file, tokenizer=tokenizer)
    written = profiles_written(
        opened, prompts, tokens, [alpha], windows, temperature=temperature, seed=seed,
        per_token=per_token, batch=batch, block=block, precision=precision,
    )  # fmt: skip
    return written.profiles[check_alpha(alpha)], written.texts


@torch.no_grad()
def profiles_written(
    model: Any,
    prompts: Any,
    tokens: int = 32,
    alphas: Sequence[float] = (1.0,),
    windows: int = 1,
    *,
    temperature: float = 0.7,
    seed: int = 0,
    allowed: Sequence[int] | None = None,
    per_token: bool = False,
    batch: int = TOGETHER,
    block: int | None = None,
    precision: str = "float32",
) -> Written:
    """As `profile_generated`, for several orders at once, from the same logits.

    With `allowed` every token is one of these, such as the answers to a question; entropies and
    log-probabilities are still those of the whole vocabulary. Every text has a stream of random
    numbers of its own, so that batches change nothing but rounding.
    """
    check_sampling(tokens, temperature)
    orders = [check_alpha(alpha) for alpha in alphas]
    if not orders:
        raise RecipeError("there is no alpha: expected one order or more")
    check_counts(windows=windows, batch=batch, block=1 if block is None else block)
    opened = open_model(model)
    given = tokens_of(opened, prompts)
    parts = LensParts.of(opened.network)
    writer = _Writer(parts, Decoder(parts, orders, block, precision), allowed)
    rows: dict[int, list[Row]] = {}
    texts: dict[int, list[int]] = {}
    with evaluation_mode(opened.network):
        parts.check(given[0])
        for places in writer.batches(given, batch):
            streams = [torch.Generator().manual_seed(stream("written", seed, n)) for n in places]
            whole, found = writer.write([given[n] for n in places], tokens, temperature, streams)
            for place, text, own in zip(places, whole, found, strict=True):
                texts[place], rows[place] = text, own
    order = range(len(given))
    profiles = {
        alpha: profile_of_rows(
            [rows[place][n] for place in order], alpha, windows, opened.name, per_token
        )
        for n, alpha in enumerate(orders)
    }
    return Written(profiles, [texts[place] for place in order])


class _Writer:
    """Goes on with several texts at once, and decodes the last position behind every block."""

    def __init__(self, parts: LensParts, decoder: Decoder, allowed: Sequence[int] | None) -> None:
        self.parts, self.decoder = parts, decoder
        self.caches = keeps_cache(parts.model)
        self.allowed = None if allowed is None else torch.tensor(list(allowed), device=parts.device)

    def batches(self, given: list[list[int]], size: int) -> Iterator[list[int]]:
        """Places of prompts that go together: short ones first, of one length without a cache."""
        if not self.caches:
            yield from of_one_length(given, size)
            return
        order = sorted(range(len(given)), key=lambda place: len(given[place]))
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def write(
        self, prompts: list[list[int]], tokens: int, temperature: float,
        streams: Sequence[torch.Generator],
    ) -> tuple[list[list[int]], list[list[Row]]]:  # fmt: skip
        """The texts, and of each a row for every order."""
        state = _State(prompts, self.parts, self.caches)
        entropies, chances, spreads = [], [], []
        for _ in range(tokens):
            own, logits = self._step(state)
            chosen = self._chosen(logits, temperature, streams)
            chances.append(logits.log_softmax(-1).gather(1, chosen)[:, 0])
            spreads.append(logits.std(-1, correction=0))
            entropies.append(own.float())
            state.add(chosen)
        values = torch.stack(entropies, 1).cpu().numpy()  # B, T, L, orders
        chance, spread = (torch.stack(o, 1).float().cpu().numpy() for o in (chances, spreads))
        rows = [
            [Row(own[:, :, n], chance[b], spread[b]) for n in range(values.shape[3])]
            for b, own in enumerate(values)
        ]
        new: list[list[int]] = torch.cat(state.chosen, 1).tolist()
        return [[*prompt, *own] for prompt, own in zip(prompts, new, strict=True)], rows

    def _step(self, state: "_State") -> tuple[Tensor, Tensor]:
        """Entropies of the last position, B x L x orders, and the model's own logits there."""
        columns: list[Tensor] = []
        ends: list[Tensor] = []

        def see(_: int, hidden: Tensor) -> None:
            columns.append(self.decoder(hidden[:, -1]).entropy)
            ends.append(hidden[:, -1])

        with self.parts.watching(see):
            self.parts.read(state.seen, **state.named)
        return torch.stack(columns, 1), self.parts.logits(ends[-1]).float()

    def _chosen(
        self, logits: Tensor, temperature: float, streams: Sequence[torch.Generator]
    ) -> Tensor:
        """One token of every row: where a row's own random number falls in its running sum."""
        few = logits if self.allowed is None else logits[:, self.allowed]
        if temperature == 0:
            places = few.argmax(-1, keepdim=True)
        else:
            drawn = [torch.rand(1, generator=own, dtype=torch.float64) for own in streams]
            sums = (few.double() / temperature).softmax(-1).cumsum(-1)
            wanted = torch.stack(drawn).to(sums.device) * sums[:, -1:]
            places = torch.searchsorted(sums, wanted, right=True).clamp(max=few.shape[1] - 1)
        return places if self.allowed is None else self.allowed[places]


class _State:
    """What the next step reads: all that is there, or the new token alone beside a cache.

    Prompts that differ in length are padded on the left, where a mask hides the padding; positions
    count from a prompt's own first token.
    """

    def __init__(self, prompts: list[list[int]], parts: LensParts, caches: bool) -> None:
        longest, device = max(map(len, prompts)), parts.device
        rows = [[0] * (longest - len(prompt)) + prompt for prompt in prompts]
        self.seen = torch.tensor(rows, device=device)
        self.named: dict[str, Any] = {}
        self.chosen: list[Tensor] = []
        if caches:
            ahead = torch.tensor([[longest - len(prompt)] for prompt in prompts], device=device)
            places = torch.arange(longest, device=device)
            cache = import_module("transformers").DynamicCache(config=parts.model.config)
            self.named = {
                "past_key_values": cache,
                "use_cache": True,
                "attention_mask": (places >= ahead).long(),
                "position_ids": (places - ahead).clamp(min=0),
            }

    def add(self, chosen: Tensor) -> None:
        """One more token of every text."""
        self.chosen.append(chosen)
        if not self.named:
            self.seen = torch.cat([self.seen, chosen], 1)
            return
        self.seen, mask = chosen, self.named["attention_mask"]
        self.named["attention_mask"] = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
        self.named["position_ids"] = self.named["position_ids"][:, -1:] + 1
