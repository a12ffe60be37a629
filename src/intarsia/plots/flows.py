"""The flow of cumulants: step by step, errors by law and by weight, closures by layer."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from intarsia.errors import DataError
from intarsia.plots.curves import Curve, curve_panels, curves

LAW = "law"
ORDERS = {2: "k2", 3: "k3", 4: "k4"}


def cumulants_by_step(
    flows: Mapping[str, Mapping[int, Sequence[float]]],
    law: Mapping[int, Sequence[float]],
    *,
    title: str = "cumulants by step",
) -> Figure:
    """A panel for each of k2 to k4: log10 of its size against the step, the law as a line.

    Flows by name, then k1 to k4 by step. An order that vanishes under the law has no line there,
    and one that is 0 throughout has no panel.
    """
    panels: dict[str, dict[str, Curve]] = {}
    for order, name in ORDERS.items():
        own = {LAW: law, **flows}
        logarithms: dict[str, Curve] = {key: _logs(steps, order) for key, steps in own.items()}
        if any(logarithms.values()):
            panels[name] = {key: curve for key, curve in logarithms.items() if curve}
    labels = {name: f"log10 |{name}|" for name in panels}
    return curve_panels(panels, title=title, x="step", y=labels)


def error_by_law(
    panels: Mapping[str, Mapping[str, Mapping[str, float]]], *, title: str = "test error by law"
) -> Figure:
    """log10 of the mean squared error by panel, arm and law; laws along the horizontal axis."""
    names = list(dict.fromkeys(n for own in panels.values() for arm in own.values() for n in arm))
    places = {name: float(place) for place, name in enumerate(names)}
    drawn = {
        panel: {
            arm: {places[law]: math.log10(e) for law, e in errors.items() if e > 0}
            for arm, errors in own.items()
        }
        for panel, own in panels.items()
    }
    x_names = {place: name for name, place in places.items()}
    return curve_panels(drawn, title=title, y="log10 MSE", x_names=x_names, share_y=True)


def error_by_weight(
    measured: Mapping[float, float],
    formula: Mapping[float, float],
    ax: Axes | None = None,
    *,
    title: str = "error by the second weight",
) -> Axes:
    """log10 of the mean squared error against w2, doubling, and the formula's."""
    both = {"formula": formula, "on samples": measured}
    if any(w2 <= 0 or error <= 0 for own in both.values() for w2, error in own.items()):
        raise DataError("weights and errors are drawn by their logarithms: give those above 0")
    drawn: dict[str, Curve] = {
        name: {math.log2(w2): math.log10(error) for w2, error in own.items()}
        for name, own in both.items()
    }
    names = {math.log2(w2): f"{w2:g}" for w2 in formula}
    return curves(drawn, ax, title=title, x="w2", y="log10 MSE", x_names=names)


def closure_error_by_layer(
    errors: Mapping[str, Mapping[str, float]],
    noise: Mapping[str, Mapping[str, float]] | None = None,
    *,
    title: str = "closure error by layer",
) -> Figure:
    """Relative errors of predicted moments by name and layer, log10, in the order of the layers.

    `noise` is what sampling alone would give, drawn for each name as a curve of its own. Layers
    that are exact, with error 0, are left out.
    """
    layers = list(dict.fromkeys(layer for own in errors.values() for layer in own))
    places = {layer: float(place) for place, layer in enumerate(layers)}
    both = {**errors, **{f"{n}, by sampling alone": own for n, own in (noise or {}).items()}}
    drawn: dict[str, Curve] = {
        name: {
            places[layer]: math.log10(e) for layer, e in own.items() if layer in places and e > 0
        }
        for name, own in both.items()
    }
    names = {place: layer for layer, place in places.items()}
    return curve_panels({title: drawn}, title=title, y="log10 relative error", x_names=names)


def _logs(steps: Mapping[int, Sequence[float]], order: int) -> dict[float, float]:
    values = {step: abs(orders[order - 1]) for step, orders in steps.items() if orders[order - 1]}
    return {float(step): math.log10(v) for step, v in values.items() if math.isfinite(v) and v}
