"""Model stock: from the angle between changes to how far the mean should go from the origin.

Source: the paper, https://arxiv.org/abs/2403.19522; mergekit 0.1.5, whose result it equals, but
that mergekit divides by no product of two lengths below 1e-6, and takes the last axis of a
convolution for its filters.
"""

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.arithmetic import mean
from intarsia.composition.operators.changes.tensor_changes import (
    TensorJoin,
    rows_of,
    tensor_operator,
)
from intarsia.composition.operators.pieces import PieceJoin, TensorPieces, gram_of
from intarsia.composition.operators.registry import copies

SINGULAR = 1e-6  # a divisor nearer to 0 gives no ratio


@tensor_operator(
    "model_stock",
    paper="https://arxiv.org/abs/2403.19522",
    pieces=lambda tensor, context, settings: _stocked_pieces(
        tensor, len(context.parts), settings["by_unit"]
    ),
    by_rows=lambda settings: settings["by_unit"],
    memory=copies(8),
)
def model_stock(context: MergeContext, by_unit: bool = False) -> TensorJoin:
    """theta = origin + r * mean of tau_i, with r = K c / (1 + (K - 1) c), tensor by tensor.

    c is the mean cosine of two changes. Changes that agree are kept, r = 1; what is at right angles
    is taken for noise, r = 0. Of changes that oppose each other, c < 0, it makes nothing good: r is
    negative, and large near c = -1 / (K - 1). With `by_unit` each output unit has its own ratio.
    """
    return lambda name, each: stocked(each, by_unit)


def stocked(changes: Sequence[Tensor], by_unit: bool = False) -> Tensor:
    """The mean of the changes, times the ratio; one change is itself."""
    count = len(changes)
    if count == 1:
        return changes[0]
    rows = [rows_of(change) if by_unit else change.reshape(1, -1) for change in changes]
    cosine = mean([_cosine(one, other) for one, other in combinations(rows, 2)])
    return (_ratio(cosine, count)[:, None] * mean(rows)).reshape(changes[0].shape)


def _stocked_pieces(tensor: TensorPieces, count: int, by_unit: bool) -> PieceJoin:
    if count == 1 or by_unit:
        return lambda changes, start: stocked(changes, by_unit)
    products = gram_of(tensor)
    lengths = products.diagonal().sqrt()
    scale = lengths[:, None] * lengths
    cosines = (products / torch.where(scale == 0, 1.0, scale)).clamp(-1, 1)
    pairs = [cosines[i, j] for i, j in combinations(range(count), 2)]
    ratio = float(_ratio(mean(pairs), count))
    return lambda changes, start: ratio * mean(changes)


def _ratio(cosine: Tensor, count: int) -> Tensor:
    divisor = 1 + (count - 1) * cosine
    singular = divisor.abs() < SINGULAR
    return torch.where(singular, 0, count * cosine / torch.where(singular, 1.0, divisor))


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    """Of every row; 0 where one of them is 0."""
    lengths = one.norm(dim=1) * other.norm(dim=1)
    cosine = (one * other).sum(dim=1) / torch.where(lengths == 0, 1.0, lengths)
    return cosine.clamp(-1, 1)
