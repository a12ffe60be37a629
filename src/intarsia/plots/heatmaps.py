"""Heat maps: what is answered for every true class, what holds between modules, their weights."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.path import Path

from intarsia.errors import DataError
from intarsia.plots.panels import (
    GAP,
    MARGIN,
    axes_at,
    new_figure,
    per_row,
    short_names,
    text_width,
    write,
)
from intarsia.plots.style import INK, SIGNS, WOOD, house_style, largest, letters_on

CELL, TILE, SIDE = 26, 9, 120  # pixels: of a cell, of a small one, of a picture of weights
COLUMN_LETTERS = 12  # of a name above a column; one at a row may have more
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
    figure, axes = _square_panels([[title] for title in panels], catalogue, about, legend)
    for (title, counts), ax in zip(panels.items(), axes, strict=True):
        _draw_confusion(ax, counts, catalogue, title)
    return figure


def matrix(
    values: np.ndarray, names: Sequence[str], ax: Axes | None = None, *, title: str = ""
) -> Axes:
    """A measure between every two of the names; see `matrix_panels`."""
    if ax is None:
        return matrix_panels({title: values}, names).axes[0]
    _draw_matrix(ax, _square(values, names), names, title)
    return ax


@house_style()
def matrix_panels(panels: Mapping[str, np.ndarray], names: Sequence[str]) -> Figure:
    """Measures between every two of the names, side by side; nan cells stay empty.

    Colour runs from each panel's smallest value to its largest, 0.01 above it at the least; both
    are written below it. Cells have no numbers where all would be zero to two decimals.
    """
    tables = {title: _square(values, names) for title, values in panels.items()}
    lines = [[title, _scale(values)] for title, values in tables.items()]
    figure, axes = _square_panels(lines, names, "between modules: " + ", ".join(panels))
    for (title, values), ax in zip(tables.items(), axes, strict=True):
        _draw_matrix(ax, values, names, title)
    return figure


@house_style()
def answers(
    parts: Mapping[str, np.ndarray], merged: Mapping[str, np.ndarray], catalogue: Sequence[str]
) -> Figure:
    """Mean answers, C x C probabilities: the parts as small tiles, and what they make together."""
    top, side, tile = _top(catalogue), CELL * len(catalogue), TILE * len(catalogue)
    columns = -(-len(parts) // 2)
    wide, high = columns * (tile + GAP / 2) - GAP / 2, 2 * tile + GAP
    heading = "each module alone"
    legend = "rows: true class, columns: mean probability of each answer"
    block = max(wide, text_width(heading, bold=True))  # few small tiles are narrower than that
    start = MARGIN + block + GAP + 26 + GAP / 2  # an arrow is 26 long
    pitch = _label_width(catalogue) + side + GAP
    tall = max(side, high)
    width = max(
        start + pitch * len(merged) + max(0.0, _beyond(catalogue) + MARGIN - GAP),
        2 * MARGIN + text_width(legend),
    )
    height = top + tall + 20 + MARGIN
    figure = new_figure(width, height, "answers: " + ", ".join(merged))
    write(figure, MARGIN + block / 2, 22, heading, ha="center", weight="bold")
    # All tiles on one pair of axes, counted in pixels.
    drop = max(0.0, (side - high) / 2)  # centres the two rows of tiles
    ax = axes_at(figure, MARGIN + (block - wide) / 2, top + drop, wide, high)
    ax.set(xlim=(0, wide), ylim=(high, 0))
    ax.axis("off")
    letters = max(3, int((tile + GAP / 2) / 7.5))
    tiles: dict[tuple[float, float], np.ndarray] = {}
    titles = short_names(list(parts), letters)
    for place, (title, probabilities) in enumerate(zip(titles, parts.values(), strict=True)):
        row, column = divmod(place, columns)
        x, y = column * (tile + GAP / 2), row * (tile + GAP)
        ax.text(x + tile / 2, y - 6, title, ha="center")
        tiles[x, y] = _square(probabilities, catalogue)
    _cells(ax, tiles, TILE)
    arrow = axes_at(figure, MARGIN + block + GAP, top, 26, side)
    arrow.plot([0, 26, 18, 26, 18], [0, 0, 7, 0, -7], color=INK, linewidth=1)
    arrow.set(xlim=(0, 26), ylim=(-side / 2, side / 2))
    arrow.axis("off")
    for place, (title, probabilities) in enumerate(merged.items()):
        left = start + _label_width(catalogue) + place * pitch
        panel = axes_at(figure, left, top, side, side)
        _draw_cells(panel, _square(probabilities, catalogue), catalogue, title)
    write(figure, MARGIN, top + tall + 20, legend)
    return figure


@house_style()
def weights(pictures: Mapping[str, np.ndarray]) -> Figure:
    """What each module's inputs speak for, H x W by name: brown for its class, blue against it."""
    columns = per_row(len(pictures), WEIGHTS_PER_ROW)
    rows, pitch = -(-len(pictures) // columns), SIDE + GAP
    width = max(2 * MARGIN + columns * (SIDE + 14) - 14, 370)
    below = 30 + rows * pitch
    figure = new_figure(width, below + MARGIN, "weights: " + ", ".join(pictures))
    titles = short_names(list(pictures), 14)
    for place, (title, values) in enumerate(zip(titles, pictures.values(), strict=True)):
        row, column = divmod(place, columns)
        ax = axes_at(figure, MARGIN + column * (SIDE + 14), 30 + row * pitch, SIDE, SIDE)
        most = largest(values)
        how: Any = {"cmap": SIGNS, "vmin": -most, "vmax": most, "aspect": "auto"}
        ax.imshow(values, interpolation="none", **how)
        ax.set_title(title, pad=8)
        ax.axis("off")
    write(figure, MARGIN, below, "brown speaks for the module's class, blue against it")
    return figure


def _square_panels(
    lines: Sequence[Sequence[str]], names: Sequence[str], title: str, legend: Sequence[str] = ()
) -> tuple[Figure, list[Axes]]:
    """Square axes in rows, of `lines` each: the title above, and what is written below its cells.

    The lines of the legend are written below all of them.
    """
    top, side = _top(names), CELL * len(names)
    columns = per_row(len(lines), PANELS_PER_ROW)
    starts, x = [], float(MARGIN)
    for column in range(columns):
        over = [max(0.0, (_longest(own) - side) / 2) for own in lines[column::columns]]
        starts.append(x + max(_label_width(names), *over))
        x = starts[-1] + side + max(over) + GAP
    below = 18 * (len(max(lines, key=len)) - 1)
    pitch = top + side + below + GAP / 2
    rows = -(-len(lines) // max(1, columns))
    end = rows * pitch - GAP / 2
    x = max(x, starts[-1] + side + _beyond(names) + MARGIN)
    width = max(x, *(text_width(words) + 2 * MARGIN for words in ("", *legend)))
    figure = new_figure(width, end + 18 * len(legend) + MARGIN, title)
    for number, words in enumerate(legend, 1):
        write(figure, MARGIN, end + 18 * number, words)
    axes = []
    for place, own in enumerate(lines):
        row, column = divmod(place, columns)
        left, upper = starts[column], top + row * pitch
        axes.append(axes_at(figure, left, upper, side, side))
        for number, words in enumerate(own[1:], 1):
            write(figure, left + side / 2, upper + side + 18 * number, words, ha="center")
    return figure, axes


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
    _draw_cells(ax, fractions, catalogue, title)
    if len(catalogue) <= NUMBERS_UP_TO:
        _numbers(ax, {place: f"{counts[place]:.0f}" for place in _where(counts != 0)}, fractions)


def _draw_matrix(ax: Axes, values: np.ndarray, names: Sequence[str], title: str) -> None:
    low, high = _range(values)
    _draw_cells(ax, values, names, title, (low, high))
    if len(names) <= NUMBERS_UP_TO and np.nanmax(np.abs(values), initial=0) >= LEAST / 2:
        # Two decimals without the leading zero: the cells are narrow.
        texts = {
            place: f"{round(values[place], 2) + 0.0:.2f}".replace("0.", ".", 1)
            for place in _where(np.isfinite(values))
        }
        _numbers(ax, texts, (values - low) / (high - low))


def _draw_cells(
    ax: Axes,
    values: np.ndarray,
    names: Sequence[str],
    title: str,
    ends: tuple[float, float] = (0.0, 1.0),
) -> None:
    """The cells with names at their left and above them, on axes that count cells."""
    count = len(names)
    ax.set(xlim=(0, count), ylim=(count, 0))
    ax.grid(False)
    ax.spines[:].set_visible(False)
    _cells(ax, {(0, 0): values}, 1, ends)
    middles = np.arange(count) + 0.5
    ax.set_yticks(middles, short_names(names))
    ax.xaxis.tick_top()
    if _upright(names):
        ax.set_xticks(middles, names)
    else:  # rise to the right, and stay out of the next column
        turned: Any = {"rotation": 45, "ha": "left", "va": "bottom", "rotation_mode": "anchor"}
        ax.set_xticks(middles, short_names(names, COLUMN_LETTERS), **turned)
        ax.tick_params(axis="x", pad=3)
    ax.set_title(title, pad=_top(names) - 22)


def _cells(
    ax: Axes,
    blocks: Mapping[tuple[float, float], np.ndarray],
    cell: float,
    ends: tuple[float, float] = (0.0, 1.0),
) -> None:
    """Matrices by the place of their corner; cells are many, colours few: one path for each."""
    low, high = ends
    side = cell - 1 if cell > 1 else 1 - 1 / CELL  # a pixel between cells
    outline = np.array([[0, 0], [side, 0], [side, side], [0, side], [0, 0]])
    pen = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    steps = np.concatenate([(own.ravel() - low) / (high - low) for own in blocks.values()])
    steps = np.nan_to_num(np.round(steps * (WOOD.N - 1)), nan=-1)
    places = [np.argwhere(np.ones(own.shape))[:, ::-1] * cell + at for at, own in blocks.items()]
    corners = np.concatenate(places)  # x, y
    paths, values = [], []
    for step in np.unique(steps):
        squares = corners[steps == step][:, None] + outline
        paths.append(Path(squares.reshape(-1, 2), pen * len(squares)))
        values.append(low + (high - low) * step / (WOOD.N - 1) if step >= 0 else np.nan)
    drawn = PathCollection(paths)
    drawn.set(array=np.ma.masked_invalid(values), cmap=WOOD, clim=ends, linewidth=0)
    ax.add_collection(drawn, autolim=False)


def _where(mask: np.ndarray) -> list[tuple[int, int]]:
    return [(int(row), int(column)) for row, column in np.argwhere(mask)]


def _numbers(ax: Axes, texts: Mapping[tuple[int, int], str], fractions: np.ndarray) -> None:
    """Texts by row and column, in letters that stand out from their cells."""
    middle = 0.5 - 0.5 / CELL
    for (row, column), words in texts.items():
        colour = letters_on(WOOD(np.nan_to_num(fractions[row, column])))
        size = 10 if len(words) > 3 or "." in words else 12
        how: Any = {"ha": "center", "va": "center_baseline", "fontsize": size, "color": colour}
        ax.text(column + middle, row + middle, words, **how)


def _range(values: np.ndarray) -> tuple[float, float]:
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
    if most - low < LEAST / 4:  # too near one another for colours
        return f"{low:.3g} to {most:.3g}, all pale"
    return f"{low:.3g} (pale) to {high:.3g} (dark)"


def _top(names: Sequence[str]) -> float:
    """Where the cells begin: below the title and the names of the columns."""
    return 46 if _upright(names) else 34 + _rise(names)


def _upright(names: Sequence[str]) -> bool:
    """Whether the names fit above their columns as they are."""
    return all(len(name) <= 3 for name in names)


def _rise(names: Sequence[str]) -> float:
    """How high the names above the columns reach where they are turned, and how far to the right.

    Half a right angle: the width of the longest and the height of its letters, over a root of two.
    """
    widest = max(map(text_width, short_names(names, COLUMN_LETTERS)))
    return (widest + CELL / 2) / math.sqrt(2)


def _beyond(names: Sequence[str]) -> float:
    """How far the name above the last column may reach beyond it."""
    return 0.0 if _upright(names) else max(0.0, _rise(names) - CELL / 2)


def _label_width(names: Sequence[str]) -> float:
    return 8 + max(map(text_width, short_names(names)))


def _longest(lines: Sequence[str]) -> float:
    return max(text_width(words, bold=number == 0) for number, words in enumerate(lines))
