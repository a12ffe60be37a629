"""Arrays on their way in: inputs and labels of any make, checked and brought to one form."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar
from zipfile import ZipFile, ZipInfo

import numpy as np
import torch

from intarsia.data.sources.budget import check_entries, file_size
from intarsia.errors import DataError, DataWarning, nearest

VALIDATION = ("val", "valid", "validation")  # what others call the part


@dataclass(frozen=True, eq=False)
class Raw:
    """Checked inputs and label indices; without a test part where the source has none."""

    x: np.ndarray
    y: np.ndarray
    catalogue: tuple[str, ...]
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    groups: np.ndarray | None = None  # a number for each row of x; those of one group stay together
    columns: tuple[str, ...] = ()  # what a table calls its features, where it does

    def keep(self, names: Sequence[Any], where: str) -> "Raw":
        """Only the classes `names`, which become the catalogue in that order."""
        chosen = tuple(str(name) for name in names)
        if len(set(chosen)) != len(chosen) or not chosen:
            raise DataError(f"{where}: classes to keep must be distinct names, got {list(names)!r}")
        for name in chosen:
            if name not in self.catalogue:
                raise DataError(f"{where} has no class {name!r}: {nearest(name, self.catalogue)}")
        position = np.full(len(self.catalogue), -1)
        position[[self.catalogue.index(name) for name in chosen]] = np.arange(len(chosen))
        rows = position[self.y] >= 0
        groups = None if self.groups is None else self.groups[rows]
        kept = replace(
            self, x=self.x[rows], y=position[self.y[rows]], catalogue=chosen, groups=groups
        )
        if self.x_test is None or self.y_test is None:
            return kept
        rows = position[self.y_test] >= 0
        return replace(kept, x_test=self.x_test[rows], y_test=position[self.y_test[rows]])

    def grouped(self, groups: Any, where: str) -> "Raw":
        """With groups of rows, given as one value for each."""
        values = _array(groups, where)
        if values.shape != self.y.shape:
            raise DataError(
                f"{where}: groups have shape {values.shape}: expected one for each of the "
                f"{len(self.y)} rows"
            )
        if values.dtype.kind == "f":
            values = values.astype(object)  # so that NaN is seen as no group
        check_there(values, f"{where}, groups", "group")
        _, codes = np.unique(values.astype(str), return_inverse=True)
        return replace(self, groups=codes)

    def select(self, rows: np.ndarray) -> "Raw":
        """Only these rows of the part that splits are cut from."""
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, x=self.x[rows], y=self.y[rows], groups=groups)

    def as_floats(self) -> "Raw":
        """Whole numbers as the measurements that a scaling takes them for."""
        test = None if self.x_test is None else self.x_test.astype(np.float32)
        return replace(self, x=self.x.astype(np.float32), x_test=test)


def as_raw(
    where: str,
    x: Any,
    y: Any,
    x_test: Any = None,
    y_test: Any = None,
    catalogue: Sequence[Any] | None = None,
    *,
    missing: bool = False,
) -> Raw:
    """Check and convert; `where` opens every message. NaN stays in x where `missing` is allowed."""
    parts = {where: (x, y)}
    if x_test is not None:
        parts = {f"{where}, train part": (x, y), f"{where}, test part": (x_test, y_test)}
    inputs = [as_inputs(x, part, missing) for part, (x, _) in parts.items()]
    dtypes, shapes = [x.dtype for x in inputs], [x.shape[1:] for x in inputs]
    if len(set(dtypes)) > 1:
        raise DataError(
            f"{where}: x is of type {dtypes[0]} in the train part and of type {dtypes[1]} in the "
            "test part; both must have the same type"
        )
    names, labels = as_labels({part: y for part, (_, y) in parts.items()}, catalogue)
    for part, x, y in zip(parts, inputs, labels, strict=True):
        if len(x) != len(y):
            raise DataError(f"{part}: x has {len(x)} rows but y has {len(y)} labels")
    if len(set(shapes)) > 1:
        raise DataError(
            f"{where}: the train part has inputs of shape {shapes[0]}, the test part of shape "
            f"{shapes[1]}; both must have the same features"
        )
    tests = (inputs[1], labels[1]) if len(inputs) > 1 else (None, None)
    return Raw(inputs[0], labels[0], names, *tests)


def as_inputs(x: Any, where: str, missing: bool = False) -> np.ndarray:
    """Images to channel-first (uint8 as they are, else float32), tables to float32 (N, D).

    A table of whole numbers stays one, as int64: they may be the numbers of tokens. Those of 8 bits
    are pixels, which are measured.
    """
    array = _array(x, where)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{where}: x must hold numbers, got type {array.dtype}")
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise DataError(
            f"{where}: x must be rows x features, or images as N x H x W or N x C x H x W, "
            f"with at least one row; got shape {array.shape}"
        )
    array = to_shape(array, shape_of(array.shape[1:]), f"{where}: inputs")
    if array.dtype == np.uint8 and array.ndim == 4:
        return np.ascontiguousarray(array)
    if array.dtype.kind in "iu" and array.dtype != np.uint8 and array.ndim == 2:
        if array.max() > np.iinfo(np.int64).max:
            raise DataError(f"{where}: x holds {array.max()}, which is too large for int64")
        return np.ascontiguousarray(array, dtype=np.int64)
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(array, dtype=np.float32)
    _check_finite(array, converted, where, missing)
    return converted


def as_labels(
    parts: Mapping[str, Any], catalogue: Sequence[Any] | None = None
) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """The catalogue and, for each part (named for messages), int64 indices into it.

    Without a catalogue the first part's distinct labels are it, numbers in numerical order. With
    one, whole numbers that all lie within it are indices, everything else is names.
    """
    arrays = [_plain_labels(part, where) for where, part in parts.items()]
    if catalogue is None:
        names = tuple(_sorted_names({str(v) for v in np.unique(arrays[0]).tolist()}))
    else:
        names = tuple(str(v) for v in np.asarray(catalogue).ravel().tolist())
        if len(set(names)) != len(names):
            raise DataError(f"{next(iter(parts))}: a class is named twice in {list(names)}")
        if all(a.dtype.kind == "i" for a in arrays):
            inside = all(a.min() >= 0 and a.max() < len(names) for a in arrays)
            named = all({str(v) for v in np.unique(a).tolist()} <= set(names) for a in arrays)
            if inside or not named:
                for where, array in zip(parts, arrays, strict=True):
                    _check_indices(array, names, where)
                return names, arrays
    return names, [_index(a, names, where) for where, a in zip(parts, arrays, strict=True)]


def check_there(y: Any, where: str, what: str = "label") -> None:
    """Every row has a label: neither None, nor NaN, nor pandas' NA."""
    # A list is looked at as it is: to numpy ["a", nan] is text.
    values = y if isinstance(y, list | tuple) else _array(y, where)
    if isinstance(values, np.ndarray):
        if values.dtype.kind != "O":
            return  # of numbers, NaN is refused with what else is not a label
        values = values.ravel().tolist()
    odd = (row for row, value in enumerate(values) if _is_missing(value))
    if (first := next(odd, None)) is not None:
        raise DataError(
            f"{where}: the {what} of row {first} (counted from 0) is missing ({values[first]!r}); "
            f"{what}s must be text or whole numbers: give it one, or leave the row out"
        )


