"""How much accuracy the sum of two modules' weights loses, foretold without labels.

A module that is uncertain by design says itself which samples are its own. Its objective asks for
p_c = P(c|x) + (1 - P(R|x)) / C on each rewarded class c in R, which is solved for P(c|x). With
these as labels, the accuracy that the weight sum loses against the logit sum is expected to be

    mean over rewarded c of  sum_x P(c|x) (r(logit sum) - r(weight sum)) / sum_x P(c|x)

where r = sigmoid(20 m / t) is nearly 1 for a right answer and nearly 0 for a wrong one; m is the
margin of c's logit over the largest other, t the temperature. The step is smooth because a small
batch has few wrong answers to count, but many that came close. Modules that never learned to be
uncertain (cross-entropy alone) claim every sample, and the score says less of them.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.modules import Classifier

STEEPNESS = 20.0  # chosen on pairs of modules that benchmarks/compatibility.py calls design pairs
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def interference(
    apart: Tensor,
    joined: Tensor,
    posteriors: Iterable[tuple[int, Tensor]],
    temperature: float,
) -> float:
    """Expected loss of accuracy from the logit sum (N x C) to the logits of the weight sum.

    `posteriors` are classes with their P(c|x) over the N samples; a class that no sample can be of
    is left out, and nan stands for a mean over none.
    """
    lost = []
    for c, weight in posteriors:
        fall = _right(apart, c, temperature) - _right(joined, c, temperature)
        if total := float(weight.sum()):
            lost.append(float((weight * fall).sum()) / total)
    return float(np.mean(lost)) if lost else math.nan


def posterior(logits: Tensor, rewarded: Sequence[int], temperature: float) -> dict[int, Tensor]:
    """P(c|x) for each rewarded class, from the logits of a module (N x C) alone."""
    p = torch.softmax(logits / temperature, 1)
    classes, own = p.shape[1], p[:, list(rewarded)]
    if len(rewarded) < classes:
        elsewhere = (1 - own.sum(1, keepdim=True)) / (1 - len(rewarded) / classes)
        own = (own - elsewhere / classes).clamp_min(0)
    return dict(zip(rewarded, own.T, strict=True))


def joined_logits(whole: Classifier, rows: Tensor) -> Tensor:
    """The logits of a weight sum, whose BatchNorm layers normalise by these rows.

    The statistics of neither part fit their sum. The classifier is left in this mode.
    """
    for layer in whole.modules():
        if isinstance(layer, NORMS):
            layer.train(len(rows) > 1)
    with torch.no_grad():
        return whole(rows)


def _right(logits: Tensor, c: int, temperature: float) -> Tensor:
    """1 where class c is answered, 0 where it is not, between them where it is close."""
    others = logits.index_fill(1, torch.tensor([c]), -math.inf).amax(1)
    return torch.sigmoid(STEEPNESS * (logits[:, c] - others) / temperature)
