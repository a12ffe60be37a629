"""Whether means differ, whether they agree, and what is left of many such answers.

`welch` and `clustered` ask whether one mean is above another, `equivalence` whether two are nearer
to each other than a margin, and `holm` corrects the answers of a whole family of tests.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intarsia.errors import DataError

LEVEL = 0.05
Clusters = Mapping[Any, Sequence[float | None]]
"""Values by what they share, such as a seed; None where a value is missing."""


@dataclass(frozen=True)
class TTest:
    """t is above 0 where the first mean is the higher one; p is of both sides."""

    t: float
    p: float
    freedom: float  # degrees; by Welch and Satterthwaite of two groups; nan without any spread

    def above(self, level: float = LEVEL) -> bool:
        """Whether the first mean is the higher one, by the test."""
        return self.t > 0 and self.p < level


@dataclass(frozen=True)
class Moments:
    """What a paper prints of a group: mean, standard deviation (n - 1 below it) and n."""

    mean: float
    sd: float
    n: int


def welch(a: Sequence[float], b: Sequence[float]) -> TTest:
    """Welch's test of two groups of at least two finite values each.

    All values are taken for independent. Where neither group has any spread, equal means give t = 0
    and p = 1, others t = inf or -inf and p = 0: there is nothing that chance could have done.
    """
    first, second = _group(a), _group(b)
    if np.ptp(first) == 0 and np.ptp(second) == 0:
        return _without_spread(float(first[0] - second[0]))
    return welch_of_moments(_moments(first), _moments(second))


def welch_of_moments(a: Moments, b: Moments) -> TTest:
    """Welch's test of two groups of which only the moments are known."""
    error, freedom = _error(a, b)
    if error == 0:
        return _without_spread(a.mean - b.mean)
    t = (a.mean - b.mean) / error
    return TTest(t, 2 * _tail(abs(t), freedom), freedom)


def equivalence(a: Moments, b: Moments, margin: float) -> float:
    """p of the hypothesis that the means are `margin` or more apart: two one-sided tests (TOST).

    Below the level the means agree within the margin. p is the larger one of Welch's tests of
    a - b > -margin and a - b < margin, one side each; without any spread it is 0 or 1.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise DataError(f"margin is {margin!r}: expected a number above 0, such as 0.02")
    error, freedom = _error(a, b)
    distance = abs(a.mean - b.mean)
    if error == 0:
        return 0.0 if distance < margin else 1.0
    return _tail((margin - distance) / error, freedom)


def clustered(a: Clusters, b: Clusters) -> TTest | None:
    """The paired test of clusters: one difference for each, and Student's test that they are 0.

    Values in the same place of the same cluster belong together. A cluster's difference is the mean
    of a - b over the places that both have, so that values of one cluster, which may depend on each
    other in any way, count as one. None where fewer than two clusters have a difference.
    """
    differences = []
    for name in a:
        if name not in b:
            continue
        if len(a[name]) != len(b[name]):
            raise DataError(
                f"cluster {name!r} has {len(a[name])} values and {len(b[name])}: expected a value "
                "of both in every place, None where one is missing"
            )
        known = [
            x - y
            for x, y in zip(a[name], b[name], strict=True)
            if x is not None and y is not None and math.isfinite(x - y)
        ]
        differences += [statistics.fmean(known)] if known else []
    if len(differences) < 2:
        return None
    mean, sd = statistics.fmean(differences), statistics.stdev(differences)
    freedom = len(differences) - 1
    if sd <= 1e-12 * abs(mean):  # no more than rounding
        return _without_spread(mean if abs(mean) > 1e-12 else 0.0)
    t = mean / (sd / math.sqrt(len(differences)))
    return TTest(t, 2 * _tail(abs(t), freedom), freedom)


def holm(values: Sequence[float]) -> list[float]:
    """p values of one family, corrected by Holm's method; in the order given.

    Those below a level are all right but with a probability below that level, however the tests
    depend on each other.
    """
    for p in values:
        if not 0 <= p <= 1:
            raise DataError(f"a p value is {p!r}: expected a number from 0 to 1")
    corrected = [0.0] * len(values)
    worst = 0.0
    for place, index in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        worst = max(worst, min(1.0, (len(values) - place) * values[index]))
        corrected[index] = worst
    return corrected


def above(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> bool:
    """Whether the mean of `a` is above that of `b` by Welch's test; never with too few values."""
    if len(a) < 2 or len(b) < 2:
        return False
    return welch(a, b).above(level)


def best_of(groups: Mapping[str, Sequence[float]], level: float = LEVEL) -> str | None:
    """The name whose mean is highest if the test puts it above every other, else None.

    One group alone is above nothing.
    """
    if not 0 < level < 1:
        raise DataError(f"level is {level!r}: expected a number between 0 and 1, such as 0.05")
    name, p = best_p(groups)
    return name if p < level else None


def best_p(groups: Mapping[str, Sequence[float]]) -> tuple[str | None, float]:
    """The name whose mean is highest, and p of the claim that it is above every other.

    That is the largest p of Welch's tests of it against each of them; 1 where there is no other, or
    a group has fewer than two values.
    """
    filled = {name: values for name, values in groups.items() if len(values)}
    if not filled:
        return None, 1.0
    best = max(filled, key=lambda name: float(np.mean(filled[name])))
    others = [values for name, values in filled.items() if name != best]
    if not others or any(len(values) < 2 for values in filled.values()):
        return best, 1.0
    return best, max(welch(filled[best], values).p for values in others)


def _group(values: Sequence[float]) -> np.ndarray:
    group = np.asarray(values, dtype=np.float64)
    if group.ndim != 1 or len(group) < 2 or not np.isfinite(group).all():
        raise DataError(
            f"Welch's test got {group.size} values of shape {group.shape}: expected a list of at "
            "least two finite numbers; leave missing ones out"
        )
    return group


def _moments(group: np.ndarray) -> Moments:
    """Of equal values the deviation is 0, and not what rounding leaves of it."""
    sd = float(group.std(ddof=1)) if np.ptp(group) else 0.0
    return Moments(float(group.mean()), sd, len(group))


def _error(a: Moments, b: Moments) -> tuple[float, float]:
    """The standard error of the difference of two means, and its degrees of freedom."""
    for group in (a, b):
        if group.n < 2 or not (math.isfinite(group.mean) and 0 <= group.sd < math.inf):
            raise DataError(f"{group}: expected at least two values, a mean and a deviation from 0")
    parts = [group.sd**2 / group.n for group in (a, b)]
    if sum(parts) == 0:
        return 0.0, math.nan
    below = sum(part**2 / (group.n - 1) for part, group in zip(parts, (a, b), strict=True))
    return math.sqrt(sum(parts)), sum(parts) ** 2 / below


def _tail(t: float, freedom: float) -> float:
    """The probability that Student's t is above this."""
    from scipy import special  # slow to import

    return float(special.stdtr(freedom, -t))


def _without_spread(difference: float) -> TTest:
    if difference == 0:
        return TTest(0.0, 1.0, math.nan)
    return TTest(math.copysign(math.inf, difference), 0.0, math.nan)
