"""Tests of means against hand-computed cases, scipy and chance."""

import math

import numpy as np
import pytest
from scipy import stats

from intarsia import measure
from intarsia.errors import DataError


def test_a_case_computed_by_hand() -> None:
    # means 2 and 5, variances 1 and 4, each of three: t = -3 / sqrt(1/3 + 4/3)
    result = measure.welch([1, 2, 3], [3, 5, 7])
    assert result.t == pytest.approx(-3 / math.sqrt(5 / 3))
    assert result.freedom == pytest.approx((5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2))
    assert result.p == pytest.approx(2 * stats.t.sf(3 / math.sqrt(5 / 3), 50 / 17))


def test_groups_change_places_with_the_sign() -> None:
    chance = np.random.default_rng(0)
    a, b = chance.normal(0, 1, 12), chance.normal(0.5, 3, 7)
    there, back = measure.welch(a, b), measure.welch(b, a)
    assert (there.t, there.p, there.freedom) == pytest.approx((-back.t, back.p, back.freedom))


def test_chance_finds_a_difference_as_often_as_the_level_says() -> None:
    chance = np.random.default_rng(1)
    result = [
        measure.welch(chance.normal(0, 1, 10), chance.normal(0, 4, 20)).p < 0.05 for _ in range(600)
    ]
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
    result = measure.welch(a, b)
    assert (result.t, result.p) == (t, p)
    assert math.isnan(result.freedom)


def test_one_group_without_spread_is_a_test_of_one_mean() -> None:
    result = measure.welch([0.9, 0.9, 0.9], [0.1, 0.2, 0.4])
    alone = stats.ttest_1samp([0.1, 0.2, 0.4], 0.9)
    assert result.p == pytest.approx(alone.pvalue)
    assert result.t == pytest.approx(-alone.statistic)
    assert result.freedom == pytest.approx(2)
    turned = measure.welch([0.1, 0.2, 0.4], [0.9, 0.9, 0.9])
    assert (turned.t, turned.p) == pytest.approx((-result.t, result.p))


@pytest.mark.parametrize("bad", [[], [1.0], [1.0, math.nan], [1.0, math.inf], [[1.0], [2.0]]])
def test_groups_that_cannot_be_tested_are_refused(bad: list) -> None:
    with pytest.raises(DataError, match="at least two finite numbers"):
        measure.welch([1.0, 2.0], bad)


def test_above_asks_for_both_sides_and_for_the_direction() -> None:
    """A test of one side would halve p, and take 0.05 to 0.1 for a difference."""
    low, high = [0.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.5, 5.5]
    p = measure.welch(high, low).p
    assert 0.05 < p < 0.1
    assert not measure.above(high, low)
    assert measure.above(high, low, level=0.1)
    assert not measure.above(low, high, level=0.1)
    assert not measure.above(high, low, level=p)
    assert measure.above(high, low, level=math.nextafter(p, 1))
    near = [0.5, 1.5, 2.5, 3.5]
    assert 0 < measure.welch(near, low).t < 1
    assert measure.above(near, low, level=0.9)


def test_above_takes_two_values_of_each() -> None:
    assert not measure.above([9.0, 9.1], [1.0])
    assert not measure.above([9.0], [1.0])
    assert not measure.above([], [])
    assert measure.above([9.0, 9.0], [1.0, 1.0])


def test_the_best_is_above_every_other() -> None:
    low, high = [0.1, 0.2, 0.15, 0.12], [0.9, 0.95, 0.92, 0.97]
    assert measure.best_of({"a": low, "b": high, "c": low}) == "b"
    assert measure.best_of({"a": low, "b": high, "c": [0.91, 0.99, 0.9, 0.94]}) is None
    assert measure.best_of({"a": low, "b": high}, level=1e-12) is None
    assert measure.best_of({"b": high, "a": low}) == "b"
    assert measure.best_of({"a": low, "b": high, "empty": []}) == "b"
    middle = [0.0, 1.0, 2.0, 3.0]
    assert measure.best_of({"a": middle, "b": [2.0, 3.0, 4.5, 5.5]}) is None
    assert measure.best_of({"a": middle, "b": [2.0, 3.0, 4.5, 5.5]}, level=0.1) == "b"


def test_too_little_to_tell() -> None:
    assert measure.best_of({}) is None
    assert measure.best_of({"a": [1.0, 2.0]}) is None
    assert measure.best_of({"a": [1.0, 2.0], "b": []}) is None
    assert measure.best_of({"a": [9.0], "b": [1.0, 1.1]}) is None
    assert measure.above([9.0], [1.0, 1.1]) is False
    assert measure.above([9.0, 9.1], [1.0, 1.1])
    assert not measure.above([1.0, 1.1], [9.0, 9.1])


