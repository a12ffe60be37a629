"""Heat maps: what is answered for every true class, and what holds between every two modules."""

from collections.abc import Mapping, Sequence

import numpy as np

from intarsia.errors import DataError
from intarsia.figures.styles import letters_on
from intarsia.figures.svg import EMPTY, GAP, INK, LETTER, MARGIN, page, per_row, short, text

PALE, DARK = (0xF7, 0xF1, 0xE6), (0x5A, 0x2D, 0x0C)  # maple to walnut
CELL, TILE = 26, 9  # pixels
NUMBERS_UP_TO = 20  # classes; beyond, cells are too small for their counts
PANELS_A_ROW = 3
LEAST = 0.01  # between pale and dark: what two decimals cannot tell apart should not look unlike


def confusion_figure(panels: Mapping[str, np.ndarray], catalogue: Sequence[str]) -> str:
    """Confusion matrices side by side, C x C counts by title; colour is the share of the row."""
    marks = []
    corners, width, below = _corners([[title] for title in panels], catalogue, GAP / 2)
    for (title, counts), (x, y) in zip(panels.items(), corners, strict=True):
        counts = _square(counts, catalogue)
        marks += _panel(x, y, title, _shares(counts), catalogue)
        if len(catalogue) <= NUMBERS_UP_TO:
            marks += _counts(x, y, counts)
    for legend in ("rows: true class, columns: answer", "darker: a larger share of its row"):
        below += 18
        marks.append(text(MARGIN, below, legend))
        width = max(width, LETTER * len(legend) + 2 * MARGIN)
    return page(width, below + MARGIN, marks, "confusion: " + ", ".join(panels))


