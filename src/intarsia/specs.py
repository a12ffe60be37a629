"""A name with arguments, as people write it: `mlp(512, 256)`, `smoothing(0.1)`, or a mapping."""

import ast
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, update_wrapper
from types import NoneType, UnionType
from typing import Any, Literal, Protocol, TypeVar, Union, get_args, get_origin

from intarsia.errors import DataError, LimitError, RecipeError, nearest, shortened
from intarsia.limits import current
from intarsia.parsing import parse_literal


class Named(Protocol):
    """What is called by a name."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def check_keys(what: str, given: Iterable[Any], known: Collection[str]) -> None:
    """An unknown key fails with the nearest known one."""
    for key in given:
        if key not in known:
            raise RecipeError(f"{what} has no setting {shortened(key)}: {nearest(key, known)}")


def check_setting(name: str, parameter: inspect.Parameter, value: Any) -> None:
    """What an annotation asks for: a choice, a flag or a finite number, each maybe left open."""
    key, kind = parameter.name, parameter.annotation
    if value is parameter.default:
        return
    if get_origin(kind) in (Union, UnionType):
        if value is None and NoneType in get_args(kind):
            return
        kinds = [each for each in get_args(kind) if each is not NoneType]
        kind = kinds[0] if len(kinds) == 1 else Any
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise RecipeError(
            f"{name} has no {key} {shortened(value)}: {nearest(value, get_args(kind))}"
        )
    if kind is bool and not isinstance(value, bool):
        raise RecipeError(f"{name}: {key} is {shortened(value)}: expected true or false")
    if kind is int and type(value) is not int:
        raise RecipeError(f"{name}: {key} is {shortened(value)}: expected a whole number")
    if kind is float and not is_number(value):
        raise RecipeError(f"{name}: {key} is {shortened(value)}: expected a number")


def seed_numbers(given: Any) -> tuple[int, ...]:
    """Seeds as they are given: how many, from 0 on, or which."""
    counted = isinstance(given, int) and not isinstance(given, bool)
    most = 100 * current().parts
    if counted and given > most:
        raise RecipeError(f"seeds is {shortened(given)}: expected {most:,} of them at the most")
    values = range(given) if counted else given
    sound = isinstance(values, list | tuple | range) and len(values) > 0
    if not sound or not all(type(seed) is int and 0 <= seed < 2**63 for seed in values):
        raise RecipeError(
            f"seeds is {shortened(given)}: expected how many, or whole numbers from 0, such as "
            "(0, 1, 2)"
        )
    if len(set(values)) < len(values):
        raise RecipeError(f"seeds is {shortened(given)}: a seed is there twice")
    return tuple(values)


def is_number(value: object) -> bool:
    """Whether a setting is a finite number; true and false are none, nor what 64 bits do not hold.

    Torch multiplies by no whole number that is larger.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)


def split_outside(text: str, marks: str) -> list[str]:
    """A text cut at any of the marks that lies outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter in marks and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def find_named(what: str, parts: Sequence[T], name: str) -> T:
    """The part that has this name, or a DataError with the nearest one."""
    for part in parts:
        if part.name == name:
            return part
    raise DataError(f"no {what} {name!r}: {nearest(name, [part.name for part in parts])}")


@dataclass(frozen=True)
class Spec:
    """A registered name and the keyword arguments given to it."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.arguments:
            return self.name
        settings = ", ".join(f"{k}={_literal(v)}" for k, v in self.arguments.items())
        return f"{self.name}({settings})"


def name_of(text: Any) -> str:
    """The name that a spec begins with, unchecked, however it is written."""
    if isinstance(text, Spec):
        return text.name
    if isinstance(text, Mapping):
        return str(text.get("name", ""))
    return (text if isinstance(text, str) else shortened(text)).partition("(")[0].strip()


def is_ours(function: Any) -> bool:
    """Whether a function or an entry is of this package."""
    return str(getattr(function, "__module__", "")).startswith("intarsia.")


