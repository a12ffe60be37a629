"""What curves are made of: points, their spread, and which curves are the same."""

import math
from collections.abc import Mapping, Sequence

from intarsia.errors import DataError
from intarsia.figures.axes import Reach

Point = float | tuple[float, float] | tuple[float, float, float]
"""A value, (mean, standard deviation), or (value, low, high)."""

Curve = Mapping[float, Point]
"""Points by their place on the horizontal axis."""

Span = tuple[float, float, float, float]
"""Place, value, low, high."""


def spans(panel: str, curves: Mapping[str, Curve], bounds: Reach) -> dict[str, list[Span]]:
    """The finite points of every curve, from left to right; low and high within the bounds."""
    result = {
        name: [span for place in sorted(curve) if (span := _span(place, curve[place], bounds))]
        for name, curve in curves.items()
    }
    if not any(result.values()):
        raise DataError(f"panel {panel!r} has no finite point to draw")
    return result


def merged(panels: Mapping[str, Mapping[str, list[Span]]]) -> dict[str, dict[str, list[Span]]]:
    """Curves that are equal wherever one of them is, under one name: `sum = mean`."""
    same: dict[object, list[str]] = {}
    for name in dict.fromkeys(name for curves in panels.values() for name in curves):
        everywhere = tuple(tuple(curves.get(name, ())) for curves in panels.values())
        same.setdefault(everywhere if any(everywhere) else name, []).append(name)
    called = {name: " = ".join(names) for names in same.values() for name in names}
    return {
        panel: {called[name]: curve for name, curve in curves.items()}
        for panel, curves in panels.items()
    }


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
