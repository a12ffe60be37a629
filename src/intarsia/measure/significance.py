"""Whether one mean is above another: Welch's t-test, which lets the groups' spreads differ."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.errors import DataError


@dataclass(frozen=True)
class Welch:
    """t is above 0 where the first mean is the higher one; p is of both sides."""

    t: float
    p: float
    freedom: float  # by Welch and Satterthwaite; nan where neither group has a spread


def welch(a: Sequence[float], b: Sequence[float]) -> Welch:
    """Welch's test of two groups of at least two finite values each.

    Where neither group has any spread, equal means give t = 0 and p = 1, others t = inf or -inf and
    p = 0: there is nothing that chance could have done.
    """
    first, second = _group(a), _group(b)
    if np.ptp(first) == 0 and np.ptp(second) == 0:
        difference = float(first[0] - second[0])
        if difference == 0:
            return Welch(0.0, 1.0, math.nan)
        return Welch(math.copysign(math.inf, difference), 0.0, math.nan)
    from scipy import stats  # slow to import

    with warnings.catch_warnings():
        # One group without spread is fine, and scipy warns of it.
        warnings.simplefilter("ignore", RuntimeWarning)
        result = stats.ttest_ind(first, second, equal_var=False)
    return Welch(float(result.statistic), float(result.pvalue), float(result.df))


def above(a: Sequence[float], b: Sequence[float], level: float = 0.05) -> bool:
    """Whether the mean of `a` is above that of `b` by Welch's test; never with too few values."""
    if len(a) < 2 or len(b) < 2:
        return False
    result = welch(a, b)
    return result.t > 0 and result.p < level


def best_of(groups: Mapping[str, Sequence[float]], level: float = 0.05) -> str | None:
    """The name whose mean is highest if the test puts it above every other, else None.

    One group alone is above nothing.
    """
    if not 0 < level < 1:
        raise DataError(f"level is {level!r}: expected a number between 0 and 1, such as 0.05")
    filled = {name: values for name, values in groups.items() if len(values)}
    if len(filled) < 2:
        return None
    best = max(filled, key=lambda name: float(np.mean(filled[name])))
    others = (values for name, values in filled.items() if name != best)
    return best if all(above(filled[best], values, level) for values in others) else None


def _group(values: Sequence[float]) -> np.ndarray:
    group = np.asarray(values, dtype=np.float64)
    if group.ndim != 1 or len(group) < 2 or not np.isfinite(group).all():
        raise DataError(
            f"Welch's test got {group.size} values of shape {group.shape}: expected a list of at "
            "least two finite numbers; leave missing ones out"
        )
    return group