def check_sizes(raw: Raw, needed: int, where: str) -> None:
    """Every class must have `needed` rows in the part that splits are cut from."""
    if len(raw.catalogue) < 2:
        raise DataError(
            f"{where} has one class only ({', '.join(raw.catalogue)}); at least 2 are needed"
        )
    counts = np.bincount(raw.y, minlength=len(raw.catalogue))
    small = [f"{n!r} has {c}" for n, c in zip(raw.catalogue, counts, strict=True) if c < needed]
    if small:
        raise DataError(
            f"{where}: every class needs at least {needed} rows, one for each split cut from "
            f"them, but {', '.join(small[:5])}{' and others' if small[5:] else ''}; "
            "add rows, or leave the class out with classes=[...]"
        )


def _array(value: Any, where: str) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError as error:
        raise DataError(f"{where}: rows of different lengths cannot be an array") from error


def _check_finite(given: np.ndarray, converted: np.ndarray, where: str, missing: bool) -> None:
    bad = np.isinf(converted) if missing else ~np.isfinite(converted)
    if not bad.any():
        return
    rows = np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))
    large = "" if not np.isfinite(given[bad]).all() else " (too large for float32)"
    column = f", column {int(np.flatnonzero(bad[rows[0]])[0])}" if bad.ndim == 2 else ""
    fillable = bad.ndim == 2 and np.isnan(converted[bad]).all()
    advice = ", or have them filled in with missing='mean'" if fillable else ""
    what = "infinite" if missing else "NaN or infinite"
    raise DataError(
        f"{where}: {int(bad.sum())} values of x are {what}{large}, in {len(rows)} rows, "
        f"first in row {rows[0]}{column} (counted from 0); remove or fill them{advice}"
    )


