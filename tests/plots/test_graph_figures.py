"""Heat capacities and rewiring steps: what is drawn, and what is refused."""

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from intarsia.errors import DataError
from intarsia.plots import heat_curves, rewiring_steps, svg


def test_curves_have_lines_at_all_scales() -> None:
    tau = np.logspace(-2, 2, 9)
    curves = {"published": np.arange(9.0), "heat capacity": np.arange(9.0)[::-1]}
    figure = heat_curves(tau, curves, scales={"published": [0.1], "heat capacity": [1.0, 10.0]})
    assert len(figure.axes) == 2
    for ax in figure.axes:
        lines = [float(np.asarray(line.get_xdata())[0]) for line in ax.lines]
        assert sorted(lines[1:]) == [-1, 0, 1]
        assert next(label.get_text() for label in ax.get_xticklabels()) == "0.01"
    assert "published" in svg(figure)


def test_steps_draw_every_edge() -> None:
    places = np.array([[0, 0], [1, 0], [0, 1]])
    steps = {"graph": np.array([[0, 1], [1, 2]]), "rewired": np.zeros((0, 2))}
    figure = rewiring_steps(places, steps, labels=[0, 0, 1])
    drawn = [
        len(own.get_segments())
        for ax in figure.axes
        for own in ax.collections
        if isinstance(own, LineCollection)
    ]
    assert drawn == [2, 0]
    assert [ax.get_title() for ax in figure.axes] == ["graph", "rewired"]


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(DataError, match="values for"):
        heat_curves([1.0], {"a": [1, 2]}, scales={})
    with pytest.raises(DataError, match="above 0"):
        heat_curves([0.0], {"a": [1]}, scales={})
    with pytest.raises(DataError, match="N x 2"):
        rewiring_steps(np.zeros((2, 3)), {"a": np.zeros((0, 2))})
    with pytest.raises(DataError, match="node 5"):
        rewiring_steps(np.zeros((2, 2)), {"a": np.array([[0, 5]])})
