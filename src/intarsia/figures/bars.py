"""Bars with their spread, in groups, several panels side by side."""

import math
from collections.abc import Mapping

from intarsia.errors import DataError
from intarsia.figures.axes import (
    HEIGHT,
    LEAST,
    WIDTH,
    Bounds,
    Frame,
    Label,
    Reach,
    Share,
    bound,
    frames,
    key,
    shared,
)
from intarsia.figures.styles import COLOURS, fills
from intarsia.figures.svg import INK, LETTER, MARGIN, PAPER, page, short, text

Bar = tuple[float, float]
"""Mean and standard deviation; nan for what is not known."""

Groups = Mapping[str, Mapping[str, Bar]]
"""Bars by group along the horizontal axis, then by name."""

FILLED = 0.8  # of a group's width; the rest keeps groups apart
BETWEEN = 1.0  # pixels from a bar to the next


def bar_figure(
    panels: Mapping[str, Groups],
    *,
    title: str,
    x: str = "",
    y: Label = "",
    share_y: Share = False,
    bounds: Bounds = None,
) -> str:
    """Bars from zero, up or down; a name has one colour in all panels, a known one in all figures.

    A thin line reaches one standard deviation to either side. A bar whose mean is nan is left out,
    its place stays empty. `x` and `y` name the axes (`y` may be given by panel), `share_y` gives
    all panels the same heights, or those for which it returns the same; lines and axes end at
    `bounds`, of all panels or by panel.
    """
    if not panels:
        raise DataError(f"the figure {title!r} has no panel: give at least one")
    names = list(dict.fromkeys(n for groups in panels.values() for g in groups.values() for n in g))
    if len(names) > len(COLOURS):
        raise DataError(
            f"the figure {title!r} has bars of {len(names)} names: expected at most "
            f"{len(COLOURS)}, take more panels or groups"
        )
    colours = fills(names)
    ends = {panel: bound(bounds, panel) for panel in panels}
    heights = {panel: _heights(panel, groups, ends[panel]) for panel, groups in panels.items()}
    placed, width, below = frames(shared(heights, share_y), x)
    marks = []
    for panel, groups in panels.items():
        marks += placed[panel].axes(panel, x, y, 0.0)
        marks += _bars(placed[panel], groups, colours, ends[panel])

    def sample(name: str, x: float, y: float) -> list[str]:
        box = f'<rect x="{x:g}" y="{y - 9:g}" width="11" height="11"'
        return [f'{box} fill="{colours[name]}"/>']

    told, below = key(names, (width, below), 16, sample)
    return page(width, below + MARGIN, [*marks, *told], title)


def _heights(panel: str, groups: Groups, bounds: Reach) -> Reach:
    ends = [end for bars in groups.values() for bar in bars.values() for end in _ends(bar, bounds)]
    if not ends:
        raise DataError(f"panel {panel!r} has no finite bar to draw")
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = max(0.05 * (high - low) or 0.5, LEAST - (high - low))
    up, down = high > 0 or low == 0, low < 0
    return (
        min(low, max(low - room, bounds[0])) if down else 0.0,
        max(high, min(high + room, bounds[1])) if up else 0.0,
    )


def _ends(bar: Bar, bounds: Reach) -> list[float]:
    mean, sd = bar
    sd = 0.0 if math.isnan(sd) else sd
    if not math.isfinite(mean + sd):
        return []
    return [min(mean, max(mean - sd, bounds[0])), mean, max(mean, min(mean + sd, bounds[1]))]


def _bars(frame: Frame, groups: Groups, colours: Mapping[str, str], bounds: Reach) -> list[str]:
    marks, room = [], WIDTH / len(groups)
    wide = FILLED * room / len(colours)
    letters, below = max(3, int(room / LETTER)), frame.top + HEIGHT + 16
    for number, (group, bars) in enumerate(groups.items()):
        start = frame.left + room * (number + (1 - FILLED) / 2)
        centre = frame.left + room * (number + 0.5)
        marks.append(text(centre, below, short(group, letters), "middle"))
        for place, (name, colour) in enumerate(colours.items()):
            if name in bars and (ends := _ends(bars[name], bounds)):
                heights = [frame.y(end) for end in (0.0, *ends)]
                marks += _bar(start + wide * place, wide, heights, colour)
    return marks


def _bar(place: float, wide: float, ends: list[float], colour: str) -> list[str]:
    zero, low, mean, high = ends
    centre = place + (wide - BETWEEN) / 2
    marks = [
        f'<rect x="{place:.2f}" y="{min(zero, mean):g}" width="{max(wide - BETWEEN, 1):.2f}" '
        f'height="{abs(zero - mean):.2f}" fill="{colour}"/>'
    ]
    if low != high:
        # Paper on ink: the ink shows beside a pale bar and on the page, the paper on a dark bar.
        line = f'd="M{centre:.2f} {high:g}V{low:g}"'
        marks.append(f'<path {line} stroke="{INK}" stroke-width="3"/>')
        marks.append(f'<path {line} stroke="{PAPER}" stroke-width="1.2"/>')
    return marks
