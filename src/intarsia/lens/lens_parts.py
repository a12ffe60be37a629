"""The parts of a network that a lens reads: its blocks, the norm and the head behind them."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.errors import DataError, ModelError, nearest, shortened
from intarsia.lens.entropies import RunningEntropy
from intarsia.specs import is_number

CPU_BLOCK, GPU_BLOCK = 2**22, 2**27  # logits at a time
CPU_COLUMNS, GPU_COLUMNS = 2**13, 2**17  # of the vocabulary at a time: a cache holds few
ALIKE = 1e-3  # to the model's own logits, relative to the largest
PRECISIONS = ("float32", "bfloat16")
# Names of a head: unembed is TransformerLens', classifier that of transformers for pictures.
HEADS = ("head", "lm_head", "unembed", "fc", "classifier")
WITHOUT_LAST = (
    "the model has answered without its last block: name the blocks that it runs, blocks=..."
)
NORM = re.compile(r"norm|^ln_f$", re.IGNORECASE)


class _Stop(Exception):  # noqa: N818  # no error: the last block has answered
    """Ends a forward pass before the head, whose logits are tokens times vocabulary."""


@dataclass(frozen=True)
class LensParts:
    """Blocks whose outputs are decoded by head(norm(x)), and what the model does to logits after.

    `causal` says that a position does not see later ones, so that texts may be padded on the right.
    """

    model: nn.Module
    blocks: Sequence[nn.Module]
    norm: nn.Module
    head: nn.Module
    causal: bool = False
    scale: float = 1.0
    cap: float | None = None

    @classmethod
    def of(
        cls,
        model: nn.Module,
        blocks: str | Sequence[nn.Module] | None = None,
        norm: str | nn.Module | None = None,
        head: str | nn.Module | None = None,
    ) -> "LensParts":
        """The parts given by name or as modules; others are looked for by their form."""
        if not isinstance(model, nn.Module):
            raise ModelError(f"the model is {shortened(model)}: expected a torch.nn.Module")
        path, found = _blocks(model, blocks)
        config = getattr(model, "config", None)
        limit = getattr(config, "final_logit_softcapping", None)
        factor, divisor = (getattr(config, n, None) for n in ("logit_scale", "logits_scaling"))
        # MPT may have a word there, which its code in transformers does not use.
        scale = float(factor) if is_number(factor) and factor else 1.0
        scale /= float(divisor or 1.0)
        return cls(
            model,
            found,
            _norm(model, norm, path),
            _head(model, head),
            causal=hasattr(model, "get_output_embeddings") or hasattr(model, "is_causal_lens"),
            scale=scale,
            cap=None if limit is None else float(limit),
        )

    @property
    def vocabulary(self) -> int | None:
        """Classes of the head, where it is a linear layer."""
        return self.head.out_features if isinstance(self.head, nn.Linear) else None

    @property
    def device(self) -> torch.device:
        weights = next(self.model.parameters(), None)
        return torch.device("cpu") if weights is None else weights.device

    @contextmanager
    def watching(self, see: Callable[[int, Tensor], None], stop: bool = True) -> Iterator[None]:
        """`see` gets the place and the output of each block; with `stop` the last ends the pass."""
        last = len(self.blocks) - 1
        handles = []

        def hook(place: int) -> Callable[..., None]:
            def call(_: nn.Module, __: Any, output: Any) -> None:
                hidden = output[0] if isinstance(output, tuple | list) and output else output
                if not isinstance(hidden, Tensor):
                    raise ModelError(
                        f"block {place} gives a {type(hidden).__name__}: expected a tensor, or a "
                        "tuple that begins with one; name other blocks, blocks=..."
                    )
                see(place, hidden)
                if stop and place == last:
                    raise _Stop

            return call

        try:
            for place, block in enumerate(self.blocks):
                handles.append(block.register_forward_hook(hook(place)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def read(self, *inputs: Any, **named: Any) -> None:
        """The model up to its last block, as `watching` sees it."""
        try:
            with naming_tables():
                self.model(*inputs, **named)
        except _Stop:
            return
        raise ModelError(WITHOUT_LAST)

    @torch.no_grad()
    def answer(self, inputs: Tensor, see: Callable[[Tensor], None] = lambda _: None) -> Any:
        """The model's own answer; `see` gets what the last block gives, and that is once."""
        last, runs = len(self.blocks) - 1, 0

        def count(place: int, hidden: Tensor) -> None:
            nonlocal runs
            if place == last:
                runs += 1
                see(hidden)

        with self.watching(count, stop=False), naming_tables():
            answer = self.model(inputs)
        if not runs:
            raise ModelError(WITHOUT_LAST)
        if runs > 1:
            raise ModelError(
                f"the model runs its last block {runs} times: a lens reads blocks that run one "
                "after another, once each; name such blocks, blocks=..."
            )
        return answer

    def check(self, text: list[int]) -> None:
        """The parts must give the model's own logits, or they are not its parts."""
        said: list[Tensor] = []
        tokens = torch.tensor([text[:8]], device=self.device)

        def see(hidden: Tensor) -> None:
            with naming_misfits():
                said.append(self.logits(hidden))

        answer = self.answer(tokens, see)
        ours = said[0]
        own = answer if isinstance(answer, Tensor) else getattr(answer, "logits", None)
        if own is None:
            return
        off = float((ours - own).abs().max()) if ours.shape == own.shape else math.inf
        if not off <= ALIKE * max(1.0, float(own.abs().max())):
            raise ModelError(
                "head(norm(x)) behind the last block is not what the model answers: name its "
                "blocks, norm and head"
            )

    def behind(self, tokens: Tensor) -> Tensor:
        """What the last block gives."""
        hidden: list[Tensor] = []
        self.model.eval()
        with torch.no_grad(), self.watching(lambda _, own: hidden.append(own)):
            self.read(tokens)
        return hidden[-1]

    def logits(self, rows: Tensor) -> Tensor:
        """What the head says of rows behind a block: normed here, and nowhere else."""
        return self._finished(self.head(self.norm(rows)))

    def _finished(self, z: Tensor) -> Tensor:
        z = z * self.scale if self.scale != 1 else z
        return z if self.cap is None else self.cap * torch.tanh(z / self.cap)


