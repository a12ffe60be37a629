"""Abstention: how well the entropy of a model's answers shows what it does not know."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from intarsia.data import Split
from intarsia.errors import DataError
from intarsia.files import plain
from intarsia.measure.evaluation import format_number, open_set
from intarsia.measure.logits import Numbers, as_numbers
from intarsia.modules import Module, Predicting, logits_of
from intarsia.modules.classifier import Inputs, check_abstain, uncertainty


@dataclass(frozen=True)
class Abstention:
    """What `abstention` measured; nan is a fraction of nothing, None in JSON."""

    auroc_entropy: float  # an unknown sample has the larger entropy, ties count half
    auroc_softmax: float  # an unknown sample has the smaller largest probability
    threshold: float  # fraction of log C above which an answer is withheld
    answered: float  # fraction of the known samples that are answered
    refused: float  # fraction of the unknown samples that are not
    accuracy: float  # over the known samples that are answered
    known: int
    unknown: int

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self), "abstention")

    def __str__(self) -> str:
        return (
            f"AUROC {format_number(self.auroc_entropy)} by entropy, "
            f"{format_number(self.auroc_softmax)} by largest probability; at "
            f"{self.threshold:.4f} of log C {format_number(self.answered)} of {self.known} known "
            f"samples are answered ({format_number(self.accuracy)} of these right) and "
            f"{format_number(self.refused)} of {self.unknown} unknown ones refused"
        )


def threshold(model: nn.Module | Module, samples: Split | Inputs, answered: float = 0.95) -> float:
    """The fraction of log C that, given as `abstain`, lets `answered` of these samples be answered.

    Give validation samples of classes that the model knows; labels are not looked at. The fraction
    lies halfway between the last entropy that is answered and the next, or 1 where all are.
    """
    rows = samples.x if isinstance(samples, Split) else samples
    return threshold_of(uncertainty(*_answers(model, rows)), answered)


def threshold_of(uncertainties: Numbers, answered: float = 0.95) -> float:
    """As `threshold`, of entropies that are fractions of log C already."""
    fractions = np.sort(as_numbers(uncertainties, "entropies"))
    if not 0 <= answered <= 1:
        raise DataError(
            f"answered is {answered!r}: expected a fraction of the samples, from 0 to 1"
        )
    if not len(fractions):
        raise DataError("there are no samples to choose a threshold on: give validation samples")
    # The small step back keeps 0.95 * 100 at 95, which is 95.00000000000001 as floats may go.
    count = math.ceil(answered * len(fractions) - 1e-9)
    last = fractions[count - 1] if count else 0.0
    following = fractions[count] if count < len(fractions) else 1.0
    middle = (last + following) / 2
    return float(middle if middle < following else last)  # next to each other, they have none


def abstention(
    model: nn.Module | Module,
    known: Split,
    unknown: Split | Inputs,
    threshold: float,
    flips: bool = False,
) -> Abstention:
    """Measure on samples of known and of unknown classes; choose the threshold on others.

    Classes of `known` are matched by name, and `flips` is as in `evaluate`.
    """
    fraction = check_abstain(threshold)
    if isinstance(model, Module | Predicting):
        known = known.over(model.catalogue)
    logits, temperature = _answers(model, known.x, flips)
    foreign, _ = _answers(model, unknown.x if isinstance(unknown, Split) else unknown, flips)
    mine, others = uncertainty(logits, temperature), uncertainty(foreign, temperature)
    answered = mine <= fraction
    right = (logits.argmax(dim=1) == known.y.to(logits.device))[answered]
    apart = open_set(logits, foreign, temperature)
    return Abstention(
        auroc_entropy=apart.auroc_entropy,
        auroc_softmax=apart.auroc_softmax,
        threshold=fraction,
        answered=float(answered.double().mean()),
        refused=float((others > fraction).double().mean()),
        accuracy=float(right.double().mean()),
        known=len(logits),
        unknown=len(foreign),
    )


def _answers(model: nn.Module | Module, x: Inputs, flips: bool = False) -> tuple[Tensor, float]:
    """Logits in float64 and the temperature they are read at."""
    network = model.to_module() if isinstance(model, Module) else model
    temperature = network.temperature if isinstance(network, Predicting) else 1.0
    return logits_of(network, x, flips=flips).double(), temperature
