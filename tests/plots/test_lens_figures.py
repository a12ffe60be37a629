"""Pictures of the lens: what is drawn is what is given."""

import math

import numpy as np
import pytest

from intarsia.errors import DataError
from intarsia.plots import alpha_sweep, layer_bars, profile_bands, profile_plane, svg


def test_bands_are_means_with_their_spread() -> None:
    figure = profile_bands({"a": np.array([[1.0, 3.0], [3.0, 3.0]]), "b": np.array([[0.0, 1.0]])})
    lines = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert lines == {"a": [2.0, 3.0], "b": [0.0, 1.0]}
    with pytest.raises(DataError, match="N x L"):
        profile_bands({"a": np.zeros(3)})


def test_orders_stand_at_even_distances_with_infinity_last() -> None:
    figure = alpha_sweep({"s": {math.inf: (90.0, 1.0), 0.5: (95.0, 1.0), 1.0: (93.0, 1.0)}})
    line = figure.axes[0].lines[0]
    assert list(line.get_xdata()) == [0, 1, 2]
    assert list(line.get_ydata()) == [95, 93, 90]
    assert ">inf<" in svg(figure)


def test_layers_are_bars() -> None:
    ax = layer_bars({"all": (93.0, 1.0), "last": (89.0, 2.0)})
    assert sorted(patch.get_height() for patch in ax.patches) == [89, 93]


def test_a_plane_has_a_colour_for_each_label() -> None:
    figure = profile_plane(np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]), ["a", "b", "a"])
    assert [len(own.get_offsets()) for own in figure.axes[0].collections] == [2, 1]
    with pytest.raises(DataError, match="N x 2"):
        profile_plane(np.zeros((2, 3)), ["a", "b"])
