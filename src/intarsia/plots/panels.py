"""Panels of a figure: where they lie, how high they reach, and the legend below them.

Places are pixels from the upper left corner, so that a figure needs no layout engine.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator

from intarsia.errors import DataError
from intarsia.plots.style import house_style

PIXELS = 72  # of an inch
WIDTH, HEIGHT, TOP, LEFT = 300, 220, 34, 46  # of a panel, above it and at its left
GAP, MARGIN, ROW = 28, 16, 18  # between panels, around all of them, of the legend
LETTER, HANDLE = 7.5, 32  # the width of a letter, and of what is left of a name in the legend
PANELS_PER_ROW = 2  # letters stay readable where a page gives a picture 700 pixels
LEAST, LEAST_FRACTION = 1e-5, 1e-3  # of heights, and of the largest number: less is noise

Reach = tuple[float, float]
"""From where to where."""

Bounds = Reach | Mapping[str, Reach] | None
"""What no value can pass, in all panels or by panel; an end may be infinite."""

Share = bool | Callable[[str], Hashable]
"""Whether panels have the same heights, or the group that a panel's name belongs to."""

Label = str | Mapping[str, str]
"""One for all panels, or by panel."""

Point = float | tuple[float, float] | tuple[float, float, float]
"""A value, (mean, standard deviation), or (value, low, high)."""


@dataclass(frozen=True)
class Panels:
    """What panels of curves and of bars have in common; one alone may be drawn on given axes."""

    title: str
    x: str
    y: Label
    bounds: Bounds
    share_y: Share = False
    ax: Axes | None = None

    def bounds_of(self, panel: str) -> Reach:
        """A panel's bounds, infinite where there are none."""
        own = self.bounds.get(panel) if isinstance(self.bounds, Mapping) else self.bounds
        low, high = own or (-math.inf, math.inf)
        if not low < high:
            raise DataError(f"the bounds of panel {panel!r} are {own}: expected (low, high)")
        return low, high

    def draw(
        self,
        heights: Mapping[str, Reach],
        names: Sequence[str],
        handles: Callable[[], Sequence[Artist]],
        draw: Callable[[Axes, str], None],
    ) -> list[Axes]:
        """Axes of these heights by panel, each drawn on by `draw`, and a legend of the names.

        Axes of their own have intarsia's style, which holds for `handles` and `draw` too.
        """
        with house_style() if self.ax is None else nullcontext():
            axes, add_legend = self._axes(len(heights), names)
            for place, (panel, ax) in enumerate(zip(heights, axes, strict=True)):
                alike = [heights[p] for p in heights if self._group(p) == self._group(panel)]
                if isinstance(self.y, str):
                    y = "" if place % PANELS_PER_ROW else self.y  # once in a row
                else:
                    y = self.y.get(panel, "")
                reached = min(low for low, _ in alike), max(high for _, high in alike)
                ax.set(title=panel, xlabel=self.x, ylabel=y, ylim=reached)
                ax.yaxis.set_major_locator(round_numbers())
                draw(ax, panel)
            add_legend(handles(), names)
        return axes

    def _group(self, panel: str) -> Hashable:
        return self.share_y(panel) if callable(self.share_y) else self.share_y or panel

    def _axes(
        self, count: int, names: Sequence[str]
    ) -> tuple[list[Axes], Callable[[Sequence[Artist], Sequence[str]], object]]:
        """The axes to draw on, and what adds their legend."""
        if self.ax is not None:
            return [self.ax], self.ax.legend
        if not count:
            raise DataError(f"the figure {self.title!r} has no panel: give at least one")
        start = MARGIN + LEFT - 10  # of the legend
        room = min(count, PANELS_PER_ROW) * (LEFT + WIDTH + GAP) - start
        columns = _legend_columns([HANDLE + text_width(name) for name in names], room)
        foot = ROW * math.ceil(len(names) / columns)
        around = (LEFT, TOP, GAP, 40 if self.x else 24)
        size = (WIDTH, HEIGHT)
        figure, axes = grid(self.title, count, PANELS_PER_ROW, size, around, foot)
        wide, high = figure.get_size_inches() * PIXELS
        corner = (start / wide, (foot + MARGIN - 6) / high)
        where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": corner, "ncols": columns}
        return axes, lambda handles, names: figure.legend(handles, names, **where)


