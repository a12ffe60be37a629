"""Panels on a page: where they lie, how high they reach, and what is written along them."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from intarsia.errors import DataError
from intarsia.figures.svg import EMPTY, GAP, INK, LETTER, MARGIN, per_row, text

WIDTH, HEIGHT, TOP, LEFT = 300, 220, 34, 46  # pixels of a panel, above it and at its left
BESIDE = 48  # from a vertical axis to the letters of its name, which stand beyond its numbers
PANELS_A_ROW = 2  # letters stay readable where a page gives a picture 700 pixels
LEAST, LEAST_SHARE = 1e-5, 1e-3  # of heights, and of the largest number: less is noise

Reach = tuple[float, float]
"""From where to where."""

Bounds = Reach | Mapping[str, Reach] | None
"""What no value can pass, in all panels or by panel; an end may be infinite."""

Share = bool | Callable[[str], Hashable]
"""Whether panels have the same heights, or the group that a panel's name belongs to."""

Label = str | Mapping[str, str]
"""One for all panels, or by panel."""


@dataclass(frozen=True)
class Frame:
    """A panel's place on the page, and what its lower and upper edge stand for."""

    left: float
    top: float
    up: Reach
    first: bool  # of its row

    def y(self, value: float) -> float:
        low, high = self.up
        return round(self.top + HEIGHT * (high - value) / (high - low), 2)

    def axes(self, panel: str, x: str, y: Label, floor: float) -> list[str]:
        """Title, lines at round heights, names of the axes; the horizontal one lies at `floor`."""
        marks = [text(self.left + WIDTH / 2, self.top - 12, panel, "middle", bold=True)]
        for value in ticks(*self.up):
            height = self.y(value)
            marks.append(f'<path d="M{self.left:g} {height:g}h{WIDTH}" stroke="{EMPTY}"/>')
            marks.append(text(self.left - 6, height + 3.5, f"{value:g}", "end"))
        across = f"M{self.left:g} {self.top:g}v{HEIGHT}M{self.left:g} {self.y(floor):g}h{WIDTH}"
        marks.append(f'<path d="{across}" fill="none" stroke="{INK}"/>')
        marks.append(text(self.left + WIDTH / 2, self.top + HEIGHT + 32, x, "middle"))
        name = (y if self.first else "") if isinstance(y, str) else y.get(panel, "")
        x_of_name, middle = self.left - BESIDE, self.top + HEIGHT / 2
        turn = f' transform="rotate(-90 {x_of_name:g} {middle:g})"'
        marks += [text(x_of_name, middle, name, "middle", extra=turn)] if name else []
        return marks


def frames(heights: Mapping[str, Reach], x: str) -> tuple[dict[str, Frame], float, float]:
    """Panels in rows; the width of the page, and where the key below the panels begins."""
    columns = per_row(len(heights), PANELS_A_ROW)
    pitch = TOP + HEIGHT + (40 if x else 24)
    result = {}
    for place, (panel, up) in enumerate(heights.items()):
        row, column = divmod(place, columns)
        left = float(MARGIN + LEFT + column * (WIDTH + LEFT + GAP))
        result[panel] = Frame(left, float(TOP + row * pitch), up, column == 0)
    rows = -(-len(heights) // columns)
    return result, MARGIN + columns * (WIDTH + LEFT + GAP), rows * pitch + 12


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
    least = max(LEAST, LEAST_SHARE * max(abs(low), abs(high)))
    room = max(room, (least - (high - low)) / 2)
    return min(low, max(low - room, bounds[0])), max(high, min(high + room, bounds[1]))


def shared(heights: Mapping[str, Reach], share_y: Share) -> dict[str, Reach]:
    """The same heights for all panels, for those of a group, or as they are."""
    if share_y is False:
        return dict(heights)
    group = share_y if callable(share_y) else lambda panel: True
    groups: dict[Hashable, list[Reach]] = {}
    for panel, up in heights.items():
        groups.setdefault(group(panel), []).append(up)
    return {
        panel: (min(low for low, _ in ups), max(high for _, high in ups))
        for panel in heights
        for ups in [groups[group(panel)]]
    }


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between the two: about five, never less than three or more than seven."""
    power = 10.0 ** math.floor(math.log10(high - low))
    steps = [part * power for part in (5, 2, 1, 0.5, 0.2, 0.1)]
    result = [
        range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) for step in steps
    ]
    best = min(range(len(steps)), key=lambda i: abs(len(result[i]) - 5))
    return [round(k * steps[best], 12) for k in result[best]]


def key(
    names: Sequence[str],
    page: tuple[float, float],
    wide: float,
    sample: Callable[[str, float, float], list[str]],
) -> tuple[list[str], float]:
    """Which is which, in rows as wide as the page; and where the last row lies.

    `page` is its width and where the key begins, `wide` what a sample takes before its name.
    """
    (width, y), start = page, float(MARGIN + LEFT)
    marks, x = [], start
    for name in names:
        room = wide + LETTER * len(name) + 14
        if x + room > width and x > start:
            x, y = start, y + 18
        marks += [*sample(name, x, y), text(x + wide, y, name)]
        x += room
    return marks, y
