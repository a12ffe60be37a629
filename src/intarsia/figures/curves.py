"""Curves with their spread, several panels side by side."""

import itertools
import math
from collections.abc import Iterable, Mapping

from intarsia.errors import DataError
from intarsia.figures.axes import (
    HEIGHT,
    WIDTH,
    Bounds,
    Frame,
    Label,
    Reach,
    Share,
    bound,
    frames,
    key,
    reach,
    shared,
    ticks,
)
from intarsia.figures.points import Curve, Span, merged, spans
from intarsia.figures.styles import Style, styles
from intarsia.figures.svg import LETTER, MARGIN, page, short, text

MARKED_UP_TO = 30  # points; more are drawn as a line alone
COUNTED_UP_TO = 12  # whole numbers along the horizontal axis; of more, only round ones are written
BAND = "#d3ccc1"
INSET = 10  # pixels between the frame and the outermost points, so that marks do not lie on it
NEAR = 0.75  # pixels between curves that cannot be told apart
DASH = 6  # pixels, of a curve that lies on others, which show in gaps as long for each of them

Dots = list[tuple[float, float]]


def line_figure(
    panels: Mapping[str, Mapping[str, Curve]],
    *,
    title: str,
    x: str = "",
    y: Label = "",
    share_y: Share = False,
    bounds: Bounds = None,
    x_names: Mapping[float, str] | None = None,
    bands: Mapping[str, Reach] | None = None,
) -> str:
    """Curves by panel and by name; a name has one colour in all panels, a known one in all figures.

    Shades reach one standard deviation to either side, or from low to high. A point that is nan
    is left out. Curves that are equal in all panels have one entry in the key, `sum = mean`; where
    one lies on another in some panels only, it is dashed there. `x` and `y` name the axes (`y` may
    be given by panel), `share_y` gives all panels the same heights, or those for which it returns
    the same. Shades and axes end at `bounds`, of all panels or by panel. `x_names` says what is
    written along the horizontal axis, and where; `bands` are grey areas from low to high in every
    panel.
    """
    if not panels:
        raise DataError(f"the figure {title!r} has no panel: give at least one")
    bands = bands or {}
    ends = {panel: bound(bounds, panel) for panel in panels}
    drawn = merged({panel: spans(panel, own, ends[panel]) for panel, own in panels.items()})
    looks = styles(dict.fromkeys(name for curves in drawn.values() for name in curves))
    edges = [edge for band in bands.values() for edge in band if math.isfinite(edge)]
    heights = {
        panel: reach([*_values(curves.values()), *edges], ends[panel])
        for panel, curves in drawn.items()
    }
    placed, width, below = frames(shared(heights, share_y), x)
    marks = []
    for panel, curves in drawn.items():
        frame = placed[panel]
        marks += [_band(frame, band) for band in bands.values()]
        marks += frame.axes(panel, x, y, frame.up[0])
        marks += _panel(frame, curves, looks, x_names)

    def sample(name: str, x: float, y: float) -> list[str]:
        if name not in looks:
            return [f'<rect x="{x:g}" y="{y - 9:g}" width="26" height="10" fill="{BAND}"/>']
        style, line = looks[name], f"M{x:g} {y - 4:g}h26"
        return [_stroke(line, style.colour, style.dashes), _marks([(x + 13, y - 4)], style)]

    told, below = key([*looks, *bands], (width, below), 32, sample)
    return page(width, below + MARGIN, [*marks, *told], title)


def _values(curves: Iterable[list[Span]]) -> Iterable[float]:
    return (value for curve in curves for span in curve for value in span[1:])


