"""Pair networks: two numbers in, one out, as a step of the flow; symmetric, free, and as a graph.

    symmetric    y = sum over pairs of w2 (phi(w0 x1 + w1 x2 + b1) + phi(w1 x1 + w0 x2 + b1)) + b2
    free         y = sum over units of w2 phi(w0 x1 + w1 x2 + b1) + b2

A free network of as many pairs has two units for each, so that both have the same units. A bank
stacks K of one form, unit and width, in float64.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.errors import DataError, ModelError, nearest, shortened
from intarsia.flow.cumulants import Cumulants
from intarsia.flow.laws import law_cumulants
from intarsia.flow.unit_moments import Unit
from intarsia.specs import is_number

SYMMETRIC, FREE = "symmetric", "free"
FORMS = (SYMMETRIC, FREE)
HALF = 1 / math.sqrt(2)  # the weight of either number in a step of the flow
NAMES = ("weights", "biases", "outputs", "offsets")


class PairNetwork(nn.Module):
    """One network from N x 2 to N numbers; `state` holds w0 and w1, b1, w2 and b2, in float64."""

    def __init__(self, form: str, unit: str | Unit, state: Mapping[str, Any]) -> None:
        super().__init__()
        self.form, self.unit = check_form(form), Unit(unit)
        units = torch.as_tensor(state["outputs"]).numel()
        shapes = {"weights": (units, 2), "biases": (units,), "outputs": (units,), "offsets": ()}
        for name, shape in shapes.items():
            value = torch.as_tensor(state[name], dtype=torch.float64).detach().clone()
            if tuple(value.shape) != shape or not units:
                raise ModelError(f"{name} have shape {tuple(value.shape)}: expected {shape}")
            self.register_parameter(name, nn.Parameter(value))

    def forward(self, x: Tensor) -> Tensor:
        """The outputs, N numbers, for N x 2 inputs."""
        if x.dim() != 2 or x.shape[1] != 2:
            raise DataError(f"the inputs have shape {tuple(x.shape)}: expected N x 2, pairs")
        weights, biases = self.hidden()
        out, offset = self.get_parameter("outputs"), self.get_parameter("offsets")
        answers = self.unit(x.double() @ weights.T + biases)
        return answers @ (out if self.form == FREE else torch.cat([out, out])) + offset

    def hidden(self) -> tuple[Tensor, Tensor]:
        """Weights and biases of every hidden unit: of a symmetric network those of both copies."""
        weights, biases = self.get_parameter("weights"), self.get_parameter("biases")
        if self.form == FREE:
            return weights, biases
        return torch.cat([weights, weights.flip(1)]), torch.cat([biases, biases])

    def extra_repr(self) -> str:
        return f"{self.form}, {self.unit}, {self.get_parameter('outputs').numel()} outputs"


class GraphNetwork(nn.Module):
    """A symmetric network as message passing over the complete graph of its inputs.

    h_i = phi(w0 x_i + w1 sum of the other x + b1) at every node, read out as w2 sum of h + b2. On
    two nodes it is the symmetric network; it takes any number of them.
    """

    def __init__(self, network: PairNetwork) -> None:
        super().__init__()
        if network.form != SYMMETRIC:
            raise ModelError(
                f"a {network.form} network is none on a graph: its units tell the inputs apart, "
                f"take one of form {SYMMETRIC}"
            )
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """The outputs, N numbers, for N x nodes inputs."""
        if x.dim() != 2:
            raise DataError(f"the inputs have shape {tuple(x.shape)}: expected N x nodes")
        own, x = self.network, x.double()[:, :, None]
        weights, biases = own.get_parameter("weights"), own.get_parameter("biases")
        others = x.sum(1, keepdim=True) - x
        answers = own.unit(x * weights[:, 0] + others * weights[:, 1] + biases)  # N, nodes, units
        result: Tensor = answers.sum(1) @ own.get_parameter("outputs")
        return result + own.get_parameter("offsets")


@dataclass(frozen=True, eq=False)
class PairBank:
    """K pair networks of one form, unit and width as stacked tensors.

    weights K x U x 2, biases and outputs K x U, offsets K; `report` says how they were trained.
    """

    form: str
    unit: Unit
    weights: Tensor
    biases: Tensor
    outputs: Tensor
    offsets: Tensor
    seeds: tuple[int, ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"PairBank({len(self)} networks, {self.form}, {self.unit})"

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, place: int) -> PairNetwork:
        state = {name: getattr(self, name)[place] for name in NAMES}
        return PairNetwork(self.form, self.unit, state)

    def __call__(self, x: Tensor) -> Tensor:
        """The outputs, K x N, for K x N x 2 inputs, or N x 2 for all."""
        return bank_outputs(self.form, self.unit, [getattr(self, name) for name in NAMES], x)


def bank_outputs(form: str, unit: Unit, tensors: list[Tensor], x: Tensor) -> Tensor:
    """K x N outputs of stacked weights, biases, outputs and offsets."""
    weights, biases, outputs, offsets = tensors
    x = x if x.dim() == 3 else x.expand(len(offsets), *x.shape)

    def answers(own: Tensor) -> Tensor:
        return unit(torch.baddbmm(biases[:, None], x, own.transpose(1, 2)))  # K, N, U

    hidden = answers(weights)
    if form == SYMMETRIC:
        hidden = hidden + answers(weights.flip(2))
    return torch.baddbmm(offsets[:, None, None], hidden, outputs[:, :, None])[..., 0]


@dataclass(frozen=True)
class ManifoldDistance:
    """How far a polynomial network is from (x1 + x2) / sqrt 2, coefficient by coefficient."""

    residuals: Mapping[str, float]
    tolerance: float

    @property
    def distance(self) -> float:
        """The largest of the residuals."""
        return max(map(abs, self.residuals.values()))

    @property
    def holds(self) -> bool:
        return self.distance <= self.tolerance

    def __bool__(self) -> bool:
        return self.holds


def on_manifold(network: PairNetwork, tolerance: float = 1e-10) -> ManifoldDistance:
    """Whether a network is exactly a step of the flow, by the coefficients of its polynomial.

    For linear units these are x1, x2 and 1: with one symmetric pair, w2 (w0 + w1) = 1 / sqrt 2 and
    b2 = -2 w2 b1. Quadratic units also have x1 x1, x2 x2 and x1 x2, which must vanish. Other units
    are no polynomials.
    """
    if not isinstance(network, PairNetwork):
        raise ModelError(f"{shortened(network)} is not a pair network: take one of a fitted bank")
    if not isinstance(tolerance, int | float) or not tolerance >= 0:
        raise ModelError(f"tolerance is {shortened(tolerance)}: expected a number from 0")
    parts = network.unit.polynomial
    if parts is None:
        raise ModelError(
            f"unit {str(network.unit)!r} is not a polynomial, so that no coefficients tell: "
            "look at its errors instead"
        )
    with torch.no_grad():
        weights, biases = network.hidden()
        out: Tensor = network.get_parameter("outputs")
        out = out if network.form == FREE else torch.cat([out, out])
        one, two = parts
        slope = out * (one + 2 * two * biases)
        found = {
            "x1": slope @ weights[:, 0] - HALF,
            "x2": slope @ weights[:, 1] - HALF,
            "1": out @ (one * biases + two * biases**2) + network.get_parameter("offsets"),
        }
        if two:
            squares = two * out
            found |= {
                "x1 x1": squares @ weights[:, 0] ** 2,
                "x2 x2": squares @ weights[:, 1] ** 2,
                "x1 x2": 2 * squares @ (weights[:, 0] * weights[:, 1]),
            }
    return ManifoldDistance({name: float(value) for name, value in found.items()}, tolerance)


def balanced_quadratic(w2: float, a: float = 0.2) -> PairNetwork:
    """The symmetric quadratic pair with w0 = w1 = 1 / (2 sqrt 2 w2), and b2 that centres it for
    inputs of mean 0 and variance 1.

    Its error is `floor_error`: it falls without end as w2 grows, and no finite w2 makes it 0.
    """
    _check_second_weight(w2)
    weight = 1 / (2 * math.sqrt(2) * w2)
    # 2 w2 a E(w (x1 + x2))^2 = 2 w2 a w^2 2
    offset = -4 * w2 * a * weight**2
    state = {"weights": [[weight, weight]], "biases": [0.0], "outputs": [w2], "offsets": offset}
    return PairNetwork(SYMMETRIC, f"quadratic({a!r})", state)


def floor_error(w2: float, law: str | Cumulants, a: float = 0.2) -> float:
    """The mean squared error of `balanced_quadratic`: (a / (4 w2))^2 Var((x1 + x2)^2) for numbers
    of mean 0 and variance 1.

    Of other cumulants it is (a / (4 w2))^2 E(s^2 - 2)^2 with s = x1 + x2, of mean m and cumulants
    twice those of x: E s^2 = k2 + m^2, Var(s^2) = k4 + 4 m k3 + 2 k2^2 + 4 m^2 k2.
    """
    _check_second_weight(w2)
    own = law_cumulants(law) if isinstance(law, str) else law
    if own.dimensions != 1:
        raise DataError(f"the cumulants have {own.dimensions} dimensions: expected 1")
    m, k2, k3, k4 = (2 * float(own[order].flatten()[0]) for order in (1, 2, 3, 4))
    variance = k4 + 4 * m * k3 + 2 * k2**2 + 4 * m**2 * k2
    return (a / (4 * w2)) ** 2 * (variance + (k2 + m**2 - 2) ** 2)


def _check_second_weight(w2: float) -> None:
    if not is_number(w2) or not w2:
        raise ModelError(f"w2 is {shortened(w2)}: expected a number that is not 0")


def check_form(form: str) -> str:
    """A known form, or our error."""
    if form not in FORMS:
        raise ModelError(f"unknown form {shortened(form)}: {nearest(form, FORMS)}")
    return form
