"""Bars with their spread, in groups, several panels side by side."""

import math
from collections.abc import Mapping

from intarsia.errors import DataError
from intarsia.figures.curves import COLOURS, HEIGHT, LEFT, TOP, WIDTH, _ticks
from intarsia.figures.svg import EMPTY, GAP, INK, LETTER, MARGIN, page, short, text

Bar = tuple[float, float]
"""Mean and standard deviation; nan for what is not known."""

Groups = Mapping[str, Mapping[str, Bar]]
"""Bars by group along the horizontal axis, then by name."""

FILLED = 0.8  # of a group's width; the rest keeps groups apart
PALE = ("#d9c7a3", "#e4e0da")  # after the dark colours, for the seventh and eighth name


def bar_figure(
    panels: Mapping[str, Groups], *, title: str, x: str = "", y: str = "", share_y: bool = False
) -> str:
    """Bars from zero, up or down; a name has one colour in all panels.

    A thin line reaches one standard deviation to either side. A bar whose mean is nan is left out,
    its place stays empty. `x` and `y` name the axes, `share_y` gives all panels the same heights.
    """
    if not panels:
        raise DataError(f"the figure {title!r} has no panel: give at least one")
    names = list(dict.fromkeys(n for groups in panels.values() for g in groups.values() for n in g))
    if len(names) > len(COLOURS + PALE):
        raise DataError(
            f"the figure {title!r} has bars of {len(names)} names: expected at most "
            f"{len(COLOURS + PALE)}, take more panels or groups"
        )
    heights = {panel: _heights(panel, groups) for panel, groups in panels.items()}
    if share_y:
        both = min(low for low, _ in heights.values()), max(high for _, high in heights.values())
        heights = dict.fromkeys(heights, both)
    marks = []
    for place, (panel, groups) in enumerate(panels.items()):
        left = float(MARGIN + LEFT + place * (WIDTH + LEFT + GAP))
        marks.append(text(left + WIDTH / 2, 22, panel, "middle", bold=True))
        marks += _axes(left, heights[panel], x, y if place == 0 else "")
        marks += _bars(left, heights[panel], groups, names)
    width = MARGIN + len(panels) * (WIDTH + LEFT + GAP)
    key, below = _key(names, width, TOP + HEIGHT + (52 if x else 36))
    return page(width, below + MARGIN, [*marks, *key], title)


def _heights(panel: str, groups: Groups) -> tuple[float, float]:
    ends = [end for bars in groups.values() for bar in bars.values() for end in _ends(bar)]
    if not ends:
        raise DataError(f"panel {panel!r} has no finite bar to draw")
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = 0.05 * (high - low) or 0.5
    return low - room if low < 0 else 0.0, high + room if high > 0 or low == 0 else 0.0


def _ends(bar: Bar) -> list[float]:
    mean, sd = bar
    sd = 0.0 if math.isnan(sd) else sd
    return [mean - sd, mean, mean + sd] if math.isfinite(mean + sd) else []


def _at(value: float, heights: tuple[float, float]) -> float:
    low, high = heights
    return round(TOP + HEIGHT * (high - value) / (high - low), 2)


def _axes(left: float, heights: tuple[float, float], x: str, y: str) -> list[str]:
    marks = []
    for value in _ticks(*heights):
        up = _at(value, heights)
        marks.append(f'<path d="M{left:g} {up:g}h{WIDTH}" stroke="{EMPTY}"/>')
        marks.append(text(left - 6, up + 3.5, f"{value:g}", "end"))
    zero = _at(0.0, heights)
    axes = f"M{left:g} {TOP}v{HEIGHT}M{left:g} {zero:g}h{WIDTH}"
    marks.append(f'<path d="{axes}" fill="none" stroke="{INK}"/>')
    marks.append(text(left + WIDTH / 2, TOP + HEIGHT + 32, x, "middle"))
    marks.append(text(left, TOP - 8, y, "middle"))
    return marks


def _bars(left: float, heights: tuple[float, float], groups: Groups, names: list[str]) -> list[str]:
    marks, room = [], WIDTH / len(groups)
    wide = FILLED * room / len(names)
    letters = max(3, int(room / LETTER))
    for number, (group, bars) in enumerate(groups.items()):
        start = left + room * (number + (1 - FILLED) / 2)
        marks.append(
            text(left + room * (number + 0.5), TOP + HEIGHT + 16, short(group, letters), "middle")
        )
        for name, bar in bars.items():
            if ends := _ends(bar):
                place = start + wide * names.index(name)
                marks += _bar(place, wide, [_at(end, heights) for end in (0.0, *ends)], name, names)
    return marks


def _bar(place: float, wide: float, ends: list[float], name: str, names: list[str]) -> list[str]:
    zero, low, mean, high = ends
    centre = place + wide / 2
    marks = [
        f'<rect x="{place:.2f}" y="{min(zero, mean):g}" width="{wide:.2f}" '
        f'height="{abs(zero - mean):.2f}" fill="{_colour(names, name)}"/>'
    ]
    if low != high:
        # Paper below ink, so that the line shows on a bar of any colour.
        line = f'd="M{centre:.2f} {high:g}V{low:g}"'
        marks.append(f'<path {line} stroke="{EMPTY}" stroke-width="3"/>')
        marks.append(f'<path {line} stroke="{INK}" stroke-width="1.2"/>')
    return marks


def _colour(names: list[str], name: str) -> str:
    return (COLOURS + PALE)[names.index(name)]


def _key(names: list[str], width: float, top: float) -> tuple[list[str], float]:
    """Which bar is which, in rows as wide as the page; and where the last row lies."""
    marks, x, y = [], float(MARGIN + LEFT), top
    for name in names:
        room = 18 + LETTER * len(name) + 14
        if x + room > width and x > MARGIN + LEFT:
            x, y = float(MARGIN + LEFT), y + 18
        box = f'<rect x="{x:g}" y="{y - 9:g}" width="11" height="11"'
        marks.append(f'{box} fill="{_colour(names, name)}"/>')
        marks.append(text(x + 16, y, name))
        x += room
    return marks, y
