"""Small pictures of a card: weights as an image, strips and bars by hand."""

import numpy as np

from intarsia.reports.modules.cards import bar, image, picture_of, strip


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
