"""The settings of operators as controls: their signatures are their schema."""

import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from intarsia.composition import OPERATORS
from intarsia.composition.merge_recipe import settings_of
from intarsia.errors import RecipeError, shortened
from intarsia.limits import Limits, limited
from intarsia.parsing import parse_yaml
from intarsia.specs import Spec, is_number

LONGEST = 64  # characters of a number
Kind = Literal["number", "integer", "flag", "choice", "text"]


@dataclass(frozen=True)
class Control:
    """One setting: its kind of control, and its default."""

    name: str
    kind: Kind
    default: Any
    choices: tuple[str, ...] = ()
    optional: bool = False  # None, where something else decides, such as a preset
    numbers: bool = field(default=False, compare=False)  # as text: one, or some by name


def controls_of(operator: str) -> list[Control]:
    """The settings that a user can give an operator, in their order."""
    function = OPERATORS[operator].function
    parameters = inspect.signature(function).parameters
    types_of = typing.get_type_hints(function)
    return [
        _control(name, types_of.get(name, Any), parameters[name].default)
        for name in settings_of(operator)
    ]


def spec_of(operator: str, values: Mapping[str, Any]) -> Spec:
    """The operator with the values of its controls; defaults are left out."""
    given = {}
    for control in controls_of(operator):
        value = read(operator, control, values.get(control.name, control.default))
        if value != control.default:
            given[control.name] = value
    return OPERATORS.spec({"name": operator, **given})


def read(operator: str, control: Control, value: Any) -> Any:
    """A control's value as the operator takes it; the default where it is empty."""
    if value is None or value == "":
        return None if control.optional else control.default
    if control.kind in ("number", "integer"):
        return _number(operator, control, value)
    if control.kind == "text" and isinstance(value, str):
        given = _literal(operator, control.name, value)
        if control.numbers and isinstance(given, str):
            raise RecipeError(
                f"{operator}: {control.name} is {shortened(value)}: expected a number, or some by "
                "name, such as 3: 0.5, 8: 2"
            )
        return float(given) if control.numbers and is_number(given) else given
    return value


def about(operator: str) -> str:
    """The first paragraph of an operator's docstring."""
    words = inspect.getdoc(OPERATORS[operator]) or ""
    return " ".join(words.partition("\n\n")[0].split())


def _control(name: str, annotation: Any, default: Any) -> Control:
    default = None if default is inspect.Parameter.empty else default
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    kinds = typing.get_args(annotation) if union else (annotation,)
    optional = type(None) in kinds
    rest = [kind for kind in kinds if kind is not type(None)]
    one = rest[0] if len(rest) == 1 else None
    if typing.get_origin(one) is Literal:
        return Control(name, "choice", default, typing.get_args(one), optional)
    known: dict[Any, Kind] = {bool: "flag", int: "integer", float: "number"}
    numbers = len(rest) > 1 and float in rest
    return Control(name, known.get(one, "text"), default, (), optional, numbers)


def _number(operator: str, control: Control, value: Any) -> float:
    is_text = isinstance(value, str) and len(value) <= LONGEST
    try:
        result = float(value) if is_text or is_number(value) else None
    except ValueError:
        result = None
    kind = "a number" if control.kind == "number" else "a whole number"
    if result is None or (control.kind == "integer" and not result.is_integer()):
        raise RecipeError(f"{operator}: {control.name} is {shortened(value)}: expected {kind}")
    return result if control.kind == "number" else int(result)


def _literal(operator: str, name: str, text: str) -> Any:
    """A number, or `3: 0.5, 8: 2` by names."""
    words = text.strip()
    bare = ":" in words and not words.startswith("{")
    expected = "expected one number, or some by name, such as 3: 0.5, 8: 2"
    try:
        with limited(Limits.upload()):
            result = parse_yaml(f"{{{words}}}" if bare else words, "it")
    except RecipeError as error:
        raise RecipeError(
            f"{operator}: {name} is {shortened(text)}: {expected} ({error})"
        ) from None
    values = list(result.values()) if isinstance(result, Mapping) else [result]
    if not all(isinstance(value, str | int | float | None) for value in values):
        raise RecipeError(f"{operator}: {name} is {shortened(text)}: {expected}")
    if isinstance(result, Mapping):
        return {str(key): value for key, value in result.items()}
    return result
