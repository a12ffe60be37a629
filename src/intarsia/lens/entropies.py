"""Entropies of softmax distributions, Shannon's and Renyi's, at once or from blocks of logits.

    H_a = log(sum p^a) / (1 - a), H_1 = -sum p log p, H_inf = -log max p, all in nats

Blocks are summed with the largest logit m so far taken away, as in a running log-sum-exp:
s = sum exp(z - m), u = sum (z - m) exp(z - m), r = sum exp(a (z - m)). With these
H_1 = log s - u / s, H_a = (log r - a log s) / (1 - a) and H_inf = log s. Near a = 1 that is a small
difference divided by another, and sums are of float64.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.errors import DataError, RecipeError, shortened

NEAR = 0.1  # of an order to 1: there H_a loses digits
SHANNON = 1e-6  # so near it is Shannon's entropy, to as many digits


def entropy(logits: Any, alpha: float = 1.0) -> Any:
    """The entropy of softmax(logits) over the last axis, in nats; numpy in, numpy out.

    `alpha` is Renyi's order: 1 is Shannon's entropy, inf that of the likeliest class alone.
    """
    order = check_alpha(alpha)
    array = not isinstance(logits, Tensor)
    try:
        values = torch.as_tensor(np.asarray(logits)) if array else logits
    except (TypeError, ValueError) as error:
        raise DataError(f"the logits are not numbers: {str(error)[:200]}") from None
    if values.is_complex():
        raise DataError("the logits are complex: expected real numbers")
    if not values.dim() or not values.shape[-1]:
        raise DataError(f"the logits have shape {tuple(values.shape)}: expected classes last")
    if not values.is_floating_point():
        values = values.float()
    rows = values.reshape(-1, values.shape[-1])
    running = RunningEntropy(order)
    running.add(rows)
    result = running.entropy().reshape(values.shape[:-1])
    return result.numpy() if array else result


def check_alpha(alpha: Any) -> float:
    """Renyi's order as a number above 0, infinity among them."""
    number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
    if not number or not alpha > 0:
        raise RecipeError(f"alpha is {shortened(alpha)}: expected a number above 0, or inf")
    return 1.0 if abs(alpha - 1) < SHANNON else float(alpha)


class RunningEntropy:
    """Entropies of rows whose logits come in blocks; `moments` also asks for their spread."""

    def __init__(self, alpha: float = 1.0, moments: bool = False) -> None:
        self.alpha = alpha
        self.count = 0
        self._moments = moments
        self._top: Tensor | None = None

    def add(self, z: Tensor) -> None:
        """The next block: as many rows as before, in columns of their own.  # R, B"""
        if self.alpha != 1 and abs(self.alpha - 1) < NEAR:
            z = z.double()
        elif z.dtype in (torch.float16, torch.bfloat16):
            z = z.float()
        first = z[:, 0].clone() if not self.count and self._moments else None
        top = z.amax(-1)
        if self._top is None:
            self._top = top
            self._sum, self._own = torch.zeros_like(top), torch.zeros_like(top)
            self._shift = first
            self._totals = [torch.zeros_like(top), torch.zeros_like(top)]
        else:
            top = torch.maximum(self._top, top)
            self._lower(self._top - top)
            self._top = top
        if self._moments and self._shift is not None:
            centred = z - self._shift[:, None]  # sums of squares of what is near 0 lose no digits
            self._totals[0] += centred.sum(-1)
            self._totals[1] += centred.square().sum(-1)
        below = z - top[:, None]
        weights = below.exp()
        self._sum += weights.sum(-1)
        if self.alpha == 1:
            self._own += torch.linalg.vecdot(below.clamp(min=_least(below)), weights)
        elif not math.isinf(self.alpha):
            self._own += below.mul_(self.alpha).exp_().sum(-1)
        self.count += z.shape[-1]

    def _lower(self, difference: Tensor) -> None:
        """Sums relative to a larger logit, by how much smaller the old one is."""
        if self.alpha == 1:
            gone = difference.clamp(min=_least(difference))
            self._own = difference.exp() * (self._own + gone * self._sum)
        else:
            scale = 1.0 if math.isinf(self.alpha) else self.alpha
            self._own = (difference * scale).exp() * self._own
        self._sum = difference.exp() * self._sum

    def entropy(self) -> Tensor:
        """Of every row, in nats."""
        logarithm = self._sum.log()
        if math.isinf(self.alpha):
            return logarithm
        if self.alpha == 1:
            return (logarithm - self._own / self._sum).clamp(min=0)
        return ((self._own.log() - self.alpha * logarithm) / (1 - self.alpha)).clamp(min=0)

    def log_sum_exp(self) -> Tensor:
        """The logarithm of the sum of exp(z): z minus it is a log-probability."""
        assert self._top is not None
        return self._top + self._sum.log()

    def spread(self) -> Tensor:
        """The standard deviation of a row's logits."""
        mean, square = (total / self.count for total in self._totals)
        return (square - mean**2).clamp(min=0).sqrt()


def _least(z: Tensor) -> float:
    """So that 0 times it is 0: a class of logit -inf has no part in the sum."""
    return torch.finfo(z.dtype).min / 4
