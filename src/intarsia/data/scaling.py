"""Raw inputs to network inputs: one affine map, fitted on the training split."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import torch

from intarsia.errors import DataError, nearest, shortened
from intarsia.specs import is_number

ScalingKind = Literal["unit", "signed", "standard", "capped", "none"]
FURTHEST = 10.0  # standard deviations at which `capped` puts the training value that lies furthest

_CHUNK = 4096  # rows converted to float64 at a time, so that large image sets fit in memory


@dataclass(frozen=True, eq=False)
class Scaling:
    """The map (x - shift) * scale, in float32; whole numbers (int64) that it leaves alone stay so.

    `shift` and `scale` are 0-d for images (one number for all pixels) and of shape (D,) for tables.
    """

    kind: ScalingKind
    shift: torch.Tensor
    scale: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "none" and x.dtype == torch.int64:
            return x  # an embedding looks them up
        x = x.to(torch.float32)
        if self.kind == "none":
            return x
        return (x - self.shift.to(x.device)) * self.scale.to(x.device)

    @classmethod
    def fit(cls, kind: str, x: torch.Tensor) -> "Scaling":
        """Fit on raw inputs: `unit` to [0, 1], `signed` to [-1, 1], `standard` to z-scores.

        `capped` is `standard`, but a feature with training values beyond 10 standard deviations,
        such as one that is almost always 0, is divided by more, so that the furthest lies at 10.
        uint8 inputs have a known range, so `unit` and `signed` use 0 to 255 whatever `x` holds.
        A feature that never changes gets scale 1.
        """
        known = check_kind(kind)
        if len(x) == 0:
            raise DataError("a scaling cannot be fitted on an empty training split")
        array = x.detach().cpu().numpy()
        axis = None if array.ndim > 2 else 0
        if known == "none":
            shift, spread = np.zeros(()), np.ones(())
        elif known in ("standard", "capped"):
            shift, spread = _mean_and_deviation(array, axis)
            if known == "capped":
                low, high = array.min(axis=axis), array.max(axis=axis)
                furthest = np.maximum(high - shift, shift - low) / FURTHEST
                spread = np.where(spread > 0, np.maximum(spread, furthest), spread)
        else:
            low, high = _range(array, axis)
            half = known == "signed"
            shift, spread = ((low + high) / 2, (high - low) / 2) if half else (low, high - low)
        return cls(known, _tensor(shift), _tensor(_inverse(spread)))

    def to(self, device: torch.device) -> "Scaling":
        """The same map with its numbers on a device, where a recorded step can read them."""
        return Scaling(self.kind, self.shift.to(device), self.scale.to(device))

    def fitted(self, dtype: torch.dtype) -> bool:
        """Whether its numbers come from the rows it was fitted on; those of pixels are known."""
        known = dtype == torch.uint8 and self.kind in ("unit", "signed")
        return self.kind != "none" and not known

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists; every float32 is written exactly."""
        return {"kind": self.kind, "shift": self.shift.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Scaling":
        missing = {"kind", "shift", "scale"} - set(value)
        if missing:
            raise DataError(f"a scaling needs kind, shift and scale; missing: {sorted(missing)}")
        kind = check_kind(value["kind"])
        try:
            # Through numpy: a list of numbers torch cannot hold would otherwise fail in many ways.
            shift, scale = (np.asarray(value[k], dtype=np.float64) for k in ("shift", "scale"))
        except (TypeError, ValueError) as error:
            raise DataError(f"shift and scale of a scaling must be numbers: {error}") from error
        if shift.shape != scale.shape or shift.ndim > 1:
            raise DataError(
                f"shift and scale of a scaling must be two numbers or two lists of one length, "
                f"got shapes {shift.shape} and {scale.shape}"
            )
        made = cls(kind, _tensor(shift), _tensor(scale))
        if not (torch.isfinite(made.shift).all() and torch.isfinite(made.scale).all()):
            raise DataError("shift and scale of a scaling must be finite")
        return made


def check_kind(kind: object) -> ScalingKind:
    """`kind` if it is a known scaling, our error otherwise."""
    if kind not in get_args(ScalingKind):
        raise DataError(f"unknown scaling {kind!r}: {nearest(str(kind), get_args(ScalingKind))}")
    return cast(ScalingKind, kind)


def _range(array: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    if array.dtype == np.uint8:
        shape = () if axis is None else array.shape[1:]
        return np.zeros(shape), np.full(shape, 255.0)
    return np.float64(array.min(axis=axis)), np.float64(array.max(axis=axis))  # type: ignore[return-value]


def _mean_and_deviation(array: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    chunks = [slice(i, i + _CHUNK) for i in range(0, len(array), _CHUNK)]
    count = array.size if axis is None else len(array)
    mean = np.asarray(sum(array[c].sum(axis=axis, dtype=np.float64) for c in chunks) / count)
    square = sum(np.square(array[c] - mean).sum(axis=axis) for c in chunks) / count
    # A constant column leaves a rounding error here, which must not become a huge scale.
    changes = array.min(axis=axis) != array.max(axis=axis)
    return mean, np.where(changes, np.sqrt(square), 0.0)


def _inverse(spread: np.ndarray) -> np.ndarray:
    usable = np.asarray(spread) >= np.finfo(np.float32).tiny
    return np.where(usable, 1.0 / np.where(usable, spread, 1.0), 1.0)


def _tensor(value: np.ndarray) -> torch.Tensor:
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.array(value, dtype=np.float32))


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
    largest = float(np.finfo(np.float32).max)
    fine = all(is_number(v) and abs(v) <= largest for v in numbers)
    if not fine or len(numbers) != features:
        raise DataError(
            f"{where}: missing is {shortened(missing)}: expected one of {', '.join(WAYS)}, a "
            f"number, or {features} of them, one per feature"
        )
    return np.array(numbers, np.float32)


def _typical(column: np.ndarray, way: str) -> float:
    if way == "mean":
        return math.fsum(column) / len(column)  # exact, so that it is the same on every machine
    if way == "median":
        return float(np.median(column.astype(np.float64)))
    values, counts = np.unique(column, return_counts=True)
    return float(values[counts.argmax()])  # the smallest of those that are equally frequent
