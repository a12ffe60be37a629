"""Panels of a figure: where they lie, how high they reach, and the legend below them.

Places are pixels from the upper left corner, so that a figure needs no layout engine.
"""

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator

from intarsia.errors import DataError

PIXELS = 72  # of an inch
WIDTH, HEIGHT, TOP, LEFT = 300, 220, 34, 46  # of a panel, above it and at its left
GAP, MARGIN, ROW = 28, 16, 18  # between panels, around all of them, of the legend
LINE = 14  # of words below a panel
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


def new_figure(width: float, height: float, title: str) -> Figure:
    """An empty figure of so many pixels; its title is its label, which pages and readers show."""
    figure = Figure(figsize=(width / PIXELS, height / PIXELS))
    figure.set_label(title)
    return figure


def axes_at(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place of the figure."""
    wide, high = figure.get_size_inches() * PIXELS
    return figure.add_axes((left / wide, 1 - (top + height) / high, width / wide, height / high))


def write(figure: Figure, x: float, y: float, words: str, **how: Any) -> None:
    """Words at a place of the figure."""
    wide, high = figure.get_size_inches() * PIXELS
    figure.text(x / wide, 1 - y / high, words, **how)


def figure_of_panels(
    heights: Mapping[str, Reach],
    title: str,
    x: str,
    y: Label,
    names: Sequence[str],
    wide: float,
    lines: int = 1,
) -> tuple[Figure, dict[str, Axes], Callable[[Sequence[Any]], None]]:
    """A figure, its empty panels in rows, and what adds the legend, given a handle for each name.

    A handle is `wide` pixels; words below a panel take so many `lines`.
    """
    columns = per_row(len(heights), PANELS_PER_ROW)
    rows = -(-len(heights) // columns)
    pitch = TOP + HEIGHT + (40 if x else 24) + LINE * (lines - 1)
    width = MARGIN + columns * (WIDTH + LEFT + GAP)
    start = MARGIN + LEFT - 10  # of the legend
    in_a_row = _legend_columns([wide + text_width(name) for name in names], width - start - MARGIN)
    legend_height = ROW * -(-len(names) // in_a_row)
    height = rows * pitch + legend_height + MARGIN
    figure = new_figure(width, height, title)
    panels = {}
    for place, (panel, reached) in enumerate(heights.items()):
        row, column = divmod(place, columns)
        left = MARGIN + LEFT + column * (WIDTH + LEFT + GAP)
        ax = axes_at(figure, left, TOP + row * pitch, WIDTH, HEIGHT)
        label = (y if column == 0 else "") if isinstance(y, str) else y.get(panel, "")
        name_axes(ax, panel, x, label, reached)
        panels[panel] = ax

    def add_legend(handles: Sequence[Any]) -> None:
        corner = (start / width, (legend_height + MARGIN - 6) / height)
        how: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": corner, "ncols": in_a_row}
        if len(names):
            figure.legend(handles, names, **how)

    return figure, panels, add_legend


def name_axes(ax: Axes, title: str, x: str, y: str, heights: Reach) -> None:
    """Title, names and heights of a panel."""
    ax.set_title(title)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.set_ylim(*heights)
    ax.yaxis.set_major_locator(round_numbers())


def round_numbers() -> MaxNLocator:
    """About five of them."""
    return MaxNLocator(nbins=6, steps=[1, 2, 5, 10], min_n_ticks=3)


def bound(bounds: Bounds, panel: str) -> Reach:
    """A panel's bounds, infinite where there are none."""
    own = bounds.get(panel) if isinstance(bounds, Mapping) else bounds
    low, high = own or (-math.inf, math.inf)
    if not low < high:
        raise DataError(f"the bounds of panel {panel!r} are {own}: expected (low, high)")
    return low, high


def reach(values: Iterable[float], bounds: Reach) -> Reach:
    """From the least to the most with room to either side, as far as bounds allow it."""
    values = list(values)
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.05 * abs(low) or 0.5
    least = max(LEAST, LEAST_FRACTION * max(abs(low), abs(high)))
    room = max(room, (least - (high - low)) / 2)
    return min(low, max(low - room, bounds[0])), max(high, min(high + room, bounds[1]))


def shared(heights: Mapping[str, Reach], share_y: Share) -> dict[str, Reach]:
    """The same heights for all panels, for those of a group, or as they are."""
    if share_y is False:
        return dict(heights)
    group = share_y if callable(share_y) else lambda panel: True
    groups: dict[Hashable, list[Reach]] = {}
    for panel, reached in heights.items():
        groups.setdefault(group(panel), []).append(reached)
    return {
        panel: (min(low for low, _ in reached), max(high for _, high in reached))
        for panel in heights
        for reached in [groups[group(panel)]]
    }


def per_row(panels: int, most: int) -> int:
    """How many panels lie side by side where at most so many may, in rows of like length."""
    rows = max(1, -(-panels // most))
    return -(-panels // rows)


def text_width(words: str, *, bold: bool = False) -> int:
    """Pixels that words take, a whole number."""
    how = FontProperties(family="DejaVu Sans", size=12, weight="bold" if bold else "normal")
    return math.ceil(text_to_path.get_text_width_height_descent(words, how, False)[0])


def short(name: str, letters: int = 18) -> str:
    """A name cut to fit at the side of a picture."""
    return name if len(name) <= letters else name[: letters - 1] + "…"


def short_names(names: Sequence[str], letters: int = 18) -> list[str]:
    """Names cut to fit, of which different ones stay apart.

    Those that would be cut alike keep their ends instead of their middles; where these are alike
    as well, they are numbered.
    """
    labels = {name: short(name, letters) for name in names}
    alike = Counter(labels.values())
    groups: dict[str, list[str]] = {}
    for name, label in labels.items():
        if alike[label] > 1 and label != name:
            groups.setdefault(label, []).append(name)
    for group in groups.values():
        taken = {label for name, label in labels.items() if name not in group}
        labels |= dict(zip(group, _apart(group, letters, taken), strict=True))
    return [labels[name] for name in names]


def in_lines(name: str, letters: int, most: int = 3) -> str:
    """A name on as many lines as it takes, cut where a word or the last line is too long."""
    lines = textwrap.wrap(name, letters, break_long_words=False) or [""]
    kept = [*lines[: most - 1], " ".join(lines[most - 1 :])] if len(lines) > most else lines
    return "\n".join(short(line, letters) for line in kept)


def _apart(names: Sequence[str], letters: int, taken: Collection[str]) -> list[str]:
    """Names that begin alike, cut in the middle so that none is like another or one of those."""
    for end in range(max(1, letters // 3), letters - 1):
        cut = [f"{name[: letters - 1 - end]}…{name[-end:]}" for name in names]
        if len({*cut, *taken}) == len(cut) + len(taken):
            return cut
    numbers = (str(number) for number in count(1))
    numbered = ((f"{name[: letters - 1 - len(n)]}…{n}" for n in numbers) for name in names)
    return [next(label for label in labels if label not in taken) for labels in numbered]


def _legend_columns(widths: Sequence[float], room: float) -> int:
    """As many as fit, of names that are split among them as matplotlib does it."""
    for columns in range(len(widths), 1, -1):
        if sum(part.max() + ROW for part in np.array_split(widths, columns)) <= room:
            return columns
    return 1
