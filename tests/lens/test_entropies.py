"""Entropies: by hand, of the uniform law, and from blocks as from the whole."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from intarsia.errors import DataError, RecipeError
from intarsia.lens import entropy
from intarsia.lens.entropies import RunningEntropy

ORDERS = [0.25, 0.5, 1.0, 2.0, 5.0, math.inf]


def by_definition(logits: np.ndarray, alpha: float) -> np.ndarray:
    z = logits.astype(np.float64)
    p = np.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    if alpha == 1:
        return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)
    if math.isinf(alpha):
        return -np.log(p.max(-1))
    return np.log((p**alpha).sum(-1)) / (1 - alpha)


def test_by_hand() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.25]))
    assert entropy(logits) == pytest.approx(1.5 * math.log(2))
    assert entropy(logits, 2) == pytest.approx(-math.log(0.375))
    assert entropy(logits, math.inf) == pytest.approx(math.log(2))
    assert entropy(logits, 0.5) == pytest.approx(2 * math.log(math.sqrt(0.5) + 1))


@pytest.mark.parametrize("alpha", ORDERS)
def test_uniform_is_the_logarithm_of_the_classes(alpha: float) -> None:
    result = entropy(torch.full((2, 3, 37), 4.0, dtype=torch.float64), alpha)
    assert result.shape == (2, 3)
    torch.testing.assert_close(result, torch.full((2, 3), math.log(37), dtype=torch.float64))


@given(st.integers(0, 2**31), st.sampled_from(ORDERS), st.integers(1, 20))
def test_blocks_are_as_the_whole(seed: int, alpha: float, size: int) -> None:
    z = np.random.default_rng(seed).normal(size=(4, 33)) * 20
    running = RunningEntropy(alpha, moments=True)
    for block in torch.from_numpy(z).split(size, -1):
        running.add(block)
    np.testing.assert_allclose(running.entropy(), by_definition(z, alpha), atol=1e-9, rtol=1e-7)
    np.testing.assert_allclose(running.spread(), z.std(-1), rtol=1e-9)
    total = torch.logsumexp(torch.from_numpy(z), -1)
    torch.testing.assert_close(running.log_sum_exp(), total)


@pytest.mark.parametrize("alpha", ORDERS)
def test_impossible_classes_and_large_logits(alpha: float) -> None:
    z = np.array([[1e4, 1e4, -np.inf], [-np.inf, 0.0, -np.inf]])
    np.testing.assert_allclose(entropy(z, alpha), [math.log(2), 0], atol=1e-12)


def test_bad_inputs_are_named() -> None:
    for alpha in (0, -1, math.nan, "1", True):
        with pytest.raises(RecipeError, match="alpha"):
            entropy(np.zeros(3), alpha)  # type: ignore[arg-type]
    for logits in ("abc", np.zeros(0), np.float64(1), np.ones(2) * 1j):
        with pytest.raises(DataError, match="logits"):
            entropy(logits)


@pytest.mark.parametrize("alpha", [1 - 1e-7, 1 + 1e-7, 1 + 2e-6, 0.9999, 1.001, 1.05])
def test_orders_near_one_lose_no_digits(alpha: float) -> None:
    z = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 5000)).astype(np.float32) * 3)
    shannon, found = (entropy(z, order).double() for order in (1.0, alpha))
    slope = (entropy(z, 1.2).double() - entropy(z, 0.8).double()).abs() / 0.4
    assert ((found - shannon).abs() <= 2 * slope * abs(alpha - 1) + 1e-5).all()
