"""Bars with their spread, in groups, in one panel or several."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from intarsia.errors import DataError
from intarsia.plots.panels import (
    LEAST,
    WIDTH,
    Bounds,
    Label,
    Reach,
    Share,
    bound,
    figure_of_panels,
    in_lines,
    name_axes,
    shared,
)
from intarsia.plots.style import COLOURS, INK, PAPER, house_style, looks

Bar = tuple[float, float]
"""Mean and standard deviation; nan for what is not known."""

Groups = Mapping[str, Mapping[str, Bar]]
"""Bars by group along the horizontal axis, then by name."""

FILLED = 0.8  # of a group's width; the rest keeps groups apart
LETTER = 7.5  # pixels, of a group's name


def bars(
    groups: Groups,
    ax: Axes | None = None,
    *,
    title: str = "",
    x: str = "",
    y: str = "",
    bounds: Reach | None = None,
    colours: Mapping[str, str] | None = None,
) -> Axes:
    """Bars in groups in one panel with a legend; arguments are those of `bar_panels`."""
    if ax is None:
        own = {title: groups}
        return bar_panels(own, title=title, x=x, y=y, bounds=bounds, colours=colours).axes[0]
    ends, fills = bound(bounds, title), _fills({title: groups}, title, colours)
    name_axes(ax, title, x, y, _heights(title, groups, ends))
    _draw(ax, groups, fills, ends)
    ax.legend(_handles(fills), list(fills))
    return ax


@house_style()
def bar_panels(
    panels: Mapping[str, Groups],
    *,
    title: str,
    x: str = "",
    y: Label = "",
    share_y: Share = False,
    bounds: Bounds = None,
    colours: Mapping[str, str] | None = None,
) -> Figure:
    """Bars from zero, up or down, with one legend; a name has one colour in all panels.

    Operators and objectives have their own colour in all figures, other names that of `colours`
    or one that is left. A thin line reaches one standard deviation to either side. A bar whose mean
    is nan is left out, its place stays empty. `x` and `y` name the axes (`y` may be given by
    panel), `share_y` gives all panels the same heights, or those for which it returns the same;
    lines and axes end at `bounds`, of all panels or by panel. The title is the figure's label.
    """
    if not panels:
        raise DataError(f"the figure {title!r} has no panel: give at least one")
    fills = _fills(panels, title, colours)
    ends = {panel: bound(bounds, panel) for panel in panels}
    heights = {panel: _heights(panel, groups, ends[panel]) for panel, groups in panels.items()}
    lines = max(_label(name, groups).count("\n") for groups in panels.values() for name in groups)
    figure, axes, add_legend = figure_of_panels(
        shared(heights, share_y), title, x, y, list(fills), 32, lines=lines + 1
    )
    for panel, groups in panels.items():
        _draw(axes[panel], groups, fills, ends[panel])
    add_legend(_handles(fills))
    return figure


def _fills(
    panels: Mapping[str, Groups], title: str, colours: Mapping[str, str] | None
) -> dict[str, str]:
    names = dict.fromkeys(n for groups in panels.values() for own in groups.values() for n in own)
    if len(names) > len(COLOURS):
        raise DataError(
            f"the figure {title!r} has bars of {len(names)} names: expected at most "
            f"{len(COLOURS)}, take more panels or groups"
        )
    return {name: look.colour for name, look in looks(names, colours).items()}


def _heights(panel: str, groups: Groups, bounds: Reach) -> Reach:
    ends = [end for own in groups.values() for bar in own.values() for end in _ends(bar, bounds)]
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
    """Low, mean, high; nothing of what is not known."""
    mean, sd = bar
    sd = 0.0 if math.isnan(sd) else sd
    if not math.isfinite(mean + sd):
        return []
    return [min(mean, max(mean - sd, bounds[0])), mean, max(mean, min(mean + sd, bounds[1]))]


def _draw(ax: Axes, groups: Groups, fills: Mapping[str, str], bounds: Reach) -> None:
    wide = FILLED / len(fills)
    between = len(groups) / WIDTH  # a pixel from a bar to the next
    for place, (name, colour) in enumerate(fills.items()):
        known = {
            number - FILLED / 2 + (place + 0.5) * wide: ends
            for number, own in enumerate(groups.values())
            if name in own and (ends := _ends(own[name], bounds))
        }
        centres, drawn = np.array(list(known)), np.array(list(known.values())).reshape(-1, 3)
        width = max(wide - between, between)
        ax.bar(centres, drawn[:, 1], width, color=colour, label=name, linewidth=0)
        spread = drawn[:, 0] < drawn[:, 2]
        # Paper on ink: the ink shows on a pale bar and on the page, the paper on a dark bar.
        for line, line_width in ((INK, 3.0), (PAPER, 1.2)):
            lows, highs = drawn[spread, 0], drawn[spread, 2]
            ax.vlines(centres[spread], lows, highs, color=line, linewidth=line_width, zorder=3)
    ax.spines["bottom"].set_visible(False)
    ax.axhline(0, color=INK, linewidth=1, clip_on=False)
    ax.set_xlim(-0.5, len(groups) - 0.5)
    ax.set_xticks(range(len(groups)), [_label(group, groups) for group in groups])


def _label(group: str, groups: Groups) -> str:
    """The name of a group, in lines as wide as its bars."""
    return in_lines(group, max(3, int(WIDTH / len(groups) / LETTER)))


def _handles(fills: Mapping[str, str]) -> Sequence[Patch]:
    return [Patch(color=colour, linewidth=0) for colour in fills.values()]
