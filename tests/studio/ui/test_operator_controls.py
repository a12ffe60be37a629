"""Every operator's signature becomes controls, and what they hold becomes the operator again."""

from collections.abc import Iterator
from typing import Literal

import pytest

from intarsia.composition import OPERATORS, operator
from intarsia.composition.merge_recipe import settings_of
from intarsia.errors import RecipeError
from intarsia.studio.ui.operator_controls import Control, about, controls_of, spec_of


@pytest.fixture
def mine() -> Iterator[str]:
    @operator("mine", on="logits", paper="none")
    def mine(logits, context, times: int = 2, how: Literal["a", "b"] = "a", loud: bool = False):  # type: ignore[no-untyped-def]
        """Mine,
        in two lines.

        And more.
        """
        return logits[0]

    yield "mine"
    del OPERATORS["mine"]


def test_kinds_follow_from_the_signature(mine: str) -> None:
    assert controls_of(mine) == [
        Control("times", "integer", 2),
        Control("how", "choice", "a", ("a", "b")),
        Control("loud", "flag", False),
    ]
    assert about(mine) == "Mine, in two lines."
    by_name = {control.name: control for control in controls_of("ties")}
    assert by_name["scale"] == Control("scale", "number", None, (), optional=True)
    assert by_name["density"] == Control("density", "text", None, (), optional=True)
    assert by_name["elect"].choices == ("mass", "frequency", "none")
    assert by_name["elect"].optional
    assert by_name["weights"] == Control("weights", "text", 1.0)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_untouched_controls_are_the_bare_operator(name: str) -> None:
    controls = controls_of(name)
    assert [control.name for control in controls] == settings_of(name)
    assert str(spec_of(name, {control.name: control.default for control in controls})) == name
    assert str(spec_of(name, dict.fromkeys(settings_of(name), ""))) == name


def test_values_are_read_as_people_give_them(mine: str) -> None:
    assert spec_of(mine, {"times": 3.0, "how": "b"}).arguments == {"times": 3, "how": "b"}
    result = spec_of("ties", {"density": "0.3", "weights": "3: 0.5, 8: 2", "elect": ""})
    assert result.arguments == {"density": 0.3, "weights": {"3": 0.5, "8": 2}}
    assert spec_of("weighted", {"weights": "0.5"}).arguments == {"weights": 0.5}
    result = spec_of("dare", {"density": "3: 0.5, 8: 0.2"})
    assert result.arguments == {"density": {"3": 0.5, "8": 0.2}}


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("mine", {"times": 2.5}, "times is 2.5: expected a whole number"),
        ("ties", {"density": "half"}, "density is 'half': expected a number"),
        ("weighted", {"weights": "half"}, "weights is 'half': expected a number"),
        ("weighted", {"weights": "3: [1"}, r"expected one number, or some by name"),
    ],
)
def test_what_cannot_be_read_is_told(
    name: str, values: dict[str, object], words: str, mine: str
) -> None:
    with pytest.raises(RecipeError, match=words):
        spec_of(name, values)
