"""Entropy through depth: bands by class, what layers tell, orders, profiles in a plane."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from intarsia.errors import DataError
from intarsia.plots.bars import bars
from intarsia.plots.curves import Curve, curve_panels
from intarsia.plots.panels import WIDTH, axes_at, new_figure
from intarsia.plots.style import house_style, looks

SIDE, EDGE = 360, 48  # pixels, of the plane and around it
LEGEND = 150  # pixels beside it
DOT = 16  # points squared, of a profile


def profile_bands(groups: Mapping[str, np.ndarray], *, title: str = "entropy by layer") -> Figure:
    """The mean by layer of each group of profiles, N x L, with one standard deviation around it."""
    drawn: dict[str, Curve] = {}
    for name, rows in groups.items():
        values = np.asarray(rows, dtype=float)
        if values.ndim != 2 or not values.size:
            raise DataError(f"the profiles of {name!r} have shape {values.shape}: expected N x L")
        spread = values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
        points = zip(values.mean(0).tolist(), spread.tolist(), strict=True)
        drawn[name] = {float(layer): point for layer, point in enumerate(points, 1)}
    return curve_panels({title: drawn}, title=title, x="layer", y="entropy, nats")


def layer_bars(
    scores: Mapping[str, tuple[float, float]],
    ax: Axes | None = None,
    *,
    title: str = "what layers tell",
) -> Axes:
    """The area under the curve by the features used: mean and standard deviation."""
    groups: dict[str, Any] = {"": dict(scores)}
    return bars(groups, ax, title=title, y="AUC, %")


def alpha_sweep(
    scores: Mapping[str, Mapping[float, tuple[float, float]]],
    *,
    title: str = "AUC by the order of the entropy",
) -> Figure:
    """The area under the curve by name and by Renyi's order; orders stand at even distances."""
    orders = sorted({alpha for own in scores.values() for alpha in own})
    places = {alpha: float(place) for place, alpha in enumerate(orders)}
    drawn: dict[str, Curve] = {
        name: {places[alpha]: point for alpha, point in own.items()} for name, own in scores.items()
    }
    names = {place: f"{alpha:g}" for alpha, place in places.items()}
    return curve_panels({title: drawn}, title=title, x="alpha", y="AUC, %", x_names=names)


@house_style()
def profile_plane(
    points: np.ndarray, labels: Sequence[str], *, title: str = "profiles in a plane"
) -> Figure:
    """Profiles as points, N x 2, such as their first two principal components; a colour a label."""
    places = np.asarray(points, dtype=float)
    if places.ndim != 2 or places.shape[1:] != (2,) or len(places) != len(labels):
        raise DataError(f"points are {places.shape} for {len(labels)} labels: expected N x 2")
    styles = looks(labels)
    figure = new_figure(min(WIDTH, SIDE + LEGEND + 2 * EDGE), SIDE + 2 * EDGE, title)
    ax = axes_at(figure, EDGE, EDGE / 2, SIDE, SIDE)
    own = np.array([str(label) for label in labels])
    for name, look in styles.items():
        x, y = places[own == name].T
        ax.scatter(x, y, s=DOT, c=look.colour, marker=look.mark, label=name, alpha=0.7)
    ax.set_xlabel("first component")
    ax.set_ylabel("second component")
    ax.legend(loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)
    return figure
