"""Options: what a study is asked for, checked before anything is trained."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from intarsia.composition import OPERATORS
from intarsia.composition.operators.registry import Operator
from intarsia.errors import ModelError, RecipeError, StudyError
from intarsia.models import build
from intarsia.studies.context import StudyContext
from intarsia.studies.plans import HIDDEN

CNN = "cnn"


def readable(
    options: Mapping[str, Any], context: StudyContext, models: str = "models"
) -> Iterator[tuple[str, str]]:
    """Every data set, as it was named, with every model that can read it.

    The paper's CNN reads pictures only and falls out elsewhere. `models` is the option that names
    them.
    """
    for data in options["data"]:
        for model in options[models]:
            if model != CNN or len(context.data(data, options["preset"]).shape) == 3:
                _check_model(options, context, data, model, models)
                yield data, model


def fitting(options: Mapping[str, Any], key: str, classes: int) -> list[int]:
    """The sizes of class sets of which two fit beside one another."""
    return [size for size in check_counts(options, key) if 2 * size <= classes]


def check_operators(
    options: Mapping[str, Any], key: str = "operators", *, samples: bool = True
) -> list[str]:
    """The operators that are asked for, all of them known.

    Without `samples` there are none to give, so that operators that need them are refused.
    """
    if not options[key]:
        raise StudyError(f"option {key!r} is empty: expected at least one operator, such as sum")
    for text in options[key]:
        name = operator_name(text, key)
        how: Operator = OPERATORS[name]
        if how.samples and not samples:
            others = ", ".join(n for n in OPERATORS if not getattr(OPERATORS[n], "samples", False))
            raise StudyError(
                f"option {key!r} has {text!r}, which needs samples that this study does not give: "
                f"expected one of {others}"
            )
    return list(options[key])


def operator_name(text: Any, key: str = "operators") -> str:
    """The registered name of an operator that may be given with settings."""
    try:
        return OPERATORS.spec(text).name
    except RecipeError as error:
        raise StudyError(f"option {key!r} has {text!r}: expected an operator: {error}") from None


def check_count(options: Mapping[str, Any], key: str, least: int = 1, odd: bool = False) -> int:
    """A whole number from `least` on."""
    return _whole(key, "is", options[key], least, odd)


def check_counts(options: Mapping[str, Any], key: str) -> list[int]:
    """Whole numbers from 1 on."""
    return [_whole(key, "has", value, 1) for value in options[key]]


def check_numbers(options: Mapping[str, Any], key: str) -> list[float]:
    """Numbers above 0."""
    for value in options[key]:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise StudyError(f"option {key!r} has {value!r}: expected numbers above 0")
    return list(map(float, options[key]))


def check_flags(options: Mapping[str, Any], key: str) -> list[bool]:
    """True, False, or both."""
    for value in options[key]:
        if not isinstance(value, bool):
            raise StudyError(f"option {key!r} has {value!r}: expected true, false, or both")
    return list(options[key])


def _check_model(
    options: Mapping[str, Any], context: StudyContext, name: str, model: Any, key: str
) -> None:
    """A model that is none of the paper's must be one that can be built for these data."""
    if model == CNN or model in HIDDEN:
        return
    data = context.data(name, options["preset"])
    try:
        with torch.device("meta"):  # its shapes alone
            build(model, data.shape, data.classes)
    except (ModelError, RecipeError) as error:
        known = ", ".join([*HIDDEN, CNN])
        raise StudyError(
            f"option {key!r} has {model!r}: expected one of {known}, or a model that reads {name}, "
            f"such as mlp(32): {error}"
        ) from None


def _whole(key: str, verb: str, value: Any, least: int, odd: bool = False) -> int:
    merged = isinstance(value, int) and not isinstance(value, bool)
    if not merged or value < least or (odd and value % 2 == 0):
        kind = "an odd" if odd else "a whole"
        raise StudyError(f"option {key!r} {verb} {value!r}: expected {kind} number from {least}")
    result: int = value
    return result
