"""Figures in files: what is drawn arrives in every format, and endings are checked first."""

import io
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from intarsia.errors import FileError
from intarsia.figures import line_figure
from intarsia.figures.convert import SCALE, figure_format, save_figure

WORDS = '<text x="20" y="30" font-family="sans-serif" font-size="16">Hamburg</text>'
SHAPES = (
    '<rect x="10" y="40" width="30" height="20" fill="#ff0000"/>'
    '<path d="M60 40 h20 v20 h-20 z" fill="#0000ff"/>'
)


def drawing(body: str) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 80" width="100" height="80">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{body}</svg>'
    )


def picture(path: Path, body: str) -> np.ndarray:
    """Red, green and blue of a drawing that went through a PNG."""
    save_figure(path, drawing(body))
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def test_svg_is_written_as_it_is(tmp_path: Path) -> None:
    save_figure(tmp_path / "new" / "a.svg", drawing(WORDS))
    assert (tmp_path / "new" / "a.svg").read_text() == drawing(WORDS)


def test_png_has_the_shapes_where_they_were_drawn(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    pixels = picture(tmp_path / "a.png", SHAPES)
    assert pixels.shape == (80 * SCALE, 100 * SCALE, 3)
    middles = {(20, 50): (255, 0, 0), (70, 50): (0, 0, 255), (50, 10): (255, 255, 255)}
    for (x, y), colour in middles.items():
        assert tuple(pixels[y * SCALE, x * SCALE]) == colour
    red = (pixels == (255, 0, 0)).all(axis=2).sum()
    assert red == 30 * 20 * SCALE**2


def test_png_has_the_words(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    ink = picture(tmp_path / "a.png", WORDS).sum(axis=2) < 300
    rows, columns = np.nonzero(ink)
    # letters of 16 pixels stand on y = 30, from x = 20 on, and are about half as wide as high
    assert rows.min() > 14 * SCALE
    assert rows.max() < 36 * SCALE
    assert 19 * SCALE <= columns.min() <= 24 * SCALE
    assert 60 * SCALE < columns.max() < 95 * SCALE
    assert 0.05 < ink[rows.min() : rows.max(), columns.min() : columns.max()].mean() < 0.6


def test_pdf_has_words_as_text_and_shapes_as_paths(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    save_figure(tmp_path / "a.pdf", drawing(WORDS + SHAPES))
    content = (tmp_path / "a.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert b"/Font" in content
    page = b"\n".join(_streams(content))
    assert b"BT" in page
    assert b" Tf" in page
    assert b"1 0 0 rg" in page or b"1 0 0 scn" in page or b"1 0 0 sc" in page  # the red rectangle


def test_our_own_figures_come_out(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    curves = {"sum": {1: (0.9, 0.05), 2: (0.8, 0.1)}, "logits": {1: 0.95, 2: 0.9}}
    svg = line_figure({"mnist": curves}, title="accuracy", x="classes", y="accuracy")
    save_figure(tmp_path / "a.png", svg)
    save_figure(tmp_path / "a.PDF", svg)
    with Image.open(tmp_path / "a.png") as image:
        counted = image.convert("RGB").getcolors(1 << 24)
    assert counted is not None
    colours = {colour: n for n, colour in counted}
    assert colours[0x1D, 0x12, 0x0A] > 500  # the first curve
    assert colours[0x0A, 0x3A, 0x8C] > 500  # the second
    assert (tmp_path / "a.PDF").read_bytes().startswith(b"%PDF-")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.pngg", "did you mean 'png'"),
        ("a.jpeg", "one of .svg, .pdf, .png"),
        ("a", "one of .svg, .pdf, .png"),
    ],
)
def test_an_unknown_ending_is_named(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=said):
        save_figure(tmp_path / name, drawing(WORDS))
    assert not list(tmp_path.iterdir())


def test_without_the_extra_svg_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for name in ("a.pdf", "a.png"):
        with pytest.raises(FileError, match=r"pip install 'intarsia\[figures\]'"):
            figure_format(tmp_path / name)
    save_figure(tmp_path / "a.svg", drawing(WORDS))
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


def _streams(content: bytes) -> list[bytes]:
    """What the compressed parts of a PDF hold."""
    result = []
    for part in content.split(b"stream\n")[1:]:
        try:
            result.append(zlib.decompressobj().decompress(part))
        except zlib.error:
            continue
    return result
