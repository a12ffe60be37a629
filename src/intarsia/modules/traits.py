"""What modules must have in common to be joined, and what to do where they have not."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from intarsia.data import Data, Split
from intarsia.errors import CompositionError, DataError, DataWarning, shortened
from intarsia.modules.module import Module

Trait = tuple[str, Callable[[Module], Any], str]  # its name, how to read it, what to do

CATALOGUE: Trait = (
    "catalogue",
    lambda m: list(m.catalogue),
    "train both over one catalogue, or give both all classes: intarsia.grown(module, catalogue), "
    "and in a shell compose --grow",
)
SHAPE: Trait = ("input shape", lambda m: m.architecture.shape, "train both on inputs of one shape")
TEMPERATURE: Trait = ("temperature", lambda m: m.temperature, "train both at one temperature")
SCALING: Trait = (
    "scaling",
    lambda m: m.scaling.to_json(),
    'train both on one data set with one scaling, or join them by "logits"',
)
MODEL: Trait = (
    "model",
    lambda m: str(replace(m.architecture, widths={})),
    'train both with one model, or join them by "logits"',
)
TENSORS: Trait = (
    "list of tensors",
    lambda m: {name: list(entry.shape) for name, entry in m.plan.items()},
    'train both with one factory, or join them by "inlay" or "logits"',
)
NAMES: Trait = (
    "list of tensors",
    lambda m: sorted(m.plan),
    'train both with one factory, or join them by "logits"',
)
BASE: Trait = (
    "base",
    lambda m: m.base and f"{m.base.name!r} ({m.base.digest[:16]})",
    'train both from one base, align them (align="weights"), or join them by "inlay" or "logits"',
)
ORIGIN: Trait = (
    "origin",
    lambda m: m.origin,
    'train both from one seed (bank.seed(0) picks one), align them (align="weights"), or join '
    'them by "inlay" or "logits"',
)
ADOPTED_ORIGIN: Trait = (
    "origin",
    lambda m: m.origin,
    "give what both were fine-tuned from, Module.of(..., base=network), align them "
    '(align="weights"), or join them by "inlay" or "logits"',
)


def check_traits(first: Module, module: Module, traits: Sequence[Trait]) -> None:
    """A CompositionError that names the first trait in which a module differs.

    Whatever the traits, two encoders mean other things by the same features, and so do two tables
    with the same columns in another order.
    """
    _check_encoders(first, module)
    if unlike := _unlike(module.columns, first.columns):
        message = f"module {module.name!r} does not fit module {first.name!r}: it reads {unlike}"
        _refuse_order(module.columns, first.columns, CompositionError, message)
    for name, trait, advice in traits:
        mine, other = trait(first), trait(module)
        if mine != other:
            raise CompositionError(
                f"module {module.name!r} does not fit module {first.name!r}: "
                f"its {name} is {_short(other)}, not {_short(mine)}: {advice}"
            )


def check_columns(data: Data | Split, columns: Sequence[str]) -> None:
    """A table must have its columns in the order of those that a model was trained on, if any."""
    name = data.name if isinstance(data, Data) else "the split"
    if data.columns and columns and len(data.columns) != len(columns):
        raise DataError(
            f"{name} has the columns {shortened(list(data.columns))}: the model reads "
            f"{shortened(list(columns))}; give these, and leave others out with drop="
        )
    if unlike := _unlike(data.columns, columns):
        message = f"{name} has {unlike}, as the model was trained on"
        _refuse_order(data.columns, columns, DataError, message)


def _unlike(seen: Sequence[str], wanted: Sequence[str]) -> str:
    """How names of columns differ; where there are none, or not as many, nothing is said here."""
    if tuple(seen) == tuple(wanted) or len(seen) != len(wanted):
        return ""
    return f"the columns {shortened(list(seen))}, not {shortened(list(wanted))}"


def _refuse_order(
    seen: Sequence[str], wanted: Sequence[str], error: type[Exception], message: str
) -> None:
    """Another order is a mistake for certain; other names may mean the same columns."""
    if sorted(seen) == sorted(wanted):
        raise error(f"{message}: bring the columns into one order")
    warnings.warn(
        f"{message}: columns are taken in their order, look whether they are the same",
        DataWarning,
        stacklevel=4,
    )


def _check_encoders(first: Module, module: Module) -> None:
    mine, other = first.encoder, module.encoder
    if mine is other or (mine is not None and mine.same_as(other)):
        return
    seen, wanted = ("none" if one is None else str(one) for one in (other, mine))
    if seen == wanted:
        seen, wanted = f"another {seen}", "the one of that name"
    raise CompositionError(
        f"module {module.name!r} does not fit module {first.name!r}: its encoder is "
        f"{_short(seen)}, not {_short(wanted)}: train both on the features of one encoder"
    )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
