"""Bars: as high as their numbers, up or down from zero, one colour per name."""

import itertools
import math

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from intarsia.errors import DataError
from intarsia.plots import COLOURS, bar_panels, bars
from intarsia.plots.style import INK, PAPER


def drawn(ax: Axes) -> list[Rectangle]:
    """All bars, name by name."""
    return [bar for bar in ax.patches if isinstance(bar, Rectangle)]


def deviations(ax: Axes) -> list[tuple[float, float]]:
    """Lower and upper end of every deviation."""
    lines = [c for c in ax.collections if isinstance(c, LineCollection)]
    own = [line for line in lines if len(line.get_colors()) and to_hex(line.get_colors()[0]) == INK]
    return [(path.vertices[0, 1], path.vertices[1, 1]) for c in own for path in c.get_paths()]


def test_heights_are_the_numbers_and_below_zero_goes_down() -> None:
    ax = bars({"1": {"a": (1.0, 0.0), "b": (2.0, 0.0)}, "2": {"a": (-1.0, 0.0), "b": (0.0, 0.0)}})
    assert [bar.get_height() for bar in drawn(ax)] == [1.0, -1.0, 2.0, 0.0]
    assert {bar.get_y() for bar in drawn(ax)} == {0.0}


def test_without_negative_bars_zero_is_the_bottom() -> None:
    assert bars({"1": {"a": (0.9, 0.05)}}).get_ylim()[0] == 0
    assert bars({"1": {"a": (-0.9, 0.05)}}).get_ylim()[1] == 0


def test_deviations_reach_to_either_side() -> None:
    ax = bars({"1": {"a": (1.0, 0.5), "b": (2.0, math.nan), "c": (2.0, 0.0)}})
    assert deviations(ax) == [(0.5, 1.5)]


def test_a_deviation_shows_on_bars_of_any_colour() -> None:
    ax = bars({"1": {"a": (1.0, 0.5)}})
    ink, paper = ax.collections
    assert [to_hex(line.get_edgecolor()[0]) for line in (ink, paper)] == [INK, PAPER]
    assert ink.get_linewidth()[0] > paper.get_linewidth()[0]  # light on dark, and wider below


def test_bars_lie_side_by_side() -> None:
    groups = {g: dict.fromkeys("abc", (1.0, 0.1)) for g in ("1", "2", "5")}
    for ax in bar_panels({"one": groups, "two": groups}, title="t").axes:
        own = sorted(drawn(ax), key=lambda bar: bar.get_x())
        assert len(own) == 9
        for one, other in itertools.pairwise(own):
            assert one.get_x() + one.get_width() <= other.get_x() + 1e-9
        assert [to_hex(bar.get_facecolor()) for bar in own] == list(COLOURS[:3]) * 3


def test_a_missing_bar_leaves_its_place() -> None:
    full = {"1": {"a": (1.0, 0.0), "b": (1.0, 0.0), "c": (2.0, 0.0)}}
    holey = {"1": {"a": (1.0, 0.0), "b": (math.nan, 0.0), "c": (2.0, 0.0)}}
    first, _, last = (bar.get_x() for bar in drawn(bars(full)))
    assert [bar.get_x() for bar in drawn(bars(holey))] == [first, last]


def test_names_are_once_in_the_legend_and_groups_below_their_bars() -> None:
    panels = {"one": {"g": {"a": (1.0, 0.0)}}, "two": {"g": {"a": (1.0, 0.0), "<b>": (1, 0.1)}}}
    figure = bar_panels(panels, title="A <title>", x="classes", y="change")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "<b>"]
    for ax in figure.axes:
        assert [label.get_text() for label in ax.get_xticklabels()] == ["g"]
        assert ax.get_xlabel() == "classes"
    assert [ax.get_ylabel() for ax in figure.axes] == ["change", ""]
    assert figure.get_label() == "A <title>"


def test_axes_that_are_given_are_drawn_on() -> None:
    given = Figure().subplots()
    assert bars({"g": {"me": (1.0, 0.1)}}, given, title="t") is given
    assert given.get_legend() is not None
    assert [bar.get_height() for bar in drawn(given)] == [1.0]


def test_panels_may_share_their_heights_all_or_by_group() -> None:
    values = {"accuracy, a": 1.0, "entropy, a": 4.0, "accuracy, b": 2.0}
    panels = {panel: {"g": {"n": (value, 0.0)}} for panel, value in values.items()}
    assert len({ax.get_ylim() for ax in bar_panels(panels, title="t").axes}) == 3
    assert len({ax.get_ylim() for ax in bar_panels(panels, title="t", share_y=True).axes}) == 1
    figure = bar_panels(panels, title="t", share_y=lambda panel: panel.partition(",")[0])
    one, two, three = (ax.get_ylim() for ax in figure.axes)
    assert one == three != two


def test_deviations_and_axes_end_at_the_bounds() -> None:
    groups = {"1": {"a": (0.9, 0.3), "b": (0.1, 0.2)}}
    free, bound = (bars(groups, bounds=b) for b in (None, (0.0, 1.0)))
    assert deviations(bound) == [pytest.approx((0.6, 1.0)), pytest.approx((0.0, 0.3))]
    assert bound.get_ylim() == (0.0, 1.0)
    assert free.get_ylim()[1] > 1.2
    (by_panel,) = bar_panels({"one": groups}, title="t", bounds={"one": (0.0, 1.0)}).axes
    (other,) = bar_panels({"one": groups}, title="t", bounds={"two": (0.0, 1.0)}).axes
    assert by_panel.get_ylim() == bound.get_ylim()
    assert other.get_ylim() == free.get_ylim()


def test_noise_is_not_stretched() -> None:
    low, high = bars({"1": {"a": (1e-17, 0.0), "b": (-1e-17, 0.0)}}).get_ylim()
    assert high - low > 1e-6


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(DataError, match="'t' has no panel"):
        bar_panels({}, title="t")
    with pytest.raises(DataError, match="panel 'one' has no finite bar"):
        bar_panels({"one": {"g": {"a": (math.nan, 0.0)}}}, title="t")
    with pytest.raises(DataError, match="bars of 11 names: expected at most 10"):
        bar_panels({"one": {"g": {str(n): (1.0, 0.0) for n in range(11)}}}, title="t")


def test_long_names_of_groups_take_several_lines() -> None:
    names = (
        "own task",
        "centroids and entropy",
        "an unspeakablylongword in the midst of many others",
    )
    one, several = (
        bar_panels({"p": {name: {"a": (1.0, 0.0)} for name in group}}, title="t")
        for group in (("1", "2", "3"), names)
    )
    labels = [label.get_text() for label in several.axes[0].get_xticklabels()]
    assert labels == ["own task", "centroids and\nentropy", "an\nunspeakablyl…\nin the midst…"]
    assert several.get_figheight() > one.get_figheight()
