"""Batches: which samples an epoch of a module has."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intarsia.errors import RecipeError, shortened
from intarsia.specs import Registry, Spec, is_number

BATCHES = Registry("batches", draws=False)
"""By name, what the batches of an epoch are made of: functions of settings that return `Batches`.

The trait `draws` says that it matters where no label is hidden, too.
"""


@dataclass(frozen=True)
class Batches:
    """What an epoch is made of."""

    hidden: bool = False  # samples of hidden labels, too, which count for nothing
    others: float = math.inf  # samples of other classes for each of the module's own
    corrected: bool = False  # those that are drawn stand for those that are not


def read_batches(text: str | Mapping[str, Any] | Spec | None) -> Batches:
    """What a recipe's `batches` means; it leaves them out where all samples are shown."""
    made: Batches = BATCHES.call(BATCHES.spec("all" if text is None else text))
    return made


@BATCHES.register("all")
def every_sample() -> Batches:
    """All samples, those of hidden labels too."""
    return Batches(hidden=True)


@BATCHES.register("shown")
def shown_samples() -> Batches:
    """All samples whose label is not hidden."""
    return Batches()


@BATCHES.register("balanced", draws=True)
def balanced_batches(amount: float, corrected: bool = False) -> Batches:
    """All samples of the module's own classes, and `amount` of others for each, drawn every epoch.

    Others are samples of classes that are neither rewarded nor hidden; each epoch draws anew, and
    none of them twice. With `corrected` their weight is multiplied by the number of all of them
    over the number that is drawn, so that weighted sums over an epoch have the expectation of those
    over all samples; a batch's loss is the quotient of two such sums. Validation goes over all
    samples in any case, with the objective's own weights.
    """
    if not is_number(amount) or amount <= 0:
        raise RecipeError(
            f"batches: balanced has amount {shortened(amount)}: expected a number above 0, of "
            "samples of other classes for each of a module's own"
        )
    if not isinstance(corrected, bool):
        raise RecipeError(
            f"batches: balanced has corrected {shortened(corrected)}: expected true or false"
        )
    return Batches(others=float(amount), corrected=corrected)
