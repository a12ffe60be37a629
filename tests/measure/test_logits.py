"""Measures of logits against scikit-learn, scipy and hand-computed cases."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import softmax
from sklearn import metrics

from intarsia import measure
from intarsia.errors import DataError

CLASSES = 5


@pytest.fixture
def sample() -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(0)
    return chance.normal(0, 3, (400, CLASSES)).astype(np.float32), chance.integers(0, CLASSES, 400)


def test_confusion_and_recall(sample: tuple[np.ndarray, np.ndarray]) -> None:
    z, y = sample
    predicted = z.argmax(1)
    assert np.array_equal(measure.confusion(z, y, CLASSES), metrics.confusion_matrix(y, predicted))
    recall = metrics.recall_score(y, predicted, average=None)
    assert np.allclose(measure.accuracy_per_class(z, y), recall, rtol=1e-15)


@pytest.mark.parametrize("rewarded", [[0], [1, 3], range(CLASSES)])
def test_rewarded_accuracy(sample: tuple[np.ndarray, np.ndarray], rewarded: list[int]) -> None:
    z, y = sample
    rows = np.isin(y, list(rewarded))
    expected = metrics.accuracy_score(y[rows], z[rows].argmax(1))
    assert measure.rewarded_accuracy(z, y, rewarded) == expected
    assert measure.rewarded_accuracy(torch.from_numpy(z), torch.from_numpy(y), rewarded) == expected


@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_entropy(sample: tuple[np.ndarray, np.ndarray], temperature: float) -> None:
    z, y = sample
    each = stats.entropy(softmax(z.astype(float) / temperature, axis=1), axis=1)
    assert np.allclose(measure.entropy(z, temperature), each, rtol=1e-12)
    expected = each[~np.isin(y, [1, 2])].mean()
    assert measure.nonrewarded_entropy(z, y, [1, 2], temperature) == pytest.approx(
        expected, rel=1e-12
    )
    table = [each[y == c].mean() for c in range(CLASSES)]
    assert np.allclose(measure.entropy_per_class(z, y, temperature), table, rtol=1e-12)


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3), min_size=1, max_size=8
    ),
    st.floats(0.1, 10),
    st.floats(-100, 100),
)
def test_entropy_is_bounded_and_ignores_a_shift(
    rows: list[list[float]], temperature: float, shift: float
) -> None:
    z = np.array(rows)
    values = measure.entropy(z, temperature)
    assert (values >= 0).all()
    assert (values <= math.log(3) + 1e-12).all()
    assert np.allclose(measure.entropy(z + shift, temperature), values, atol=1e-8)


def test_hand_computed() -> None:
    z = np.log([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6], [1 / 3, 1 / 3, 1 / 3]])
    y = [0, 1, 2]
    assert measure.entropy(z)[0] == pytest.approx(1.5 * math.log(2))
    assert measure.entropy(z)[2] == pytest.approx(math.log(3))
    assert measure.rewarded_accuracy(z, y, [0, 1]) == 0.5
    assert measure.rewarded_accuracy(z, y, [2]) == 0.0  # of equal logits the first wins
    assert measure.confusion(z, y).tolist() == [[1, 0, 0], [0, 0, 1], [1, 0, 0]]


def test_extreme_logits_are_exact() -> None:
    assert measure.entropy([[1e30, -1e30, 0.0]]) == [0.0]
    assert measure.entropy([[1e-30, 0.0]]) == pytest.approx(math.log(2), rel=1e-15)


def test_absent_classes_are_nan_and_left_out() -> None:
    z, y = np.eye(4)[[0, 1, 1]], np.array([0, 1, 0])
    assert np.array_equal(
        measure.accuracy_per_class(z, y), [0.5, 1, np.nan, np.nan], equal_nan=True
    )
    assert np.isnan(measure.entropy_per_class(z, y)).tolist() == [False, False, True, True]
    assert measure.rewarded_accuracy(z, y, [0, 3]) == 0.5
    assert math.isnan(measure.rewarded_accuracy(z, y, [2, 3]))
    assert measure.nonrewarded_entropy(z, y, [0, 2]) == pytest.approx(measure.entropy(z)[1])


def test_nothing_left_is_nan() -> None:
    z, y = np.eye(3), [0, 1, 2]
    assert math.isnan(measure.nonrewarded_entropy(z, y, [0, 1, 2]))
    assert math.isnan(measure.rewarded_accuracy(z, y, []))
    assert math.isnan(measure.rewarded_accuracy(np.zeros((0, 3)), [], [0]))
    assert measure.confusion(np.zeros((0, 3)), []).tolist() == [[0] * 3] * 3


@pytest.mark.parametrize(
    ("z", "y", "rewarded", "message"),
    [
        (np.zeros(3), [0, 1, 2], [0], "shape \\(3,\\)"),
        (np.zeros((2, 0)), [0, 1], [0], "expected N x C"),
        (np.array([["a", "b"]]), [0], [0], "expected N x C numbers"),
        ([[1.0], [1.0, 2.0]], [0, 1], [0], "the logits are not an array"),
        (np.zeros((2, 3)), [0, 1, 2], [0], "3 labels for 2 rows"),
        (np.zeros((2, 3)), [0, 3], [0], "the label 3 is outside .* 0 to 2"),
        (np.zeros((2, 3)), [0, -1], [0], "the label -1"),
        (np.zeros((2, 3)), [[0], [1]], [0], "shape \\(2, 1\\)"),
        (np.zeros((2, 3)), [[0], [1, 2]], [0], "the labels are not an array"),
        (np.zeros((2, 3)), [0.0, 1.0], [0], "float64: expected N whole numbers"),
        (np.full((2, 3), np.nan), [0, 1], [0], "diverged"),
        (np.zeros((2, 3)), [0, 1], [3], "expected indices of classes, 0 to 2"),
        (np.zeros((2, 3)), [0, 1], ["a"], "expected indices of classes"),
    ],
)
def test_bad_input(z: np.ndarray, y: list[int], rewarded: list[int], message: str) -> None:
    for value in (measure.rewarded_accuracy, measure.nonrewarded_entropy):
        with pytest.raises(DataError, match=message):
            value(z, y, rewarded)


def test_bad_settings() -> None:
    with pytest.raises(DataError, match="temperature is 0"):
        measure.entropy(np.zeros((1, 2)), 0)
    with pytest.raises(DataError, match="over 2 classes: expected 3"):
        measure.confusion(np.zeros((1, 2)), [0], 3)
    with pytest.raises(DataError, match="temperature is inf"):
        measure.entropy(np.zeros((1, 2)), np.inf)
    with pytest.raises(DataError, match="temperature is -1"):
        measure.entropy(np.zeros((1, 2)), -1)
    with pytest.raises(DataError, match="expected indices of classes"):
        measure.rewarded_accuracy(np.zeros((1, 2)), [0], [-1])


def test_temperature_is_1_unless_told() -> None:
    z = [[0.0, 3.0]]
    assert measure.entropy(z)[0] == measure.entropy(z, 1.0)[0] != measure.entropy(z, 2.0)[0]
    assert measure.entropy_per_class(z, [0])[0] == measure.entropy(z)[0]
    assert measure.nonrewarded_entropy(z, [0], [1]) == measure.entropy(z)[0]


def test_a_single_class_and_whole_numbers_are_fine() -> None:
    assert measure.entropy(np.zeros((2, 1), dtype=np.uint8)).tolist() == [0.0, 0.0]
    assert measure.confusion([[3, 1]], np.array([1], dtype=np.uint8)).dtype == np.int64
    assert measure.confusion([[3, 1]], [1]).tolist() == [[0, 0], [1, 0]]
    half = torch.tensor([[2.0, 1.0]], dtype=torch.bfloat16, requires_grad=True)
    assert measure.rewarded_accuracy(half, torch.tensor([0]), [0]) == 1.0
