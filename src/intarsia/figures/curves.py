"""Curves with their spread, several panels side by side."""

import math
from collections.abc import Iterable, Mapping, Sequence

from intarsia.errors import DataError
from intarsia.figures.svg import EMPTY, GAP, INK, LETTER, MARGIN, page, text

Point = float | tuple[float, float] | tuple[float, float, float]
"""A value, (mean, standard deviation), or (value, low, high)."""

Curve = Mapping[float, Point]
"""Points by their place on the horizontal axis."""

# Six steps from dark to light, so that they stay apart in grey and for colour-blind eyes.
COLOURS = ("#1d120a", "#0a3a8c", "#9d2a6b", "#d0570f", "#2fa894", "#e8b32a")
DASHES = ("", "7 3", "2 3")  # one for each time the colours are used up
WIDTH, HEIGHT, TOP, LEFT = 300, 220, 34, 46  # pixels of a panel, above it and at its left
MARKED_UP_TO = 30  # points; more are drawn as a line alone
COUNTED_UP_TO = 12  # whole numbers along the horizontal axis; of more, only round ones are written


def line_figure(
    panels: Mapping[str, Mapping[str, Curve]],
    *,
    title: str,
    x: str = "",
    y: str = "",
    share_y: bool = False,
) -> str:
    """Curves by panel and by name; a name has one colour and one mark in all panels.

    Shades reach one standard deviation to either side, or from low to high. A point that is nan
    is left out. `x` and `y` name the axes, `share_y` gives all panels the same heights.
    """
    drawn = {panel: _spans(panel, curves) for panel, curves in panels.items()}
    if not drawn:
        raise DataError(f"the figure {title!r} has no panel: give at least one")
    names = list(dict.fromkeys(name for curves in drawn.values() for name in curves))
    heights = {panel: _heights(curves.values()) for panel, curves in drawn.items()}
    if share_y:
        both = min(low for low, _ in heights.values()), max(high for _, high in heights.values())
        heights = dict.fromkeys(heights, both)
    marks = []
    for place, (panel, curves) in enumerate(drawn.items()):
        left = float(MARGIN + LEFT + place * (WIDTH + LEFT + GAP))
        frame = _Frame(left, _places(curves.values()), heights[panel])
        marks.append(text(left + WIDTH / 2, 22, panel, "middle", bold=True))
        marks += frame.axes(x, y if place == 0 else "")
        # Shades first: no curve is covered by another's.
        marks += [_shade(frame, curves[n], _style(names, n)[0]) for n in curves]
        for name in curves:
            marks += _line(frame, curves[name], *_style(names, name))
    width = MARGIN + len(drawn) * (WIDTH + LEFT + GAP)
    key, below = _key(names, width, TOP + HEIGHT + (52 if x else 36))
    return page(width, below + MARGIN, [*marks, *key], title)


class _Frame:
    """A panel's place on the page, and what its edges stand for."""

    def __init__(self, left: float, places: list[float], up: tuple[float, float]) -> None:
        low, high = places[0], places[-1]
        self.across = (low, high) if low < high else (low - 0.5, high + 0.5)
        self.left, self.places, self.up = left, places, up

    def at(self, x: float, y: float) -> tuple[float, float]:
        (x0, x1), (y0, y1) = self.across, self.up
        right = self.left + WIDTH * (x - x0) / (x1 - x0)
        return round(right, 2), round(TOP + HEIGHT * (y1 - y) / (y1 - y0), 2)

    def axes(self, x: str, y: str) -> list[str]:
        marks = []
        for value in _ticks(*self.up):
            height = self.at(self.across[0], value)[1]
            marks.append(f'<path d="M{self.left:g} {height:g}h{WIDTH}" stroke="{EMPTY}"/>')
            marks.append(text(self.left - 6, height + 3.5, f"{value:g}", "end"))
        counted = len(self.places) <= COUNTED_UP_TO and all(p == int(p) for p in self.places)
        for value in self.places if counted else _ticks(*self.across):
            place = self.at(value, self.up[0])[0]
            marks.append(text(place, TOP + HEIGHT + 16, f"{value:g}", "middle"))
        marks.append(
            f'<path d="M{self.left:g} {TOP}v{HEIGHT}h{WIDTH}" fill="none" stroke="{INK}"/>'
        )
        marks.append(text(self.left + WIDTH / 2, TOP + HEIGHT + 32, x, "middle"))
        marks.append(text(self.left, TOP - 8, y, "middle"))
        return marks


