"""Pattern networks: their maps, sweeps of weights, and scores against loss, depth and size."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter

from intarsia.errors import DataError
from intarsia.plots.curves import Curve, curve_panels, curves
from intarsia.plots.panels import (
    HEIGHT,
    LEFT,
    MARGIN,
    TOP,
    WIDTH,
    axes_at,
    new_figure,
    round_numbers,
    short,
    text_width,
)
from intarsia.plots.style import INK, WOOD, house_style, letters_on, looks

TILE, SEAM = 30, 3  # pixels of a map in an atlas, and between two
PICTURE = 96  # pixels of a picture in a strip
RED_BLUE = LinearSegmentedColormap.from_list("minus_plus", ["#b2182b", "#ffffff", "#2166ac"])
"""Red at -1, white at 0, blue at 1."""
CELL = 44  # pixels of a cell in a map of volumes


@house_style()
def map_atlas(
    maps: np.ndarray, ax: Axes | None = None, *, new: np.ndarray | None = None, title: str = ""
) -> Axes:
    """All maps of a network, depth x width x H x W: a row for each hidden layer, the first on top.

    Red is -1, white 0 and blue 1. Maps that `new`, depth x width, says are the first of their kind
    have a frame.
    """
    maps = np.asarray(maps, dtype=float)
    if maps.ndim != 4 or not maps.size:
        raise DataError(f"an atlas needs maps of depth x width x H x W, got {maps.shape}")
    depth, width = maps.shape[:2]
    pitch = TILE + SEAM
    if ax is None:
        wide, high = width * pitch, depth * pitch
        figure = new_figure(LEFT + wide + MARGIN, TOP + high + MARGIN, title or "maps")
        ax = axes_at(figure, LEFT, TOP, wide, high)
    ax.set(xlim=(0, width * pitch), ylim=(depth * pitch, 0), title=title)
    for layer in range(depth):
        for unit in range(width):
            left, top = unit * pitch, layer * pitch
            _tile(ax, maps[layer, unit], left, top, TILE, cmap=RED_BLUE, vmin=-1, vmax=1)
            if new is not None and new[layer, unit]:
                ax.add_patch(_frame(left, top, TILE))
    ax.set_yticks([pitch * (n + 0.5) for n in range(depth)], [str(n + 1) for n in range(depth)])
    ax.set_xticks([])
    ax.set_ylabel("hidden layer")
    _without_frame(ax)
    return ax


@house_style()
def sweep_strips(
    strips: Mapping[str, np.ndarray],
    ax: Axes | None = None,
    *,
    labels: Mapping[str, Sequence[str]] | None = None,
    title: str = "",
) -> Axes:
    """Pictures along sweeps, N x H x W x 3 by name: a strip for each, from the first step on.

    `labels` are written below the pictures of a strip, each in as many lines as it has.
    """
    rows = {name: np.asarray(pictures) for name, pictures in strips.items()}
    if not rows or any(p.ndim != 4 or p.shape[3] != 3 or not len(p) for p in rows.values()):
        raise DataError("a strip needs pictures of N x H x W x 3, by name: give at least one")
    texts = [text for own in (labels or {}).values() for text in own]
    below = 4 + 14 * max(text.count("\n") + 1 for text in texts) if texts else 0
    pitch, longest = PICTURE + SEAM + below, max(map(len, rows.values()))
    wide, high = longest * (PICTURE + SEAM), len(rows) * pitch
    if ax is None:
        left = MARGIN + max(text_width(short(name)) for name in rows) + 8
        figure = new_figure(left + wide + MARGIN, TOP + high + MARGIN, title or "sweeps")
        ax = axes_at(figure, left, TOP, wide, high)
    ax.set(xlim=(0, wide), ylim=(high, 0), title=title)
    for row, (name, pictures) in enumerate(rows.items()):
        for column, picture in enumerate(pictures):
            left, top = column * (PICTURE + SEAM), row * pitch
            _tile(ax, np.clip(picture, 0, 1), left, top, PICTURE)
            if labels and name in labels:
                for line, words in enumerate(labels[name][column].split("\n")):
                    y = top + PICTURE + 13 + 14 * line
                    ax.text(left + PICTURE / 2, y, words, ha="center")
    ax.set_yticks([row * pitch + PICTURE / 2 for row in range(len(rows))], [*map(short, rows)])
    ax.set_xticks([])
    _without_frame(ax)
    return ax


@house_style()
def score_against_loss(
    points: Mapping[str, Sequence[tuple[float, float]]],
    ax: Axes | None = None,
    *,
    title: str = "",
    y: str = "inflation r",
) -> Axes:
    """(loss, score) of single networks by name; the axis of losses is logarithmic.

    Networks without a finite score are left out.
    """
    finite = {
        name: [p for p in own if p[0] > 0 and math.isfinite(p[0] + p[1])]
        for name, own in points.items()
    }
    if not any(finite.values()):
        raise DataError("no network has a loss above 0 and a finite score to draw")
    if ax is None:
        rows = 18 * len(finite)
        wide, high = LEFT + WIDTH + MARGIN + 16, TOP + HEIGHT + 40 + rows + MARGIN
        figure = new_figure(wide, high, title or "score against loss")
        ax = axes_at(figure, LEFT + 16, TOP, WIDTH, HEIGHT)
    styles = looks(finite)
    for name, own in finite.items():
        losses, scores = zip(*own, strict=True) if own else ((), ())
        look: dict[str, Any] = {"color": styles[name].colour, "marker": styles[name].mark}
        ax.plot(losses, scores, linestyle="none", label=name, **look)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:.0e}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_locator(round_numbers())
    ax.set(title=title, xlabel="loss", ylabel=y)
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.2))
    return ax


def loss_and_score_by_depth(
    losses: Mapping[str, Curve], scores: Mapping[str, Curve], *, title: str = "by depth"
) -> Figure:
    """Two panels over the number of hidden layers: log10 of the loss, and the score.

    Points are a value, or (median, smallest, largest), which gives a shade.
    """
    logarithms = {
        name: {place: _log(point) for place, point in curve.items()}
        for name, curve in losses.items()
    }
    panels = {"loss": logarithms} | ({"score": scores} if any(scores.values()) else {})
    labels = {"loss": "log10 loss", "score": "inflation r"}
    return curve_panels(panels, title=title, x="hidden layers", y=labels)


def png_ratio_by_size(
    ratios: Mapping[str, Mapping[int, float]], ax: Axes | None = None, *, title: str = "PNG ratio"
) -> Axes:
    """PNG bytes over raw ones of pictures by name, against the pixels along an edge, doubling."""
    sizes = sorted({size for own in ratios.values() for size in own})
    places = {name: {math.log2(s): r for s, r in own.items()} for name, own in ratios.items()}
    names = {math.log2(size): str(size) for size in sizes}
    return curves(places, ax, title=title, x="pixels along an edge", y="PNG / raw", x_names=names)


@house_style()
def volume_map(
    shares: Sequence[Sequence[float]],
    widths: Sequence[int],
    depths: Sequence[int],
    ax: Axes | None = None,
    *,
    title: str = "",
) -> Axes:
    """The share of networks past the thresholds: a row for each width, a column for each depth."""
    cells = np.asarray(shares, dtype=float)
    if cells.shape != (len(widths), len(depths)):
        raise DataError(
            f"the shares are {cells.shape}: expected a row for each of {len(widths)} widths and a "
            f"column for each of {len(depths)} depths"
        )
    wide, high = CELL * len(depths), CELL * len(widths) * 0.6
    if ax is None:
        size = (LEFT + wide + MARGIN + 8, TOP + high + 44 + MARGIN)
        figure = new_figure(*size, title or "share of networks")
        ax = axes_at(figure, LEFT + 8, TOP, wide, high)
    ax.imshow(cells, cmap=WOOD, vmin=0, vmax=1, aspect="auto", interpolation="none")
    for (row, column), share in np.ndenumerate(cells):
        if math.isfinite(share):
            colour = letters_on(WOOD(share))
            ax.text(column, row, f"{share:.2f}", ha="center", va="center", color=colour)
    ax.grid(False)
    ax.set_xticks(range(len(depths)), [str(depth) for depth in depths])
    ax.set_yticks(range(len(widths)), [str(width) for width in widths])
    ax.set(title=title, xlabel="hidden layers", ylabel="width")
    return ax


def _tile(
    ax: Axes, values: np.ndarray, left: float, top: float, side: float, **colours: Any
) -> None:
    how: dict[str, Any] = {"extent": (left, left + side, top + side, top), "aspect": "auto"}
    ax.imshow(values, interpolation="none", **how, **colours)


def _frame(left: float, top: float, side: float) -> Rectangle:
    inset = 0.8  # half of the line, so that frames at the edge are seen as a whole
    return Rectangle(
        (left + inset, top + inset), side - 2 * inset, side - 2 * inset,
        fill=False, edgecolor=INK, linewidth=1.6,
    )  # fmt: skip


def _without_frame(ax: Axes) -> None:
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0)


def _log(point: Any) -> Any:
    if isinstance(point, Sequence):
        return tuple(_log(number) for number in point)
    return math.log10(point) if point > 0 else math.nan
