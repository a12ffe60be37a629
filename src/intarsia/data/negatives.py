"""Negatives without a class: samples made up, on which every module learns to be uncertain.

A module is uniform on all classes but its own; on what is of no class at all it was never asked,
and may be as sure as it likes. A source makes such samples from the training samples:

    @NEGATIVES.register("mine")
    def mine(samples, generator, amount=0.5):
        return samples[...]  # round(amount * len(samples)) rows, scaled as the samples are
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import RecipeError
from intarsia.files import stream
from intarsia.specs import Registry, Spec

NEGATIVES = Registry("negatives", given=("samples", "generator"))
"""Sources by name; a function of samples (N, *shape) and a generator that gives made-up rows."""

CHUNK = 2**22  # numbers drawn at a time


def read_negatives(given: Any) -> list[Spec]:
    """Sources as people write them: a name, several as in "noise + mixed(0.2)", or a list."""
    return NEGATIVES.specs(given, "negatives", "noise + mixed(0.2)")


def pools_of(hidden: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """The sets of hidden labels, each of which needs negatives made without their samples."""
    return tuple(sorted(set(hidden)))


def make_pools(
    sources: Sequence[Spec], x: Tensor, y: Tensor, pools: Sequence[tuple[int, ...]], classes: int
) -> tuple[Tensor, Tensor]:
    """Made-up rows of every pool, equally many in each, and their labels.

    A pool is made of the samples whose labels are not hidden, by a stream of its own: what a
    module is not shown does not reach it, nor does it matter which modules it is trained with.
    """
    made: list[Tensor] = []
    for hidden in pools:
        places = _shown(y, hidden).nonzero().flatten()
        samples = x
        if hidden:  # as many as there are in all, so that every pool comes out equally large
            every = torch.arange(len(x), device=x.device)
            samples = x[places[every % len(places)]] if len(places) else torch.zeros_like(x)
        for number, source in enumerate(sources):
            generator = torch.Generator(x.device)
            generator.manual_seed(stream("negatives", number, source, *hidden))
            rows = NEGATIVES.call(source, samples=samples, generator=generator)
            first = made[number] if len(made) > number else rows  # of the same source
            if rows.shape[1:] != x.shape[1:] or len(rows) != len(first):
                raise RecipeError(
                    f"negatives: {source} makes {tuple(rows.shape)} of samples {tuple(x.shape)}: "
                    "expected rows of their shape, equally many for equally many samples"
                )
            made.append(rows)
    size = sum(map(len, made)) // max(1, len(pools))
    labels = torch.arange(len(pools), device=y.device).repeat_interleave(size) + classes
    return torch.cat([x[:0], *made]), labels.to(y.dtype)


def weigh_pools(weight: Tensor, y: Tensor, pools: Sequence[tuple[int, ...]], rows: int) -> Tensor:
    """Weights of `rows` made-up rows: each weighs what the samples it was made from do on average.

    So that, as without negatives, weights that are all doubled change nothing.
    """
    means = [weight[_shown(y, hidden)].mean().nan_to_num() for hidden in pools]
    return torch.stack(means).repeat_interleave(rows // len(pools))


def _shown(y: Tensor, hidden: tuple[int, ...]) -> Tensor:
    return ~torch.isin(y, torch.tensor(hidden, dtype=y.dtype, device=y.device))


@NEGATIVES.register("noise")
def noise(samples: Tensor, generator: torch.Generator, amount: float = 0.5) -> Tensor:
    """Noise of the samples' range: a half uniform, a half Gaussian with a spread of its own.

    The range is that of all pixels together for images, of each feature by itself for tables; a
    feature that never changes gets the usual range.
    """
    low, high = _range(samples)
    width = samples[0].numel()
    by: Any = {"generator": generator, "device": samples.device}

    def rows(first: int, last: int) -> Tensor:
        uniform = low + torch.rand(last - first, width, **by) * (high - low)
        # from a twentieth of the range to half of it, around a point inside it
        spread, middle = torch.rand(2, last - first, 1, **by).unbind()
        bell = torch.randn(last - first, width, **by)
        gaussian = low + (middle + (0.05 + 0.45 * spread) * bell) * (high - low)
        half = torch.arange(first, last, device=samples.device) % 2 == 0
        return torch.where(half[:, None], uniform, gaussian)

    return _made("noise", rows, amount, samples)


@NEGATIVES.register("mixed")
def mixed(samples: Tensor, generator: torch.Generator, amount: float = 0.5) -> Tensor:
    """Rows whose features are each drawn from another sample: every value real, no row."""
    flat = samples.reshape(len(samples), -1)
    by: Any = {"generator": generator, "device": samples.device}
    columns = torch.arange(flat.shape[1], device=samples.device)

    def rows(first: int, last: int) -> Tensor:
        return flat[torch.randint(len(flat), (last - first, len(columns)), **by), columns]

    return _made("mixed", rows, amount, samples)


@NEGATIVES.register("scaled")
def scaled(
    samples: Tensor, generator: torch.Generator, amount: float = 0.5, least: float = 2.0
) -> Tensor:
    """Samples times a factor between `least` and five times that, far from where samples lie."""
    if not isinstance(least, int | float) or not 1 < least < float("inf"):
        raise RecipeError(f"negatives: least is {least!r}: expected a factor above 1")
    if not samples.is_floating_point():
        raise RecipeError("negatives: scaled multiplies inputs, and these are whole numbers")
    flat = samples.reshape(len(samples), -1)
    by: Any = {"generator": generator, "device": samples.device}

    def rows(first: int, last: int) -> Tensor:
        chosen = torch.randint(len(flat), (last - first,), **by)
        return flat[chosen] * least * 5 ** torch.rand(last - first, 1, **by)

    return _made("scaled", rows, amount, samples)


def _made(name: str, rows: Callable[[int, int], Tensor], amount: float, samples: Tensor) -> Tensor:
    """`amount` rows for each sample, in its shape, made in pieces that fit the memory."""
    number = isinstance(amount, int | float) and not isinstance(amount, bool)
    if not number or not 0 <= amount < float("inf"):
        raise RecipeError(
            f"negatives: the amount of {name} is {amount!r}: expected how many rows to make for "
            "each real one, a number from 0"
        )
    count = round(amount * len(samples))
    step = max(1, CHUNK // max(1, samples[0].numel()))
    if not count:
        return samples[:0].clone()
    made = torch.cat([rows(first, min(first + step, count)) for first in range(0, count, step)])
    if not samples.is_floating_point():
        made = made.round()
    return made.to(samples.dtype).reshape(count, *samples.shape[1:])


def _range(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest value, of all pixels together or feature by feature."""
    flat = samples.reshape(len(samples), -1)
    if not flat.is_floating_point():
        flat = flat.float()
    if samples.dim() > 2:
        return flat.amin(), flat.amax()
    low, high = flat.amin(0), flat.amax(0)
    width = high - low
    usual = width[width > 0].median() if bool((width > 0).any()) else torch.ones_like(width[0])
    still = width == 0
    return torch.where(still, low - usual / 2, low), torch.where(still, high + usual / 2, high)