Span = tuple[float, float, float, float]  # place, value, low, high


def _spans(panel: str, curves: Mapping[str, Curve]) -> dict[str, list[Span]]:
    spans = {
        name: [span for place in sorted(curve) if (span := _span(place, curve[place]))]
        for name, curve in curves.items()
    }
    if not any(spans.values()):
        raise DataError(f"panel {panel!r} has no finite point to draw")
    return spans


def _span(place: float, point: Point) -> Span | None:
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
    return (float(place), value, low, high) if math.isfinite(value + low + high) else None


def _places(curves: Iterable[list[Span]]) -> list[float]:
    return sorted({span[0] for curve in curves for span in curve})


def _heights(curves: Iterable[list[Span]]) -> tuple[float, float]:
    values = [value for curve in curves for span in curve for value in span[1:]]
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.05 * abs(low) or 0.5
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between the two."""
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def _style(names: list[str], name: str) -> tuple[str, int, str]:
    """Colour, mark and dashes of a curve, by its place among all names."""
    turn, place = divmod(names.index(name), len(COLOURS))
    return COLOURS[place], place, DASHES[turn % len(DASHES)]


def _shade(frame: _Frame, curve: list[Span], colour: str) -> str:
    if all(low == high for _, _, low, high in curve):
        return ""
    edge = [frame.at(x, high) for x, _, _, high in curve]
    edge += [frame.at(x, low) for x, _, low, _ in reversed(curve)]
    return f'<path d="M{_joined(edge)}z" fill="{colour}" fill-opacity="0.16"/>'


def _line(frame: _Frame, curve: list[Span], colour: str, mark: int, dashes: str) -> list[str]:
    dots = [frame.at(x, value) for x, value, _, _ in curve]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    marks = [
        f'<path d="M{_joined(pair)}" fill="none" stroke="{colour}" stroke-width="1.8"{dashed}/>'
        for pair in ([dots] if len(dots) > 1 else [])
    ]
    if len(dots) <= MARKED_UP_TO:
        marks.append(_marks(dots, mark, colour))
    return marks


def _marks(dots: list[tuple[float, float]], mark: int, colour: str) -> str:
    """One shape for each colour: disc, square, triangle, diamond, triangle down, bar."""
    shapes = (
        "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
        "m-2.8 -2.8h5.6v5.6h-5.6z",
        "m0 -3.6l3.4 6h-6.8z",
        "m0 -3.9l3.9 3.9l-3.9 3.9l-3.9 -3.9z",
        "m0 3.6l3.4 -6h-6.8z",
        "m-1.2 -4h2.4v8h-2.4z",
    )
    d = "".join(f"M{x:g} {y:g}{shapes[mark]}" for x, y in dots)
    return f'<path d="{d}" fill="{colour}"/>'


def _joined(dots: Iterable[tuple[float, float]]) -> str:
    return "L".join(f"{x:g} {y:g}" for x, y in dots)


def _key(names: list[str], width: float, top: float) -> tuple[list[str], float]:
    """Which curve is which, in rows as wide as the page; and where the last row lies."""
    marks, x, y = [], float(MARGIN + LEFT), top
    for name in names:
        room = 34 + LETTER * len(name) + 14
        if x + room > width and x > MARGIN + LEFT:
            x, y = float(MARGIN + LEFT), y + 18
        colour, mark, dashes = _style(names, name)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        marks.append(
            f'<path d="M{x:g} {y - 4:g}h26" stroke="{colour}" stroke-width="1.8"{dashed}/>'
        )
        marks.append(_marks([(x + 13, y - 4)], mark, colour))
        marks.append(text(x + 32, y, name))
        x += room
    return marks, y