def _plain_labels(y: Any, where: str) -> np.ndarray:
    """Labels as int64 or text."""
    check_there(y, where)
    array = _array(y, where)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or len(array) == 0:
        raise DataError(f"{where}: y must be one label per row, got shape {array.shape}")
    if array.dtype.kind in "OT" and _alike(array):  # objects, variable-width text
        array = np.array(array.tolist())
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind == "f":
        odd = ~np.isfinite(array) | (array != np.round(array))
        if odd.any():
            row = int(np.flatnonzero(odd)[0])
            raise DataError(
                f"{where}: {int(odd.sum())} labels are not whole numbers, first {array[row]} in "
                f"row {row}; labels are class names or whole numbers"
            )
    if array.dtype.kind in "biuf":
        return _whole_labels(array, where)
    if array.dtype.kind != "U":
        kinds = sorted({type(v).__name__ for v in array.tolist()})
        raise DataError(
            f"{where}: labels must be text or whole numbers, all of one kind; got "
            f"{' and '.join(kinds)}"
        )
    return array


def _whole_labels(array: np.ndarray, where: str) -> np.ndarray:
    """As int64; what that cannot hold is refused, instead of becoming another number."""
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
        odd = (whole.astype(array.dtype) != array) | ((array > 0) != (whole > 0))
    if odd.any():
        row = int(np.flatnonzero(odd)[0])
        raise DataError(
            f"{where}: {int(odd.sum())} labels are beyond what 64 bits hold, first {array[row]} in "
            f"row {row}; give classes by name, or smaller numbers"
        )
    return whole


def _is_missing(label: Any) -> bool:
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(label, float | np.floating) and bool(np.isnan(label))


def _alike(array: np.ndarray) -> bool:
    values = array.tolist()
    return all(isinstance(v, str) for v in values) or all(isinstance(v, Integral) for v in values)


def _sorted_names(names: set[str]) -> list[str]:
    try:
        numbers = {name: float(name) for name in names}
    except ValueError:
        return sorted(names)
    if not np.isfinite(list(numbers.values())).all():
        return sorted(names)  # "nan" is a name like any other
    return sorted(names, key=lambda name: (numbers[name], name))


def _check_indices(y: np.ndarray, names: tuple[str, ...], where: str) -> None:
    wrong = np.flatnonzero((y < 0) | (y >= len(names)))
    if len(wrong):
        raise DataError(
            f"{where}: {len(wrong)} labels are outside the catalogue of {len(names)} classes, "
            f"first {y[wrong[0]]} in row {wrong[0]}; expected 0 to {len(names) - 1}"
        )


