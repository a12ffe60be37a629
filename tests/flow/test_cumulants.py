"""Cumulants against scipy's, against their definition, and under affine maps."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from intarsia.errors import DataError, IntarsiaError
from intarsia.flow import Cumulants, cumulants, draw

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def mixed() -> torch.Tensor:
    """Three dimensions that depend on each other, none of them Gaussian."""
    laws = ("exponential", "uniform", "laplace")
    x = torch.cat([draw(law, 5000, 1) for law in laws], 1)
    x[:, 1] += 0.5 * x[:, 0] ** 2
    return x


def test_diagonals_are_scipy_s_k_statistics() -> None:
    x = draw("exponential", 50)
    found = cumulants(x, unbiased=True)
    for order in range(1, 5):
        expected = stats.kstat(x.numpy(), order)
        assert float(found[order].flatten()[0]) == pytest.approx(expected, rel=1e-12)


def test_tensors_follow_their_definition() -> None:
    x = draw("exponential", 40, 2) @ torch.tensor([[1.0, 0.5], [0.0, 1.0]]).double()
    c = (x - x.mean(0)).numpy()

    def moment(*axes: int) -> float:
        return float(np.prod([c[:, axis] for axis in axes], axis=0).mean())

    whole = cumulants(x)
    for i, j, k, m in product(range(2), repeat=4):
        assert float(whole[3][i, j, k]) == pytest.approx(moment(i, j, k), abs=1e-12)
        fourth = moment(i, j, k, m) - sum(
            moment(*a) * moment(*b)
            for a, b in (((i, j), (k, m)), ((i, k), (j, m)), ((i, m), (j, k)))
        )
        assert float(whole[4][i, j, k, m]) == pytest.approx(fourth, abs=1e-12)


def test_unbiased_tensors_have_the_cumulant_as_their_mean() -> None:
    """Over all samples of 5 with replacement from a law of two points, weighted alike."""
    points = torch.tensor([0.0, 1.0, 3.0]).double()
    rows = torch.tensor(list(product(points.tolist(), repeat=5))).double()
    for order in (2, 3, 4):
        each = [float(cumulants(x, 4, unbiased=True, errors=False)[order].sum()) for x in rows]
        expected = float(cumulants(points, errors=False)[order].sum())
        assert np.mean(each) == pytest.approx(expected, abs=1e-10)


def test_unbiased_tensors_have_scipy_s_diagonals(mixed: torch.Tensor) -> None:
    whole = cumulants(mixed[:60], unbiased=True).diagonals()
    own = cumulants(mixed[:60], unbiased=True, diagonal=True)
    for order in range(1, 5):
        torch.testing.assert_close(whole[order], own[order], rtol=1e-12, atol=1e-12)


def test_the_affine_law_is_exact_on_samples(mixed: torch.Tensor) -> None:
    weight, bias = draw("gaussian", 4, 3), draw("gaussian", 4)
    carried = cumulants(mixed).affine(weight, bias)
    measured = cumulants(mixed @ weight.T + bias)
    for order in range(1, 5):
        gap = (carried[order] - measured[order]).abs().max() / measured[order].abs().max()
        assert float(gap) < 1e-10


def test_a_bias_moves_order_1_alone(mixed: torch.Tensor) -> None:
    start = cumulants(mixed)
    moved = start.affine(torch.eye(3), [1.0, 2.0, 3.0])
    torch.testing.assert_close(moved[1] - start[1], torch.tensor([1.0, 2.0, 3.0]).double())
    for order in (2, 3, 4):
        assert torch.equal(moved[order], start[order])


@pytest.mark.parametrize("diagonal", [True, False])
def test_standard_errors_are_those_of_repeated_samples(diagonal: bool) -> None:
    runs = [cumulants(draw("exponential", 400, 2, seed=s), diagonal=diagonal) for s in range(300)]
    for order, low, high in ((1, 0.9, 1.1), (2, 0.8, 1.2), (3, 0.6, 1.4)):
        spread = torch.stack([run[order] for run in runs]).std(0)
        claimed = torch.stack([run.errors[order - 1] for run in runs if run.errors]).mean(0)
        ratio = float((claimed / spread).mean())
        assert low < ratio < high, (order, ratio)


def test_errors_of_tensors_have_those_of_diagonals(mixed: torch.Tensor) -> None:
    whole, own = cumulants(mixed[:200]).diagonals(), cumulants(mixed[:200], diagonal=True)
    assert whole.errors is not None
    assert own.errors is not None
    for one, other in zip(whole.errors, own.errors, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_cumulants_of_independent_copies_are_zero_between_them() -> None:
    one = cumulants(draw("exponential", 100))
    two = one.independent(2)
    assert float(two[2][0, 1]) == 0
    assert float(two[4][1, 1, 1, 1]) == float(one[4].flatten()[0])
    assert float(two[3][0, 1, 1]) == 0


def test_many_dimensions_have_diagonals() -> None:
    x = draw("gaussian", 20, 30)
    assert cumulants(x).diagonal
    assert cumulants(x.reshape(20, 5, 6))[2].shape == (30,)
    with pytest.raises(DataError, match=r"30 dimensions.*diagonal=True"):
        cumulants(x, diagonal=False)
    with pytest.raises(DataError, match="diagonals of 30"):
        cumulants(x).affine(torch.eye(30))


def test_large_offsets_cost_no_digits() -> None:
    x = draw("exponential", 2000)
    near, far = cumulants(x), cumulants(x + 1e6)
    for order in (2, 3, 4):
        torch.testing.assert_close(near[order], far[order], rtol=1e-6, atol=0)


@given(
    arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(1, 3)),
           elements=st.floats(-1e3, 1e3)),
    st.floats(-5, 5),
)  # fmt: skip
@settings(max_examples=25)
def test_scaling_multiplies_order_r_by_its_power(x: np.ndarray, factor: float) -> None:
    start, scaled = cumulants(x, errors=False), cumulants(factor * x, errors=False)
    for order in range(1, 5):
        size = max(1.0, float(np.abs(factor * x).max())) ** order
        expected = start[order] * factor**order
        torch.testing.assert_close(scaled[order], expected, rtol=1e-9, atol=1e-12 * size)


BAD = (
    [], [[]], 3.0, None, "text", ["a", "b"], [1.0, math.nan], [[1.0], [math.inf]], [1 + 2j],
    [[1.0, 2.0], [3.0]], {"x": 1}, [1e200, -1e200, 3.0],
)  # fmt: skip


@pytest.mark.parametrize("x", BAD)
def test_what_has_no_cumulants_is_refused(x: object) -> None:
    with pytest.raises(DataError):
        cumulants(x)


@given(st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.booleans()))
@settings(max_examples=20)
def test_orders_are_1_to_4(order: object) -> None:
    if type(order) is int and 1 <= order <= 4:
        assert cumulants([1.0, 2.0, 4.0], order).order == order
        return
    with pytest.raises(IntarsiaError, match="order is"):
        cumulants([1.0, 2.0, 4.0], order)  # type: ignore[arg-type]
    with pytest.raises(IntarsiaError):
        cumulants([1.0, 2.0, 4.0])[order]  # type: ignore[index]


def test_too_few_for_k_statistics() -> None:
    with pytest.raises(DataError, match=r"3 samples are too few.*need 4"):
        cumulants([1.0, 2.0, 3.0], unbiased=True)
    assert cumulants([1.0, 2.0, 3.0], 3, unbiased=True).order == 3


def test_shapes_are_checked() -> None:
    one, two = torch.zeros(2).double(), torch.zeros(2, 3).double()
    with pytest.raises(DataError, match="order 2 has shape"):
        Cumulants((one, two), diagonal=False)
    with pytest.raises(DataError, match="orders 1 to 4"):
        Cumulants((), diagonal=False)
    with pytest.raises(DataError, match="weight has shape"):
        cumulants(two + 1).affine(torch.eye(2))
    with pytest.raises(DataError, match="bias has shape"):
        cumulants(draw("gaussian", 5, 3)).affine(torch.eye(3), [1.0])
    with pytest.raises(DataError, match="9 copies"):
        cumulants([1.0, 2.0]).independent(9)


def test_what_is_shown_and_written() -> None:
    found = cumulants(draw("exponential", 100, 2))
    written = found.to_json()
    assert np.shape(written["cumulants"][3]) == (2, 2, 2, 2)
    assert np.shape(written["standard_errors"][1]) == (2, 2)
    table = found.__rich__()
    assert [column.header for column in table.columns] == ["dimension", "k1", "k2", "k3", "k4"]
    assert str(found).split()[:5] == ["dimension", "k1", "k2", "k3", "k4"]
    fixed = np.arange(6.0)
    fixed.setflags(write=False)  # as those of pandas' columns are
    assert cumulants(fixed).count == 6


def test_standard_errors_beyond_float64_are_refused_like_values() -> None:
    x = [1e40, -1e40, 0.0, 2e40]
    with pytest.raises(DataError, match="standard errors, leave the range"):
        cumulants(x)
    assert math.isfinite(float(cumulants(x, errors=False)[4]))


@pytest.mark.parametrize("bad", ["abc", [[math.nan]], [[1j]], [[1.0], [2.0, 3.0]]])
def test_an_affine_map_is_made_of_finite_numbers(bad: object) -> None:
    one = cumulants([1.0, 2.0, 4.0])
    with pytest.raises(DataError, match="the weight"):
        one.affine(bad)
    with pytest.raises(DataError, match="the bias"):
        one.affine([[1.0]], bad)
