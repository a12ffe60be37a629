"""TIES as four steps on flat task vectors: trim, elect a sign, reduce what agrees, scale.

Sources: the paper, https://arxiv.org/abs/2306.01708; peft 0.21, mergekit 0.1.5 and fusion_bench
0.2.33, whose results the presets equal. Of equal magnitudes at the edge of a trim the earlier entry
stays; peft and mergekit leave that choice to torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce as fold
from typing import Literal

import torch
from torch import Tensor

from intarsia.composition.operators.arithmetic import ROUNDING, check_fraction
from intarsia.composition.operators.pieces import PieceJoin, TensorPieces, largest
from intarsia.modules.statistics import total

Trim = Literal["whole", "tensor"]
Elect = Literal["mass", "frequency", "none"]
Reduce = Literal["mean", "weighted_mean", "sum", "max"]


@dataclass(frozen=True)
class Ties:
    """One way through the four steps.

    trim       the largest entries of the whole task vector, or of each of its tensors
    keep       exact: int(density * n) of n entries; some: the same, but at least one; threshold:
               all that reach the (n - int(density * n))-th smallest, which is one entry more
    elect      the sign of the sum (mass) or of the sum of signs (frequency); none: all may stay
    zero       the sign where that is 0: none, positive, or the one most entries were given
    weigh      weights multiply the task vectors before the election, or only after it
    reduce     over the entries that have the elected sign; weighted_mean divides by their weights
    """

    density: float
    trim: Trim
    keep: Literal["exact", "some", "threshold"]
    elect: Elect
    zero: Literal["none", "positive", "majority"]
    weigh: Literal["before", "after"]
    reduce: Reduce
    scale: float

    def __post_init__(self) -> None:
        check_fraction("ties", "density", self.density, zero=True)


PRESETS = {
    "paper": Ties(0.2, "whole", "exact", "mass", "none", "before", "mean", 1.0),
    "peft": Ties(0.2, "tensor", "exact", "mass", "positive", "after", "mean", 1.0),
    "mergekit": Ties(1.0, "tensor", "some", "mass", "positive", "before", "weighted_mean", 1.0),
    "fusion_bench": Ties(0.2, "whole", "threshold", "mass", "majority", "before", "sum", 0.3),
}


def join(
    vectors: Sequence[Tensor],
    weights: Sequence[float],
    sizes: Sequence[int],
    how: Ties,
    densities: Sequence[float] | None = None,
) -> Tensor:
    """One task vector from many, all flat; `sizes` are the lengths of the tensors inside.

    Each may have a density of its own.
    """
    ways = [how] * len(vectors)
    if densities is not None:
        ways = [replace(how, density=density) for density in densities]
    trimmed = [trim(vector, sizes, own) for vector, own in zip(vectors, ways, strict=True)]
    return consensus(trimmed, weights, how)


def consensus(trimmed: Sequence[Tensor], weights: Sequence[float], how: Ties) -> Tensor:
    """The steps after the trim, each entry by itself unless a majority is asked for."""
    weighted = [vector * weight for vector, weight in zip(trimmed, weights, strict=True)]
    voters = weighted if how.weigh == "before" else trimmed
    sign = elect(voters, how)
    agree = [v != 0 if sign is None else (v != 0) & (v.sign() == sign) for v in voters]
    return how.scale * reduce(weighted, agree, weights, how.reduce)


def trim(vector: Tensor, sizes: Sequence[int], how: Ties) -> Tensor:
    """The vector with all but its largest entries set to 0."""
    pieces = [vector] if how.trim == "whole" else torch.split(vector, list(sizes))
    kept = [_largest(piece.abs(), how.density, how.keep) for piece in pieces]
    return torch.where(torch.cat(kept), vector, 0)


def elect(vectors: Sequence[Tensor], how: Ties) -> Tensor | None:
    """The sign that each entry of the joined vector has; None where there is no election."""
    if how.elect == "none":
        return None
    votes = vectors if how.elect == "mass" else [vector.sign() for vector in vectors]
    sign = total(votes).sign()
    if how.zero == "none":
        return sign
    majority = float(sign.sum().sign())
    if majority == 0:  # then fusion_bench takes what is negative, and nothing for max
        majority = 0.0 if how.reduce == "max" else -1.0
    return torch.where(sign == 0, 1.0 if how.zero == "positive" else majority, sign)


def reduce(
    vectors: Sequence[Tensor], agree: Sequence[Tensor], weights: Sequence[float], how: Reduce
) -> Tensor:
    """The vectors' agreeing entries as one; 0 where none agrees."""
    chosen = [torch.where(a, v, 0) for v, a in zip(vectors, agree, strict=True)]
    if how == "max":
        return fold(lambda one, other: torch.where(other.abs() > one.abs(), other, one), chosen)
    if how == "sum":
        return total(chosen)
    factors = [1.0] * len(agree) if how == "mean" else weights
    return total(chosen) / _divisor([a.to(chosen[0].dtype) for a in agree], factors)


def _divisor(agree: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The sum of the weights where 1 agrees; 1 where it is 0, or they cancel each other out."""
    counted = [a * weight for a, weight in zip(agree, weights, strict=True)]
    divisor = total(counted)
    nothing = divisor == 0
    if min(weights) < 0:  # then 0.1 + 0.2 - 0.3 is only rounding
        nothing = divisor.abs() <= ROUNDING * total([weight.abs() for weight in counted])
    return torch.where(nothing, 1.0, divisor)


def join_pieces(
    tensor: TensorPieces, weights: Sequence[float], how: Ties, densities: Sequence[float]
) -> PieceJoin:
    """As `join` of one tensor, which is trimmed by what a look at all its pieces found."""
    counts = [_kept_count(tensor.entries, density, how.keep) for density in densities]
    if not any(counts):
        return lambda changes, start: torch.zeros_like(changes[0])
    kept = largest(tensor, _magnitudes, counts, equals=how.keep == "threshold")

    def joined(changes: list[Tensor], start: int) -> Tensor:
        pairs = zip(changes, kept, strict=True)
        trimmed = [torch.where(own.of(c.abs(), start), c, 0) for c, own in pairs]
        return consensus(trimmed, weights, how)

    return joined


def _magnitudes(changes: list[Tensor]) -> list[Tensor]:
    return [change.abs() for change in changes]


def _kept_count(entries: int, density: float, keep: str) -> int:
    count = int(density * entries)
    if keep == "threshold" and count < entries:
        return count + 1
    return max(count, min(entries, 1)) if keep == "some" and density > 0 else count


def _largest(sizes: Tensor, density: float, keep: str) -> Tensor:
    entries = sizes.numel()
    count = _kept_count(entries, density, keep)
    if keep == "threshold" and count < entries:
        return sizes >= sizes.kthvalue(entries - count + 1).values
    if count in (0, entries):
        return torch.full_like(sizes, count > 0, dtype=torch.bool)
    last = sizes.kthvalue(entries - count + 1).values
    above, level = sizes > last, sizes == last
    return above | (level & (level.cumsum(0) <= count - above.sum()))  # of equals the first
