"""Curves: as high as their numbers, with their spread, in panels that share what they should."""

import itertools
import math

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from intarsia.errors import DataError
from intarsia.plots import COLOURS, curve_panels, curves
from intarsia.plots.style import BAND, DASHES, looks


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def heights(ax: Axes) -> list[str]:
    """The numbers along a vertical axis that are seen."""
    low, high = ax.get_ylim()
    return [
        label.get_text()
        for place, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)
        if low <= place <= high
    ]


def shades(ax: Axes) -> list[tuple[np.ndarray, np.ndarray]]:
    """Low and high of every shade, from left to right."""
    result = []
    for shade in ax.collections:
        if isinstance(shade, FillBetweenPolyCollection):
            corners = shade.get_paths()[0].vertices
            xs = np.unique(corners[:, 0])
            rows = [corners[corners[:, 0] == x, 1] for x in xs]
            result.append((np.array([r.min() for r in rows]), np.array([r.max() for r in rows])))
    return result


def test_lines_hold_the_numbers_from_left_to_right() -> None:
    ax = curves({"up": {0: 1.0, 1: 2.0, 2: 4.0}, "down": {2: 0.0, 0: 4.0}}, title="one")
    up, down = ax.lines
    assert up.get_xydata().tolist() == [[0, 1], [1, 2], [2, 4]]
    assert down.get_xydata().tolist() == [[0, 4], [2, 0]]
    assert ax.get_title() == "one"
    assert ax.get_ylim() == pytest.approx((-0.2, 4.2))


def test_axes_that_are_given_are_drawn_on_and_keep_their_style() -> None:
    figure = Figure(figsize=(3, 2), facecolor="red")
    first, second = figure.subplots(1, 2)
    drawn = curves({"sum": {0: 1.0, 1: 2.0}}, second, x="modules", y="accuracy")
    assert drawn is second
    assert not first.lines
    assert second.spines["top"].get_visible()  # not the house's
    assert (second.get_xlabel(), second.get_ylabel()) == ("modules", "accuracy")
    own = second.get_legend()
    assert own is not None
    assert [text.get_text() for text in own.get_texts()] == ["sum"]


def test_shades_reach_one_deviation_or_from_low_to_high() -> None:
    own = {"a": {0: (1.0, 0.5), 1: (1.0, 0.5)}, "b": {0: (1.5, 0.5, 1.75), 1: (1.5, 0.5, 1.75)}}
    figure = curve_panels({"one": own, "two": {"a": {0: 1.0, 1: 2.0}}}, title="t")
    (low, high), (low_b, high_b) = shades(figure.axes[0])
    assert (low.tolist(), high.tolist()) == ([0.5, 0.5], [1.5, 1.5])
    assert (low_b.tolist(), high_b.tolist()) == ([0.5, 0.5], [1.75, 1.75])
    assert not shades(figure.axes[1])


def test_a_name_has_one_colour_in_all_panels_and_one_entry_in_the_legend() -> None:
    panels = {"one": {"a": {0: 1.0, 1: 2.0}, "b": {0: 2.0, 1: 1.0}}, "two": {"b": {0: 0.0, 1: 1.0}}}
    figure = curve_panels(panels, title="A <title>", x="modules", y="accuracy")
    one, two = figure.axes
    assert [line.get_color() for line in one.lines] == list(COLOURS[:2])
    assert [line.get_color() for line in two.lines] == [COLOURS[1]]
    assert legend(figure) == ["a", "b"]
    assert [ax.get_title() for ax in figure.axes] == ["one", "two"]
    assert [ax.get_xlabel() for ax in figure.axes] == ["modules", "modules"]
    assert [ax.get_ylabel() for ax in figure.axes] == ["accuracy", ""]  # once in a row
    assert figure.get_label() == "A <title>"


def test_more_names_than_colours_are_dashed() -> None:
    ax = curves({f"c{i}": {0: float(i), 1: float(i)} for i in range(12)})
    assert [line.get_color() for line in ax.lines] == [*COLOURS, *COLOURS[:2]]
    assert [line.is_dashed() for line in ax.lines] == [False] * 10 + [True] * 2


def test_panels_may_share_their_heights_all_or_by_group() -> None:
    values = {"accuracy, a": 1.0, "entropy, a": 40.0, "accuracy, b": 3.0}
    panels = {panel: {"c": {0: 0.0, 1: value}} for panel, value in values.items()}
    apart = [ax.get_ylim() for ax in curve_panels(panels, title="t").axes]
    assert len(set(apart)) == 3
    together = [ax.get_ylim() for ax in curve_panels(panels, title="t", share_y=True).axes]
    assert len(set(together)) == 1
    figure = curve_panels(panels, title="t", share_y=lambda panel: panel.partition(",")[0])
    first, second, third = (ax.get_ylim() for ax in figure.axes)
    assert first == third != second


