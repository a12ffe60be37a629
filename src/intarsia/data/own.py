"""The user's own arrays: mappings and .npz files of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.data.formats import DAMAGE
from intarsia.data.raw import Raw, as_raw
from intarsia.errors import DataError, nearest


def from_mapping(
    arrays: Mapping[str, Any], where: str, target: str | int | None = None, *, missing: bool = False
) -> Raw:
    """Keys x_train, y_train[, x_test, y_test], or x and y; classes, if there, is the catalogue.

    `target` is the name of the labels where it is not y: the inputs are then x, or the one other
    array. As a number it is the column of x, or of the only array, that holds the labels.
    """
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


def _parted(arrays: Mapping[str, Any], where: str, target: str | int) -> dict[str, Any]:
    """The arrays as x, y and, if there, classes."""
    others = [key for key in arrays if key not in ("classes", target)]
    if isinstance(target, str) and target not in arrays:
        raise DataError(f"{where} has no array {target!r}: {nearest(target, map(str, arrays))}")
    if "x" not in others and len(others) != 1:
        raise DataError(
            f"{where}: with target={target!r} the inputs are x, or the only other array; it has "
            f"{', '.join(others) or 'none'}"
        )
    x = arrays["x" if "x" in others else others[0]]
    classes = {"classes": arrays["classes"]} if "classes" in arrays else {}
    if isinstance(target, str):
        return {"x": x, "y": arrays[target], **classes}
    table = np.asarray(x)
    if isinstance(target, bool) or not isinstance(target, int):
        raise DataError(f"target is {target!r}: expected the name of an array, or a column")
    if table.ndim != 2 or not -table.shape[1] <= target < table.shape[1]:
        raise DataError(
            f"{where}: there is no column {target} in inputs of shape {table.shape}; expected "
            "rows x columns"
        )
    rest = np.delete(table, target % table.shape[1], axis=1)
    # A column of a table is a measurement, not a token: whole numbers are no exception.
    numbers = rest.astype(np.float64) if rest.dtype.kind in "iu" else rest
    return {"x": numbers, "y": table[:, target], **classes}


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file; objects (pickles) are refused."""
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    try:
        # Opened here, since numpy leaves the file open where it fails.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    # A plain .npy file gives an array, which is no context manager (TypeError, AttributeError).
    except (*DAMAGE, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} cannot be read as .npz: it is damaged, or holds objects instead of plain "
            f"arrays ({error}); write it again with numpy.savez"
        ) from error
