"""Curves with their spread, in one panel or several."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
    Reach,
    Share,
    bound,
    figure_of_panels,
    name_axes,
    reach,
    round_numbers,
    shared,
    short,
)
from intarsia.plots.style import BAND, Look, house_style, looks

Point = float | tuple[float, float] | tuple[float, float, float]
"""A value, (mean, standard deviation), or (value, low, high)."""

Curve = Mapping[float, Point]
"""Points by their place on the horizontal axis."""

Span = tuple[float, float, float, float]
"""Place, value, low, high."""

MARKED_UP_TO = 30  # points; more are drawn as a line alone
COUNTED_UP_TO = 12  # whole numbers along the horizontal axis; of more, only round ones are written
INSET = 10  # pixels between the frame and the outermost points, so that marks do not lie on it
LETTER = 7.5  # pixels, of names along the horizontal axis
OUTERMOST = 12  # letters of the first and the last of them, which reach beyond the frame
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
    if ax is None:
        figure = curve_panels(
            {title: curves},
            title=title,
            x=x,
            y=y,
            bounds=bounds,
            x_names=x_names,
            bands=bands,
            colours=colours,
        )
        return figure.axes[0]
    ends, bands = bound(bounds, title), bands or {}
    drawn = _merged({title: _spans(title, curves, ends)})[title]
    styles = looks(drawn, colours)
    name_axes(ax, title, x, y, _heights(drawn, bands, ends))
    _draw(ax, drawn, styles, x_names, bands)
    ax.legend(_handles(styles, bands), [*styles, *bands])
    return ax


@house_style()
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
    if not panels:
        raise DataError(f"the figure {title!r} has no panel: give at least one")
    bands = bands or {}
    ends = {panel: bound(bounds, panel) for panel in panels}
    drawn = _merged({panel: _spans(panel, own, ends[panel]) for panel, own in panels.items()})
    styles = looks((name for own in drawn.values() for name in own), colours)
    heights = {panel: _heights(own, bands, ends[panel]) for panel, own in drawn.items()}
    figure, axes, add_legend = figure_of_panels(
        shared(heights, share_y), title, x, y, [*styles, *bands], 32
    )
    for panel, own in drawn.items():
        _draw(axes[panel], own, styles, x_names, bands)
        for line in axes[panel].lines:
            line.set_clip_on(False)  # marks on the edge are seen as a whole
    add_legend(_handles(styles, bands))
    return figure


def _spans(panel: str, curves: Mapping[str, Curve], bounds: Reach) -> dict[str, list[Span]]:
    """The finite points of every curve, from left to right; low and high within the bounds."""
    spans = {
        name: [span for place in sorted(curve) if (span := _span(place, curve[place], bounds))]
        for name, curve in curves.items()
    }
    if not any(spans.values()):
        raise DataError(f"panel {panel!r} has no finite point to draw")
    return spans


def _span(place: float, point: Point, bounds: Reach) -> Span | None:
    numbers = tuple(point) if isinstance(point, Sequence) else (float(point), 0.0)
    if len(numbers) == 2:
        mean, deviation = numbers
        deviation = 0.0 if math.isnan(deviation) else deviation
        numbers = (mean, mean - deviation, mean + deviation)
    if len(numbers) != 3:
        raise DataError(
            f"the point {point!r} is not a number, (mean, deviation) or (value, low, high)"
        )
    value, low, high = map(float, numbers)
    if not math.isfinite(value + low + high):
        return None
    return float(place), value, min(value, max(low, bounds[0])), max(value, min(high, bounds[1]))


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


def _heights(drawn: Mapping[str, list[Span]], bands: Mapping[str, Reach], bounds: Reach) -> Reach:
    values = [value for spans in drawn.values() for span in spans for value in span[1:]]
    edges = [edge for band in bands.values() for edge in band if math.isfinite(edge)]
    return reach([*values, *edges], bounds)


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
        letters = max(3, int(room / LETTER))
        texts = [names[place] for place in shown]
        if not _fit(texts, shown, pixel):
            texts = [short(text, letters) for text in texts]
        ax.set_xticks(shown, texts)
    elif len(places) <= COUNTED_UP_TO and all(place == int(place) for place in places):
        ax.set_xticks(places, [f"{place:g}" for place in places])
    else:
        ax.xaxis.set_major_locator(round_numbers())


def _fit(texts: Sequence[str], places: Sequence[float], pixel: float) -> bool:
    """Whether names meet neither each other nor, at the ends, the next panel."""
    apart = all(
        (len(one) + len(other)) * LETTER / 2 <= (b - a) / pixel
        for (one, a), (other, b) in itertools.pairwise(zip(texts, places, strict=True))
    )
    return apart and max(map(len, (texts[0], texts[-1]))) <= OUTERMOST


def _handles(styles: Mapping[str, Look], bands: Iterable[str]) -> list[Artist]:
    lines = [
        Line2D([], [], color=look.colour, marker=look.mark, linestyle=look.dashes)
        for look in styles.values()
    ]
    return [*lines, *(Patch(color=BAND, linewidth=0) for _ in bands)]