@pytest.mark.parametrize("level", [0, 1, -0.1, 5])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        measure.best_of({"a": [1.0, 2.0], "b": [1.0, 2.0]}, level)


def test_moments_give_the_test_of_their_values() -> None:
    chance = np.random.default_rng(2)
    a, b = chance.normal(0.0, 1.0, 12), chance.normal(0.7, 3.0, 7)
    whole, from_moments = measure.welch(a, b), measure.welch_of_moments(_moments(a), _moments(b))
    assert vars(from_moments) == pytest.approx(vars(whole))
    same, other = measure.Moments(1.0, 0.0, 3), measure.Moments(2.0, 0.0, 3)
    assert measure.welch_of_moments(same, same).p == 1
    apart = measure.welch_of_moments(other, same)
    assert (apart.t, apart.p) == (math.inf, 0)


@pytest.mark.parametrize("bad", [measure.Moments(1.0, 0.1, 1), measure.Moments(math.nan, 0.1, 5)])
def test_moments_that_cannot_be_tested_are_refused(bad: measure.Moments) -> None:
    good = measure.Moments(1.0, 0.1, 5)
    for groups in ((good, bad), (bad, good)):
        with pytest.raises(DataError, match="at least two values"):
            measure.welch_of_moments(*groups)
        with pytest.raises(DataError, match="at least two values"):
            measure.equivalence(*groups, 0.1)
    with pytest.raises(DataError, match="a deviation from 0"):
        measure.equivalence(good, measure.Moments(1.0, -0.1, 5), 0.1)


@pytest.mark.parametrize("shift", [-0.3, -0.05, 0.0, 0.05, 0.3])
def test_equivalence_is_two_one_sided_tests(shift: float) -> None:
    """By scipy: that a is above b less the margin, and below b and the margin."""
    chance = np.random.default_rng(3)
    a, b, margin = chance.normal(shift, 0.2, 30), chance.normal(0.0, 0.1, 20), 0.15
    sides = [
        stats.ttest_ind(a, b - margin, equal_var=False, alternative="greater"),
        stats.ttest_ind(a, b + margin, equal_var=False, alternative="less"),
    ]
    result = measure.equivalence(_moments(a), _moments(b), margin)
    assert result == pytest.approx(max(side.pvalue for side in sides))
    assert result == measure.equivalence(_moments(b), _moments(a), margin)
    assert (result < 0.05) == (abs(shift) < 0.1)


def test_equivalence_without_spread_is_by_the_margin_alone() -> None:
    one, other = measure.Moments(0.5, 0.0, 4), measure.Moments(0.52, 0.0, 4)
    assert measure.equivalence(one, other, 0.03) == 0
    assert measure.equivalence(one, other, 0.01) == 1


@pytest.mark.parametrize("margin", [0, -0.1, math.nan, math.inf])
def test_a_margin_is_above_0(margin: float) -> None:
    with pytest.raises(DataError, match="margin"):
        measure.equivalence(measure.Moments(0.5, 0.1, 4), measure.Moments(0.5, 0.1, 4), margin)


def test_means_that_are_a_margin_apart_agree_as_seldom_as_the_level_says() -> None:
    chance = np.random.default_rng(4)
    agree = [
        measure.equivalence(
            _moments(chance.normal(0.5, 1.0, 40)), _moments(chance.normal(0.0, 1.0, 40)), 0.5
        )
        < 0.05
        for _ in range(600)
    ]
    assert 0.03 < np.mean(agree) < 0.075


