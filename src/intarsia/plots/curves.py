"""Curves with their spread, in one panel or several."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from intarsia.errors import DataError
from intarsia.plots.panels import (
    WIDTH,
    Bounds,
    Label,
    Panels,
    Point,
    Reach,
    Share,
    fitted,
    reach,
    round_numbers,
    spread_of,
)
from intarsia.plots.style import BAND, Look, looks

Curve = Mapping[float, Point]
"""Points by their place on the horizontal axis."""

Span = tuple[float, float, float, float]
"""Place, value, low, high."""

MARKED_UP_TO = 30  # points; more are drawn as a line alone
COUNTED_UP_TO = 12  # whole numbers along the horizontal axis; of more, only round ones are written
INSET = 10  # pixels between the frame and the outermost points, so that marks do not lie on it
NEAR = 0.75  # pixels between curves that cannot be told apart
DASH = 6  # pixels, of a curve that lies on others, which show in gaps as long for each of them


def curves(
    curves: Mapping[str, Curve],
    ax: Axes | None = None,
    *,
    title: str = "",
    x: str = "",
    y: str = "",
    bounds: Reach | None = None,
    x_names: Mapping[float, str] | None = None,
    bands: Mapping[str, Reach] | None = None,
    colours: Mapping[str, str] | None = None,
) -> Axes:
    """Curves by name in one panel with a legend; arguments are those of `curve_panels`."""
    frame = Panels(title, x, y, bounds, ax=ax)
    return _drawn({title: curves}, frame, x_names, bands or {}, colours)[0]


def curve_panels(
    panels: Mapping[str, Mapping[str, Curve]],
    *,
    title: str,
    x: str = "",
    y: Label = "",
    share_y: Share = False,
    bounds: Bounds = None,
    x_names: Mapping[float, str] | None = None,
    bands: Mapping[str, Reach] | None = None,
    colours: Mapping[str, str] | None = None,
) -> Figure:
    """Curves by panel and by name, with one legend; a name has one colour in all panels.

    Operators and objectives have their own colour in all figures, other names that of `colours`
    or one that is left. Shades reach one standard deviation to either side, or from low to high. A
    point that is nan is left out. Curves that are equal in all panels have one entry in the legend,
    `sum = mean`; where one lies on another in some panels only, it is dashed there. `x` and `y`
    name the axes (`y` may be given by panel), `share_y` gives all panels the same heights, or those
    for which it returns the same. Shades and axes end at `bounds`, of all panels or by panel.
    `x_names` says what is written along the horizontal axis, and where; `bands` are grey areas
    from low to high in every panel. The title is the figure's label: pages show it, not the panels.
    """
    frame = Panels(title, x, y, bounds, share_y)
    axes = _drawn(panels, frame, x_names, bands or {}, colours)
    return cast(Figure, axes[0].figure)


def _drawn(
    panels: Mapping[str, Mapping[str, Curve]],
    frame: Panels,
    x_names: Mapping[float, str] | None,
    bands: Mapping[str, Reach],
    colours: Mapping[str, str] | None,
) -> list[Axes]:
    bounds = {panel: frame.bounds_of(panel) for panel in panels}
    drawn = _merged({panel: _spans(panel, own, bounds[panel]) for panel, own in panels.items()})
    styles = looks((name for own in drawn.values() for name in own), colours)
    edges = [edge for band in bands.values() for edge in band if math.isfinite(edge)]
    heights = {
        panel: reach([*edges, *(v for spans in own.values() for s in spans for v in s[1:])], ends)
        for (panel, own), ends in zip(drawn.items(), bounds.values(), strict=True)
    }

    def draw(ax: Axes, panel: str) -> None:
        _draw(ax, drawn[panel], styles, x_names, bands)
        for line in ax.lines if frame.ax is None else ():
            line.set_clip_on(False)  # marks on the edge are seen as a whole

    def handles() -> list[Artist]:
        lines = [
            Line2D([], [], color=look.colour, marker=look.mark, linestyle=look.dashes)
            for look in styles.values()
        ]
        return [*lines, *(Patch(color=BAND, linewidth=0) for _ in bands)]

    return frame.draw(heights, [*styles, *bands], handles, draw)


def _spans(panel: str, curves: Mapping[str, Curve], bounds: Reach) -> dict[str, list[Span]]:
    """The finite points of every curve, from left to right; low and high within the bounds."""
    spans = {
        name: [
            (float(place), *spread)
            for place in sorted(curve)
            if (spread := spread_of(curve[place], bounds))
        ]
        for name, curve in curves.items()
    }
    if not any(spans.values()):
        raise DataError(f"panel {panel!r} has no finite point to draw")
    return spans


def _merged(panels: Mapping[str, Mapping[str, list[Span]]]) -> dict[str, dict[str, list[Span]]]:
    """Curves that are equal wherever one of them is, under one name: `sum = mean`."""
    same: dict[object, list[str]] = {}
    for name in dict.fromkeys(name for own in panels.values() for name in own):
        everywhere = tuple(tuple(own.get(name, ())) for own in panels.values())
        same.setdefault(everywhere if any(everywhere) else name, []).append(name)
    called = {name: " = ".join(names) for names in same.values() for name in names}
    return {
        panel: {called[name]: spans for name, spans in own.items()} for panel, own in panels.items()
    }


def _draw(
    ax: Axes,
    drawn: Mapping[str, list[Span]],
    styles: Mapping[str, Look],
    x_names: Mapping[float, str] | None,
    bands: Mapping[str, Reach],
) -> None:
    """The bands, shades and curves of a panel whose heights are set."""
    bottom, top = ax.get_ylim()
    for low, high in bands.values():
        ax.axhspan(max(low, bottom), min(high, top), color=BAND, linewidth=0, zorder=0)
    _write_places(ax, sorted({span[0] for spans in drawn.values() for span in spans}), x_names)
    near = NEAR * (top - bottom) / ax.bbox.height
    before: list[list[Span]] = []
    for name, spans in drawn.items():
        places, values, lows, highs = zip(*spans, strict=True) if spans else ((), (), (), ())
        colour = styles[name].colour
        if len(spans) == 1 and lows != highs:  # an area without width would not show
            ax.vlines(places, lows, highs, color=colour, alpha=0.5, linewidth=1)
        elif lows != highs:
            # Below all curves: none is covered by another's shade.
            ax.fill_between(places, lows, highs, color=colour, alpha=0.16, linewidth=0, zorder=1.5)
        over = sum(_hides(spans, other, near) for other in before)
        dashes = (0, (DASH, DASH * over)) if over else styles[name].dashes
        mark = styles[name].mark if len(spans) <= MARKED_UP_TO else ""
        # Over others it leaves room for them and their marks.
        every = (over, over + 1) if over and len(spans) > over else None
        how: dict[str, Any] = {"linestyle": dashes, "marker": mark, "markevery": every}
        ax.plot(places, values, label=name, color=colour, **how)
        before.append(spans)


def _hides(spans: Sequence[Span], other: Sequence[Span], near: float) -> bool:
    return [span[0] for span in spans] == [span[0] for span in other] and all(
        abs(span[1] - below[1]) < near for span, below in zip(spans, other, strict=True)
    )


def _write_places(ax: Axes, places: Sequence[float], names: Mapping[float, str] | None) -> None:
    """What is written along the horizontal axis, which ends a little beyond the points."""
    low, high = places[0], places[-1]
    if low == high:
        low, high = low - 0.5, high + 0.5
    pixel = (high - low) / (WIDTH - 2 * INSET)
    ax.set_xlim(low - INSET * pixel, high + INSET * pixel)
    if names is not None:
        shown = [place for place in sorted(names) if low <= place <= high]
        room = min((b - a for a, b in itertools.pairwise(shown)), default=high - low) / pixel
        ax.set_xticks(shown, [fitted(names[place], room) for place in shown])
    elif len(places) <= COUNTED_UP_TO and all(place == int(place) for place in places):
        ax.set_xticks(places, [f"{place:g}" for place in places])
    else:
        ax.xaxis.set_major_locator(round_numbers())
