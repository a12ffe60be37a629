"""Changes of matrices joined by singular vectors: TSV-M and Iso-C.

Sources: the papers, https://arxiv.org/abs/2412.00081 and https://arxiv.org/abs/2502.04959;
fusion_bench 0.2.33, which they equal on matrices of full rank. A tensor of more than two axes is
a matrix with a row for each output unit (fusion_bench averages it); of vectors the mean is taken.
Singular vectors of no length are left out, since they are not determined.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.arithmetic import Weights, combination, mean
from intarsia.composition.operators.changes.tensor_changes import (
    TensorJoin,
    rows_of,
    tensor_operator,
)
from intarsia.composition.operators.registry import copies

RANK = 1e-10  # of the largest singular value: smaller ones are rounding


@tensor_operator("tsvm", paper="https://arxiv.org/abs/2412.00081", memory=copies(11))
def tsvm(context: MergeContext, weights: Weights = 1.0, scale: float = 1.0) -> TensorJoin:
    """theta = origin + scale * U' S V', of the changes' leading singular vectors.

    Of each w_i tau_i, of rank at most r, the r / K largest singular values are kept, at least one.
    S has all of them; U' and V' are the orthogonal matrices nearest to their singular vectors side
    by side, so that those of one part do not interfere with those of another.
    """
    given = context.weights(weights)
    return lambda name, each: scale * without_interference(each, given)


@tensor_operator("iso_c", paper="https://arxiv.org/abs/2502.04959", memory=copies(11))
def iso_c(context: MergeContext, weights: Weights = 1.0, scale: float = 1.0) -> TensorJoin:
    """theta = origin + scale * s U V, with U S V the sum of w_i tau_i and s the mean of S.

    All directions of the sum are made equally strong: those that all parts share outweigh the
    others no longer.
    """
    given = context.weights(weights)
    return lambda name, each: scale * isotropic(each, given)


def without_interference(changes: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """TSV-M of one tensor's changes."""
    weighted = [change * weight for change, weight in zip(changes, weights, strict=True)]
    if changes[0].ndim < 2 or not changes[0].numel():
        return mean(weighted)
    left, values, right = [], [], []
    for change in weighted:
        u, s, v = torch.linalg.svd(rows_of(change), full_matrices=False)
        count = max(1, len(s) // len(changes))
        left.append(u[:, :count])
        values.append(s[:count])
        right.append(v[:count])
    strength = torch.cat(values)
    if float(strength.max()) == 0:
        return torch.zeros_like(changes[0])
    there = strength > RANK * strength.max()
    u, v = torch.cat(left, dim=1)[:, there], torch.cat(right)[there]
    joined = _nearest_isometry(u) * strength[there] @ _nearest_isometry(v)
    return joined.reshape(changes[0].shape)


def isotropic(changes: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Iso-C of one tensor's changes."""
    if changes[0].ndim < 2 or not changes[0].numel():
        return combination([weight / len(changes) for weight in weights], changes)
    u, s, v = torch.linalg.svd(rows_of(combination(weights, changes)), full_matrices=False)
    there = s > RANK * s.max()
    if not bool(there.any()):
        return torch.zeros_like(changes[0])
    return (s[there].mean() * u[:, there] @ v[there]).reshape(changes[0].shape)


def _nearest_isometry(matrix: Tensor) -> Tensor:
    """The matrix with all its singular values at 1, but for those that are 0."""
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    there = s > RANK * s.max()
    return u[:, there] @ v[there]
