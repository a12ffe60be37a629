"""Pictures of the flow: what is drawn are logarithms of what is given."""

import math

import pytest

from intarsia.errors import DataError
from intarsia.plots import (
    closure_error_by_layer,
    cumulants_by_step,
    error_by_law,
    error_by_weight,
    svg,
)


def test_cumulants_have_the_law_as_a_line() -> None:
    law = {0: [0.0, 1.0, 2.0, 6.0], 1: [0.0, 1.0, math.sqrt(2), 3.0]}
    flow = {0: [0.0, 1.0, 2.0, 6.0], 1: [0.1, 1.1, 2.5, 60.0]}
    figure = cumulants_by_step({"network": flow}, law)
    assert [ax.get_title() for ax in figure.axes] == ["k2", "k3", "k4"]
    lines = {line.get_label(): line for line in figure.axes[2].lines}
    assert list(lines["law"].get_ydata()) == pytest.approx([math.log10(6), math.log10(3)])
    assert lines["network"].get_ydata()[1] == pytest.approx(math.log10(60))


def test_orders_that_vanish_have_no_line() -> None:
    law = {0: [0.0, 1.0, 0.0, 0.0], 1: [0.0, 1.0, 0.0, 0.0]}
    figure = cumulants_by_step({"network": {0: [0, 1.0, 0, 0.5], 1: [0, 1.0, 0, 0.2]}}, law)
    assert [ax.get_title() for ax in figure.axes] == ["k2", "k4"]
    assert [line.get_label() for line in figure.axes[1].lines] == ["network"]


def test_errors_by_law_share_their_axis() -> None:
    panels = {"narrow": {"tanh": {"exponential": 1e-3, "laplace": 1e-2}},
              "wide": {"tanh": {"exponential": 1e-6, "laplace": 1e-5}}}  # fmt: skip
    figure = error_by_law(panels)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert list(figure.axes[0].lines[0].get_ydata()) == pytest.approx([-3, -2])
    assert "laplace" in svg(figure)


def test_the_error_by_weight_and_its_formula() -> None:
    ax = error_by_weight({0.5: 0.21, 2: 0.013}, {0.5: 0.2, 2: 0.0125})
    assert list(ax.lines[0].get_xdata()) == [-1, 1]
    with pytest.raises(DataError, match="above 0"):
        error_by_weight({0.5: 0.0}, {0.5: 0.2})


def test_layers_stand_in_their_order() -> None:
    figure = closure_error_by_layer(
        {"covariance": {"input": 0.0, "first": 0.01, "last": 0.1}},
        {"covariance": {"input": 0.01, "first": 0.01, "last": 0.01}},
    )
    first, noise = figure.axes[0].lines
    assert list(first.get_xdata()) == [1, 2]
    assert list(noise.get_xdata()) == [0, 1, 2]


def test_names_of_laws_are_whole_where_their_neighbours_are_short() -> None:
    laws = {
        "exponential": 1e-2,
        "uniform": 1e-3,
        "laplace": 1e-3,
        "bernoulli": 1.0,
        "gaussian": 1.0,
    }
    ax = error_by_law({"one": {"tanh": laws}}).axes[0]
    assert [text.get_text() for text in ax.get_xticklabels()] == list(laws)
    long = {"exponential": 1e-2, "exponentials": 1.0, "gaussian": 1.0, "laplace": 0.1, "uniform": 1}
    texts = [t.get_text() for t in error_by_law({"one": {"tanh": long}}).axes[0].get_xticklabels()]
    assert texts[0] != "exponential"  # they would meet
