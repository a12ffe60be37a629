"""Bars with their spread, in groups, in one panel or several."""

from collections.abc import Mapping
from typing import cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from intarsia.errors import DataError
from intarsia.plots.panels import (
    WIDTH,
    Bounds,
    Label,
    Panels,
    Reach,
    Share,
    fitted,
    reach,
    spread_of,
)
from intarsia.plots.style import COLOURS, INK, PAPER, looks

Bar = tuple[float, float]
"""Mean and standard deviation; nan for what is not known."""

Groups = Mapping[str, Mapping[str, Bar]]
"""Bars by group along the horizontal axis, then by name."""

FILLED = 0.8  # of a group's width; the rest keeps groups apart


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
    return _drawn({title: groups}, Panels(title, x, y, bounds, ax=ax), colours)[0]


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
    axes = _drawn(panels, Panels(title, x, y, bounds, share_y), colours)
    return cast(Figure, axes[0].figure)


def _drawn(
    panels: Mapping[str, Groups], frame: Panels, colours: Mapping[str, str] | None
) -> list[Axes]:
    names = dict.fromkeys(n for groups in panels.values() for own in groups.values() for n in own)
    if len(names) > len(COLOURS):
        raise DataError(
            f"the figure {frame.title!r} has bars of {len(names)} names: expected at most "
            f"{len(COLOURS)}, take more panels or groups"
        )
    fills = {name: look.colour for name, look in looks(names, colours).items()}
    return frame.draw(
        {panel: _heights(panel, own, frame.bounds_of(panel)) for panel, own in panels.items()},
        list(fills),
        lambda: [Patch(color=colour, linewidth=0) for colour in fills.values()],
        lambda ax, panel: _draw(ax, panels[panel], fills, frame.bounds_of(panel)),
    )


def _heights(panel: str, groups: Groups, bounds: Reach) -> Reach:
    """From zero; without bars below it, zero is the bottom, and without any above it the top."""
    spreads = [spread_of(bar, bounds) for own in groups.values() for bar in own.values()]
    values = [0.0, *(value for spread in spreads if spread for value in spread)]
    if len(values) == 1:
        raise DataError(f"panel {panel!r} has no finite bar to draw")
    down, up = min(values) < 0, max(values) > 0
    return reach(values, (bounds[0] if down else 0.0, bounds[1] if up or not down else 0.0))


def _draw(ax: Axes, groups: Groups, fills: Mapping[str, str], bounds: Reach) -> None:
    wide = FILLED / len(fills)
    between = len(groups) / WIDTH  # a pixel from a bar to the next
    for place, (name, colour) in enumerate(fills.items()):
        known = {
            number - FILLED / 2 + (place + 0.5) * wide: spread
            for number, own in enumerate(groups.values())
            if name in own and (spread := spread_of(own[name], bounds))
        }
        centres = np.array(list(known))
        means, lows, highs = np.array(list(known.values())).reshape(-1, 3).T
        width = max(wide - between, between)
        ax.bar(centres, means, width, color=colour, label=name, linewidth=0)
        varied = lows < highs
        # Paper on ink: the ink shows on a pale bar and on the page, the paper on a dark bar.
        for line, line_width in ((INK, 3.0), (PAPER, 1.2)):
            ends = lows[varied], highs[varied]
            ax.vlines(centres[varied], *ends, color=line, linewidth=line_width, zorder=3)
    ax.spines["bottom"].set_visible(False)
    ax.axhline(0, color=INK, linewidth=1, clip_on=False)
    ax.set_xlim(-0.5, len(groups) - 0.5)
    ax.set_xticks(range(len(groups)), [fitted(group, WIDTH / len(groups)) for group in groups])
