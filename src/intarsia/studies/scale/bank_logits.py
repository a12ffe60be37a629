"""Logits of every module of a bank, computed once, and what sums of them answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from intarsia.composition.calibration import calibrate, offset_of, scales_of
from intarsia.data import Data, Split, subsample
from intarsia.modules import Bank, Module, logits_of
from intarsia.modules.statistics import total

BATCH = 1000
DIGITS = 6  # of the accuracy of a class, where there may be a thousand


@dataclass(frozen=True)
class SplitLogits:
    """What every module answers to the samples of a split, with their labels, on one device."""

    each: Tensor  # K, N, C
    labels: Tensor  # N

    @classmethod
    def of(
        cls,
        modules: Sequence[Module] | Bank,
        split: Split,
        device: torch.device,
        flips: bool = False,
    ) -> "SplitLogits":
        """One module after another, so that a hundred networks need the memory of one.

        With `flips`, means of what they answer to a picture and to its mirror image.
        """
        rows = split.x.to(device)
        networks = (module.to_module().to(device) for module in modules)
        each = torch.stack([logits_of(own, rows, BATCH, flips) for own in networks]).to(device)
        return cls(each, split.y.to(device))

    @cached_property
    def total(self) -> Tensor:
        """The sum of all logits, N x C."""
        return total(list(self.each))

    def added(self) -> float:
        """Accuracy of the sum of all logits, answers among the whole catalogue."""
        return accuracy(self.total, self.labels)


@dataclass(frozen=True)
class Growth:
    """Accuracy on the samples of the classes present, as modules join one after another.

    Answers are among the classes present (`closed`), or among the whole catalogue (`open`).
    """

    sizes: list[int]  # classes present
    closed: list[float]
    open: list[float]


def accuracy(logits: Tensor, labels: Tensor, present: Sequence[int] | None = None) -> float:
    """The fraction of samples answered right; with `present`, among these classes alone."""
    if present is not None:
        chosen = torch.tensor(list(present), device=logits.device)
        rows = torch.isin(labels, chosen)
        answers = chosen[logits[rows][:, chosen].argmax(1)]
        labels = labels[rows]
    else:
        answers = logits.argmax(1)
    return float((answers == labels).double().mean())


def by_class(logits: Tensor, labels: Tensor, catalogue: Sequence[str]) -> dict[str, float]:
    """By class, the fraction of its samples that is answered right; of those that have samples."""
    hits = logits.argmax(1) == labels
    samples = {name: labels == place for place, name in enumerate(catalogue)}
    return {
        name: round(float(hits[own].double().mean()), DIGITS)
        for name, own in samples.items()
        if bool(own.any())
    }


def growth(logits: SplitLogits, classes: Sequence[Sequence[int]]) -> Growth:
    """What the sum of logits answers after each module; `classes` are those of every module."""
    result = Growth([], [], [])
    present: list[int] = []
    summed = torch.zeros_like(logits.each[0])
    for own, more in zip(classes, logits.each, strict=True):
        present += own
        summed = summed + more
        rows = torch.isin(logits.labels, torch.tensor(present, device=summed.device))
        result.sizes.append(len(present))
        result.closed.append(accuracy(summed, logits.labels, present))
        result.open.append(accuracy(summed[rows], logits.labels[rows]))
    return result


def calibrated_accuracy(
    modules: Sequence[Module] | Bank, data: Data, test: SplitLogits, rows: int, flips: bool = False
) -> float | None:
    """Accuracy of logits with one scale and one offset per module, fitted on validation samples.

    At most `rows` samples are looked at, evenly spaced, as `compose(..., calibrate=True)` does;
    with 0 nothing is fitted. Of a hundred modules that takes longer than all else.
    """
    if not rows:
        return None
    parts = list(modules)
    seen = SplitLogits.of(parts, subsample(data.validation, rows), test.each.device, flips)
    fit = calibrate(list(seen.each.cpu()), seen.labels.cpu(), parts, total)
    scales = scales_of(fit, parts).to(test.each)
    offset = offset_of(fit, parts).to(test.each)
    scaled = (scale * own for scale, own in zip(scales, test.each, strict=True))
    return accuracy(total(list(scaled)) + offset, test.labels)
