"""Pictures of weights: the PNG that any reader sees, strips by hand, the figure of all of them."""

import base64
import io
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from intarsia.reports.modules.cards import (
    AGAINST,
    FOR,
    NOTHING,
    bar,
    image,
    picture_of,
    png,
    strip,
    weights_figure,
)


def read(address: str) -> np.ndarray:
    """The colours of a PNG as another library reads them."""
    head, _, content = address.partition(",")
    assert head == "data:image/png;base64"
    return np.array(Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB"))


def test_a_picture_has_the_colours_of_its_signs() -> None:
    seen = read(png(np.array([[-2.0, 0.0, 2.0], [1.0, -1.0, 0.0]])))
    assert seen.shape == (2, 3, 3)
    assert seen[0, 0].tolist() == list(AGAINST)
    assert seen[0, 2].tolist() == list(FOR)
    assert np.abs(seen[0, 1].astype(int) - NOTHING).max() <= 1  # 256 colours have no middle
    half = (np.array(NOTHING) + FOR) / 2
    assert np.abs(seen[1, 0] - half).max() <= 1


def test_a_picture_of_nothing_is_pale() -> None:
    seen = read(png(np.zeros((4, 4)))).astype(int)
    assert np.abs(seen - NOTHING).max() <= 1


def test_what_is_an_image() -> None:
    weights = np.arange(24.0).reshape(2, 3, 4)
    seen = picture_of(weights)
    assert seen is not None
    np.testing.assert_array_equal(seen, weights[0] + weights[1])
    assert picture_of(np.zeros(8)) is None
    thinned = picture_of(np.zeros((3, 224, 224)))
    assert thinned is not None
    assert max(thinned.shape) <= 96


def test_strips_show_runs_of_live_units() -> None:
    assert 'd="M1 .5H3M4 .5H5"' in strip(np.array([False, True, True, False, True]))
    assert 'viewBox="0 0 5 1"' in strip(np.zeros(5, dtype=bool))
    assert 'd=""' in strip(np.zeros(5, dtype=bool))
    assert "H40.00" in bar(0.4)
    assert "H100.00" in bar(1.2)


def test_an_image_keeps_its_shape_and_says_what_it_is() -> None:
    html = image(np.zeros((2, 3)), 'weights of "3"')
    assert 'width="3" height="2"' in html
    assert "--shape:3/2" in html
    assert 'alt="weights of &quot;3&quot;"' in html


def test_the_figure_of_all_names_every_module() -> None:
    svg = weights_figure({name: np.eye(3) for name in ("a<b", "c", "d", "e", "f", "g")})
    root = ElementTree.fromstring(svg)
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:-1] == ["a<b", "c", "d", "e", "f", "g"]
    assert len(list(root.iter("{http://www.w3.org/2000/svg}image"))) == 6
