"""Units: functions of one number, and what they make of the mean and covariance of Gaussians."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.errors import ModelError, RecipeError, shortened
from intarsia.specs import Registry, Spec, is_number

UNITS = Registry("unit", given=("x",), moments=None, polynomial=None)
"""Units by name: functions of a tensor. The trait `moments` takes the mean and covariance of
Gaussian inputs to those of the outputs, where there is a formula; `polynomial` gives the
coefficients of x and x squared, where it is one."""

REACH = 12.0  # standard deviations that a grid goes out to
SPACING, FINE = 0.02, 0.25  # of a grid at most, in standard deviations and in a unit's inputs
MOST_NODES, MOST_VALUES = 2**15, 2**25  # of a grid, and of it for all units together
TERMS, ENOUGH = 512, 1e-11  # of the series in correlations, and what may be left of a variance
ANGLES = 48  # nodes of Gauss-Legendre quadrature over a correlation
SMALL = 1e-300  # variances below it are 0
Moments = tuple[Tensor, Tensor]
MODULES = {
    nn.Identity: "linear",
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Softplus: "softplus",
}


class Unit:
    """A unit with its settings: called on a tensor, or asked for moments."""

    def __init__(self, text: "str | Unit") -> None:
        self.spec: Spec = text.spec if isinstance(text, Unit) else UNITS.spec(text)
        self._settings = UNITS.settings(self.spec)
        self._entry = UNITS[self.spec.name]

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = self._entry(x, **self._settings)
        return result

    def moments(self, mean: Tensor, covariance: Tensor) -> Moments:
        """Mean and covariance of the outputs for Gaussian inputs."""
        if self._entry.moments is not None:
            result: Moments = self._entry.moments(mean, covariance, **self._settings)
            return result
        return series_moments(self, mean, covariance)

    @property
    def polynomial(self) -> tuple[float, float] | None:
        """The coefficients of x and x squared; None for a unit that is not such a polynomial."""
        given = self._entry.polynomial
        return None if given is None else given(**self._settings)

    def __str__(self) -> str:
        return str(self.spec)


class UnitLayer(nn.Module):
    """A unit as a layer, for networks whose activation torch has no layer for."""

    def __init__(self, unit: "str | Unit") -> None:
        super().__init__()
        self.unit = Unit(unit)

    def forward(self, x: Tensor) -> Tensor:
        return self.unit(x)

    def extra_repr(self) -> str:
        return str(self.unit)


def unit_of(module: nn.Module, name: str) -> Unit:
    """The unit that a layer of a network applies to each number."""
    if isinstance(module, UnitLayer):
        return module.unit
    for kind, unit in MODULES.items():
        if type(module) is kind:
            _check_plain(module, name)
            return Unit(unit)
    known = ", ".join(kind.__name__ for kind in MODULES)
    raise ModelError(
        f"layer {name!r} is a {type(module).__name__}: moments are carried through Linear, "
        f"Flatten, Dropout and {known}"
    )


def series_moments(function: Any, mean: Tensor, covariance: Tensor) -> Moments:
    """By Mehler's series: with h_n the normalised Hermite polynomials, c_n = E f(mu + s z) h_n(z)
    and r the correlations, cov = sum over n of r^n c_n c_n; variances are those of quadrature.

    What the terms after the n-th add is at most |r|^(n + 1) times the root of what n terms leave of
    either variance. The series ends where that is nothing for any pair, or after TERMS of them.
    """
    deviation = _deviations(covariance)
    nodes, weights = _grid(deviation)
    values = function(mean[:, None] + deviation[:, None] * nodes)  # D, nodes
    middle = values @ weights
    centred = values - middle[:, None]
    variance = centred**2 @ weights
    weighted, left = centred * weights, variance.clone()
    correlation, power = _correlations(covariance, deviation), torch.ones_like(covariance)
    closest = float(correlation.clone().fill_diagonal_(0).abs().max())
    result = torch.zeros_like(covariance)
    for count, polynomial in enumerate(_hermite(nodes), start=1):
        own = weighted @ polynomial
        power = power * correlation
        result += power * torch.outer(own, own)
        left = (left - own**2).clamp(min=0)
        most = float((left / variance.clamp(min=SMALL)).max())
        if count == TERMS or closest ** (count + 1) * most <= ENOUGH:
            break
    result.diagonal().copy_(variance)
    return middle, result


def _linear_moments(mean: Tensor, covariance: Tensor) -> Moments:
    return mean, covariance


def _quadratic_moments(mean: Tensor, covariance: Tensor, a: float) -> Moments:
    slope = 1 + 2 * a * mean
    result = covariance * torch.outer(slope, slope) + 2 * a**2 * covariance**2
    return mean + a * (mean**2 + covariance.diagonal()), result


def _relu_moments(mean: Tensor, covariance: Tensor) -> Moments:
    """Exact: cov = s t (r P(h) P(k) + integral over angles to asin r of (r - sin) p2), by Price.

    h and k are means over deviations, P the normal distribution, p2 the density of two normal
    numbers of correlation sin(angle) at h and k.
    """
    deviation = _deviations(covariance)
    safe = deviation.clamp(min=math.sqrt(SMALL))
    h = torch.where(deviation > 0, mean / safe, torch.zeros_like(mean)).clamp(-40, 40)
    below = torch.special.ndtr(h)
    density = torch.exp(-(h**2) / 2) / math.sqrt(2 * math.pi)
    first = torch.where(deviation > 0, mean * below + deviation * density, mean.clamp(min=0))
    r = _correlations(covariance, deviation)
    points, weights = _legendre()
    end, integral = torch.asin(r), torch.zeros_like(r)
    squares, product = h[:, None] ** 2 + h**2, torch.outer(h, h)
    for point, weight in zip(points, weights, strict=True):
        sine = torch.sin(end * point)
        cosine = torch.clamp(1 - sine**2, min=1e-300)
        exponent = (squares - 2 * product * sine) / (2 * cosine)
        integral += weight * (r - sine) * torch.exp(-exponent)
    integral = integral * end / (2 * math.pi)
    result = torch.outer(deviation, deviation) * (r * torch.outer(below, below) + integral)
    second = (mean**2 + deviation**2) * below + mean * deviation * density
    variance = torch.where(deviation > 0, second - first**2, torch.zeros_like(mean))
    result.diagonal().copy_(variance.clamp(min=0))
    return first, result


@UNITS.register("linear", moments=_linear_moments, polynomial=lambda: (1.0, 0.0))
def linear(x: Tensor) -> Tensor:
    """x as it is."""
    return x


def _coefficients(a: float) -> tuple[float, float]:
    return 1.0, a


@UNITS.register("quadratic", moments=_quadratic_moments, polynomial=_coefficients)
def quadratic(x: Tensor, a: float = 0.2) -> Tensor:
    """x + a x squared."""
    if not is_number(a):
        raise RecipeError(f"unit 'quadratic' has a {shortened(a)}: expected a number")
    return x + a * x**2


@UNITS.register("tanh")
def tanh(x: Tensor) -> Tensor:
    return torch.tanh(x)


@UNITS.register("relu", moments=_relu_moments)
def relu(x: Tensor) -> Tensor:
    return torch.relu(x)


@UNITS.register("sigmoid")
def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


@UNITS.register("gelu")
def gelu(x: Tensor) -> Tensor:
    return nn.functional.gelu(x)


@UNITS.register("silu")
def silu(x: Tensor) -> Tensor:
    return nn.functional.silu(x)


@UNITS.register("softplus")
def softplus(x: Tensor) -> Tensor:
    return nn.functional.softplus(x)


def _check_plain(module: nn.Module, name: str) -> None:
    """Activations with settings of their own are other functions."""
    usual = {"approximate": "none", "beta": 1.0, "threshold": 20.0}
    for setting, value in usual.items():
        if getattr(module, setting, value) != value:
            raise ModelError(
                f"layer {name!r} has {setting} {shortened(getattr(module, setting))}: moments are "
                f"known for {value!r} alone"
            )


def _deviations(covariance: Tensor) -> Tensor:
    variances = covariance.diagonal()
    return torch.where(variances > SMALL, variances, torch.zeros_like(variances)).sqrt()


def _correlations(covariance: Tensor, deviation: Tensor) -> Tensor:
    """0 for what never changes."""
    scale = torch.where(deviation > 0, 1 / deviation.clamp(min=math.sqrt(SMALL)), deviation)
    return (covariance * torch.outer(scale, scale)).clamp(-1, 1)


def _grid(deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Evenly spaced nodes and weights for the normal distribution.

    The sum over them is exact to rounding where the spacing is small against what a unit's function
    changes over, however steep that is in standard deviations: Gauss-Hermite nodes are not.
    """
    largest = float(deviation.max())
    spacing = min(SPACING, FINE / largest) if largest > 0 else SPACING
    most = max(int(2 * REACH / SPACING), min(MOST_NODES, MOST_VALUES // len(deviation)))
    half = min(math.ceil(REACH / spacing), most // 2)
    nodes = torch.linspace(-REACH, REACH, 2 * half + 1, dtype=torch.float64)
    weights = torch.exp(-(nodes**2) / 2)
    return nodes, weights / weights.sum()


def _hermite(nodes: Tensor) -> Iterator[Tensor]:
    """The normalised Hermite polynomials at the nodes, from h_1 on, without an end."""
    before, own, n = torch.ones_like(nodes), nodes, 1
    while True:
        yield own
        before, own = own, (nodes * own - math.sqrt(n) * before) / math.sqrt(n + 1)
        n += 1


@cache
def _legendre() -> tuple[list[float], list[float]]:
    """Nodes and weights on 0 to 1."""
    points, weights = np.polynomial.legendre.leggauss(ANGLES)
    return [float(p) for p in (points + 1) / 2], [float(w) for w in weights / 2]