def grid(
    title: str,
    count: int,
    most: int,
    size: tuple[float, float],
    around: tuple[float, float, float, float],
    foot: float = 0,
    least: float = 0,
) -> tuple[Figure, list[Axes]]:
    """A figure with so many axes of one size, at most so many side by side, in rows of like length.

    `around` is the room at the left of each, above, at the right and below; `foot` is that below
    all of them, and the figure is `least` pixels wide at least.
    """
    rows = math.ceil(count / most)
    columns = math.ceil(count / rows)
    left, top, right, below = around
    wide, high = left + size[0] + right, top + size[1] + below
    width = max(MARGIN + columns * wide, least)
    figure = new_figure(width, rows * high + foot + MARGIN, title)
    places = [divmod(place, columns) for place in range(count)]
    return figure, [
        axes_at(figure, MARGIN + column * wide + left, row * high + top, *size)
        for row, column in places
    ]


def new_figure(width: float, height: float, title: str) -> Figure:
    """An empty figure of so many pixels; its title is its label, which pages and readers show."""
    figure = Figure(figsize=(width / PIXELS, height / PIXELS))
    figure.set_label(title)
    return figure


def axes_at(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place of the figure."""
    wide, high = figure.get_size_inches() * PIXELS
    return figure.add_axes((left / wide, 1 - (top + height) / high, width / wide, height / high))


def write_below(figure: Figure, *lines: str) -> None:
    """Lines at the foot of a figure, each ROW pixels high."""
    wide, high = figure.get_size_inches() * PIXELS
    figure.text(MARGIN / wide, MARGIN / high, "\n".join(lines))


def round_numbers() -> MaxNLocator:
    """About five of them."""
    return MaxNLocator(nbins=6, steps=[1, 2, 5, 10], min_n_ticks=3)


def spread_of(point: Point, bounds: Reach) -> tuple[float, float, float] | None:
    """Value, low and high, the last two within the bounds; None of what is not known."""
    value, *ends = map(float, point if isinstance(point, Sequence) else (point, 0.0))
    if len(ends) == 1:
        deviation = 0.0 if math.isnan(ends[0]) else ends[0]
        ends = [value - deviation, value + deviation]
    if len(ends) != 2:
        raise DataError(
            f"the point {point!r} is not a number, (mean, deviation) or (value, low, high)"
        )
    if not math.isfinite(value + sum(ends)):
        return None
    return value, min(value, max(ends[0], bounds[0])), max(value, min(ends[1], bounds[1]))


def reach(values: Sequence[float], bounds: Reach) -> Reach:
    """From the least to the most with room to either side, as far as bounds allow it."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.05 * abs(low) or 0.5
    least = max(LEAST, LEAST_FRACTION * max(abs(low), abs(high)))
    room = max(room, (least - (high - low)) / 2)
    return min(low, max(low - room, bounds[0])), max(high, min(high + room, bounds[1]))


def text_width(*texts: str, weight: str = "normal") -> int:
    """Pixels that the longest of some texts takes, a whole number."""
    font = FontProperties(family="DejaVu Sans", size=12, weight=weight)
    sizes = [text_to_path.get_text_width_height_descent(text, font, False) for text in texts]
    return math.ceil(max((width for width, _, _ in sizes), default=0))


def short(name: str, letters: int = 18) -> str:
    """A name cut to fit at the side of a picture."""
    return name if len(name) <= letters else name[: letters - 1] + "…"


def fitted(name: str, room: float) -> str:
    """A name cut to so many pixels, three letters at the least."""
    return short(name, max(3, int(room / LETTER)))


def _legend_columns(widths: Sequence[float], room: float) -> int:
    """As many as fit, of names that are split among them as matplotlib does it."""
    for columns in range(len(widths), 1, -1):
        if sum(part.max() + ROW for part in np.array_split(widths, columns)) <= room:
            return columns
    return 1