@pytest.mark.parametrize(("count", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 2, 2)])
def test_two_panels_lie_in_a_row_and_do_not_meet(count: int, columns: int, rows: int) -> None:
    panels = {f"panel {i}": {"a": {0: 0.0, 1: 1.0}} for i in range(count)}
    figure = curve_panels(panels, title="t", x="modules", y="accuracy")
    places = [ax.get_position() for ax in figure.axes]
    assert len({round(place.x0, 6) for place in places}) == columns
    assert len({round(place.y0, 6) for place in places}) == rows
    boxes = [ax.get_tightbbox() for ax in figure.axes]
    boxes.append(figure.legends[0].get_window_extent())
    width, height = figure.get_size_inches() * 72
    for place, box in enumerate(boxes):
        assert box is not None
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height
        assert not any(box.overlaps(other) for other in boxes[:place])


@pytest.mark.parametrize("count", [1, 3, 6, 11])
def test_a_legend_fits_its_figure(count: int) -> None:
    names = [f"a way called {'long ' * (i % 3)}{i}" for i in range(count)]
    figure = curve_panels({"": {name: {0: float(i)} for i, name in enumerate(names)}}, title="t")
    box = figure.legends[0].get_window_extent()
    width, _ = figure.get_size_inches() * 72
    assert box.x1 <= width
    assert box.y0 >= 0
    assert legend(figure) == names


def test_every_panel_may_have_its_own_label() -> None:
    panels = {name: {"c": {0: 0.0, 1: 1.0}} for name in ("one", "two", "three")}
    figure = curve_panels(panels, title="t", y={"one": "accuracy", "two": "nats"})
    assert [ax.get_ylabel() for ax in figure.axes] == ["accuracy", "nats", ""]


@pytest.mark.parametrize("value", [2.302585, 0.0, 1.0, -40.0])
def test_noise_is_a_flat_line_with_numbers_that_differ(value: float) -> None:
    ax = curves({"a": {k: value + 1e-9 * (-1) ** k for k in range(5)}})
    low, high = ax.get_ylim()
    assert high - low >= 1e-5
    assert low + (high - low) / 4 < value < high - (high - low) / 4
    assert len(set(heights(ax))) == len(heights(ax)) >= 3


def test_there_are_always_a_few_round_numbers() -> None:
    rng = np.random.default_rng(0)
    ax = curves({"a": {0: 0.0, 1: 1.0}})
    for span in 10 ** rng.uniform(-5, 5, size=300):
        low = span * rng.uniform(-3, 3)
        ax.set_ylim(low, low + span)
        seen = [place for place in ax.get_yticks() if low <= place <= low + span]
        assert 3 <= len(seen) <= 8


def test_shades_and_axes_end_at_the_bounds() -> None:
    own = {"a": {0: (0.9, 0.3), 1: (0.05, 0.2)}}
    free, bound = (curves(own, bounds=b) for b in (None, (0.0, 1.0)))
    assert bound.get_ylim() == (0.0, 1.0)
    assert free.get_ylim()[1] > 1.2
    ((low, high),) = shades(bound)
    assert low == pytest.approx([0.6, 0.0])
    assert high == pytest.approx([1.0, 0.25])  # only ends that are passed are cut


def test_bounds_may_be_given_by_panel_and_open() -> None:
    own = {"a": {0: (0.9, 0.3), 1: (0.5, 0.2)}}
    panels = {"accuracy": own, "entropy": own}
    bounds = {"accuracy": (0.0, 1.0), "entropy": (0.0, math.inf)}
    one, other = curve_panels(panels, title="t", bounds=bounds).axes
    assert one.get_ylim()[1] == 1.0
    assert other.get_ylim()[1] > 1.2
    with pytest.raises(DataError, match=r"bounds of panel 'accuracy' are \(1, 0\)"):
        curve_panels(panels, title="t", bounds=(1, 0))


def test_a_value_beyond_the_bounds_is_still_drawn() -> None:
    ax = curves({"a": {0: (1.5, 0.1), 1: 0.5}}, bounds=(0.0, 1.0))
    assert ax.get_ylim()[1] == 1.5


def test_places_are_written_where_the_points_are_if_few_and_whole() -> None:
    few = curves({"a": {k: 20.0 + k for k in range(1, 11)}})
    assert [label.get_text() for label in few.get_xticklabels()] == [str(k) for k in range(1, 11)]
    many = curves({"a": {k: 200.0 + k for k in range(1, 41)}})
    low, high = many.get_xlim()
    assert [x for x in many.get_xticks() if low <= x <= high] == [0, 10, 20, 30, 40]


