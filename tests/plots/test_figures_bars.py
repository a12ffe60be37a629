"""Bars: as high as their numbers, up or down from zero, one colour a name."""

import itertools
import math
from xml.etree import ElementTree

import pytest

from intarsia.errors import DataError
from intarsia.figures import bar_figure
from intarsia.figures.axes import HEIGHT, TOP
from intarsia.figures.styles import COLOURS
from intarsia.figures.svg import INK, PAPER

SVG = "{http://www.w3.org/2000/svg}"
KEY = "11"  # the side of a box in the key


def bars(text: str) -> list[tuple[float, float, float, float, str]]:
    """Left, top, width, height and colour of every bar."""
    result = []
    for mark in ElementTree.fromstring(text).iter(f"{SVG}rect"):
        if mark.get("width") not in ("100%", KEY):
            place = [float(mark.get(k, "nan")) for k in ("x", "y", "width", "height")]
            result.append((*place, mark.get("fill", "")))
    return result  # type: ignore[return-value]


def lines(text: str) -> list[tuple[float, float]]:
    """Upper and lower end of every deviation."""
    marks = ElementTree.fromstring(text).iter(f"{SVG}path")
    ends = [m.get("d", "").split()[1] for m in marks if m.get("stroke-width") == "1.2"]
    return [tuple(map(float, end.split("V"))) for end in ends]  # type: ignore[misc]


def words(text: str) -> list[str]:
    return [t.text or "" for t in ElementTree.fromstring(text).iter(f"{SVG}text")]


def test_heights_are_in_proportion_and_below_zero_goes_down() -> None:
    groups = {"1": {"a": (1.0, 0.0), "b": (2.0, 0.0)}, "2": {"a": (-1.0, 0.0), "b": (0.0, 0.0)}}
    up, twice, down, none = bars(bar_figure({"one": groups}, title="t"))
    assert twice[3] == pytest.approx(2 * up[3], abs=0.05)
    assert down[3] == pytest.approx(up[3], abs=0.05)
    assert down[1] == pytest.approx(up[1] + up[3], abs=0.05)  # begins where the others end: at zero
    assert none[3] == 0


def test_without_negative_bars_zero_is_the_bottom() -> None:
    (bar,) = bars(bar_figure({"one": {"1": {"a": (0.9, 0.05)}}}, title="t"))
    assert bar[1] + bar[3] == pytest.approx(TOP + HEIGHT, abs=0.05)
    (bar,) = bars(bar_figure({"one": {"1": {"a": (-0.9, 0.05)}}}, title="t"))
    assert bar[1] == TOP


def test_deviations_reach_to_either_side() -> None:
    groups = {"1": {"a": (1.0, 0.5), "b": (2.0, math.nan), "c": (2.0, 0.0)}}
    text = bar_figure({"one": groups}, title="t")
    (high, low), bar = lines(text)[0], bars(text)[0]
    assert len(lines(text)) == 1
    assert (high + low) / 2 == pytest.approx(bar[1], abs=0.05)
    assert low - high == pytest.approx(bar[3], abs=0.05)


def test_bars_stand_side_by_side() -> None:
    groups = {g: dict.fromkeys("abc", (1.0, 0.1)) for g in ("1", "2", "5")}
    result = bars(bar_figure({"one": groups, "two": groups}, title="t"))
    assert len(result) == 18
    for one, other in itertools.pairwise(result):
        assert one[0] + one[2] <= other[0] + 0.02
    assert [b[4] for b in result] == list(COLOURS[:3]) * 6


def test_a_missing_bar_leaves_its_place() -> None:
    merged = {"1": {"a": (1.0, 0.0), "b": (1.0, 0.0), "c": (2.0, 0.0)}}
    holey = {"1": {"a": (1.0, 0.0), "b": (math.nan, 0.0), "c": (2.0, 0.0)}}
    first, _, last = bars(bar_figure({"one": merged}, title="t"))
    assert bars(bar_figure({"one": holey}, title="t")) == [first, last]


