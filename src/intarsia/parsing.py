"""Text from outside as plain values: YAML, JSON and Python's literals, each read in one place.

What a person would not write is refused by name: aliases and anchors, which let a few characters
stand for millions of values, keys given twice, numbers of hundreds of digits, values inside values
without end, text beyond all length.
"""

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from intarsia.errors import LONGEST, LimitError, RecipeError, shortened
from intarsia.files import is_no_file
from intarsia.limits import current

DIGITS = 64  # characters of a number
DEEPEST = 100  # lists and objects inside one another in JSON, which is written by programs


def parse_yaml(text: str, what: str) -> Any:
    """The value that YAML text holds, or a RecipeError that begins with `what`."""
    try:
        current().check("text", len(text), "it has {} characters")
        value = yaml.load(text, Loader=_Loader)  # a SafeLoader
    except LimitError as error:
        raise RecipeError(f"{what}: {error}") from error
    except RecursionError:
        raise RecipeError(f"{what} is nested too deeply: write it flatter") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        is_ours = isinstance(error, _Refused)
        verdict = "cannot be used" if is_ours else "is not valid YAML"
        raise RecipeError(f"{what} {verdict}: {_cut(error.problem)}{place}") from None
    except yaml.YAMLError as error:
        raise RecipeError(f"{what} is not valid YAML: {_cut(error)}") from None
    except (ValueError, OverflowError, LookupError, AttributeError) as error:
        # The constructors of dates, numbers and flags fail in many ways, as on a 13th month.
        raise RecipeError(f"{what} has a value that is not of its type ({_cut(error)})") from None
    return value


def read_settings(path: str | Path) -> dict[str, Any]:
    """The `key: value` lines of a YAML file; none of an empty one."""
    try:
        if is_no_file(path):
            raise RecipeError(f"cannot read the recipe {path}: it is not a file")
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(current().text + 1)
    except OSError as error:
        raise RecipeError(f"cannot read the recipe {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not valid YAML: {error}") from None
    except ValueError as error:  # a zero byte in its name
        raise RecipeError(f"cannot read the recipe {path!r}: {error}") from None
    settings = parse_yaml(text, str(path))
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise RecipeError(f"{path} must hold `key: value` lines, got {type(settings).__name__}")
    return settings


def parse_json(text: str | bytes) -> Any:
    """The value that JSON text holds, or a ValueError that says what is wrong with it.

    No key is given twice, all numbers are finite and of few digits, all text is Unicode.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse, parse_int=_whole
        )
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if deeper_than(value, DEEPEST):
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    return value


def parse_mapping(text: str | bytes) -> dict[str, Any]:
    """The mapping that JSON text holds, or a ValueError as of `parse_json`."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("it is not a mapping")
    return value


def parse_literal(node: ast.expr) -> Any:
    """The value of a literal in Python's grammar, or a RecipeError that says why it is refused."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Dict):
            keys = [ast.dump(key) for key in inner.keys if key is not None]
            if len(set(keys)) < len(keys):
                raise RecipeError("a key is given twice")
        number = inner.value if isinstance(inner, ast.Constant) else None
        if isinstance(number, int) and number.bit_length() > 3 * DIGITS:
            raise RecipeError(f"{shortened(number)} is too long")
    value = ast.literal_eval(node)
    if deeper_than(value, current().depth):
        raise RecipeError(f"values are nested more than {current().depth} levels deep")
    return value


def deeper_than(value: Any, most: int) -> bool:
    """Whether lists and mappings lie inside one another more than so many levels deep."""
    level = [value] if _is_container(value) else []
    for _ in range(most):
        level = [inner for outer in level for inner in _inside(outer) if _is_container(inner)]
    return bool(level)


def _cut(words: object) -> str:
    text = str(words)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list | tuple | set)


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(made := dict(pairs)) < len(pairs):
        raise ValueError("a key is given twice")
    return made


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


class _Refused(yaml.MarkedYAMLError):
    """Sound YAML that is not taken here."""


class _Loader(yaml.SafeLoader):
    """A SafeLoader that refuses what grows: aliases, deep nesting, long numbers, keys twice."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.depth, self.deepest = 0, current().depth

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if getattr(event, "anchor", None) is not None:
            raise self.refused(
                "an alias or anchor (*name, &name) stands here: write the value out", event
            )
        self.depth += 1
        if self.depth > self.deepest and not isinstance(event, yaml.ScalarEvent):
            advice = f"values are nested more than {self.deepest} levels deep: write them flatter"
            raise self.refused(advice, event)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise self.refused("a merge key (<<) stands here: write the values out", key)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        seen: set[Any] = set()
        for key, _ in node.value:
            value = self.construct_object(key)  # 1 and 0x1 are one key
            if value in seen:
                raise self.refused(f"the key {shortened(key.value)} is given twice", key)
            seen.add(value)
        return made

    def construct_number(self, node: Any) -> Any:
        """A number that has at most DIGITS characters."""
        if len(node.value) > DIGITS:
            raise self.refused(f"a number has {len(node.value)} characters, too many", node)
        whole = node.tag.endswith("int")
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)

    def refused(self, problem: str, at: Any) -> "_Refused":
        return _Refused(problem=problem, problem_mark=at.start_mark)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)
