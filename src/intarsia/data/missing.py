"""Values that stand for missing ones: fitted on the training part, kept for all others."""

import math
from typing import Any

import numpy as np

from intarsia.errors import DataError, nearest

WAYS = ("mean", "median", "most_frequent")


def fill_values(missing: Any, x: np.ndarray, where: str) -> np.ndarray:
    """One value per feature of the training rows `x`, by a way of WAYS or as they are given."""
    if x.ndim != 2 or x.dtype.kind != "f":
        raise DataError(
            f"{where}: missing= is for tables of numbers, rows x features; got inputs of shape "
            f"{x.shape[1:]} and type {x.dtype}: leave it out"
        )
    if not isinstance(missing, str):
        return _given(missing, x.shape[1], where)
    if missing not in WAYS:
        raise DataError(f"missing is {missing!r}: {nearest(missing, WAYS)}")
    empty = np.flatnonzero(np.isnan(x).all(axis=0))
    if len(empty):
        raise DataError(
            f"{where}: feature {empty[0]} (counted from 0) has no value in any training row, so "
            "none can be filled in: drop the column"
        )
    return np.array([_typical(column[~np.isnan(column)], missing) for column in x.T], np.float32)


def fill(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The rows with `values` where they have none."""
    return np.where(np.isnan(x), values, x)


def _given(missing: Any, features: int, where: str) -> np.ndarray:
    numbers = missing if isinstance(missing, list | tuple) else [missing] * features
    fine = all(isinstance(v, int | float) and not isinstance(v, bool) for v in numbers)
    if not fine or len(numbers) != features or not all(map(math.isfinite, numbers)):
        raise DataError(
            f"{where}: missing is {missing!r}: expected one of {', '.join(WAYS)}, a number, or "
            f"{features} of them, one per feature"
        )
    return np.array(numbers, np.float32)


def _typical(column: np.ndarray, way: str) -> float:
    if way == "mean":
        return math.fsum(column) / len(column)  # exact, so that it is the same on every machine
    if way == "median":
        return float(np.median(column.astype(np.float64)))
    values, counts = np.unique(column, return_counts=True)
    return float(values[counts.argmax()])  # the smallest of those that are equally frequent
