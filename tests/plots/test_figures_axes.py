"""Axes of figures: rows of panels, round numbers, bounds, groups, names and bands."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from intarsia.errors import DataError
from intarsia.figures import line_figure
from intarsia.figures.axes import BESIDE, HEIGHT, LEFT, TOP, WIDTH, ticks
from intarsia.figures.curves import BAND, INSET
from intarsia.figures.svg import MARGIN

SVG = "{http://www.w3.org/2000/svg}"
Place = tuple[float, float]


def texts(svg: str) -> list[tuple[str, Place, str]]:
    """Every text with its place and where it is anchored."""
    return [
        (
            t.text or "",
            (float(t.get("x", "nan")), float(t.get("y", "nan"))),
            t.get("text-anchor", ""),
        )
        for t in ElementTree.fromstring(svg).iter(f"{SVG}text")
    ]


def heights(svg: str) -> list[tuple[float, float]]:
    """The numbers along every vertical axis, with where they stand."""
    return [(float(word), y - 3.5) for word, (_, y), anchor in texts(svg) if anchor == "end"]


def shades(svg: str) -> list[list[Place]]:
    result = re.findall(r'd="M([^"]*)z" fill="[^"]*" fill-opacity', svg)
    return [[tuple(map(float, c.split())) for c in edge.split("L")] for edge in result]  # type: ignore[misc]


@pytest.mark.parametrize(("count", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 2, 2)])
def test_two_panels_stand_in_a_row(count: int, columns: int, rows: int) -> None:
    panels = {f"panel {i}": {"a": {0: 0.0, 1: 1.0}} for i in range(count)}
    svg = line_figure(panels, title="t", x="modules", y="accuracy")
    root = ElementTree.fromstring(svg)
    width, height = (float(root.get(side, "nan")) for side in ("width", "height"))
    assert width == {1: 390, 2: 764}[columns]
    places = {word: place for word, place, _ in texts(svg)}
    for i in range(count):
        x, y = places[f"panel {i}"]
        assert x == MARGIN + LEFT + WIDTH / 2 + (i % 2) * 374
        assert y == 22 + (i // 2) * (places["panel 2"][1] - 22 if rows > 1 else 0)
    assert [place for word, place, _ in texts(svg) if word == "accuracy"] == [
        (MARGIN + LEFT - BESIDE, TOP + HEIGHT / 2 + row * (TOP + HEIGHT + 40))
        for row in range(rows)
    ]
    # The key lies below all panels and names of axes, and on the page.
    lowest = max(y for word, (_, y), _ in texts(svg) if word == "modules")
    assert lowest < places["a"][1] < height


def test_panels_do_not_meet() -> None:
    panels = {f"panel {i}": {"a": {0: 0.0, 1: 1.0}} for i in range(4)}
    for x in ("", "modules"):
        svg = line_figure(panels, title="t", x=x)
        frames = re.findall(rf'd="M(\S+) (\S+)v{HEIGHT}M', svg)
        (_, first), *_, (_, last) = [tuple(map(float, frame)) for frame in frames]
        titles = [y for word, (_, y), _ in texts(svg) if word == "panel 2"]
        lowest = first + HEIGHT + (32 if x else 16)
        assert lowest + 11 < titles[0] < last


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 10, [2, 4, 6, 8, 10]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.93, 0.987, [0.93, 0.94, 0.95, 0.96, 0.97, 0.98]),
        (-3e-4, 4e-4, [-2e-4, 0, 2e-4, 4e-4]),
        (-82, 38.1, [-80, -60, -40, -20, 0, 20]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_there_are_always_a_few_ticks() -> None:
    rng = np.random.default_rng(0)
    for span in 10 ** rng.uniform(-5, 5, size=2000):
        low = span * rng.uniform(-3, 3)
        result = ticks(low, low + span)
        assert 3 <= len(result) <= 7
        assert low - 1e-8 * span <= result[0] < result[-1] <= low + span * (1 + 1e-8)
        assert len({f"{value:g}" for value in result}) == len(result)


@pytest.mark.parametrize("value", [2.302585, 0.0, 1.0, -40.0])
def test_noise_is_a_flat_line_with_numbers_that_differ(value: float) -> None:
    curve = {k: value + 1e-9 * (-1) ** k for k in range(5)}
    svg = line_figure({"one": {"a": curve}}, title="t")
    numbers = [number for number, _ in heights(svg)]
    assert len(numbers) == len(set(numbers)) >= 3
    (line,) = re.findall(r'd="M([^"]*L[^"]*)" fill="none"', svg)
    ys = [float(corner.split()[1]) for corner in line.split("L")]
    assert max(ys) - min(ys) < 0.1
    assert TOP + HEIGHT / 4 < ys[0] < TOP + 3 * HEIGHT / 4


def test_shades_and_axes_end_at_the_bounds() -> None:
    curves = {"a": {0: (0.9, 0.3), 1: (0.05, 0.2)}}
    free, bound = (line_figure({"one": curves}, title="t", bounds=b) for b in (None, (0.0, 1.0)))
    assert max(y for _, y in shades(bound)[0]) == TOP + HEIGHT
    assert min(y for _, y in shades(bound)[0]) == TOP
    marks = dict(heights(bound))
    assert (marks[0], marks[1]) == (TOP + HEIGHT, TOP)
    assert dict(heights(free))[1] > TOP
    # Only ends that are passed are cut.
    assert shades(bound)[0][1][1] == pytest.approx(TOP + 0.75 * HEIGHT, abs=0.02)


def test_bounds_may_be_given_by_panel_and_open() -> None:
    curves = {"a": {0: (0.9, 0.3), 1: (0.5, 0.2)}}
    panels = {"accuracy": curves, "entropy": curves}
    bounds = {"accuracy": (0.0, 1.0), "entropy": (0.0, math.inf)}
    one, other = shades(line_figure(panels, title="t", bounds=bounds))
    assert min(y for _, y in one) == TOP
    assert min(y for _, y in other) > TOP
    with pytest.raises(DataError, match=r"bounds of panel 'accuracy' are \(1, 0\)"):
        line_figure(panels, title="t", bounds=(1, 0))


def test_a_value_beyond_the_bounds_is_still_drawn() -> None:
    svg = line_figure({"one": {"a": {0: (1.5, 0.1), 1: 0.5}}}, title="t", bounds=(0.0, 1.0))
    (line,) = re.findall(r'd="M([^"]*L[^"]*)" fill="none"', svg)
    assert float(line.split("L")[0].split()[1]) == TOP


def test_heights_are_shared_by_group() -> None:
    values = {"accuracy, a": 1.0, "entropy, a": 40.0, "accuracy, b": 3.0}
    panels = {panel: {"c": {0: 0.0, 1: value}} for panel, value in values.items()}
    svg = line_figure(panels, title="t", share_y=lambda panel: panel.partition(",")[0])
    ends = [line.split("L")[1] for line in re.findall(r'd="M([^"]*L[^"]*)" fill="none"', svg)]
    first, _, third = [float(end.split()[1]) for end in ends]
    pitch = TOP + HEIGHT + 24
    assert first > third - pitch  # 1 lies below 3 on axes that are alike
    numbers: dict[float, list[float]] = {}
    for word, (x, y), anchor in texts(svg):
        if anchor == "end":
            numbers.setdefault(x + 1000 * (y > pitch), []).append(float(word))
    left, right, below = numbers[MARGIN + LEFT - 6], numbers[430], numbers[1000 + MARGIN + LEFT - 6]
    assert left == below != right


def test_every_panel_may_have_its_own_label() -> None:
    panels = {name: {"c": {0: 0.0, 1: 1.0}} for name in ("one", "two", "three")}
    svg = line_figure(panels, title="t", y={"one": "accuracy", "two": "nats"})
    places = {word: place for word, place, _ in texts(svg)}
    assert places["accuracy"][0] == MARGIN + LEFT - BESIDE
    assert places["nats"][0] == MARGIN + LEFT - BESIDE + 374
    assert places["accuracy"][1] == places["nats"][1]


def test_names_of_vertical_axes_are_turned_and_stay_clear_of_numbers_and_page() -> None:
    panels = {name: {"c": {0: -0.04, 1: 0.0}} for name in ("one", "two")}
    svg = line_figure(panels, title="t", y={"one": "change of accuracy", "two": "nats"})
    root = ElementTree.fromstring(svg)
    turned = [t for t in root.iter(f"{SVG}text") if t.get("transform")]
    assert [t.get("transform") for t in turned] == [
        f"rotate(-90 {t.get('x')} {t.get('y')})" for t in turned
    ]
    first, second = (float(t.get("x", "nan")) for t in turned)
    assert first - 12 >= 0  # the height of its letters
    longest = max(len(word) for word, _, anchor in texts(svg) if anchor == "end")
    assert longest == 5  # -0.04
    assert first + 3 < MARGIN + LEFT - 6 - 7 * longest
    assert second - 12 > MARGIN + LEFT + WIDTH


def test_marks_lie_inside_their_frame() -> None:
    svg = line_figure({"one": {"a": {0: 0.1, 5: 0.9}}}, title="t", bounds=(0.0, 1.0))
    (line,) = re.findall(r'd="M([^"]*L[^"]*)" fill="none"', svg)
    first, last = (float(corner.split()[0]) for corner in line.split("L"))
    assert (first, last) == (MARGIN + LEFT + INSET, MARGIN + LEFT + WIDTH - INSET)


def test_a_round_number_just_outside_the_points_is_written() -> None:
    svg = line_figure({"one": {"a": {1e-5: 0.2, 0.6: 0.3, 2.29: 0.9}}}, title="t")
    along = [(word, x) for word, (x, y), _ in texts(svg) if y == TOP + HEIGHT + 16]
    assert [word for word, _ in along] == ["0", "0.5", "1", "1.5", "2"]
    assert MARGIN + LEFT < along[0][1] < along[-1][1] < MARGIN + LEFT + WIDTH


def test_places_may_have_names() -> None:
    curve = {math.log2(width): width / 4096 for width in (32, 128, 512, 2048)}
    names = {math.log2(width): str(width) for width in (32, 128, 512, 2048, 8192)}
    svg = line_figure({"one": {"a": curve}}, title="t", x_names=names)
    along = [(word, x) for word, (x, y), _ in texts(svg) if y == TOP + HEIGHT + 16]
    left, step = MARGIN + LEFT + INSET, (WIDTH - 2 * INSET) / 3
    assert [word for word, _ in along] == ["32", "128", "512", "2048"]
    assert [x for _, x in along] == pytest.approx([left + k * step for k in range(4)], abs=0.01)
    many = {float(k): f"a long name {k}" for k in range(10)}
    svg = line_figure({"one": {"a": dict.fromkeys(many, 0.5)}}, title="t", x_names=many)
    along = [(word, x) for word, (x, y), _ in texts(svg) if y == TOP + HEIGHT + 16]
    assert len(along) == 10
    assert max(7 * len(word) for word, _ in along) <= 300 / 9  # nothing runs into its neighbour


def test_a_band_is_an_area_in_every_panel_with_its_name_in_the_key() -> None:
    panels = {name: {"a": {0: -8.0, 1: 0.0}} for name in ("one", "two")}
    svg = line_figure(panels, title="t", bands={"up to 2%": (0.0, 2.0)})
    rects = [r for r in ElementTree.fromstring(svg).iter(f"{SVG}rect") if r.get("fill") == BAND]
    one, two, key = [[float(r.get(k, "nan")) for k in ("x", "y", "width", "height")] for r in rects]
    assert one[1:] == two[1:]
    assert (one[0], one[2]) == (MARGIN + LEFT, WIDTH)
    marks = dict(heights(svg))
    assert one[1] == pytest.approx(marks[2], abs=0.02)
    assert one[1] + one[3] == pytest.approx(marks[0], abs=0.02)
    (name,) = [place for word, place, _ in texts(svg) if word == "up to 2%"]
    assert key[1] < name[1] < key[1] + 11
    assert svg.count('stroke-width="1.8"') == 3  # two curves and the key: none for the band
    open_above = line_figure(panels, title="t", bands={"above": (-2.0, math.inf)})
    rects = list(ElementTree.fromstring(open_above).iter(f"{SVG}rect"))
    (top,) = {r.get("y") for r in rects if r.get("fill") == BAND and r.get("width") == "300"}
    assert top == f"{TOP}"  # as far as the panel goes