def answers_figure(
    parts: Mapping[str, np.ndarray], merged: Mapping[str, np.ndarray], catalogue: Sequence[str]
) -> str:
    """Mean answers, C x C probabilities: the parts as small tiles, and what they make together."""
    marks = []
    top = _top(catalogue)
    tile, side = TILE * len(catalogue), CELL * len(catalogue)
    columns = -(-len(parts) // 2)
    width = columns * (tile + GAP / 2) - GAP / 2
    marks.append(text(MARGIN + width / 2, 22, "each module alone", "middle", bold=True))
    drop = max(0.0, (side - 2 * tile - GAP) / 2)  # centres the two rows of tiles
    for place, (title, answers) in enumerate(parts.items()):
        row, column = divmod(place, columns)
        x, y = MARGIN + column * (tile + GAP / 2), top + drop + row * (tile + GAP)
        letters = max(3, int((tile + GAP / 2) / LETTER))
        marks.append(text(x + tile / 2, y - 7, short(title, letters), "middle"))
        marks.append(_grid(x, y, TILE, _square(answers, catalogue)))
    x = MARGIN + width + GAP
    middle = top + side / 2
    marks.append(f'<path d="M{x:g} {middle:g}h26m-8 -7l8 7l-8 7" fill="none" stroke="{INK}"/>')
    x += 26 + GAP / 2
    for title, answers in merged.items():
        x += _label_width(catalogue)
        marks += _panel(x, top, title, _square(answers, catalogue), catalogue)
        x += side + GAP
    below = top + max(side, 2 * tile + GAP) + 20
    marks.append(text(MARGIN, below, "rows: true class, columns: mean probability of each answer"))
    return page(x, below + MARGIN, marks, "answers: " + ", ".join(merged))


def matrix_figure(panels: Mapping[str, np.ndarray], names: Sequence[str]) -> str:
    """Measures between every two of the names, side by side; nan cells stay empty.

    Colour runs from each panel's smallest value to its largest, 0.01 above it at the least; both
    are written below it. Cells have no numbers where all would be zero to two decimals.
    """
    marks, side = [], CELL * len(names)
    tables = {title: _square(values, names).astype(float) for title, values in panels.items()}
    scales = [_scale(values) for values in tables.values()]
    lines = [[title, scale] for title, scale in zip(tables, scales, strict=True)]
    corners, width, below = _corners(lines, names, 16 + GAP / 2)
    for (title, scale), values, (x, y) in zip(lines, tables.values(), corners, strict=True):
        low, high = _range(values)
        shares = (values - low) / (high - low)
        marks += _panel(x, y, title, shares, names)
        if len(names) <= NUMBERS_UP_TO and np.nanmax(np.abs(values), initial=0) >= LEAST / 2:
            marks += _numbers(x, y, values, shares)
        marks.append(text(x + side / 2, y + side + 16, scale, "middle"))
    return page(width, below + 16 + MARGIN, marks, "between modules: " + ", ".join(panels))


def _corners(
    lines: Sequence[Sequence[str]], names: Sequence[str], below: float
) -> tuple[list[tuple[float, float]], float, float]:
    """Where the cells of each panel begin, the width of the page, and where the last cells end.

    Each panel has its own lines, above and below its cells; `below` is what they take below.
    """
    top, side = _top(names), CELL * len(names)
    columns = per_row(len(lines), PANELS_A_ROW)
    starts, x = [], float(MARGIN)
    for column in range(columns):
        beside = [_beside(names, side, *own) for own in lines[column::columns]]
        starts.append(x + max(left for left, _ in beside))
        x = starts[-1] + side + max(right for _, right in beside) + GAP
    rows, pitch = -(-len(lines) // max(1, columns)), top + side + below
    corners = [(x, top + row * pitch) for row in range(rows) for x in starts][: len(lines)]
    return corners, x, top + side + max(0, rows - 1) * pitch


def _square(matrix: np.ndarray, catalogue: Sequence[str]) -> np.ndarray:
    matrix = np.asarray(matrix)
    if matrix.shape != (len(catalogue), len(catalogue)):
        raise DataError(
            f"the picture needs a matrix {len(catalogue)} x {len(catalogue)}, a row and a column "
            f"for each name; got {' x '.join(map(str, matrix.shape))}"
        )
    return matrix


def _shares(counts: np.ndarray) -> np.ndarray:
    """Each row's distribution; nan in rows without samples."""
    with np.errstate(invalid="ignore"):
        return counts / counts.sum(axis=1, keepdims=True)


def _panel(
    x: float, y: float, title: str, shares: np.ndarray, catalogue: Sequence[str]
) -> list[str]:
    above = y - _top(catalogue) + 22
    name = text(x + CELL * len(catalogue) / 2, above, title, "middle", bold=True)
    return [name, _grid(x, y, CELL, shares), *_labels(x, y, catalogue)]


def _grid(x: float, y: float, cell: int, shares: np.ndarray) -> str:
    """One path for each colour: cells are many, colours few."""
    side = cell - 1
    paths: dict[str, list[str]] = {}
    for (row, column), share in np.ndenumerate(shares):
        square = f"M{x + column * cell:g} {y + row * cell:g}h{side}v{side}h-{side}z"
        paths.setdefault(_colour(share), []).append(square)
    return "".join(f'<path fill="{c}" d="{"".join(squares)}"/>' for c, squares in paths.items())


def _colour(share: float) -> str:
    if np.isnan(share):
        return EMPTY
    share = min(max(float(share), 0.0), 1.0)
    mixed = [round(p + (d - p) * share) for p, d in zip(PALE, DARK, strict=True)]
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _counts(x: float, y: float, counts: np.ndarray) -> list[str]:
    shares = np.nan_to_num(_shares(counts))
    return [
        text(
            x + (column + 0.5) * CELL - 0.5,
            y + (row + 0.5) * CELL + 3.5,
            str(int(counts[row, column])),
            "middle",
            colour=letters_on(_colour(shares[row, column])),
            extra=' font-size="10"' if counts[row, column] > 999 else "",
        )
        for row, column in zip(*np.nonzero(counts), strict=True)
    ]


def _range(values: np.ndarray) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not len(known):
        return np.nan, np.nan
    low = float(known.min())
    return low, max(float(known.max()), low + LEAST)


def _scale(values: np.ndarray) -> str:
    low, high = _range(values)
    if not np.isfinite(low):
        return "no values"
    most = float(np.nanmax(values))
    if most < high:  # too near one another for a scale of their own
        return f"{low:.1g} to {most:.1g}, all pale"
    return f"{low:.3g} (pale) to {high:.3g} (dark)"


def _numbers(x: float, y: float, values: np.ndarray, shares: np.ndarray) -> list[str]:
    """Two decimals without the leading zero: the cells are narrow."""
    return [
        text(
            x + (column + 0.5) * CELL - 0.5,
            y + (row + 0.5) * CELL + 3.5,
            f"{round(values[row, column], 2) + 0.0:.2f}".replace("0.", ".", 1),
            "middle",
            colour=letters_on(_colour(shares[row, column])),
            extra=' font-size="10"',
        )
        for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True)
    ]


def _labels(x: float, y: float, catalogue: Sequence[str]) -> list[str]:
    marks = []
    for place, name in enumerate(catalogue):
        centre = (place + 0.5) * CELL
        marks.append(text(x - 6, y + centre + 3.5, short(name), "end"))
        if len(name) <= 3:
            marks.append(text(x + centre, y - 7, name, "middle"))
        else:  # rises to the right, and stays out of its neighbour's column
            turn = f' transform="rotate(-45 {x + centre:g} {y - 5:g})"'
            marks.append(text(x + centre, y - 5, short(name, 7), "start", extra=turn))
    return marks


def _top(catalogue: Sequence[str]) -> float:
    """Where the cells begin: below the title and the names of the columns."""
    return 46 if all(len(name) <= 3 for name in catalogue) else 76


def _beside(names: Sequence[str], side: float, *lines: str) -> tuple[float, float]:
    """What a panel takes at the left of its cells and at their right: names, and centred lines."""
    over = max(0.0, (LETTER * max(map(len, lines)) - side) / 2)
    return max(_label_width(names), over), over


def _label_width(catalogue: Sequence[str]) -> float:
    return 8 + LETTER * max(len(short(name)) for name in catalogue)
