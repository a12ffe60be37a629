"""Names with arguments, as users write them."""

import contextlib
import copy
import inspect
from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intarsia.errors import RecipeError
from intarsia.specs import Registry, Spec, check_setting, seed_numbers

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@pytest.fixture
def things() -> Registry:
    registry = Registry("thing", given=("size",))

    @registry.register("plain")
    def plain(size):
        return size

    @registry.register("pair")
    def pair(size, left, right=2):
        return size, left, right

    @registry.register("many")
    def many(size, widths: Sequence[int] = (1,), depth=0):
        return size, list(widths), depth

    return registry


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", Spec("plain")),
        ("plain()", Spec("plain")),
        (" pair(3) ", Spec("pair", {"left": 3})),
        ("pair(3, right='x')", Spec("pair", {"left": 3, "right": "x"})),
        ("pair(-1.5, 4)", Spec("pair", {"left": -1.5, "right": 4})),
        ("many(5, 6)", Spec("many", {"widths": [5, 6]})),
        ("many(5, 6, depth=2)", Spec("many", {"widths": [5, 6], "depth": 2})),
        ("many([5, 6])", Spec("many", {"widths": [5, 6]})),
        ({"name": "pair", "left": {"a": 1}}, Spec("pair", {"left": {"a": 1}})),
        (Spec("pair", {"left": 1}), Spec("pair", {"left": 1})),
    ],
)
def test_reads_what_users_write(things, text, expected):
    assert things.spec(text) == expected


def test_settings_have_defaults_and_entries_have_traits():
    registry = Registry("tool", given=("hand",), sharp=False, fits=lambda settings: True)

    @registry.register("saw", sharp=True, fits=lambda settings: settings["teeth"] > 9)
    def saw(hand, teeth=12, blade="steel"):
        """Cuts."""

    registry.register("mallet")(lambda hand: None)
    assert registry.settings("saw(5)") == {"teeth": 5, "blade": "steel"}
    assert registry.settings({"name": "saw", "blade": "bronze"})["teeth"] == 12
    assert registry.entry("saw(5)").sharp
    assert not registry.entry("saw(5)").fits(registry.settings("saw(5)"))
    assert not registry.entry("mallet").sharp
    assert registry.entry("mallet").fits({})
    assert registry["saw"].__doc__ == "Cuts."
    with pytest.raises(RecipeError, match=r"has no trait 'sharpp': .*sharp"):
        registry.register("file", sharpp=True)
    with pytest.raises(AttributeError, match="no trait 'blunt'"):
        _ = registry["saw"].blunt


def test_call_fills_in_what_is_given(things):
    assert things.call(things.spec("pair(3)"), size=9) == (9, 3, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pear(1)", "unknown thing 'pear': did you mean 'pair'"),
        ("", "cannot read the thing ''"),
        ("zzz", "known: many, pair, plain"),
        ({"left": 1}, "unknown thing ''"),
        ("pair(1, rihgt=2)", "no setting 'rihgt': did you mean 'right'"),
        ("pair(1, size=2)", "no setting 'size'"),
        ("pair(1, left=2)", "given 'left' twice"),
        ("pair(left=1, left=2)", "'left' is given twice"),
        ("pair(1, 2, 3)", "at most 2 arguments .left, right., got 3"),
        ("plain(1)", "at most 0 arguments .none., got 1"),
        ("plain(1, 2)", "at most 0 arguments .none., got 2"),
        ("pair", "needs left"),
        ("pair(left=high)", "'high' is a text, which has to be in quotes"),
        ("pair(open('x'))", "cannot read the thing"),
        ("pair({[1]: 2})", "cannot read the thing"),
        ("pair(1", "cannot read the thing"),
        ("a.b(1)", "cannot read the thing"),
        ("(" * 500, "cannot read the thing"),
    ],
)
def test_says_what_is_wrong(things, text, message):
    with pytest.raises(RecipeError, match=message):
        things.spec(text)


@given(st.text(max_size=40))
def test_any_text_is_a_spec_or_our_error(text):
    registry = Registry("thing")
    registry.register("a")(lambda b=1: b)
    with contextlib.suppress(RecipeError):
        assert registry.spec(text).name == "a"


@example(name="a", left=float("inf"), right=-float("inf"))
@given(name=NAMES, left=VALUES, right=VALUES)
def test_a_spec_reads_back_from_its_text(name, left, right):
    registry = Registry("thing")
    name = f"x_{name}"  # no keyword of Python
    registry.register(name)(lambda left, right: None)
    spec = Spec(name, {"left": left, "right": right})
    assert registry.spec(str(spec)) == spec


def test_an_entry_can_be_copied_after_it_was_asked_for_its_parameters() -> None:
    """A network that holds one is copied for exports."""
    registry = Registry("sauce")

    @registry.register("mint")
    def mint(leaves: int = 3) -> int:
        return leaves

    assert list(registry.parameters("mint")) == ["leaves"]
    assert copy.deepcopy(registry["mint"])() == 3


def test_seeds_are_how_many_or_which() -> None:
    assert seed_numbers(3) == (0, 1, 2)
    assert seed_numbers([5, 2]) == (5, 2)
    assert seed_numbers(range(2)) == (0, 1)
    for odd in (0, -1, True, (), "3", (0.0,), (-1,), (2**63,), None):
        with pytest.raises(RecipeError, match="expected how many, or whole numbers from 0"):
            seed_numbers(odd)
    with pytest.raises(RecipeError, match="of them at the most"):
        seed_numbers(10**15)
    with pytest.raises(RecipeError, match="a seed is there twice"):
        seed_numbers((1, 1))


def test_a_setting_that_may_be_none_is_left_open_by_it() -> None:
    def own(
        rate: float | None = 0.5, count: int | None = 3, by: Literal["a", "b"] | None = "a"
    ) -> None: ...

    parameters = inspect.signature(own).parameters
    for parameter in parameters.values():
        check_setting("own", parameter, None)
    for key, wrong in (("rate", "x"), ("count", 2.5), ("by", "c")):
        with pytest.raises(RecipeError, match=key):
            check_setting("own", parameters[key], wrong)
    with pytest.raises(RecipeError, match="expected a number"):
        check_setting("own", parameters["rate"].replace(annotation=float), None)
