"""How curves and bars look: known names alike in all figures, equal curves under one name."""

import itertools
import math
import re
from xml.etree import ElementTree

import pytest

from intarsia.figures import bar_figure, line_figure
from intarsia.figures.styles import COLOURS, KNOWN, fills, styles

SVG = "{http://www.w3.org/2000/svg}"
TOGETHER = [
    ("me", "qme", "xe", "smoothing", "confidence_penalty", "other"),
    ("sum", "mean", "ties", "fisher", "regmean", "logits"),
    ("sum", "mean", "ties", "logits = inlay", "joint training", "fine-tuning"),
    ("sum", "mean", "ties", "logits = inlay", "retraining", "gradient ascent"),
    ("with IMP", "without IMP"),
]


def lightness(colour: str) -> float:
    """CIE L* of a colour, what is left of it in grey."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return 116 * light ** (1 / 3) - 16


def key(svg: str) -> dict[str, str]:
    """The colour of every name in the key of a figure of curves."""
    marks = list(ElementTree.fromstring(svg))
    return {
        name.text or "": line.get("stroke", "")
        for line, _, name in zip(marks, marks[1:], marks[2:], strict=False)
        if "h26" in line.get("d", "")
    }


def lines(svg: str) -> list[tuple[str, str]]:
    """Colour and dashes of every curve in a panel."""
    paths = ElementTree.fromstring(svg).iter(f"{SVG}path")
    result = [p for p in paths if p.get("stroke-width") == "1.8" and "L" in p.get("d", "")]
    return [(p.get("stroke", ""), p.get("stroke-dasharray", "")) for p in result]


@pytest.mark.parametrize("names", TOGETHER)
def test_names_that_meet_differ_in_grey_and_in_shape(names: tuple[str, ...]) -> None:
    looks = styles(names)
    for one, other in itertools.combinations(looks.values(), 2):
        assert abs(lightness(one.colour) - lightness(other.colour)) > 8
        assert one.shape != other.shape
    assert fills(names) == {name: look.colour for name, look in looks.items()}


@pytest.mark.parametrize("names", TOGETHER)
def test_a_known_name_looks_the_same_in_any_company(names: tuple[str, ...]) -> None:
    for name in names:
        alone = styles([name])[name]
        assert styles(reversed(names))[name] == alone
        assert styles(["something else", name, "more"])[name] == alone
        assert fills(["something else", name])[name] == alone.colour


def test_all_known_names_of_a_kind_can_be_told_apart() -> None:
    operators = list(KNOWN)[6:17]
    assert {"sum", "probabilities"} <= set(operators)
    assert len(set(styles(operators).values())) == len(operators)


def test_others_take_what_is_left_in_their_order() -> None:
    looks = styles(["new", "mean", "sum", "newer"])
    taken = [looks["sum"].colour, looks["mean"].colour]
    left = [colour for colour in COLOURS if colour not in taken]
    assert [looks["new"].colour, looks["newer"].colour] == left[:2]
    # Two that would have the same place, and one with another amount.
    assert len(set(fills(["mean", "qme", "TIES", "ties(density=0.5)"]).values())) == 4
    assert styles(["TIES"])["TIES"] == styles(["ties(density=0.5)"])["ties(density=0.5)"]


def test_figures_of_all_kinds_agree() -> None:
    drawn = key(line_figure({"one": {"b": {0: 1.0}, "xe": {0: 2.0}, "me": {0: 3.0}}}, title="t"))
    bars = bar_figure({"one": {"1": {"me": (1.0, 0.0), "xe": (2.0, 0.0)}}}, title="t")
    fill = re.findall(r'height="11" fill="(#\w+)"', bars)
    assert fill == [drawn["me"], drawn["xe"]]


def test_curves_equal_in_all_panels_are_one() -> None:
    same, other = {0: (1.0, 0.1), 1: (2.0, 0.1)}, {0: 0.0, 1: 1.0}
    panels = {"one": {"sum": same, "ties": other, "mean": same}, "two": {"ties": same}}
    svg = line_figure(panels, title="t")
    assert list(key(svg)) == ["sum = mean", "ties"]
    assert key(svg)["sum = mean"] == styles(["sum"])["sum"].colour
    assert len(lines(svg)) == 3
    assert len(re.findall("fill-opacity", svg)) == 2  # a shade for both, and one in panel two


@pytest.mark.parametrize(
    "second",
    [
        {"sum": {0: 1.0, 1: 2.0}, "mean": {0: 1.0, 1: 3.0}},
        {"sum": {0: 1.0, 1: 2.0}},
        {"sum": {0: (1.0, 0.1), 1: 2.0}, "mean": {0: 1.0, 1: 2.0}},
        {"sum": {0: 1.0, 1: 2.0}, "mean": {0: 1.0, 1: 2.0 + 1e-6}},
    ],
)
def test_curves_that_differ_anywhere_are_two(second: dict) -> None:
    first = {"sum": {0: 1.0, 1: 2.0}, "mean": {0: 1.0, 1: 2.0}}
    svg = line_figure({"one": first, "two": second}, title="t")
    assert list(key(svg)) == ["sum", "mean"]
    # In the first panel the one lies on the other, and both can be seen.
    looks = styles(["sum", "mean"])
    assert lines(svg)[:2] == [(looks["sum"].colour, ""), (looks["mean"].colour, "6 6")]


def test_curves_without_points_are_not_the_same() -> None:
    curves = {"a": {0: math.nan}, "b": {0: math.nan}, "c": {0: 1.0, 1: 2.0}}
    assert list(key(line_figure({"one": curves}, title="t"))) == ["a", "b", "c"]


def test_the_deviation_of_a_lone_point_is_a_line() -> None:
    svg = line_figure({"one": {"a": {0: (1.0, 0.5)}, "b": {1: 2.0}}}, title="t")
    ((x, high, same, low),) = re.findall(r'd="M(\S+) (\S+)L(\S+) (\S+)" stroke', svg)
    assert x == same
    assert float(high) < float(low)
