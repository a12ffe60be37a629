"""DARE's step on flat task vectors: drop entries at random and rescale the others.

Sources: the paper, https://arxiv.org/abs/2311.03099; peft 0.21, mergekit 0.1.5 and fusion_bench
0.2.33 for what follows the drop.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from intarsia.composition.operators.changes.ties import PRESETS, Ties
from intarsia.composition.operators.pieces import TensorPieces, sums
from intarsia.data.splits import random_keys


@dataclass(frozen=True)
class Dare:
    """What a library does after dropping: how it rescales, and its TIES.

    rescale    density: kept entries are divided by the density, so the mean stays; norm: each
               tensor is scaled back to its sum of magnitudes
    """

    rescale: Literal["density", "norm"]
    ties: Ties


DARE = {
    "paper": Dare("density", PRESETS["paper"]),
    "peft": Dare("density", replace(PRESETS["peft"], density=1.0)),
    "mergekit": Dare("norm", replace(PRESETS["mergekit"], reduce="sum")),
    "fusion_bench": Dare("density", PRESETS["fusion_bench"]),
}


def drop(
    vector: Tensor,
    kept: Tensor,
    density: float,
    rescale: Literal["density", "norm", "none"],
    sizes: Sequence[int],
) -> Tensor:
    """The kept entries of a task vector, rescaled."""
    left = torch.where(kept, vector, 0)
    if rescale == "density":
        return left / density
    if rescale == "none" or density == 1:
        return left
    pairs = zip(torch.split(vector, list(sizes)), torch.split(left, list(sizes)), strict=True)
    return torch.cat([_to_norm(after, before.abs().sum()) for before, after in pairs])


def drop_pieces(
    tensor: TensorPieces,
    names: Sequence[str],
    densities: Sequence[float],
    seed: int,
    rescale: Literal["density", "norm", "none"],
) -> Callable[[list[Tensor], int], list[Tensor]]:
    """As `drop` of every part, by names: a function of a piece's changes and its first entry."""
    plain: Literal["density", "none"] = "density" if rescale == "density" else "none"

    def left(changes: list[Tensor], start: int) -> list[Tensor]:
        return [
            drop(c, draw(n, len(c), d, seed, tensor.first + start), d, plain, [len(c)])
            for n, c, d in zip(names, changes, densities, strict=True)
        ]

    if rescale != "norm" or min(densities) == 1:
        return left
    scales = norm_scales(tensor, left)
    return lambda changes, start: [c * f for c, f in zip(left(changes, start), scales, strict=True)]


def norm_scales(
    tensor: TensorPieces, left: Callable[[list[Tensor], int], list[Tensor]]
) -> list[float]:
    """What scales what is left of every part back to the part's own sum of magnitudes."""
    found = sums(
        tensor, lambda changes, start: [t.abs() for t in (*changes, *left(changes, start))]
    )
    half = len(found) // 2
    return [_norm_scale(own, norm) for norm, own in zip(found[:half], found[half:], strict=True)]


def draw(name: str, entries: int, density: float, seed: int, start: int = 0) -> Tensor:
    """True for the entries that stay; the same on every machine."""
    return uniform(name, entries, seed, start) < density


def uniform(name: str, entries: int, seed: int, start: int = 0) -> Tensor:
    """Numbers from 0, below 1, that depend on a name and the seed alone, in float64.

    They are those from the place `start` on.
    """
    stream = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    keys = random_keys(entries, seed, stream, start)
    # 53 bits are what a float64 holds exactly
    return torch.from_numpy((keys >> 11) * 2.0**-53)


def _to_norm(tensor: Tensor, norm: Tensor) -> Tensor:
    return tensor * _norm_scale(float(tensor.abs().sum()), float(norm))


def _norm_scale(own: float, norm: float) -> float:
    # mergekit leaves a tensor as it is when either norm is below this
    return 1.0 if min(own, norm) < 1e-7 else norm / own
