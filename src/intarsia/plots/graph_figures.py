"""Graphs: heat capacity over time with the scales it names, and how a graph is rewired."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from intarsia.errors import DataError
from intarsia.plots.curves import curve_panels
from intarsia.plots.panels import MARGIN, TOP, axes_at, new_figure
from intarsia.plots.style import COLOURS, INK, house_style

SIDE = 214  # pixels of a drawn graph
DOT = 14  # points squared, of a node
STEP_PANELS = 3  # in a row


@house_style()
def heat_curves(
    tau: Sequence[float] | np.ndarray,
    curves: Mapping[str, Any],
    *,
    scales: Mapping[str, Sequence[float]],
    errors: Mapping[str, Any] | None = None,
    title: str = "heat capacity",
) -> Figure:
    """Curves over times, a panel for each name, with lines at the `scales` of all names.

    The axis of times is logarithmic. Shades are the `errors`. The lines of a name have its colour
    in every panel, so that one sees where the other kind of scale lies.
    """
    times = np.asarray(tau, dtype=float)
    if not len(times) or (times <= 0).any():
        raise DataError("a heat capacity is drawn over times above 0: give at least one")
    places, panels = np.log10(times), {}
    for name, values in curves.items():
        if len(values) != len(times):
            raise DataError(f"the curve {name!r} has {len(values)} values for {len(times)} times")
        noise = (errors or {}).get(name, np.zeros(len(times)))
        points = zip(places.tolist(), values, noise, strict=True)
        panels[name] = {name: {x: (float(v), float(e)) for x, v, e in points}}
    decades = range(int(np.ceil(places[0])), int(np.floor(places[-1])) + 1)
    names = {float(place): f"{10.0**place:g}" for place in decades}
    colours = dict(zip(curves, COLOURS, strict=False))
    figure = curve_panels(panels, title=title, x="tau", x_names=names, colours=colours)
    for ax in figure.axes:
        for name, own in scales.items():
            for scale in own:
                colour = colours.get(name, INK)
                ax.axvline(np.log10(scale), color=colour, linestyle="--", linewidth=1, zorder=1)
    return figure


@house_style()
def rewiring_steps(
    positions: np.ndarray,
    steps: Mapping[str, np.ndarray],
    *,
    labels: Sequence[int] | None = None,
    title: str = "rewiring",
) -> Figure:
    """One drawing of the nodes for each step, by name: edges, E x 2, between nodes at `positions`.

    Nodes of one of the `labels`, such as supernodes, have one colour.
    """
    places = np.asarray(positions, dtype=float)
    if places.ndim != 2 or places.shape[1] != 2 or not len(places) or not steps:
        raise DataError(f"positions are {places.shape}: expected N x 2, and at least one step")
    columns = min(STEP_PANELS, len(steps))
    rows = -(-len(steps) // columns)
    pitch = (SIDE + MARGIN, SIDE + TOP)
    size = (columns * pitch[0] + MARGIN, rows * pitch[1] + MARGIN)
    figure = new_figure(*size, title)
    for place, (name, edges) in enumerate(steps.items()):
        row, column = divmod(place, columns)
        ax = axes_at(figure, MARGIN + column * pitch[0], TOP + row * pitch[1], SIDE, SIDE)
        _draw_graph(ax, places, np.asarray(edges, dtype=int).reshape(-1, 2), labels)
        ax.set_title(name)
    return figure


def _draw_graph(
    ax: Axes, places: np.ndarray, edges: np.ndarray, labels: Sequence[int] | None
) -> None:
    if edges.size and (edges.min() < 0 or edges.max() >= len(places)):
        raise DataError(f"edges name node {edges.max()}: there are positions of {len(places)}")
    faint = min(0.8, max(0.05, 40 / max(1, len(edges))))
    lines = LineCollection(list(places[edges]), colors=INK, linewidths=0.7, alpha=faint)
    ax.add_collection(lines)
    colours: Any = INK
    if labels is not None:
        colours = [COLOURS[int(label) % len(COLOURS)] for label in labels]
    ax.scatter(places[:, 0], places[:, 1], s=DOT, c=colours, zorder=3)
    ax.set_axis_off()