def _index(y: np.ndarray, names: tuple[str, ...], where: str) -> np.ndarray:
    values, inverse = np.unique(y, return_inverse=True)
    place = {name: index for index, name in enumerate(names)}
    for code, value in enumerate(values.tolist()):
        if str(value) not in place:
            row = int(np.flatnonzero(inverse == code)[0])
            raise DataError(
                f"{where}: label {str(value)!r} (row {row}) is outside the catalogue: "
                f"{nearest(str(value), names)}"
            )
    return np.array([place[str(v)] for v in values.tolist()], dtype=np.int64)[inverse]


Array = TypeVar("Array", np.ndarray, torch.Tensor)
CHANNELS = (1, 3)  # grey and colour: how images with channels last are recognised


def shape_of(given: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `to_shape` brings inputs of the shape `given` (without N) to."""
    if len(given) == 2:
        return (1, *given)
    if len(given) == 3 and given[2] in CHANNELS and given[0] not in CHANNELS:
        return (given[2], *given[:2])
    return given


def to_shape(x: Array, shape: tuple[int, ...], where: str) -> Array:
    """`x` as N x *shape, from that, N x H x W x C, N x H x W for one channel, or flat N x D."""
    given = tuple(x.shape[1:])
    if given == shape:
        return x
    image = len(shape) == 3
    if image and given == (*shape[1:], shape[0]):
        return x.swapaxes(1, 3).swapaxes(2, 3)
    if given == (prod(shape),) or (image and shape[0] == 1 and given == shape[1:]):
        return x.reshape(x.shape[0], *shape)
    raise DataError(f"{where} have shape {tuple(x.shape)}: expected {_forms(shape)}")


def _forms(shape: tuple[int, ...]) -> str:
    forms = [shape, (prod(shape),)] if len(shape) > 1 else [shape]
    if len(shape) == 3:
        forms.append((*shape[1:], shape[0]))
        if shape[0] == 1:
            forms.append(shape[1:])
    return " or ".join(" x ".join(map(str, ("N", *form))) for form in forms)


def from_mapping(
    arrays: Mapping[str, Any],
    where: str,
    target: str | int | None = None,
    *,
    missing: bool = False,
    groups: str | int | None = None,
) -> Raw:
    """Keys x_train, y_train[, x_test, y_test], or x and y; classes, if there, is the catalogue.

    `target` is the name of the labels where it is not y: the inputs are then x, or the one other
    array; beside x_test the labels are NAME_test. As a number it is the column of x, or of the only
    array, that holds the labels, and of x_test.
    `groups` is the name of an array with a group for each row; beside x_train, NAME_train.
    """
    if groups is not None:
        key = _groups_key(arrays, where, groups)
        rest = {k: v for k, v in arrays.items() if k not in (key, f"{groups}_test")}
        return from_mapping(rest, where, target, missing=missing).grouped(arrays[key], where)
    _warn_of_validation(arrays, where)
    if target is not None:
        arrays = _parted(arrays, where, target)
    x, y = ("x", "y") if "x" in arrays and "x_train" not in arrays else ("x_train", "y_train")
    wanted = [x, y]
    if "x_test" in arrays or "y_test" in arrays:
        wanted += ["x_test", "y_test"]
    for key in wanted:
        if key not in arrays:
            raise DataError(
                f"{where} has no array {key!r} (it has {', '.join(map(str, arrays)) or 'none'}); "
                "expected x_train, y_train and, if there is a test part, x_test, y_test; or x, y"
            )
    test = (arrays.get("x_test"), arrays.get("y_test"))
    return as_raw(where, arrays[x], arrays[y], *test, arrays.get("classes"), missing=missing)


def _warn_of_validation(arrays: Mapping[str, Any], where: str) -> None:
    """Rows that someone held out would be replaced by others without a word."""
    for name in VALIDATION:
        if f"x_{name}" in arrays:
            warnings.warn(
                f"{where}: not read: x_{name} and its labels; validation rows are cut from the "
                "training part, as many as validation= says",
                DataWarning,
                stacklevel=3,
            )


def _groups_key(arrays: Mapping[str, Any], where: str, groups: str | int) -> str:
    """The name of the array that has the groups of the rows that splits are cut from."""
    if not isinstance(groups, str):
        raise DataError(f"groups is {groups!r}: expected the name of an array, as in 'subject'")
    for key in (groups, f"{groups}_train"):
        if key in arrays:
            return key
    raise DataError(f"{where} has no array {groups!r}: {nearest(groups, map(str, arrays))}")


def _parted(arrays: Mapping[str, Any], where: str, target: str | int) -> dict[str, Any]:
    """The arrays as x and y, and what there is of a test part and of classes."""
    others = [key for key in arrays if key not in ("classes", target)]
    if isinstance(target, str) and target not in arrays:
        raise DataError(f"{where} has no array {target!r}: {nearest(target, map(str, arrays))}")
    if "x" not in others and len(others) != 1:
        raise DataError(
            f"{where}: with target={target!r} the inputs are x, or the only other array; it has "
            f"{', '.join(others) or 'none'}"
        )
    x = arrays["x" if "x" in others else others[0]]
    tests = arrays.get("x_test")
    kept = {"classes": arrays["classes"]} if "classes" in arrays else {}
    if isinstance(target, str):
        if tests is not None:
            if f"{target}_test" not in arrays:
                raise DataError(
                    f"{where} has x_test and no array {target + '_test'!r}: expected its labels by "
                    "this name"
                )
            kept |= {"x_test": tests, "y_test": arrays[f"{target}_test"]}
        return {"x": x, "y": arrays[target], **kept}
    if isinstance(target, bool) or not isinstance(target, int):
        raise DataError(f"target is {target!r}: expected the name of an array, or a column")
    if tests is not None:
        kept |= dict(zip(("x_test", "y_test"), _without_column(tests, where, target), strict=True))
    return {**dict(zip("xy", _without_column(x, where, target), strict=True)), **kept}


def _without_column(x: Any, where: str, column: int) -> tuple[np.ndarray, np.ndarray]:
    """A table without one of its columns, and this column."""
    table = np.asarray(x)
    if table.ndim != 2 or not -table.shape[1] <= column < table.shape[1]:
        raise DataError(
            f"{where}: there is no column {column} in inputs of shape {table.shape}; expected "
            "rows x columns"
        )
    rest = np.delete(table, column % table.shape[1], axis=1)
    # A column of a table is a measurement, not a token: whole numbers are no exception.
    numbers = rest.astype(np.float64) if rest.dtype.kind in "iu" else rest
    return numbers, table[:, column]


_HEADER = np.lib.format.read_array_header_1_0
_LONG_HEADER = np.lib.format.read_array_header_2_0


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file, counted before they are read; objects (pickles) are refused."""
    size = file_size(path)
    try:
        # Opened here, since numpy leaves the file open where it fails.
        with path.open("rb") as file:
            with ZipFile(file) as archive:
                check_entries(
                    sum(_entries(archive, info) for info in archive.infolist()), size, path
                )
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
    except DataError:
        raise
    except Exception as error:  # what zip and numpy raise for damaged files is anything
        raise DataError(
            f"{path} cannot be read as .npz: it is damaged, or holds objects instead of plain "
            f"arrays ({str(error)[:200]}); write it again with numpy.savez"
        ) from error


def _entries(archive: ZipFile, info: ZipInfo) -> int:
    """How many numbers a member of an .npz has by its headers, which must agree with each other.

    A label costs as much as four numbers, since labels are sorted and counted.
    """
    with archive.open(info) as file:
        start = file.read(len(np.lib.format.MAGIC_PREFIX))
        if start != np.lib.format.MAGIC_PREFIX:
            return info.file_size
        major = (file.read(2) + b"\0")[0]
        shape, _, dtype = (_HEADER if major == 1 else _LONG_HEADER)(file)
    count = prod(shape)
    if count < 0 or count * dtype.itemsize > info.file_size:
        raise ValueError(f"{info.filename} names the shape {shape} and has {info.file_size} bytes")
    return max(count * (4 if len(shape) < 2 else 1), info.file_size // 8)
