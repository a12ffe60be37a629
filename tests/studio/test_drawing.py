"""A drawing becomes a picture like those of the data: as large, in the same place, as dark."""

import base64

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.data import Split
from intarsia.errors import DataError
from intarsia.studio.drawing import DrawingScaler, read_drawing


def bar(height: int, width: int, top: int, left: int, side: int = 112) -> np.ndarray:
    drawing = np.zeros((side, side))
    drawing[top : top + height, left : left + width] = 1.0
    return drawing


def pictures(size: int, box: slice, high: int = 255) -> ia.Data:
    x = np.zeros((60, size, size), np.uint8)
    x[:, box, box] = high
    return ia.load_data(x, np.arange(60) % 3)


def test_paper_is_read_off_the_pictures() -> None:
    paper = DrawingScaler.of(pictures(28, slice(4, 24)))
    assert paper is not None
    # 20 pixels of slope at each edge; in one corner, two of them are one diagonal.
    assert paper.pen == pytest.approx(2 * 400 / (78 + 2**0.5))
    assert paper == DrawingScaler(28, 28, 0.0, 255.0, 20.0, (14.0, 14.0), paper.pen)
    off = DrawingScaler.of(pictures(16, slice(2, 8)))
    assert off is not None
    assert (off.side, off.centre) == (6.0, (5.0, 5.0))


@pytest.mark.parametrize("blur", [1, 3])
@pytest.mark.parametrize("width", [3, 6])
def test_the_pen_is_as_wide_as_the_strokes(width: int, blur: int) -> None:
    x = torch.zeros(60, 1, 60, 60)
    x[:, :, 5:55, 20 : 20 + width] = 255.0  # a long stroke down
    x = torch.nn.functional.avg_pool2d(x, blur, stride=1, padding=blur // 2)
    paper = DrawingScaler.of(ia.load_data(x[:, 0].round().byte().numpy(), np.arange(60) % 3))
    assert paper is not None
    assert paper.pen == pytest.approx(width, rel=0.12)


@pytest.mark.parametrize(("top", "left"), [(0, 0), (30, 60), (52, 12)])
@pytest.mark.parametrize("size", [1, 2])
def test_a_drawing_is_scaled_and_centred_wherever_it_was_drawn(
    top: int, left: int, size: int
) -> None:
    paper = DrawingScaler(28, 28, 0.0, 255.0, 20.0, (14.0, 14.0))
    # Twice as high as wide: 20 by 10 pixels, its middle in the middle.
    result = paper.transform(bar(30 * size, 15 * size, top, left))
    expected = torch.zeros(28, 28)
    expected[4:24, 9:19] = 255.0
    assert result.shape == (1, 1, 28, 28)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result[0, 0], expected, atol=20.0, rtol=0)


def test_ink_that_is_heavy_on_one_side_stays_on_the_page() -> None:
    drawing = np.zeros((112, 112))
    drawing[:, 56] = 1.0  # a thin line down, with a heavy foot
    drawing[90:112, 20:92] = 1.0
    result = DrawingScaler(8, 8, 0.0, 16.0, 8.0, (4.0, 4.0)).transform(drawing)[0, 0]
    assert float(result[0].max()) > 0.2  # the top of the line
    assert float(result[7].max()) > 14
    assert float(result.max()) <= 16.0


def test_drawn_samples_are_known_again(digits: ia.Data) -> None:
    """Digits blown up, moved, and laid onto the paper look like others of their class."""
    paper = DrawingScaler.of(digits)
    assert paper is not None
    known = digits.train.x[:, 0]
    right = 0
    for picture, label in zip(digits.test.x[:60, 0], digits.test.y[:60], strict=True):
        page = np.zeros((112, 112))
        page[20:100, 5:85] = np.kron(picture.numpy() / 16.0, np.ones((10, 10)))
        nearest = (known - paper.transform(page)[0, 0]).square().sum(dim=(1, 2)).argmin()
        right += int(digits.train.y[nearest] == label)
    assert right >= 57


def test_what_cannot_be_drawn_has_no_paper() -> None:
    table = ia.load_data(np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3)
    assert DrawingScaler.of(table) is None
    bright = ia.load_data(np.full((60, 8, 8), 200, np.uint8), np.arange(60) % 3)
    assert DrawingScaler.of(bright) is None
    assert DrawingScaler.of(pictures(100, slice(4, 24))) is None
    blank = pictures(28, slice(4, 24))
    empty = Split(torch.zeros_like(blank.train.x), blank.train.y)
    assert DrawingScaler.of(ia.Data.build("blank", "abc", empty, empty, empty, "unit")) is None


def test_the_pages_bytes_are_read_or_refused() -> None:
    grey = np.arange(9, dtype=np.uint8).reshape(3, 3) * 30
    text = base64.b64encode(grey.tobytes()).decode()
    np.testing.assert_allclose(read_drawing(text), grey / 255)
    for bad in ("???", base64.b64encode(b"12345").decode(), ""):
        with pytest.raises(DataError, match="draw again"):
            read_drawing(bad)
    with pytest.raises(DataError, match="the drawing is empty"):
        DrawingScaler(8, 8, 0.0, 16.0, 8.0, (4.0, 4.0)).transform(np.zeros((10, 10)))
