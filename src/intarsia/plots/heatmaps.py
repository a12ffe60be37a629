"""Heat maps: what is answered for every true class, what holds between modules, their weights."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from intarsia.errors import DataError
from intarsia.plots.panels import (
    GAP,
    MARGIN,
    ROW,
    Reach,
    axes_at,
    fitted,
    grid,
    new_figure,
    short,
    text_width,
    write_below,
)
from intarsia.plots.style import INK, PAPER, SIGNS, WOOD, house_style, largest, letters_on

CELL, TILE, SIDE = 26, 9, 120  # pixels: of a cell, of a small one, of a picture of weights
MIDDLE = 0.5 - 0.5 / CELL  # of a cell, without the pixel to the next
NUMBERS_UP_TO = 20  # classes; beyond, cells are too small for their counts
PANELS_PER_ROW, WEIGHTS_PER_ROW = 3, 5
LEAST = 0.01  # between pale and dark: what two decimals cannot tell apart should not look unlike


def confusion(
    counts: np.ndarray, catalogue: Sequence[str], ax: Axes | None = None, *, title: str = ""
) -> Axes:
    """A confusion matrix, C x C counts; colour is the fraction of the row."""
    if ax is None:
        return confusion_panels({title: counts}, catalogue).axes[0]
    _draw_confusion(ax, counts, catalogue, title)
    ax.set(xlabel="answer", ylabel="true class")
    return ax


@house_style()
def confusion_panels(panels: Mapping[str, np.ndarray], catalogue: Sequence[str]) -> Figure:
    """Confusion matrices by title, side by side."""
    legend = ("rows: true class, columns: answer", "darker: a larger fraction of its row")
    about = "confusion: " + ", ".join(panels)
    figure, axes = _square_panels(about, list(panels), catalogue, legend=legend)
    for (title, counts), ax in zip(panels.items(), axes, strict=True):
        _draw_confusion(ax, counts, catalogue, title)
    write_below(figure, *legend)
    return figure


def matrix(
    values: np.ndarray, names: Sequence[str], ax: Axes | None = None, *, title: str = ""
) -> Axes:
    """A measure between every two of the names; see `matrix_panels`."""
    if ax is None:
        return matrix_panels({title: values}, names).axes[0]
    _draw_matrix(ax, values, names, title)
    return ax


@house_style()
def matrix_panels(panels: Mapping[str, np.ndarray], names: Sequence[str]) -> Figure:
    """Measures between every two of the names, side by side; nan cells stay empty.

    Colour runs from each panel's smallest value to its largest, 0.01 above it at the least; both
    are written below it. Cells have no numbers where all would be zero to two decimals.
    """
    scales = [_scale(np.asarray(values)) for values in panels.values()]
    about = "between modules: " + ", ".join(panels)
    figure, axes = _square_panels(about, list(panels), names, scales)
    for (title, values), ax, scale in zip(panels.items(), axes, scales, strict=True):
        _draw_matrix(ax, values, names, title)
        ax.set_xlabel(scale)
    return figure


@house_style()
def answers(
    parts: Mapping[str, np.ndarray], merged: Mapping[str, np.ndarray], catalogue: Sequence[str]
) -> Figure:
    """Mean answers, C x C probabilities: the parts as small tiles, and what they make together."""
    count, top, labels = len(catalogue), _top(catalogue), _label_width(catalogue)
    side, tile, columns = CELL * count, TILE * count, math.ceil(len(parts) / 2)
    wide, high = columns * (tile + GAP / 2) - GAP / 2, 2 * tile + GAP
    start = MARGIN + wide + GAP + 26 + GAP / 2  # an arrow is 26 long
    pitch, tall = labels + side + GAP, max(side, high)
    about = "answers: " + ", ".join(merged)
    figure = new_figure(start + pitch * len(merged), top + tall + 20 + MARGIN, about)
    # All tiles on one pair of axes, counted in their cells.
    drop = max(0.0, (side - high) / 2)  # centres the two rows of tiles
    ax = axes_at(figure, MARGIN, top + drop, wide, high)
    for place, (title, probabilities) in enumerate(parts.items()):
        row, column = divmod(place, columns)
        x, y = column * (count + GAP / 2 / TILE), row * (count + GAP / TILE)
        ax.text(x + count / 2, y - 6 / TILE, fitted(title, tile + GAP / 2), ha="center")
        _draw_cells(ax, _square(probabilities, catalogue), corner=(x, y), pixels=TILE)
    ax.set(xlim=(0, wide / TILE), ylim=(high / TILE, 0))
    ax.set_title("each module alone", pad=top + drop - 22)
    ax.axis("off")
    arrow = axes_at(figure, MARGIN + wide + GAP, top, 26, side)
    arrow.plot([0, 26, 18, 26, 18], [0, 0, 7, 0, -7], color=INK, linewidth=1)
    arrow.set(xlim=(0, 26), ylim=(-side / 2, side / 2))
    arrow.axis("off")
    for place, (title, probabilities) in enumerate(merged.items()):
        panel = axes_at(figure, start + labels + place * pitch, top, side, side)
        _draw_named(panel, _square(probabilities, catalogue), catalogue, title)
    write_below(figure, "rows: true class, columns: mean probability of each answer")
    return figure


@house_style()
def weights(pictures: Mapping[str, np.ndarray]) -> Figure:
    """What each module's inputs speak for, H x W by name: brown for its class, blue against it."""
    about, around = "weights: " + ", ".join(pictures), (0, GAP, 14, 0)
    size, count = (SIDE, SIDE), len(pictures)
    figure, axes = grid(about, count, WEIGHTS_PER_ROW, size, around, foot=GAP, least=370)
    for (name, values), ax in zip(pictures.items(), axes, strict=True):
        most = largest(values)
        how: Any = {"cmap": SIGNS, "vmin": -most, "vmax": most, "aspect": "auto"}
        ax.imshow(values, interpolation="none", **how)
        ax.set_title(short(name, 14), pad=8)
        ax.axis("off")
    write_below(figure, "brown speaks for the module's class, blue against it")
    return figure


