"""TensorSetting: a setting that differs from tensor to tensor, as mergekit's recipes write it.

It is a value; or a gradient, a list of values that are spread evenly over the layers of a slice,
with a line from each to the next; or a list of conditions, of which the first counts whose filter
is part of a tensor's name. Source: mergekit 0.1.5.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from intarsia.errors import RecipeError, shortened
from intarsia.specs import check_keys, is_number

_LAYER = re.compile(r"\.(\d+)\.")
_BEFORE = re.compile(r"embed(?!_out)|embd|wte|wpe")
_AFTER = re.compile(r"norm|ln_f|head|output|embed_out|score")

Span = tuple[int, int]  # a slice's first layer, and the one after its last


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies in its network.

    slices  the slices that it may belong to: one, unless its name does not say which
    depth   from 0 for the first layer of its slice to 1 for the last; 0 for tensors of no layer,
            and None where it is not known which layers the network has
    """

    name: str
    slices: Sequence[int] = (0,)
    depth: float | None = 0.0


def tensor_places(
    names: Collection[str], spans: Sequence[Span] = (), counted: int | None = None
) -> Iterator[TensorPlace]:
    """The places of tensors, in one slice or in those given; `counted` layers if there is a config.

    Embeddings belong to the first slice, the norm and the head that follow the layers to the last.
    """
    layers = _layers(names)
    if layers == 0 or counted not in (None, layers):
        layers = None
    if layers is None and len(spans) > 1:
        raise RecipeError(
            "slices have settings by layer, and the names of the tensors do not say which layers "
            "there are: give one slice of all layers, or models"
        )
    spans = spans or [(0, layers or 0)]
    for name in names:
        found = _LAYER.search(name)
        if layers is None:
            yield TensorPlace(name, depth=None)
        elif found is None:
            yield TensorPlace(name, _outside(name, len(spans)))
        else:
            layer = int(found[1])
            index = next(i for i, (_, end) in enumerate(spans) if layer < end)
            start, end = spans[index]
            depth = (layer - start) / (end - start - 1) if end - start > 1 else 1.0
            yield TensorPlace(name, (index,), depth)


@dataclass(frozen=True)
class TensorSetting:
    """A setting with its conditions: part of a name, and what counts there, one value or more."""

    key: str
    conditions: tuple[tuple[str, tuple[Any, ...]], ...]

    @classmethod
    def read(cls, key: str, given: Any, flag: bool = False) -> "TensorSetting":
        """A setting from plain values: numbers, or for a `flag` true and false."""
        listed = given if isinstance(given, list) else [given]
        if not any(isinstance(each, Mapping) for each in listed):
            listed = [{"value": given}]
        return cls(key, tuple(_condition(key, each, flag) for each in listed))

    def idle_filters(self, names: Collection[str]) -> list[str]:
        """The filters of conditions that count for none of the tensors."""
        used = {self._condition(name) for name in names}
        return [p for place, (p, _) in enumerate(self.conditions) if p and place not in used]

    def at(self, place: TensorPlace) -> Any:
        """The value for a tensor; None where no condition fits."""
        index = self._condition(place.name)
        return None if index is None else self._between(self.conditions[index][1], place)

    def _condition(self, name: str) -> int | None:
        fitting = (place for place, (part, _) in enumerate(self.conditions) if part in name)
        return next(fitting, None)

    def _between(self, values: Sequence[Any], place: TensorPlace) -> Any:
        if len(values) == 1:
            return values[0]
        if place.depth is None:
            raise RecipeError(
                f"{self.key} is {shortened(list(values))}, which differs from layer to layer, and "
                f"the names of tensors, such as {shortened(place.name)}, do not number the layers "
                "of one stack, or not as many as the config counts: give one value, or one by "
                "filter"
            )
        at = place.depth * (len(values) - 1)
        below = int(at)
        if isinstance(values[0], bool):
            return values[below]
        above = min(below + 1, len(values) - 1)
        return (1 - (at - below)) * values[below] + (at - below) * values[above]


def _condition(key: str, given: Any, flag: bool) -> tuple[str, tuple[Any, ...]]:
    if not isinstance(given, Mapping) or "value" not in given:
        raise RecipeError(
            f"{key} has {shortened(given)} beside conditions: expected each to be such as "
            "{filter: mlp, value: 0.5}, where the last may go without a filter"
        )
    check_keys(f"a condition of {key}", given, ("filter", "value"))
    part, value = given.get("filter"), given["value"]
    if part is not None and not isinstance(part, str):
        raise RecipeError(
            f"a filter of {key} is {shortened(part)}: expected part of the names of tensors, such "
            "as mlp"
        )
    values = value if isinstance(value, list) else [value]
    if not values:
        raise RecipeError(f"{key} has a gradient of no values: give one or more, as in [0, 0.5, 1]")
    return "" if part in (None, "*") else part, tuple(_value(key, v, flag) for v in values)


def _value(key: str, given: Any, flag: bool) -> Any:
    if flag:
        if not isinstance(given, bool):
            raise RecipeError(f"{key} is {shortened(given)}: expected true or false")
        return given
    number = given
    if isinstance(given, str):  # YAML takes 1e-5 for a text
        with suppress(ValueError):
            number = float(given)
    if not is_number(number):
        raise RecipeError(
            f"{key} is {shortened(given)}: expected a number, or several as a gradient over the "
            "layers or by filter"
        )
    return number


def _layers(names: Collection[str]) -> int | None:
    """How many layers the names number, from 0 on in one stack; None for anything else."""
    found = [(name, match) for name in names if (match := _LAYER.search(name))]
    stacks = {name[: match.start()] for name, match in found}
    numbers = {int(match[1]) for _, match in found}
    return len(numbers) if len(stacks) <= 1 and numbers == set(range(len(numbers))) else None


def _outside(name: str, slices: int) -> Sequence[int]:
    """The slices that a tensor of no layer may belong to."""
    if _BEFORE.search(name):
        return (0,)
    return (slices - 1,) if _AFTER.search(name) else sorted({0, slices - 1})
