"""One reader for YAML, JSON and specs: what grows or misleads is refused by name, and at once."""

import ast
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intarsia.cli.arguments import assignments, read_recipe
from intarsia.composition import MergeRecipe
from intarsia.errors import LONGEST, IntarsiaError, RecipeError, nearest, shortened
from intarsia.limits import limited
from intarsia.objectives import objective
from intarsia.parsing import (
    DIGITS,
    deeper_than,
    parse_json,
    parse_literal,
    parse_mapping,
    parse_yaml,
    read_settings,
)
from intarsia.specs import Registry, is_number
from intarsia.studies.selection import _read_option
from intarsia.studio.ui.operator_controls import spec_of
from intarsia.training import Recipe

BOMB = "a: &a [x, x]\n" + "".join(
    f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=False)
)
REFUSED = {
    "aliases": (BOMB, "alias or anchor"),
    "an anchor alone": ("a: &x 1", "alias or anchor"),
    "itself": ("&a [*a]", "alias or anchor"),
    "a merge key": ("<<: {a: 1}", "merge key"),
    "nesting": ("[" * 21 + "]" * 21, "nested more than 20 levels"),
    "endless nesting": ("[" * 20_000, "nested more than 20 levels"),
    "digits": ("a: " + "9" * 5000, "5000 characters"),
    "hexadecimal digits": ("a: 0x" + "f" * 5000, "5002 characters"),
    "sixtieths": ("a: " + ":".join(["59"] * 3000), "8999 characters"),
    "a key twice": ("a: 1\nb: 2\na: 3", "the key 'a' is given twice"),
    "a key in two spellings": ("{1: a, 0x1: b}", "given twice"),
    "a key twice, deeper": ("x: [{a: 1, a: 1}]", "given twice"),
    "length": ("x" * (2**17 + 1), "131073 characters, and the limit 'text' is 131072"),
    "a 13th month": ("a: 2001-13-01", "month"),
    "no flag": ("!!bool x", "not of its type"),
    "no number": ("!!int ''", "not of its type"),
    "no date": ("!!timestamp x", "not of its type"),
    "code": ("!!python/object/apply:os.system [ls]", "could not determine a constructor"),
    "no YAML": ("a: [", "is not valid YAML"),
    "a list as a key": ("? [a]\n: 1", "unhashable"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_yaml_refuses_by_name(text: str, message: str, tmp_path: Path) -> None:
    start = time.process_time()
    with pytest.raises(RecipeError, match=message) as refusal:
        parse_yaml(text, "the recipe")
    assert "the recipe" in str(refusal.value)
    assert len(str(refusal.value)) < 600
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    for read in (read_settings, Recipe.load, MergeRecipe.load):
        with pytest.raises(RecipeError, match=r"recipe\.yaml"):
            read(path)
    assert time.process_time() - start < 5


def test_yaml_reads_what_people_write() -> None:
    text = "a: [1, 2.5, .inf, x]\nb: {c: true, d: null}\n1e-3: 'é'\n"
    expected = {"a": [1, 2.5, float("inf"), "x"], "b": {"c": True, "d": None}, "1e-3": "é"}
    assert parse_yaml(text, "it") == expected
    assert parse_yaml("[" * 20 + "]" * 20, "it")
    assert parse_yaml("", "it") is None
    assert parse_yaml("9" * DIGITS, "it") == int("9" * DIGITS)
    with limited(text=10), pytest.raises(RecipeError, match="'text' is 10"):
        parse_yaml("a: 1234567890", "it")


WAYS: dict[str, Callable[[str], Any]] = {
    "--set": lambda text: assignments([f"weights={text}"]),
    "--seeds": lambda text: read_recipe(None, {"seeds": text}, {}),
    "a study's option": lambda text: _read_option(f"1,{text}", [1], "rows"),
    "a field of the studio": lambda text: spec_of("weighted", {"weights": text}),
    "a spec": lambda text: objective(f"smoothing({text})", 10, [0]),
    "a recipe's spec": lambda text: Recipe.read({"pruning": f"territory({text})"}).resolve(),
}


@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    "text", ["&a [1]", "[" * 150 + "]" * 150, "9" * 5000, "{a: 1, a: 2}", "x" * 200_000]
)
def test_every_way_in_refuses_briefly(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises(IntarsiaError) as refusal:
        read(text)
    assert len(str(refusal.value)) < 5 * LONGEST


def test_a_setting_is_given_once() -> None:
    with pytest.raises(RecipeError, match="'batch' is given twice"):
        assignments(["batch=1", "batch=2"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f({'a': 1, 'a': 2})", "a key is given twice"),
        ("f(" + "[" * 30 + "]" * 30 + ")", "nested more than 20"),
        ("f(0x" + "f" * 5000 + ")", "is too long"),
        ("f(" + "1," * 10**5 + ")", "the limit 'text'"),
        ("f(" + "-" * 10**5 + "1)", "write a name"),
        ("f" + ".f" * 50_000, "write a name"),
    ],
)
def test_specs_refuse_by_name(text: str, reason: str) -> None:
    registry = Registry("way")
    registry.register("f")(lambda value=1: value)
    with pytest.raises(RecipeError, match=reason) as refusal:
        registry.spec(text)
    assert len(str(refusal.value)) < 3 * LONGEST


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "given twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999}', "JSON"),
        ("[" * 10**5 + "]" * 10**5, "nested"),
        ("[" * 150 + "]" * 150, "nested"),
        ("9" * 5000, "5000 digits"),
        ('"\\ud800"', "surrogates"),
        ("what", "Expecting value"),
    ],
)
def test_json_is_checked_once_for_all(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


def test_a_mapping_is_asked_for_by_name() -> None:
    assert parse_mapping(b'{"a": [1]}') == {"a": [1]}
    for text in ("[]", "3", '"a"', "null"):
        with pytest.raises(ValueError, match="it is not a mapping"):
            parse_mapping(text)
    with pytest.raises(ValueError, match="given twice"):
        parse_mapping('{"a": 1, "a": 2}')


def test_a_number_is_a_number_before_it_is_shown() -> None:
    large = [list(range(1000))] * 1000
    assert not is_number(2**63)  # by which torch cannot multiply
    for value in (large, {"a": large}, 10**5000, "x" * 10**6, float("nan"), True):
        assert not is_number(value)
        assert len(shortened(value)) <= LONGEST
        for key in ("epochs", "learning_rate", "sparsity", "partition_seed"):
            with pytest.raises(RecipeError, match=rf"{key} is ") as refusal:
                Recipe.read({key: value}).resolve()
            assert len(str(refusal.value)) < 2 * LONGEST
    assert is_number(3)
    assert is_number(-2.5)


def test_messages_name_few_of_many() -> None:
    words = [f"class {i}" for i in range(1000)]
    assert nearest("qqq", words).endswith("and 940 more")
    assert len(nearest("q" * 10**6, ["a", "b"])) < LONGEST
    assert nearest("clas 7", words) == "did you mean 'class 7'?"


def test_nothing_else_reads_yaml() -> None:
    sources = (Path(__file__).parents[1] / "src" / "intarsia").rglob("*.py")
    readers = [path.name for path in sources if re.search(r"yaml\.\w*load", path.read_text())]
    assert readers == ["parsing.py"]


def test_a_path_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(RecipeError, match="cannot read the recipe"):
        read_settings("a\0b.yaml")


def test_a_file_of_settings_is_a_mapping_or_empty(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("data: Gänse\nepochs: 3\n", encoding="utf-8")
    assert read_settings(path) == {"data": "Gänse", "epochs": 3}
    path.write_text("")
    assert read_settings(path) == {}
    path.write_text("- data\n")
    with pytest.raises(RecipeError, match="must hold `key: value` lines, got list"):
        read_settings(path)


def test_numbers_have_up_to_so_many_characters() -> None:
    assert parse_yaml(f"a: {'1' * DIGITS}", "here") == {"a": int("1" * DIGITS)}
    assert parse_json("1" * DIGITS) == int("1" * DIGITS)
    with pytest.raises(RecipeError):
        parse_yaml(f"a: {'1' * (DIGITS + 1)}", "here")
    with pytest.raises(ValueError, match=r"digits|characters"):
        parse_json("1" * (DIGITS + 1))
    assert DIGITS == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: &x 1", "^it cannot be used: an alias .* in line 2, column 4$"),
        ("a:\n  <<: {b: 1}", "^it cannot be used: a merge key .* in line 2, column 3$"),
        ("a: [1,\n  " + "9" * 65 + "]", "^it cannot be used: a number .* in line 2, column 3$"),
        ("a: 1\nb: 2\n\nb: 3", "^it cannot be used: the key 'b' is .* in line 4, column 1$"),
        ("{1: a, 0x1: b, 2: c}", "^it cannot be used: the key '0x1' is .* in line 1, column 8$"),
        ("[" * 21 + "]" * 21, "^it cannot be used: values are nested .* in line 1, column 21$"),
        ("a: 'b\nc: d", "^it is not valid YAML: .* in line 2, column 5$"),
        ("a: \x07", "^it is not valid YAML: "),
    ],
)
def test_a_refusal_says_where(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_yaml(text, "it")


def test_what_is_too_deep_for_the_reader_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise RecursionError

    monkeypatch.setattr("yaml.load", load)
    with pytest.raises(RecipeError, match="it is nested too deeply"):
        parse_yaml("a: 1", "it")


def test_values_beside_one_another_are_not_deep() -> None:
    assert parse_yaml(f"[{'[], ' * 30}]", "it") == [[]] * 30
    assert parse_yaml("{a: {b: {a: 1}, c: {a: 2}}}", "it") == {"a": {"b": {"a": 1}, "c": {"a": 2}}}
    with limited(depth=2):
        assert parse_yaml("[[1, 2]]", "it") == [[1, 2]]
        with pytest.raises(RecipeError, match="more than 2 levels deep"):
            parse_yaml("[[[]]]", "it")


def test_a_long_word_of_a_refusal_is_cut() -> None:
    known = len("could not determine a constructor for the tag '!'")
    for more, end in ((0, "xx'"), (1, "x...")):
        with pytest.raises(RecipeError) as refusal:
            parse_yaml(f"!{'x' * (LONGEST - known + more)} 1", "it")
        words = str(refusal.value).removeprefix("it is not valid YAML: ")
        words = words.removesuffix(" in line 1, column 1")
        assert len(words) == LONGEST
        assert words.endswith(end)


def test_settings_are_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("a: 4567890")
    with limited(text=10):
        assert read_settings(path) == {"a": 4567890}
        path.write_text("a: " + "4" * 30)
        with pytest.raises(RecipeError, match="it has 11 characters, and the limit 'text' is 10"):
            read_settings(path)


def test_files_that_hold_no_settings_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"cannot read the recipe .*: it is not a file"):
        read_settings(tmp_path)
    with pytest.raises(RecipeError, match=r"cannot read the recipe .*none: No such file"):
        read_settings(tmp_path / "none")
    (tmp_path / "latin").write_bytes("Gänse: 1".encode("latin-1"))
    with pytest.raises(RecipeError, match=r"latin is not valid YAML: .*utf-8"):
        read_settings(str(tmp_path / "latin"))


