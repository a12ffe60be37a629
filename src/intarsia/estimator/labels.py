"""Labels as scikit-learn has them, and their class names in a catalogue."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from intarsia.errors import IntarsiaError

P = ParamSpec("P")
R = TypeVar("R")


class EstimatorError(IntarsiaError, ValueError):
    """An input or a setting of an estimator cannot be used; scikit-learn expects a ValueError."""


def as_value_error(method: Callable[P, R]) -> Callable[P, R]:
    """Errors of ours become an EstimatorError with the same message."""

    @wraps(method)
    def call(*args: P.args, **settings: P.kwargs) -> R:
        try:
            return method(*args, **settings)
        except EstimatorError:
            raise
        except IntarsiaError as error:
            raise EstimatorError(str(error)) from error

    return call


def names_of(labels: np.ndarray) -> tuple[str, ...]:
    """The catalogue of these labels, in their order."""
    names = tuple(str(label) or "''" for label in labels.tolist())
    if len(set(names)) < len(names):
        repeated = next(name for i, name in enumerate(names) if name in names[:i])
        raise EstimatorError(f"two labels are {repeated!r} as text: rename one of them")
    return names


def index_of(y: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """For every label of y its place among `labels`, -1 where it has none."""
    place = {label: i for i, label in enumerate(labels.tolist())}
    return np.array([place.get(label, -1) for label in y.tolist()], dtype=np.int64)


def one_label(name: Any) -> Any:
    """`name` as it stands, if it can be the label of one class."""
    if np.ndim(name) or name is None:
        raise EstimatorError(f"{name!r} is not a label: give that of one class, text or a number")
    return name


def extended(labels: np.ndarray, more: Any) -> np.ndarray:
    """The labels, then those of `more` that are not among them, sorted; all of one kind."""
    given = np.atleast_1d(np.asarray(more))
    if labels.dtype.kind == "O":
        given = given.astype(object)
    kinds = {_kind(labels), _kind(given)}
    if len(kinds) > 1:
        raise EstimatorError(
            f"the label {given.tolist()[0]!r} is {_kind(given)}, the classes so far are "
            f"{_kind(labels)}: give labels of one kind"
        )
    if labels.dtype.kind in "iu" and given.dtype.kind == "f":
        if (given != np.round(given)).any():
            raise EstimatorError(
                f"the label {given.tolist()[0]!r} is not a whole number, the classes so far are: "
                "give labels of one kind"
            )
        given = given.astype(np.int64)
    new = np.unique(given[index_of(given, labels) < 0])
    return np.concatenate([labels, new]) if len(new) else labels


def unknown_label(wanted: Any, classes: np.ndarray) -> np.ndarray:
    """The label of an abstention: `wanted`, or -1 among numbers and "unknown" among text."""
    if wanted is None:
        wanted = "unknown" if _kind(classes) == "text" else -1
    label = np.asarray(wanted, dtype=object if classes.dtype.kind == "O" else None)
    kinds = {_kind(classes)} | ({"a number"} if _kind(classes) == "true or false" else set())
    if label.ndim or _kind(label.reshape(1)) not in kinds:
        raise EstimatorError(
            f"unknown is {wanted!r}: expected one label, {_kind(classes)} like the classes"
        )
    if wanted in classes.tolist():
        raise EstimatorError(
            f"the label of an abstention, {wanted!r}, is a class: choose another with unknown="
        )
    return label


def _kind(labels: np.ndarray) -> str:
    kind = np.asarray(labels.tolist()).dtype.kind if len(labels) else "?"
    return {"U": "text", "S": "text", "b": "true or false"}.get(
        kind, "a number" if kind in "iuf" else "an object"
    )
