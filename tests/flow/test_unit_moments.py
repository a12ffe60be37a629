"""Moments of units under Gaussian inputs, against quadrature in two dimensions and formulas."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from intarsia.errors import ModelError, RecipeError
from intarsia.flow import UNITS
from intarsia.flow.unit_moments import Unit, UnitLayer, series_moments, unit_of

MEANS = torch.tensor([0.3, -0.8, 1.5]).double()
ROOT = torch.tensor([[1.0, 0, 0], [0.6, 0.7, 0], [-0.4, 0.9, 0.5]]).double()
COVARIANCE = ROOT @ ROOT.T
SMOOTH = [name for name in UNITS if name != "relu"]


def by_quadrature(unit: Unit, i: int, j: int, nodes: int = 64) -> tuple[float, float]:
    """Mean of unit i and covariance of i and j by Gauss-Hermite in two dimensions."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    z, w = torch.tensor(z), torch.tensor(w / w.sum())
    s, t = (math.sqrt(float(COVARIANCE[k, k])) for k in (i, j))
    r = float(COVARIANCE[i, j]) / (s * t)
    x = MEANS[i] + s * z[:, None].expand(nodes, nodes)
    y = MEANS[j] + t * (r * z[:, None] + math.sqrt(max(0.0, 1 - r * r)) * z)
    weight = w[:, None] * w
    a, b = unit(x), unit(y)
    one, other = (weight * a).sum(), (weight * b).sum()
    return float(one), float((weight * a * b).sum() - one * other)


@pytest.mark.parametrize("name", [*SMOOTH, "quadratic(-0.7)"])
def test_moments_are_those_of_quadrature(name: str) -> None:
    unit = Unit(name)
    mean, covariance = unit.moments(MEANS, COVARIANCE)
    for i in range(3):
        for j in range(3):
            one, both = by_quadrature(unit, i, j)
            assert float(mean[i]) == pytest.approx(one, abs=1e-9)
            assert float(covariance[i, j]) == pytest.approx(both, abs=1e-7), (i, j)


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "gelu", "silu"])
def test_inputs_that_vary_by_much_more_than_a_unit_changes_over(name: str) -> None:
    """Behind such inputs a unit is nearly a step or a ramp: 64 nodes of quadrature miss it."""
    unit, deviation, r = Unit(name), 20.0, 0.9
    mean = torch.tensor([7.0, -4.0]).double()
    covariance = deviation**2 * torch.tensor([[1.0, r], [r, 1.0]], dtype=torch.float64)
    z = torch.linspace(-9, 9, 2001, dtype=torch.float64)
    w = torch.exp(-(z**2) / 2)
    w = w / w.sum()
    one = unit(mean[0] + deviation * z)
    other = unit(mean[1] + deviation * (r * z[:, None] + math.sqrt(1 - r**2) * z)) @ w  # given z
    both = (w * one * other).sum() - (w * one).sum() * (w * other).sum()
    found, result = unit.moments(mean, covariance)
    assert float(found[0]) == pytest.approx(float((w * one).sum()), rel=1e-9)
    assert float(result[0, 0]) == pytest.approx(
        float((w * one**2).sum() - (w * one).sum() ** 2), rel=1e-9
    )
    assert float(result[0, 1]) == pytest.approx(float(both), rel=1e-9)


def test_a_steep_unit_follows_the_arcsine_law() -> None:
    """tanh(s z) goes to the sign of z, whose covariance is 2 / pi asin r."""
    correlation = torch.tensor([[1, 0.5, -0.8], [0.5, 1, 0], [-0.8, 0, 1]], dtype=torch.float64)
    covariance = 1e10 * correlation
    mean, found = Unit("tanh").moments(torch.zeros(3).double(), covariance)
    expected = 2 / math.pi * torch.asin(correlation)
    torch.testing.assert_close(mean, torch.zeros(3).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def test_relu_is_exact_against_many_nodes() -> None:
    """Quadrature over the kink converges slowly, so the tolerance is wider."""
    unit = Unit("relu")
    mean, covariance = unit.moments(MEANS, COVARIANCE)
    for i in range(3):
        for j in range(3):
            one, both = by_quadrature(unit, i, j, 180)
            assert float(mean[i]) == pytest.approx(one, abs=2e-3)
            assert float(covariance[i, j]) == pytest.approx(both, abs=4e-3)


def test_relu_of_centred_inputs_is_the_arc_cosine_kernel() -> None:
    r = torch.tensor([0.0, 0.5, -0.9, 0.999, 1.0]).double()
    for value in r.tolist():
        covariance = torch.tensor([[1.0, value], [value, 1.0]]).double()
        mean, found = Unit("relu").moments(torch.zeros(2).double(), covariance)
        angle = math.acos(value)
        kernel = (math.sin(angle) + (math.pi - angle) * value) / (2 * math.pi)
        assert float(mean[0]) == pytest.approx(1 / math.sqrt(2 * math.pi), rel=1e-12)
        assert float(found[0, 1]) == pytest.approx(kernel - 1 / (2 * math.pi), abs=1e-9)


@pytest.mark.parametrize("name", list(UNITS))
def test_what_never_changes_has_no_variance(name: str) -> None:
    mean = torch.tensor([-0.5, 0.7]).double()
    covariance = torch.diag(torch.tensor([0.0, 1.0]).double())
    found, both = Unit(name).moments(mean, covariance)
    assert torch.isfinite(both).all()
    torch.testing.assert_close(found[0], Unit(name)(mean[0]), rtol=0, atol=1e-12)
    assert both[0].tolist() == pytest.approx([0, 0], abs=1e-20)


def test_the_series_gives_the_formula_of_the_quadratic_unit() -> None:
    unit = Unit("quadratic(0.3)")
    for one, other in zip(
        series_moments(unit, MEANS, COVARIANCE), unit.moments(MEANS, COVARIANCE), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_layers_of_torch_are_known() -> None:
    for layer in (nn.Tanh(), nn.ReLU(), nn.Sigmoid(), nn.GELU(), nn.SiLU(), nn.Softplus()):
        unit, x = unit_of(layer, "layer"), torch.linspace(-3, 3, 20).double()
        torch.testing.assert_close(unit(x), layer(x), rtol=1e-12, atol=1e-12)
    assert str(unit_of(UnitLayer("quadratic(a=0.5)"), "layer")) == "quadratic(a=0.5)"
    with pytest.raises(ModelError, match=r"layer '2\.a' is a Conv1d"):
        unit_of(nn.Conv1d(1, 1, 1), "2.a")
    with pytest.raises(ModelError, match="approximate"):
        unit_of(nn.GELU(approximate="tanh"), "gelu")
    with pytest.raises(RecipeError, match="did you mean 'tanh'"):
        Unit("tahn")
    with pytest.raises(RecipeError, match="expected a number"):
        Unit("quadratic('a')")(torch.zeros(1))


def test_a_unit_of_your_own() -> None:
    @UNITS.register("sine")
    def sine(x: torch.Tensor, speed: float = 1.0) -> torch.Tensor:
        return torch.sin(speed * x)

    try:
        mean, covariance = Unit("sine(2)").moments(
            torch.tensor([0.5], dtype=torch.float64), torch.tensor([[0.3]], dtype=torch.float64)
        )
        assert float(mean) == pytest.approx(math.sin(1.0) * math.exp(-0.6), rel=1e-10)
        assert float(covariance) > 0
    finally:
        del UNITS["sine"]