def test_clusters_are_a_paired_test_of_their_means() -> None:
    chance = np.random.default_rng(5)
    a = {seed: list(chance.normal(0.2, 1.0, 10)) for seed in range(5)}
    b = {seed: list(chance.normal(0.0, 1.0, 10)) for seed in range(5)}
    means = ([np.mean(own[seed]) for seed in range(5)] for own in (a, b))
    expected = stats.ttest_rel(*means)
    result = measure.clustered(a, b)
    assert result is not None
    assert (result.t, result.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert result.freedom == 4
    back = measure.clustered(b, a)
    assert back is not None
    assert (back.t, back.p) == pytest.approx((-result.t, result.p))


def test_values_are_compared_place_by_place_where_both_are_there() -> None:
    a = {0: [0.5, None, 0.9, math.nan], 1: [0.8, 0.7, 0.4, 0.1], 2: [0.3], 3: [None]}
    b = {0: [0.4, 0.1, None, 0.2], 1: [0.2, 0.6, 0.3, 0.1], 3: [0.2], 4: [0.9]}
    expected = stats.ttest_1samp([0.1, np.mean([0.6, 0.1, 0.1, 0.0])], 0)
    result = measure.clustered(a, b)
    assert result is not None
    assert (result.t, result.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert result.freedom == 1


def test_values_of_a_cluster_that_depend_on_each_other_count_once() -> None:
    """A seed's ten pairs share its luck: Welch's test errs far above its level, clusters do not."""
    chance = np.random.default_rng(6)
    wrong = {"welch": 0, "clustered": 0}
    for _ in range(300):
        groups = []
        for _ in range(2):
            luck = chance.normal(0, 1, 5)
            groups.append({s: list(luck[s] + chance.normal(0, 0.3, 10)) for s in range(5)})
        pooled = [[v for own in group.values() for v in own] for group in groups]
        result = measure.clustered(*groups)
        assert result is not None
        wrong["welch"] += measure.welch(*pooled).p < 0.05
        wrong["clustered"] += result.p < 0.05
    assert wrong["welch"] > 300 * 0.3
    assert wrong["clustered"] < 300 * 0.09


def test_clusters_without_spread_or_too_few() -> None:
    assert measure.clustered({0: [0.5]}, {0: [0.4]}) is None
    assert measure.clustered({0: [0.5], 1: [0.5]}, {2: [0.4]}) is None
    same = measure.clustered({0: [0.5], 1: [0.7]}, {0: [0.5], 1: [0.7]})
    assert same is not None
    assert (same.t, same.p) == (0, 1)
    apart = measure.clustered({0: [0.5], 1: [0.7], 2: [0.1]}, {0: [0.4], 1: [0.6], 2: [0.0]})
    assert apart is not None
    assert (apart.t, apart.p) == (math.inf, 0)  # 0.1 each, but for rounding
    with pytest.raises(DataError, match="cluster 'a' has 1 values and 2"):
        measure.clustered({"a": [0.5]}, {"a": [0.4, 0.3]})


def test_holm_by_hand() -> None:
    # 4 x 0.01, then 3 x 0.02 and 2 x 0.03, which is no less than that, then 0.9
    assert measure.holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert measure.holm([0.4, 0.6]) == pytest.approx([0.8, 0.8])
    assert measure.holm([]) == []
    assert measure.holm([0.04]) == [0.04]


def test_holm_errs_in_a_family_as_seldom_as_the_level_says() -> None:
    chance = np.random.default_rng(7)
    families = chance.uniform(0, 1, (2000, 10))
    assert 0.03 < np.mean([min(measure.holm(list(own))) < 0.05 for own in families]) < 0.065
    assert np.mean((families < 0.05).any(axis=1)) > 0.3  # without it


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_is_refused(bad: float) -> None:
    with pytest.raises(DataError, match="from 0 to 1"):
        measure.holm([0.5, bad])


def test_p_of_the_best_is_that_against_its_nearest() -> None:
    groups = {"a": [0.1, 0.2, 0.3], "b": [0.5, 0.6, 0.7], "c": [0.45, 0.5, 0.55]}
    name, p = measure.best_p(groups)
    assert name == "b"
    assert p == pytest.approx(stats.ttest_ind(groups["b"], groups["c"], equal_var=False).pvalue)
    assert measure.best_p({}) == (None, 1.0)
    assert measure.best_p({"a": [1.0, 2.0]}) == ("a", 1.0)
    assert measure.best_p({"a": [1.0, 2.0], "b": [9.0]}) == ("b", 1.0)


def _moments(values: np.ndarray) -> measure.Moments:
    return measure.Moments(float(values.mean()), float(values.std(ddof=1)), len(values))


def test_two_values_are_enough() -> None:
    name, p = measure.best_p({"a": [1.0, 1.1], "b": [0.0, 0.1]})
    assert name == "a"
    assert p == pytest.approx(measure.welch([1.0, 1.1], [0.0, 0.1]).p)
    assert p < 0.05
    assert measure.best_p({"a": [1.0, 1.1], "b": [0.0]}) == ("a", 1.0)
    moments = [
        measure.Moments(1.05, 0.1 / math.sqrt(2), 2),
        measure.Moments(0.05, 0.1 / math.sqrt(2), 2),
    ]
    assert measure.welch_of_moments(*moments).p == pytest.approx(p)
