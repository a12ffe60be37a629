"""Pair networks: their equations, their graph, their manifold and the error of the minimal one."""

import math

import pytest
import torch

from intarsia.errors import DataError, IntarsiaError, ModelError, RecipeError
from intarsia.flow import (
    GraphNetwork,
    PairNetwork,
    balanced_quadratic,
    cumulants,
    draw,
    fit,
    floor_error,
    on_manifold,
)

pytestmark = pytest.mark.usefixtures("one_thread")
HALF = 1 / math.sqrt(2)


def network(form: str = "symmetric", unit: str = "tanh", units: int = 3) -> PairNetwork:
    state = {
        "weights": draw("gaussian", units, 2),
        "biases": draw("gaussian", units, seed=1),
        "outputs": draw("gaussian", units, seed=2),
        "offsets": 0.3,
    }
    return PairNetwork(form, unit, state)


def test_the_equations() -> None:
    x = draw("gaussian", 5, 2)
    for form in ("symmetric", "free"):
        own = network(form)
        w, b, v = (own.get_parameter(n).detach() for n in ("weights", "biases", "outputs"))
        for row, answer in zip(x, own(x).detach(), strict=True):
            total = 0.3
            for unit in range(3):
                w0, w1 = w[unit]
                total += v[unit] * torch.tanh(w0 * row[0] + w1 * row[1] + b[unit])
                if form == "symmetric":
                    total += v[unit] * torch.tanh(w1 * row[0] + w0 * row[1] + b[unit])
            assert float(answer) == pytest.approx(float(total), rel=1e-12)


def test_symmetric_networks_are_symmetric_and_free_ones_are_not() -> None:
    x = draw("gaussian", 9, 2)
    torch.testing.assert_close(network()(x), network()(x.flip(1)))
    assert not torch.allclose(network("free")(x), network("free")(x.flip(1)))


def test_the_graph_of_two_nodes_is_the_network() -> None:
    own, x = network(), draw("gaussian", 9, 2)
    graph = GraphNetwork(own)
    torch.testing.assert_close(graph(x), own(x), rtol=1e-12, atol=1e-12)
    four = draw("gaussian", 9, 4)
    torch.testing.assert_close(graph(four), graph(four[:, [2, 0, 3, 1]]))
    with pytest.raises(ModelError, match="free network is none on a graph"):
        GraphNetwork(network("free"))
    with pytest.raises(DataError, match="N x nodes"):
        graph(four[0])


def test_banks_are_their_networks() -> None:
    x = draw("gaussian", 7, 2)
    for form in ("symmetric", "free"):
        bank = fit(form, "tanh", 3, seeds=[0, 4], steps=2, batch=8)
        for place in range(2):
            torch.testing.assert_close(bank(x)[place], bank[place](x).detach())
        units = bank[0].get_parameter("outputs").numel()
        assert units == (3 if form == "symmetric" else 6)


def test_the_manifold_of_linear_networks() -> None:
    w1, w2, b1 = 0.4, 1.7, 0.3
    state = {"weights": [[HALF / w2 - w1, w1]], "biases": [b1], "outputs": [w2]}
    solved = PairNetwork("symmetric", "linear", {**state, "offsets": -2 * w2 * b1})
    assert on_manifold(solved)
    assert on_manifold(solved).distance < 1e-15
    missed = on_manifold(PairNetwork("symmetric", "linear", {**state, "offsets": 0.0}))
    assert not missed
    assert missed.distance == pytest.approx(2 * w2 * b1)
    assert on_manifold(PairNetwork("symmetric", "linear", {**state, "offsets": 0.0}), 2).holds


def test_residuals_are_the_coefficients_of_the_polynomial() -> None:
    for form in ("symmetric", "free"):
        own = network(form, "quadratic(0.3)")
        left = on_manifold(own).residuals
        x = draw("gaussian", 6, 2)
        one, two = x.T
        value = (HALF + left["x1"]) * one + (HALF + left["x2"]) * two + left["1"]
        value += left["x1 x1"] * one**2 + left["x2 x2"] * two**2 + left["x1 x2"] * one * two
        torch.testing.assert_close(own(x).detach(), value)


def test_two_free_quadratic_units_solve_the_step() -> None:
    """w2 of opposite signs cancels the squares: phi(u) - phi(-u) = 2 u."""
    weights = [[HALF / 2, HALF / 2], [-HALF / 2, -HALF / 2]]
    state = {"weights": weights, "biases": [0.0, 0.0], "outputs": [1.0, -1.0], "offsets": 0.0}
    assert on_manifold(PairNetwork("free", "quadratic", state)).distance < 1e-15


def test_the_error_by_w2_follows_its_formula() -> None:
    x = draw("uniform", 2**16, 2)
    variance = float(x.sum(1).square().var(correction=0))
    for w2 in (0.5, 2.0, -8.0, 100.0):
        answers = balanced_quadratic(w2)(x).detach()
        error = float((answers - HALF * x.sum(1)).square().mean())
        assert error == pytest.approx(floor_error(w2, "uniform"), rel=0.02)
        assert error == pytest.approx((0.2 / (4 * w2)) ** 2 * variance, rel=1e-2)
    assert floor_error(0.5, "exponential") == pytest.approx(0.2, rel=1e-12)


def test_the_error_of_numbers_that_are_not_standard() -> None:
    """Of all ordered pairs of a sample, whose cumulants are known exactly."""
    x = 0.5 + 1.7 * draw("exponential", 40)
    pairs = torch.cartesian_prod(x, x)
    answers = balanced_quadratic(0.8)(pairs).detach()
    error = float((answers - HALF * pairs.sum(1)).square().mean())
    assert floor_error(0.8, cumulants(x)) == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("w2", [0, float("inf"), "1", True])
def test_second_weights_are_numbers_that_are_not_0(w2: object) -> None:
    for make in (balanced_quadratic, lambda own: floor_error(own, "uniform")):
        with pytest.raises(ModelError, match="w2 is"):
            make(w2)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="2 dimensions: expected 1"):
        floor_error(1.0, cumulants(draw("uniform", 10, 2)))


def test_what_is_no_pair_network() -> None:
    with pytest.raises(ModelError, match="did you mean 'symmetric'"):
        network("symetric")
    with pytest.raises(RecipeError):
        network(unit="none")
    with pytest.raises(ModelError, match="weights have shape"):
        PairNetwork("free", "tanh", {"weights": [1.0], "biases": [0.0], "outputs": [1.0],
                                     "offsets": 0.0})  # fmt: skip
    with pytest.raises(DataError, match="expected N x 2"):
        network()(torch.zeros(3, 3))
    with pytest.raises(ModelError, match="not a polynomial"):
        on_manifold(network())
    with pytest.raises(ModelError, match="is not a pair network"):
        on_manifold(torch.nn.Linear(2, 1))  # type: ignore[arg-type]
    for w2 in (0, math.nan, math.inf, "x"):
        with pytest.raises(IntarsiaError, match="w2 is"):
            balanced_quadratic(w2)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="tolerance is"):
        on_manifold(network(unit="linear"), -1)