def test_json_lies_at_most_a_hundred_levels_deep() -> None:
    assert parse_json("[" * 100 + "]" * 100)
    with pytest.raises(ValueError, match="more than 100 levels"):
        parse_json("[" * 101 + "]" * 101)


def test_literals_are_refused_beyond_their_limits() -> None:
    def read(text: str) -> Any:
        return parse_literal(ast.parse(text, mode="eval").body)

    assert read(str(2**192 - 1)) == 2**192 - 1
    with pytest.raises(RecipeError, match="is too long"):
        read(str(2**192))
    assert read("{'a': [1, {'a': (2,)}], 'b': 1}") == {"a": [1, {"a": (2,)}], "b": 1}
    with pytest.raises(RecipeError, match="a key is given twice"):
        read("[{'a': 1, 'b': 2, 'a': 3}]")
    with limited(depth=3):
        assert read("[[(), 1]]")
        with pytest.raises(RecipeError, match="more than 3 levels deep"):
            read("[[{'a': {1}}]]")


@pytest.mark.parametrize(
    ("value", "depth"),
    [
        (1, 0),
        ("abc", 0),
        ([], 1),
        ({"a": 1}, 1),
        ([1, [2]], 2),
        ({"a": ({1},)}, 3),
        ([[], [[]]], 3),
    ],
)
def test_depth_is_that_of_the_deepest(value: Any, depth: int) -> None:
    assert deeper_than(value, depth - 1) == (depth > 0)
    assert not deeper_than(value, depth)