def _square_panels(
    about: str,
    titles: Sequence[str],
    names: Sequence[str],
    captions: Sequence[str] = (),
    legend: Sequence[str] = (),
) -> tuple[Figure, list[Axes]]:
    """Square axes in rows, with room for their titles, captions and names, and the legend below."""
    side = CELL * len(names)
    longest = max(text_width(*titles, weight="bold"), text_width(*captions))
    over = max(0.0, (longest - side) / 2)
    below = GAP / 2 + ROW * bool(captions)
    around = (max(_label_width(names), over), _top(names), over + GAP, below)
    foot, least = ROW * len(legend) - GAP / 2, text_width(*legend) + 2 * MARGIN
    size, count = (side, side), len(titles)
    return grid(about, count, PANELS_PER_ROW, size, around, foot, least)


def _square(values: np.ndarray, names: Sequence[str]) -> np.ndarray:
    values = np.asarray(values)
    if values.shape != (len(names), len(names)):
        raise DataError(
            f"the picture needs a matrix {len(names)} x {len(names)}, a row and a column "
            f"for each name; got {' x '.join(map(str, values.shape))}"
        )
    return values.astype(float)


def _draw_confusion(ax: Axes, counts: np.ndarray, catalogue: Sequence[str], title: str) -> None:
    counts = _square(counts, catalogue)
    with np.errstate(invalid="ignore"):
        fractions = counts / counts.sum(axis=1, keepdims=True)  # nan in rows without samples
    texts = np.vectorize(lambda count: f"{count:.0f}" if count else "", otypes=[object])(counts)
    _draw_named(ax, fractions, catalogue, title, texts)


def _draw_matrix(ax: Axes, values: np.ndarray, names: Sequence[str], title: str) -> None:
    values = _square(values, names)

    def text(value: float) -> str:
        """Two decimals without the leading zero: the cells are narrow."""
        if not np.isfinite(value):
            return ""
        return f"{round(value, 2) + 0.0:.2f}".replace("0.", ".", 1)

    some = np.nanmax(np.abs(values), initial=0) >= LEAST / 2
    texts = np.vectorize(text, otypes=[object])(values) if some else None
    _draw_named(ax, values, names, title, texts, _range(values))


def _draw_named(
    ax: Axes,
    values: np.ndarray,
    names: Sequence[str],
    title: str,
    texts: np.ndarray | None = None,
    ends: Reach = (0.0, 1.0),
) -> None:
    """The cells with names at their left and above them, and texts in letters that stand out."""
    ax.grid(False)
    ax.spines[:].set_visible(False)
    _draw_cells(ax, values, ends)
    middles = np.arange(len(names)) + 0.5
    ax.set_yticks(middles, [short(name) for name in names])
    ax.xaxis.tick_top()
    if all(len(name) <= 3 for name in names):
        ax.set_xticks(middles, names)
    else:  # rise to the right, and stay out of the next column
        turned: Any = {"rotation": 45, "ha": "left", "va": "bottom", "rotation_mode": "anchor"}
        ax.set_xticks(middles, [short(name, 7) for name in names], **turned)
        ax.tick_params(axis="x", pad=3)
    ax.set_title(title, pad=_top(names) - 22)
    if texts is None or len(names) > NUMBERS_UP_TO:
        return
    shades = np.nan_to_num((values - ends[0]) / (ends[1] - ends[0]))
    for (row, column), text in np.ndenumerate(texts):
        if text:
            how: Any = {"ha": "center", "va": "center_baseline"}
            how |= {"fontsize": 10 if len(text) > 3 or "." in text else 12}
            how |= {"color": letters_on(tuple(WOOD(shades[row, column])))}
            ax.text(column + MIDDLE, row + MIDDLE, text, **how)


def _draw_cells(
    ax: Axes,
    values: np.ndarray,
    ends: Reach = (0.0, 1.0),
    corner: tuple[float, float] = (0.0, 0.0),
    pixels: int = CELL,
) -> None:
    """A matrix as an image whose cells are of size 1, with a pixel of paper between them."""
    (x, y), count = corner, len(values)
    how: Any = {"cmap": WOOD, "vmin": ends[0], "vmax": ends[1], "interpolation": "none"}
    ax.imshow(values, extent=(x, x + count, y + count, y), **how)
    between = np.arange(1, count + 1) - 0.5 / pixels
    ax.vlines(x + between, y, y + count, color=PAPER, linewidth=1)
    ax.hlines(y + between, x, x + count, color=PAPER, linewidth=1)
    ax.set(xlim=(x, x + count), ylim=(y + count, y))


def _range(values: np.ndarray) -> Reach:
    """What is palest and what is darkest."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low = float(known.min())
    return low, max(float(known.max()), low + LEAST)


def _scale(values: np.ndarray) -> str:
    """The same in words."""
    if not np.isfinite(values).any():
        return "no values"
    (low, high), most = _range(values), float(np.nanmax(values))
    if most < high:  # too near one another for a scale of their own
        return f"{low:.1g} to {most:.1g}, all pale"
    return f"{low:.3g} (pale) to {high:.3g} (dark)"


def _top(names: Sequence[str]) -> float:
    """Where the cells begin: below the title and the names of the columns."""
    return 46 if all(len(name) <= 3 for name in names) else 80


def _label_width(names: Sequence[str]) -> float:
    return 8 + text_width(*map(short, names))