def test_points_lie_inside_their_frame() -> None:
    ax = curves({"a": {0: 0.1, 5: 0.9}}, bounds=(0.0, 1.0))
    low, high = ax.get_xlim()
    assert low < 0 < 5 < high
    ((x, y),) = curves({"a": {5: 2.0}}).lines[0].get_xydata().tolist()  # a mark alone
    assert (x, y) == (5, 2)


def test_places_may_have_names() -> None:
    widths = (32, 128, 512, 2048)
    names = {math.log2(width): str(width) for width in (*widths, 8192)}
    ax = curves({"a": {math.log2(width): width / 4096 for width in widths}}, x_names=names)
    assert [label.get_text() for label in ax.get_xticklabels()] == list(map(str, widths))
    assert ax.get_xticks().tolist() == [math.log2(width) for width in widths]
    many = {float(k): f"a long name {k}" for k in range(10)}
    ax = curves({"a": dict.fromkeys(many, 0.5)}, x_names=many)
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert len(boxes) == 10
    assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes))


def test_a_band_is_an_area_in_every_panel_with_its_name_in_the_legend() -> None:
    panels = {name: {"a": {0: -8.0, 1: 0.0}} for name in ("one", "two")}
    figure = curve_panels(panels, title="t", bands={"up to 2%": (0.0, 2.0)})
    for ax in figure.axes:
        (band,) = (patch for patch in ax.patches if to_hex(patch.get_facecolor()) == BAND)
        box = band.get_extents().transformed(ax.transData.inverted())
        assert (box.y0, box.y1) == pytest.approx((0.0, 2.0), abs=1e-9)
        assert len(ax.lines) == 1
    assert legend(figure) == ["a", "up to 2%"]
    (ax,) = curve_panels({"": panels["one"]}, title="t", bands={"above": (-2.0, math.inf)}).axes
    box = ax.patches[0].get_extents().transformed(ax.transData.inverted())
    assert box.y1 == pytest.approx(ax.get_ylim()[1])  # as far as the panel goes


def test_points_that_are_not_numbers_are_left_out() -> None:
    curve = {0: 1.0, 1: math.nan, 2: (3.0, math.nan), 3: (math.nan, 0.0)}
    ax = curves({"a": curve})
    assert ax.lines[0].get_xydata().tolist() == [[0, 1], [2, 3]]
    with pytest.raises(DataError, match="panel 'one' has no finite point"):
        curves({"a": {0: math.nan}}, title="one")
    with pytest.raises(DataError, match="has no panel"):
        curve_panels({}, title="t")
    with pytest.raises(DataError, match="is not a number"):
        curves({"a": {0: (1.0, 2.0, 3.0, 4.0)}})  # type: ignore[dict-item]


def test_curves_equal_in_all_panels_are_one() -> None:
    same, other = {0: (1.0, 0.1), 1: (2.0, 0.1)}, {0: 0.0, 1: 1.0}
    panels = {"one": {"sum": same, "ties": other, "mean": same}, "two": {"ties": same}}
    figure = curve_panels(panels, title="t")
    assert legend(figure) == ["sum = mean", "ties"]
    one, two = figure.axes
    assert [line.get_label() for line in one.lines] == ["sum = mean", "ties"]
    assert one.lines[0].get_color() == looks(["sum"])["sum"].colour
    assert len(shades(one)) == len(shades(two)) == 1


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
    figure = curve_panels({"one": first, "two": second}, title="t")
    assert legend(figure) == ["sum", "mean"]
    # In the first panel the one lies on the other, and both can be seen: in gaps, and by marks.
    below, above = figure.axes[0].lines
    assert (below.is_dashed(), above.is_dashed()) == (False, True)
    assert above.get_markevery() == (1, 2)
    assert below.get_markevery() is None


def test_curves_without_points_are_not_the_same() -> None:
    own = {"a": {0: math.nan}, "b": {0: math.nan}, "c": {0: 1.0, 1: 2.0}}
    assert legend(curve_panels({"one": own}, title="t")) == ["a", "b", "c"]


def test_the_deviation_of_a_lone_point_is_a_line() -> None:
    ax = curves({"a": {0: (1.0, 0.5)}, "b": {1: 2.0}})
    (line,) = ax.collections
    assert line.get_paths()[0].vertices.tolist() == [[0, 0.5], [0, 1.5]]


def test_dashes_differ() -> None:
    assert len(set(DASHES)) == len(DASHES) == 3