@contextmanager
def naming_tables() -> Iterator[None]:
    """Say what torch does not: that a token or a position is beyond those the model has."""
    try:
        yield
    except IndexError as error:
        raise DataError(
            f"the model looks up what it does not have ({error}): a token beyond its vocabulary, "
            "or a position beyond its longest text; give other tokens, or fewer"
        ) from error


@contextmanager
def naming_misfits() -> Iterator[None]:
    """torch says of a norm or a head that reads another width only which sizes do not fit."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ModelError(
            f"head(norm(x)) cannot read what a block gives ({error}): name the blocks, norm and "
            "head; what lies between norm and head, such as a projection, goes with the norm"
        ) from error


@dataclass
class Decoded:
    """Entropies of rows; of the last block also log-probabilities of next tokens and spreads."""

    entropy: Tensor  # rows, orders
    log_probability: Tensor | None = None
    spread: Tensor | None = None


class Decoder:
    """Entropies of rows behind blocks, with `block` logits in memory and never more.

    Rows go through the norm, then a block of them meets a block of the vocabulary. With the
    precision bfloat16 products are of bfloat16 and sums of float32; float64 models stay in it.
    """

    def __init__(
        self,
        parts: LensParts,
        alpha: float | Sequence[float] = 1.0,
        block: int | None = None,
        precision: str = "float32",
    ) -> None:
        if precision not in PRECISIONS:
            raise ModelError(
                f"precision is {shortened(precision)}: {nearest(precision, PRECISIONS)}"
            )
        cuda = parts.device.type == "cuda"
        usual = GPU_BLOCK if cuda else CPU_BLOCK
        self.columns = GPU_COLUMNS if cuda else CPU_COLUMNS
        self.parts, self.precision = parts, precision
        self.alphas = tuple(alpha) if isinstance(alpha, Sequence) else (alpha,)
        self.block = usual if block is None else block

    def __call__(self, rows: Tensor, targets: Tensor | None = None, last: bool = False) -> Decoded:
        """Rows x d; `targets` are next tokens, below 0 where there is none."""
        width = self.parts.vocabulary or self._width(rows)
        columns = min(width, self.columns, self.block)
        step = max(1, self.block // columns)
        split = [
            self._decoded(
                rows[start : start + step],
                None if targets is None else targets[start : start + step],
                last,
                columns,
            )
            for start in range(0, len(rows), step)
        ]
        return Decoded(
            torch.cat([own.entropy for own in split]),
            _joined([own.log_probability for own in split]),
            _joined([own.spread for own in split]),
        )

    def _width(self, rows: Tensor) -> int:
        return int(self.parts.logits(rows[:1]).shape[-1])

    def _decoded(self, rows: Tensor, targets: Tensor | None, last: bool, columns: int) -> Decoded:
        every = [RunningEntropy(alpha, moments=last) for alpha in self.alphas]
        normed = self.parts.norm(rows)
        for z in self._blocks(normed, columns):
            for running in every:
                running.add(z)
        entropies, running = torch.stack([own.entropy() for own in every], 1), every[0]
        if not last:
            return Decoded(entropies)
        chance = None
        if targets is not None:
            chance = self._own_logits(normed, targets) - running.log_sum_exp()
            chance = chance.masked_fill(targets < 0, float("nan"))
        return Decoded(entropies, chance, running.spread())

    def _blocks(self, normed: Tensor, columns: int) -> Iterator[Tensor]:
        head = self.parts.head
        if not isinstance(head, nn.Linear):
            yield self.parts._finished(head(normed))
            return
        x = self._kind(normed)
        for start in range(0, head.out_features, columns):
            z = x @ self._kind(head.weight[start : start + columns]).T
            z = z.float() if z.dtype == torch.bfloat16 else z
            if head.bias is not None:
                z = z + head.bias[start : start + columns].to(z.dtype)
            yield self.parts._finished(z)

    def _own_logits(self, normed: Tensor, targets: Tensor) -> Tensor:
        """The logit of one token for each row, without those of the others."""
        head, places = self.parts.head, targets.clamp(min=0)
        if not isinstance(head, nn.Linear):
            z = self.parts._finished(head(normed))
            return z.gather(1, places[:, None])[:, 0].float()
        x, weights = self._kind(normed), self._kind(head.weight[places])
        kind = torch.float64 if x.dtype == torch.float64 else torch.float32
        z = torch.linalg.vecdot(x.to(kind), weights.to(kind))
        z = z if head.bias is None else z + head.bias[places].to(z.dtype)
        return self.parts._finished(z)

    def _kind(self, x: Tensor) -> Tensor:
        if self.precision == "bfloat16":
            return x.bfloat16()
        return x if x.dtype == torch.float64 else x.float()


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return torch.cat(known) if known else None


def _blocks(model: nn.Module, given: Any) -> tuple[str, Sequence[nn.Module]]:
    """The list of blocks with its name; without one the longest list of modules."""
    if isinstance(given, str):
        found = _named(model, given, "blocks")
        if not isinstance(found, nn.ModuleList | nn.Sequential) or not len(found):
            raise ModelError(f"blocks {given!r} is a {type(found).__name__}: expected a list")
        return given, list(found)
    if given is not None:
        blocks = list(given)
        if not blocks or not all(isinstance(block, nn.Module) for block in blocks):
            raise ModelError(f"blocks are {shortened(given)}: expected modules, at least one")
        return "", blocks
    lists = {n: m for n, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m)}
    outer = {n: m for n, m in lists.items() if not any(n.startswith(f"{o}.") for o in lists)}
    if not outer:
        raise ModelError("the model has no list of blocks: name it, blocks='encoder.layers'")
    longest = max(len(own) for own in outer.values())
    names = [name for name, own in outer.items() if len(own) == longest]
    if len(names) > 1:
        raise ModelError(
            f"the model has several lists of {longest} modules ({', '.join(names)}): name that of "
            "its blocks, blocks=..."
        )
    return names[0], list(outer[names[0]])


def _norm(model: nn.Module, given: Any, blocks: str) -> nn.Module:
    """The norm behind the blocks; without one given that which lies beside their list."""
    if isinstance(given, nn.Module):
        return given
    if given is not None:
        return _named(model, given, "norm")
    parent = model.get_submodule(blocks.rpartition(".")[0])
    found = {
        name: own
        for name, own in parent.named_children()
        if (NORM.search(name) or NORM.search(type(own).__name__)) and "embed" not in name
    }
    if len(found) != 1:
        seen = f"several norms ({', '.join(found)})" if found else "no norm"
        raise ModelError(
            f"the model has {seen} beside its blocks: name the one before its head, norm=...; "
            "where there is none, norm=torch.nn.Identity()"
        )
    return next(iter(found.values()))


def _head(model: nn.Module, given: Any) -> nn.Module:
    if isinstance(given, nn.Module):
        return given
    if given is not None:
        return _named(model, given, "head")
    own = getattr(model, "get_output_embeddings", lambda: None)()
    if own is None:
        own = next((c for n, c in model.named_children() if n in HEADS), None)
    if own is None:
        raise ModelError("the model's head is not found: name it, head='output'")
    result: nn.Module = own
    return result


def _named(model: nn.Module, name: Any, role: str) -> nn.Module:
    known = [path for path, _ in model.named_modules() if path]
    if name not in known:
        raise ModelError(
            f"{role} is {shortened(name)}, which the model does not have: {nearest(name, known)}"
        )
    return model.get_submodule(name)