class RegistryEntry:
    """A registered function, called as such, with its traits as attributes."""

    def __init__(self, name: str, function: Callable[..., Any], traits: Mapping[str, Any]) -> None:
        update_wrapper(self, function)  # its docstring, and its signature, which is its schema
        self.name, self.function, self.traits = name, function, dict(traits)

    def __call__(self, *args: Any, **settings: Any) -> Any:
        return self.function(*args, **settings)

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Those of the function, looked up once: every spec that is read asks for them."""
        return dict(inspect.signature(self.function).parameters)

    def __getattr__(self, trait: str) -> Any:
        traits = self.__dict__.get("traits", {})
        if trait not in traits:
            raise AttributeError(f"an entry has no trait {trait!r}: it has {', '.join(traits)}")
        return traits[trait]


class Registry(dict[str, Any]):
    """Named functions of one kind, each with the traits that others ask for.

    A decorator adds one, `spec` reads what a user wrote, and `entry` finds what such a spec names.
    `given` names the parameters that intarsia fills in itself; users set the others. `traits` are
    the attributes of every entry and their defaults. A trait may be a function of `settings`.
    """

    def __init__(self, kind: str, given: tuple[str, ...] = (), **traits: Any) -> None:
        super().__init__()
        self.kind, self.given, self.traits = kind, given, traits

    def register(
        self, name: str, **traits: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        for trait in traits:
            if trait not in self.traits:
                raise RecipeError(
                    f"{self.kind} {name!r} has no trait {trait!r}: {nearest(trait, self.traits)}"
                )

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self[name] = RegistryEntry(name, function, {**self.traits, **traits})
            return function

        return add

    def entry(self, text: "str | Mapping[str, Any] | Spec") -> Any:
        """The entry that a spec names."""
        return self[self.spec(text).name]

    def settings(self, text: "str | Mapping[str, Any] | Spec") -> dict[str, Any]:
        """All settings of a spec, those left out at their defaults."""
        spec = self.spec(text)
        parameters = self.parameters(spec.name)
        return {key: spec.arguments.get(key, p.default) for key, p in parameters.items()}

    def spec(self, text: "str | Mapping[str, Any] | Spec | RegistryEntry") -> Spec:
        """Read `name`, `name(args)`, `{name: ..., key: value}`, a Spec or an entry; check keys."""
        positional: list[Any] = []
        if isinstance(text, Spec):
            name, named = text.name, dict(text.arguments)
        elif isinstance(text, RegistryEntry):
            name, named = text.name, {}
        elif isinstance(text, Mapping):
            named = dict(text)
            name = str(named.pop("name", ""))
        else:
            words = text if isinstance(text, str) else shortened(text)
            name, positional, named = _parse(words, self.kind)
        if name not in self:
            raise RecipeError(f"unknown {self.kind} {shortened(name)}: {nearest(name, self)}")
        return Spec(name, self._bind(name, positional, named))

    def specs(self, given: Any, setting: str, example: str) -> list[Spec]:
        """Several in a row: a name, as in "noise + mixed(0.2)", a mapping, or a list; "none" too.

        Commas do as well. `setting` and `example` are for the error.
        """
        if given is None:
            return []
        if isinstance(given, str):
            parts = split_outside(given, "+,")
            given = [part for part in parts if part.strip() not in ("", "none")]
        elif isinstance(given, Mapping | Spec):
            given = [given]
        if not isinstance(given, Sequence):
            raise RecipeError(f"{setting} is {given!r}: expected one or more, as in {example}")
        return [self.spec(one) for one in given]

    def check_settings(self, text: "str | Mapping[str, Any] | Spec") -> None:
        """Refuse settings that the annotations of a function do not allow."""
        spec = self.spec(text)
        parameters = self.parameters(spec.name)
        for key, value in spec.arguments.items():
            check_setting(spec.name, parameters[key], value)

    def call(self, spec: Spec, **given: Any) -> Any:
        entry = self[spec.name]
        if not is_ours(entry):  # ours say themselves which values they take
            self.check_settings(spec)
        return entry(**given, **spec.arguments)

    def parameters(self, name: str) -> dict[str, inspect.Parameter]:
        """The parameters that users set."""
        entry = self[name]
        known = isinstance(entry, RegistryEntry)
        parameters = entry.parameters if known else inspect.signature(entry).parameters
        return {key: p for key, p in parameters.items() if key not in self.given}

    def _bind(self, name: str, positional: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        parameters = self.parameters(name)
        keys = list(parameters)
        if len(positional) > 1 and keys and "Sequence" in str(parameters[keys[0]].annotation):
            positional = [positional]  # mlp(512, 256) is mlp(hidden=[512, 256])
        if len(positional) > len(keys):
            raise RecipeError(
                f"{self.kind} {name!r} takes at most {len(keys)} arguments "
                f"({', '.join(keys) or 'none'}), got {len(positional)}"
            )
        bound = dict(zip(keys, positional, strict=False))
        check_keys(f"{self.kind} {name!r}", named, keys)
        for key, value in named.items():
            if key in bound:
                raise RecipeError(f"{self.kind} {name!r} is given {key!r} twice")
            bound[key] = value
        missing = [k for k, p in parameters.items() if p.default is p.empty and k not in bound]
        if missing:
            raise RecipeError(f"{self.kind} {name!r} needs {', '.join(missing)}")
        return bound


def _literal(value: Any) -> str:
    """The value as `_parse` reads it back: infinity is written as a number too large to hold."""
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return repr(value)


def _value(node: ast.expr) -> Any:
    """A literal in Python's grammar; true and false as YAML has them, too."""
    if isinstance(node, ast.Name) and node.id in ("true", "false"):
        return node.id == "true"
    if isinstance(node, ast.Name):
        raise RecipeError(f"{shortened(node.id)} is a text, which has to be in quotes")
    return parse_literal(node)


def _parse(text: str, kind: str) -> tuple[str, list[Any], dict[str, Any]]:
    reason = ""
    try:
        current().check("text", len(text), "it has {} characters")
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, [], {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            positional = [_value(a) for a in node.args]
            named: dict[str, Any] = {}
            for keyword in node.keywords:
                if keyword.arg in named:
                    raise RecipeError(f"{keyword.arg!r} is given twice")
                named[str(keyword.arg)] = _value(keyword.value)
            return node.func.id, positional, named
    except (LimitError, RecipeError) as error:
        reason = f" ({error})"
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    raise RecipeError(
        f"cannot read the {kind} {shortened(text)}{reason}: write a name, or name(value, key=value)"
    )
