"""A drawing made into an input: cut out, scaled and centred like the pictures of the data."""

import base64
import binascii
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from intarsia.data import Data, evenly_spaced
from intarsia.errors import DataError

LARGEST = 64  # pixels per side of pictures that can be drawn
FINE = 224  # pixels per side, about, of the canvas that a drawing is put on before it is shrunk
INK = 0.1  # of the range: what is paler is background
LOOKED_AT = 1000  # training pictures


@dataclass(frozen=True)
class DrawingScaler:
    """The statistics of the data's pictures: size, range of values, and where the ink is."""

    height: int
    width: int
    low: float
    high: float
    side: float  # the longer side of the ink's box, the median over pictures
    centre: tuple[float, float]  # of the ink's mass, in pixels from the corner; the mean
    pen: float = 2.0  # the width of a stroke in pixels, the median

    @classmethod
    def of(cls, data: Data) -> "DrawingScaler | None":
        """Fitted on the training pictures; None for data that cannot be drawn.

        They must be small, of one channel, and empty at the edge more often than not.
        """
        shape = data.shape
        if len(shape) != 3 or shape[0] != 1 or max(shape[1:]) > LARGEST or min(shape[1:]) < 4:
            return None
        x = data.train.x[evenly_spaced(len(data.train), LOOKED_AT), 0].double()
        low = 0.0 if data.train.x.dtype == torch.uint8 else float(x.min())
        high = 255.0 if data.train.x.dtype == torch.uint8 else float(x.max())
        x = (x - low) / max(high - low, 1e-12)
        edge = torch.cat([x[:, :, 0], x[:, :, -1]], dim=1)
        inked = (x > INK).flatten(1).any(dim=1)
        if float(edge.median()) > INK or not bool(inked.any()):
            return None
        x = x[inked]
        rows, columns = ((x > INK).any(dim=d) for d in (2, 1))
        sides = torch.stack([_extent(rows), _extent(columns)]).amax(dim=0)
        centres = [_centre(picture) for picture in x]
        mean = (float(np.mean([c[0] for c in centres])), float(np.mean([c[1] for c in centres])))
        pen = float(_strokes(x).median())
        return cls(shape[1], shape[2], low, high, float(sides.median()), mean, pen)

    def transform(self, drawing: np.ndarray) -> Tensor:
        """1 x 1 x H x W raw inputs from a drawing of any size, values from 0 to 1 (ink)."""
        ink = torch.as_tensor(np.asarray(drawing, dtype=np.float64))
        rows, columns = (ink > INK).any(dim=1), (ink > INK).any(dim=0)
        if not bool(rows.any()):
            raise DataError("the drawing is empty: draw something first")
        cut = ink[_span(rows), _span(columns)]
        k = max(1, round(FINE / max(self.height, self.width)))
        scale = self.side * k / max(cut.shape)
        size = [max(1, round(scale * n)) for n in cut.shape]
        large = functional.interpolate(
            cut[None, None], size=size, mode="bilinear", antialias=True, align_corners=False
        )[0, 0]
        canvas = torch.zeros(self.height * k, self.width * k, dtype=ink.dtype)
        top, left = (
            _start(mass, k * middle, n, total)
            for mass, middle, n, total in zip(
                _centre(large), self.centre, large.shape, canvas.shape, strict=True
            )
        )
        part = large[: canvas.shape[0], : canvas.shape[1]]
        canvas[top : top + part.shape[0], left : left + part.shape[1]] = part
        small = functional.avg_pool2d(canvas[None, None], k).clamp(0, 1)
        return (self.low + small * (self.high - self.low)).to(torch.float32)


def read_drawing(text: str) -> np.ndarray:
    """What the page sends: the bytes of a square grey picture, row by row, in base64."""
    try:
        grey = np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8)
    except (binascii.Error, ValueError) as error:
        raise DataError("the drawing cannot be read: clear it and draw again") from error
    side = int(len(grey) ** 0.5)
    if side < 2 or side * side != len(grey):
        raise DataError("the drawing is not a square picture: clear it and draw again")
    return grey.reshape(side, side) / 255.0


def _extent(marked: Tensor) -> Tensor:
    """From the first to the last True of each row, both counted."""
    places = torch.arange(1, marked.shape[1] + 1)
    last = (marked * places).amax(dim=1)
    first = (marked * places.flip(0)).amax(dim=1)
    return last + first - marked.shape[1]


def _span(marked: Tensor) -> slice:
    places = marked.nonzero().flatten()
    return slice(int(places[0]), int(places[-1]) + 1)


def _centre(picture: Tensor) -> tuple[float, float]:
    """Of mass; a pixel's middle is half a pixel from its edge."""
    rows, columns = (torch.arange(n, dtype=picture.dtype) + 0.5 for n in picture.shape)
    mass = float(picture.sum())
    return (
        float((picture.sum(dim=1) * rows).sum()) / mass,
        float((picture.sum(dim=0) * columns).sum()) / mass,
    )


def _strokes(x: Tensor) -> Tensor:
    """The stroke widths of N x H x W pictures: a long stroke has two edges as long as itself.

    The length of all edges is the sum of all slopes, whatever the blur.
    """
    framed = functional.pad(x, (1, 1, 1, 1))
    down, right = framed.diff(dim=1)[:, :, :-1], framed.diff(dim=2)[:, :-1]
    edges = torch.hypot(down, right).sum(dim=(1, 2))
    return 2 * x.sum(dim=(1, 2)) / edges


def _start(mass: float, middle: float, size: int, total: int) -> int:
    """Where a part begins so that its mass is at the middle, as far as it stays on the canvas."""
    return min(max(0, round(middle - mass)), max(0, total - size))
