"""Figures as text and in files: the same bytes each time, sound XML, what is drawn is there."""

import base64
import io
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from intarsia.errors import FileError
from intarsia.plots import check_format, confusion_panels, curve_panels, png, save, svg

SVG = "{http://www.w3.org/2000/svg}"
CURVES = {"sum": {1: (0.9, 0.05), 2: (0.8, 0.1)}, "logits": {1: 0.95, 2: 0.9}}


def figure(title: str = "accuracy") -> Figure:
    return curve_panels({"mnist": CURVES}, title=title, x="classes", y="accuracy")


def test_svg_says_what_it_is() -> None:
    root = ElementTree.fromstring(svg(figure('A <title> & "more"')))
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.findtext(f"{SVG}title") == 'A <title> & "more"'
    about = root.findtext(f"{SVG}desc") or ""
    assert all(word in about for word in ("mnist", "classes", "accuracy", "sum", "logits"))
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"mnist", "classes", "accuracy", "sum", "logits", "1", "2"} <= set(words)


def test_svg_is_as_large_as_drawn_and_holds_nothing_of_this_machine() -> None:
    drawn, text = figure(), svg(figure())
    width, height = drawn.get_size_inches() * 72
    assert text.startswith("<svg ")
    assert f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"' in text
    for word in ("<metadata", "<style", "date", "/usr", "Matplotlib", "xlink"):
        assert word not in text


def test_svg_has_the_same_bytes_twice_and_in_another_process() -> None:
    drawn = figure()
    assert svg(drawn) == svg(drawn) == svg(figure())
    script = (
        "from intarsia.plots import curve_panels, svg\n"
        f"panels = {{'mnist': {CURVES!r}}}\n"
        "text = svg(curve_panels(panels, title='accuracy', x='classes', y='accuracy'))\n"
        "import sys; sys.stdout.buffer.write(text.encode())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert run.stdout.decode() == svg(drawn)


def test_ids_of_svg_are_those_that_are_used() -> None:
    text = svg(figure())
    root = ElementTree.fromstring(text)
    ids = [mark.get("id", "") for mark in root.iter() if mark.get("id")]
    assert len(ids) == len(set(ids))
    assert all(f"#{name}" in text for name in ids)


def test_letters_that_the_font_lacks_stay_text() -> None:
    counts = np.eye(2, dtype=int)
    words = [
        t.text
        for t in ElementTree.fromstring(svg(confusion_panels({"": counts}, ["猫", "犬"]))).iter()
    ]
    assert {"猫", "犬"} <= set(words)


@pytest.mark.parametrize(
    ("name", "start"), [("a.svg", b"<svg"), ("a.PDF", b"%PDF-"), ("b.png", b"\x89PNG")]
)
def test_the_ending_says_the_format(name: str, start: bytes, tmp_path: Path) -> None:
    save(figure(), tmp_path / "new" / name)
    content = (tmp_path / "new" / name).read_bytes()
    assert content.startswith(start)
    save(figure(), tmp_path / "again.x".replace(".x", Path(name).suffix))
    assert (tmp_path / f"again{Path(name).suffix}").read_bytes() == content


def test_png_has_what_was_drawn_three_pixels_for_one(tmp_path: Path) -> None:
    drawn = figure()
    save(drawn, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        counted = image.convert("RGB").getcolors(1 << 24)
        assert image.size == tuple(int(3 * 72 * side) for side in drawn.get_size_inches())
    assert counted is not None
    colours = {colour: n for n, colour in counted}
    assert colours[0x1D, 0x12, 0x0A] > 500  # the first curve
    assert colours[0x0A, 0x3A, 0x8C] > 500  # the second


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.pngg", "did you mean 'png'"),
        ("a.jpeg", "one of .svg, .pdf, .png"),
        ("a", "one of .svg, .pdf, .png"),
    ],
)
def test_an_unknown_ending_is_named(name: str, said: str, tmp_path: Path) -> None:
    for write in (check_format, lambda path: save(figure(), path)):
        with pytest.raises(FileError, match=said):
            write(tmp_path / name)
    assert not list(tmp_path.iterdir())


def _pixels(address: str) -> np.ndarray:
    """The colours of a PNG as another library reads them."""
    head, _, content = address.partition(",")
    assert head == "data:image/png;base64"
    return np.array(Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB")).astype(int)


def test_a_png_holds_the_pixels() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10
    np.testing.assert_array_equal(_pixels(png(pixels)), pixels)


def test_a_png_of_numbers_has_the_colours_of_their_signs() -> None:
    against, nothing, own = (0x0A, 0x3A, 0x8C), (0xF7, 0xF1, 0xE6), (0x7A, 0x3A, 0x0A)
    seen = _pixels(png(np.array([[-2.0, 0.0, 2.0], [1.0, -1.0, 0.0]])))
    assert seen.shape == (2, 3, 3)
    assert seen[0, 0].tolist() == list(against)
    assert seen[0, 2].tolist() == list(own)
    assert np.abs(seen[0, 1] - nothing).max() <= 1  # 256 colours have no middle
    assert np.abs(seen[1, 0] - (np.array(nothing) + own) / 2).max() <= 2
    assert np.abs(_pixels(png(np.zeros((4, 4)))) - nothing).max() <= 1