def test_names_stand_once_in_the_key_and_groups_below_their_bars() -> None:
    panels = {"one": {"g": {"a": (1.0, 0.0)}}, "two": {"g": {"a": (1.0, 0.0), "<b>": (1, 0.1)}}}
    text = bar_figure(panels, title="A <title>", x="classes", y="change")
    assert words(text).count("a") == words(text).count("<b>") == 1
    assert words(text).count("g") == words(text).count("classes") == 2
    assert words(text).count("change") == 1
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == root.findtext(f"{SVG}title") == "A <title>"
    assert text == bar_figure(panels, title="A <title>", x="classes", y="change")


def test_panels_may_share_their_heights() -> None:
    panels = {"low": {"g": {"a": (1.0, 0.0)}}, "high": {"g": {"a": (4.0, 0.0)}}}
    apart = bars(bar_figure(panels, title="t"))
    shared = bars(bar_figure(panels, title="t", share_y=True))
    assert apart[0][3] == apart[1][3]
    assert shared[1][3] == pytest.approx(4 * shared[0][3], abs=0.1)


def test_deviations_and_axes_end_at_the_bounds() -> None:
    groups = {"1": {"a": (0.9, 0.3), "b": (0.1, 0.2)}}
    free, bound = (bar_figure({"one": groups}, title="t", bounds=b) for b in (None, (0.0, 1.0)))
    assert lines(bound) == [
        (TOP, pytest.approx(TOP + 0.4 * HEIGHT, abs=0.02)),
        (pytest.approx(TOP + 0.7 * HEIGHT, abs=0.02), TOP + HEIGHT),
    ]
    assert bars(bound)[0][3] == pytest.approx(0.9 * HEIGHT, abs=0.02)
    assert bars(free)[0][3] < 0.9 * HEIGHT
    assert {"1", "0.2"} <= set(words(bound))
    by_panel = bar_figure({"one": groups}, title="t", bounds={"one": (0.0, 1.0)})
    assert by_panel == bound
    assert bar_figure({"one": groups}, title="t", bounds={"two": (0.0, 1.0)}) == free


def test_panels_wrap_and_share_heights_by_group() -> None:
    values = {"accuracy, a": 1.0, "entropy, a": 4.0, "accuracy, b": 2.0}
    panels = {panel: {"g": {"n": (value, 0.0)}} for panel, value in values.items()}
    text = bar_figure(panels, title="t", share_y=lambda panel: panel.partition(",")[0])
    one, two, three = bars(text)
    assert one[0] == three[0] < two[0]
    assert three[1] + three[3] > two[1] + two[3] == one[1] + one[3]
    assert three[3] == two[3] == pytest.approx(2 * one[3], abs=0.05)


def test_a_deviation_shows_on_bars_of_any_colour() -> None:
    text = bar_figure({"one": {"1": {"a": (1.0, 0.5)}}}, title="t")
    marks = [m for m in ElementTree.fromstring(text).iter(f"{SVG}path") if m.get("stroke-width")]
    assert [m.get("stroke") for m in marks] == [INK, PAPER]  # light on dark, and wider below
    assert float(marks[0].get("stroke-width", "0")) > float(marks[1].get("stroke-width", "0"))


def test_noise_is_not_stretched() -> None:
    text = bar_figure({"one": {"1": {"a": (1e-17, 0.0), "b": (-1e-17, 0.0)}}}, title="t")
    assert all(bar[3] < 0.01 for bar in bars(text))


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(DataError, match="'t' has no panel"):
        bar_figure({}, title="t")
    with pytest.raises(DataError, match="panel 'one' has no finite bar"):
        bar_figure({"one": {"g": {"a": (math.nan, 0.0)}}}, title="t")
    with pytest.raises(DataError, match="bars of 9 names: expected at most 8"):
        bar_figure({"one": {"g": {str(n): (1.0, 0.0) for n in range(9)}}}, title="t")
