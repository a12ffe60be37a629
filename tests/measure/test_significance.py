"""Welch's test against a hand-computed case, scipy and chance."""

import math

import numpy as np
import pytest
from scipy import stats

from intarsia.errors import DataError
from intarsia.measure.significance import above, best_of, welch


def test_a_case_computed_by_hand() -> None:
    # means 2 and 5, variances 1 and 4, each of three: t = -3 / sqrt(1/3 + 4/3)
    result = welch([1, 2, 3], [3, 5, 7])
    assert result.t == pytest.approx(-3 / math.sqrt(5 / 3))
    assert result.freedom == pytest.approx((5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2))
    assert result.p == pytest.approx(2 * stats.t.sf(3 / math.sqrt(5 / 3), 50 / 17))


def test_groups_change_places_with_the_sign() -> None:
    chance = np.random.default_rng(0)
    a, b = chance.normal(0, 1, 12), chance.normal(0.5, 3, 7)
    there, back = welch(a, b), welch(b, a)
    assert (there.t, there.p, there.freedom) == pytest.approx((-back.t, back.p, back.freedom))


def test_chance_finds_a_difference_as_often_as_the_level_says() -> None:
    chance = np.random.default_rng(1)
    result = [welch(chance.normal(0, 1, 10), chance.normal(0, 4, 20)).p < 0.05 for _ in range(600)]
    assert 0.03 < np.mean(result) < 0.075


@pytest.mark.parametrize(
    ("a", "b", "t", "p"),
    [
        ([1.0, 1.0], [1.0, 1.0, 1.0], 0, 1),
        ([0.1, 0.1, 0.1], [0.3, 0.3, 0.3], -math.inf, 0),
        ([0.3, 0.3, 0.3], [0.1, 0.1, 0.1], math.inf, 0),
    ],
)
def test_groups_without_spread(a: list[float], b: list[float], t: float, p: float) -> None:
    result = welch(a, b)
    assert (result.t, result.p) == (t, p)
    assert math.isnan(result.freedom)


def test_one_group_without_spread_is_a_test_of_one_mean() -> None:
    result = welch([0.9, 0.9, 0.9], [0.1, 0.2, 0.4])
    alone = stats.ttest_1samp([0.1, 0.2, 0.4], 0.9)
    assert result.p == pytest.approx(alone.pvalue)
    assert result.t == pytest.approx(-alone.statistic)
    assert result.freedom == pytest.approx(2)
    turned = welch([0.1, 0.2, 0.4], [0.9, 0.9, 0.9])
    assert (turned.t, turned.p) == pytest.approx((-result.t, result.p))


@pytest.mark.parametrize("bad", [[], [1.0], [1.0, math.nan], [1.0, math.inf], [[1.0], [2.0]]])
def test_groups_that_cannot_be_tested_are_refused(bad: list) -> None:
    with pytest.raises(DataError, match="at least two finite numbers"):
        welch([1.0, 2.0], bad)


def test_above_asks_for_both_sides_and_for_the_direction() -> None:
    """A test of one side would halve p, and take 0.05 to 0.1 for a difference."""
    low, high = [0.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.5, 5.5]
    p = welch(high, low).p
    assert 0.05 < p < 0.1
    assert not above(high, low)
    assert above(high, low, level=0.1)
    assert not above(low, high, level=0.1)
    assert not above(high, low, level=p)
    assert above(high, low, level=math.nextafter(p, 1))
    near = [0.5, 1.5, 2.5, 3.5]
    assert 0 < welch(near, low).t < 1
    assert above(near, low, level=0.9)


def test_above_takes_two_values_of_each() -> None:
    assert not above([9.0, 9.1], [1.0])
    assert not above([9.0], [1.0])
    assert not above([], [])
    assert above([9.0, 9.0], [1.0, 1.0])


def test_the_best_is_above_every_other() -> None:
    low, high = [0.1, 0.2, 0.15, 0.12], [0.9, 0.95, 0.92, 0.97]
    assert best_of({"a": low, "b": high, "c": low}) == "b"
    assert best_of({"a": low, "b": high, "c": [0.91, 0.99, 0.9, 0.94]}) is None
    assert best_of({"a": low, "b": high}, level=1e-12) is None
    assert best_of({"b": high, "a": low}) == "b"
    assert best_of({"a": low, "b": high, "empty": []}) == "b"
    middle = [0.0, 1.0, 2.0, 3.0]
    assert best_of({"a": middle, "b": [2.0, 3.0, 4.5, 5.5]}) is None
    assert best_of({"a": middle, "b": [2.0, 3.0, 4.5, 5.5]}, level=0.1) == "b"


def test_too_little_to_tell() -> None:
    assert best_of({}) is None
    assert best_of({"a": [1.0, 2.0]}) is None
    assert best_of({"a": [1.0, 2.0], "b": []}) is None
    assert best_of({"a": [9.0], "b": [1.0, 1.1]}) is None
    assert above([9.0], [1.0, 1.1]) is False
    assert above([9.0, 9.1], [1.0, 1.1])
    assert not above([1.0, 1.1], [9.0, 9.1])


@pytest.mark.parametrize("level", [0, 1, -0.1, 5])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        best_of({"a": [1.0, 2.0], "b": [1.0, 2.0]}, level)
