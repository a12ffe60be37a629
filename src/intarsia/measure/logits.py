"""Measures as pure functions of logits and labels, or of scores, in float64 on the CPU.

Logits are N x C, labels N indices below C, `rewarded` indices too. A mean over no sample is nan.
"""

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from intarsia.errors import DataError

ArrayLike = np.ndarray | Tensor | Sequence
Numbers = np.ndarray | Tensor | Sequence[float]


def rewarded_accuracy(logits: ArrayLike, labels: ArrayLike, rewarded: Sequence[int]) -> float:
    """Fraction of samples with a rewarded label whose largest logit, over all C, is that label's.

    nan where no sample has a rewarded label. Of equal logits the first counts as the largest.
    """
    z, y = _checked(logits, labels)
    rows = np.isin(y, _rewarded(rewarded, z.shape[1]))
    return _mean(z[rows].argmax(axis=1) == y[rows])


def nonrewarded_entropy(
    logits: ArrayLike, labels: ArrayLike, rewarded: Sequence[int], temperature: float = 1.0
) -> float:
    """Mean entropy (nats) over the samples whose label is not rewarded; its ceiling is log C.

    nan where no such sample is left, as when every class is rewarded.
    """
    z, y = _checked(logits, labels)
    rows = ~np.isin(y, _rewarded(rewarded, z.shape[1]))
    return _mean(entropy(z[rows], temperature))


def entropy(logits: ArrayLike, temperature: float = 1.0) -> np.ndarray:
    """Shannon entropy in nats of softmax(logits / temperature), one value per sample."""
    z = _logits(logits)
    if not 0 < temperature < np.inf:
        raise DataError(f"the temperature is {temperature}: expected a number above 0")
    z = z / temperature
    z = z - z.max(axis=1, keepdims=True)
    total = np.exp(z).sum(axis=1)
    # H = log(sum exp z) - sum p z: no logarithm of a probability that underflowed to 0
    return np.maximum(np.log(total) - (np.exp(z) * z).sum(axis=1) / total, 0.0)


def confusion(logits: ArrayLike, labels: ArrayLike, classes: int | None = None) -> np.ndarray:
    """Counts, true by predicted, C x C int64; `classes` checks C where given."""
    z, y = _checked(logits, labels)
    size = z.shape[1]
    if classes is not None and classes != size:
        raise DataError(f"the logits are over {size} classes: expected {classes}")
    cells = y * size + z.argmax(axis=1)
    return np.bincount(cells, minlength=size * size).reshape(size, size)


def accuracy_per_class(logits: ArrayLike, labels: ArrayLike) -> np.ndarray:
    """Recall, the fraction of each class's samples predicted right; nan for absent classes."""
    counts = confusion(logits, labels)
    with np.errstate(invalid="ignore"):
        return counts.diagonal() / counts.sum(axis=1)


def entropy_per_class(logits: ArrayLike, labels: ArrayLike, temperature: float = 1.0) -> np.ndarray:
    """Mean entropy (nats) over each class's samples; nan for absent classes."""
    z, y = _checked(logits, labels)
    size = z.shape[1]
    totals = np.bincount(y, weights=entropy(z, temperature), minlength=size)
    with np.errstate(invalid="ignore"):
        return totals / np.bincount(y, minlength=size)


def auroc(known: Numbers, unknown: Numbers) -> float:
    """How often a score of an unknown sample is above one of a known sample; ties count half."""
    one, other = (as_numbers(values, "scores") for values in (known, unknown))
    if not len(one) or not len(other):
        return math.nan
    one = np.sort(one)
    below, not_above = (np.searchsorted(one, other, side) for side in ("left", "right"))
    return float((below.sum() + not_above.sum()) / 2 / (len(one) * len(other)))


def as_numbers(values: Numbers, what: str) -> np.ndarray:
    """One finite float64 per sample; `what` names them in the error."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise DataError(
            f"the {what} have shape {array.shape}, or hold nan: expected one number per sample"
        )
    return array


def _checked(logits: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    z, y = _logits(logits), _numpy(labels, "labels")
    if y.size == 0:
        y = y.astype(np.int64)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(
            f"the labels have shape {y.shape} and type {y.dtype}: expected N whole numbers"
        )
    if len(y) != len(z):
        raise DataError(f"there are {len(y)} labels for {len(z)} rows of logits")
    outside = y[(y < 0) | (y >= z.shape[1])]
    if len(outside):
        raise DataError(
            f"the label {outside[0]} is outside the logits' classes 0 to {z.shape[1] - 1}"
        )
    return z, y.astype(np.int64)


def _logits(logits: ArrayLike) -> np.ndarray:
    z = _numpy(logits, "logits")
    if z.ndim != 2 or z.shape[1] == 0 or z.dtype.kind not in "iuf":
        raise DataError(
            f"the logits have shape {z.shape} and type {z.dtype}: expected N x C numbers"
        )
    z = z.astype(np.float64)
    if not np.isfinite(z).all():
        raise DataError("the logits hold values that are not finite: the model diverged")
    return z


def _numpy(value: ArrayLike, name: str) -> np.ndarray:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.double() if value.is_floating_point() else value).numpy()
    try:
        return np.asarray(value)
    except ValueError as error:
        raise DataError(f"the {name} are not an array: {error}") from error


def _rewarded(rewarded: Sequence[int], classes: int) -> np.ndarray:
    indices = np.asarray(list(rewarded) or np.zeros(0, np.int64))
    if indices.dtype.kind not in "iu" or ((indices < 0) | (indices >= classes)).any():
        raise DataError(
            f"rewarded is {list(rewarded)}: expected indices of classes, 0 to {classes - 1}"
        )
    return indices


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
