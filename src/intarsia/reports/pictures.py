"""Small pictures of weights: as PNG inside a page, and together as one SVG."""

from collections.abc import Mapping
from html import escape

import numpy as np

from intarsia.figures.png import png as encoded
from intarsia.figures.svg import GAP, MARGIN, page, per_row, short, text

# Against, nothing, for: two hues that colour-blind eyes tell apart, over the page's own paper.
AGAINST, NOTHING, FOR = (0x0A, 0x3A, 0x8C), (0xF7, 0xF1, 0xE6), (0x7A, 0x3A, 0x0A)
LARGEST = 96  # pixels of a side; larger pictures are thinned out
SIDE = 120  # of a picture in the figure of all of them
A_ROW = 5
Size = tuple[int, int]


def picture_of(weights: np.ndarray) -> np.ndarray | None:
    """Weights of an image, summed over its channels, H x W; None of what is no image."""
    if weights.ndim == 2:
        weights = weights[None]
    if weights.ndim != 3 or min(weights.shape[1:]) < 2:
        return None
    flat = weights.sum(axis=0)
    step = -(-max(flat.shape) // LARGEST)
    return flat[::step, ::step]


def png(values: np.ndarray) -> str:
    """H x W numbers as the address of a picture: zero pale, the largest magnitude darkest."""
    most = float(np.abs(values).max()) or 1.0
    shades = np.rint(127.5 * (1 + values / most)).astype(np.uint8)
    return encoded(shades[..., None], _palette().tobytes())


def scale_png() -> str:
    """The colours from against to for, as a strip."""
    return png(np.linspace(-1, 1, 64)[None])


def weights_figure(pictures: Mapping[str, np.ndarray]) -> str:
    """The pictures of all modules, with their names."""
    columns, pitch = per_row(len(pictures), A_ROW), SIDE + GAP
    marks = []
    for place, (name, values) in enumerate(pictures.items()):
        row, column = divmod(place, columns)
        x, y = MARGIN + column * (SIDE + 14), 30 + row * pitch
        marks.append(text(x + SIDE / 2, y - 8, short(name), "middle", bold=True))
        marks.append(
            f'<image x="{x:g}" y="{y:g}" width="{SIDE}" height="{SIDE}" href="{png(values)}" '
            'style="image-rendering:pixelated"/>'
        )
    rows = -(-len(pictures) // columns)
    width, below = 2 * MARGIN + columns * (SIDE + 14) - 14, 30 + rows * pitch
    legend = "brown speaks for the module's class, blue against it"
    marks.append(text(MARGIN, below, legend))
    return page(max(width, 340), below + MARGIN, marks, "weights: " + ", ".join(pictures))


def strip(units: np.ndarray) -> str:
    """Which of a layer's units live, as a row of lines in the colour of the text around it."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], units.astype(int), [0]])))
    runs = "".join(f"M{a} .5H{b}" for a, b in edges.reshape(-1, 2).tolist())
    return (
        f'<svg class="units" viewBox="0 0 {len(units)} 1" preserveAspectRatio="none" '
        f'aria-hidden="true"><path d="{runs}" stroke="currentColor"/></svg>'
    )


def bar(share: float) -> str:
    """A filled share, in the colour of the text around it; a sentence beside it says how much."""
    width = 100 * min(max(share, 0.0), 1.0)
    return (
        '<svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'
        f'<path d="M0 .5H{width:.2f}" stroke="currentColor"/></svg>'
    )


def image(values: np.ndarray, label: str) -> str:
    """A picture of weights in the page; `label` is what a screen reader says in its place."""
    height, width = values.shape
    return (
        f'<img src="{png(values)}" width="{width}" height="{height}" alt="{escape(label)}" '
        f'style="--shape:{width}/{height}">'
    )


def _palette() -> np.ndarray:
    """256 colours, 3 bytes each."""
    t = np.linspace(-1, 1, 256)[:, None]
    ends = np.where(t < 0, AGAINST, FOR)
    return np.rint(np.array(NOTHING) * (1 - abs(t)) + ends * abs(t)).astype(np.uint8)