class _Across:
    """Where a panel's points lie from left to right."""

    def __init__(self, left: float, places: list[float]) -> None:
        low, high = places[0], places[-1]
        self.left, self.places = left, places
        self.ends = (low, high) if low < high else (low - 0.5, high + 0.5)

    def x(self, place: float) -> float:
        low, high = self.ends
        return round(self.left + INSET + (WIDTH - 2 * INSET) * (place - low) / (high - low), 2)

    def _written(self) -> Reach:
        """From where to where numbers may stand: a little beyond the points, within the frame."""
        low, high = self.ends
        beyond = INSET / 2 * (high - low) / (WIDTH - 2 * INSET)
        return low - beyond, high + beyond

    def labels(self, below: float, names: Mapping[float, str] | None) -> list[str]:
        counted = len(self.places) <= COUNTED_UP_TO and all(p == int(p) for p in self.places)
        if names is None:
            written = self.places if counted else ticks(*self._written())
            return [text(self.x(place), below, f"{place:g}", "middle") for place in written]
        low, high = self.ends
        shown = {self.x(p): names[p] for p in sorted(names) if low <= p <= high}
        room = min((b - a for a, b in itertools.pairwise(shown)), default=WIDTH)
        letters = max(3, int(room / LETTER))
        return [text(x, below, short(name, letters), "middle") for x, name in shown.items()]


def _panel(
    frame: Frame,
    curves: Mapping[str, list[Span]],
    looks: Mapping[str, Style],
    x_names: Mapping[float, str] | None,
) -> list[str]:
    across = _Across(frame.left, sorted({span[0] for curve in curves.values() for span in curve}))
    marks = across.labels(frame.top + HEIGHT + 16, x_names)
    # Shades first: no curve is covered by another's.
    for name, curve in curves.items():
        if any(low < high for _, _, low, high in curve):
            edge = [(across.x(x), frame.y(high)) for x, _, _, high in curve]
            edge += [(across.x(x), frame.y(low)) for x, _, low, _ in reversed(curve)]
            marks.append(_shade(edge, looks[name].colour))
    before: list[Dots] = []
    for name, curve in curves.items():
        dots = [(across.x(x), frame.y(value)) for x, value, _, _ in curve]
        marks += _line(dots, looks[name], sum(_on(dots, other) for other in before))
        before.append(dots)
    return marks


def _on(dots: Dots, other: Dots) -> bool:
    """Whether a curve hides another."""
    return [x for x, _ in dots] == [x for x, _ in other] and all(
        abs(y - below) < NEAR for (_, y), (_, below) in zip(dots, other, strict=True)
    )


def _line(dots: Dots, style: Style, over: int) -> list[str]:
    """A curve; over so many others it leaves room for them and their marks."""
    marks = []
    if len(dots) > 1:
        dashes = f"{DASH} {DASH * over}" if over else style.dashes
        marks.append(_stroke(f"M{_joined(dots)}", style.colour, dashes))
    if len(dots) <= MARKED_UP_TO:
        marks.append(_marks(dots[over :: over + 1] or dots, style))
    return marks


def _shade(edge: Dots, colour: str) -> str:
    if len(edge) == 2:  # a lone point: an area without width would not show
        return f'<path d="M{_joined(edge)}" stroke="{colour}" stroke-opacity="0.5"/>'
    return f'<path d="M{_joined(edge)}z" fill="{colour}" fill-opacity="0.16"/>'


def _stroke(line: str, colour: str, dashes: str) -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="1.8"{dashed}/>'


def _marks(dots: Dots, style: Style) -> str:
    d = "".join(f"M{x:g} {y:g}{style.shape}" for x, y in dots)
    return f'<path d="{d}" fill="{style.colour}"/>'


def _band(frame: Frame, band: Reach) -> str:
    low, high = (min(max(edge, frame.up[0]), frame.up[1]) for edge in band)
    top, bottom = frame.y(high), frame.y(low)
    return (
        f'<rect x="{frame.left:g}" y="{top:g}" width="{WIDTH}" height="{bottom - top:.2f}" '
        f'fill="{BAND}"/>'
    )


def _joined(dots: Iterable[tuple[float, float]]) -> str:
    return "L".join(f"{x:g} {y:g}" for x, y in dots)
