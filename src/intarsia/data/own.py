"""The user's own data: arrays, mappings, .npz and .csv files."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.data.formats import DAMAGE
from intarsia.data.raw import Raw, as_raw
from intarsia.errors import DataError, nearest


def from_mapping(arrays: Mapping[str, Any], where: str) -> Raw:
    """Keys x_train, y_train[, x_test, y_test], or x and y; classes, if there, is the catalogue."""
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
    return as_raw(where, arrays[x], arrays[y], *test, arrays.get("classes"))


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


def from_csv(path: Path, target: str | int | None = None) -> Raw:
    """A table with one label column: the last one, or `target` by name or position.

    Columns are parted by comma, semicolon or tab. The first line is a header if none of its
    feature cells is a number.
    """
    rows = _rows(path)
    first = rows[0][1]
    column = _target(first, target, path)
    header = isinstance(target, str) or not any(
        _is_number(cell) for i, cell in enumerate(first) if i != column
    )
    _check_first(rows, column, header, path)
    names = first if header else [str(i) for i in range(len(first))]
    rows = rows[header:]
    if not rows:
        raise DataError(f"{path} has a header but no rows")
    if len(names) < 2:
        raise DataError(f"{path} has one column only; expected features and a label")
    x = np.array([_numbers(cells, names, column, line, path) for line, cells in rows])
    labels = [cells[column].strip() for _, cells in rows]
    return as_raw(str(path), x, np.array(labels))


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Line numbers and cells of all lines that are not blank."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            start = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=start.count), strict=True)
            rows = [(reader.line_num, cells) for cells in reader if any(c.strip() for c in cells)]
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as .csv: {error}") from error
    if not rows:
        raise DataError(f"{path} is empty")
    return rows


def _target(first: list[str], target: str | int | None, path: Path) -> int:
    if target is None:
        return len(first) - 1
    if isinstance(target, str):
        names = [cell.strip() for cell in first]
        if target not in names:
            raise DataError(f"{path} has no column {target!r}: {nearest(target, names)}")
        return names.index(target)
    if not -len(first) <= target < len(first):
        raise DataError(f"{path} has {len(first)} columns, so there is no column {target}")
    return target % len(first)


def _check_first(rows: list[tuple[int, list[str]]], column: int, header: bool, path: Path) -> None:
    """Refuse a column without a name, and a header that was taken for a row."""
    first = [cell.strip() for cell in rows[0][1]]
    names_are_numbers = not header and _looks_like_header(rows, column)
    unnamed = [i for i, cell in enumerate(first) if not cell and i != column]
    if unnamed and (header or names_are_numbers):
        raise DataError(
            f"{path}: column {unnamed[0]} (counted from 0) has no name; if it is the index that "
            "pandas writes, write the file with index=False, else name it in the header"
        )
    if names_are_numbers:
        raise DataError(
            f"{path}: line {rows[0][0]} looks like a header with numbers for names; if it is, name "
            f"the label column with target={first[column]!r}, else correct the label, which is "
            "one of its kind"
        )


def _looks_like_header(rows: list[tuple[int, list[str]]], column: int) -> bool:
    """A label that never comes again above counted columns, or above labels that are numbers."""
    first = rows[0][1]
    label = first[column].strip()
    others = [cells[column].strip() for _, cells in rows[1:] if len(cells) == len(first)]
    names = [cell.strip() for i, cell in enumerate(first) if i != column and cell.strip()]
    counted = any(names == [str(i + start) for i in range(len(names))] for start in (0, 1))
    if not others or _is_number(label) or label in others:
        return False
    return counted or all(map(_is_number, others))


def _numbers(cells: list[str], names: list[str], target: int, line: int, path: Path) -> list[float]:
    if len(cells) != len(names):
        raise DataError(
            f"{path}, line {line}: {len(cells)} columns where the first line has {len(names)}"
        )
    if not cells[target].strip():
        raise DataError(f"{path}, line {line}: the label (column {names[target]!r}) is empty")
    features = cells[:target] + cells[target + 1 :]
    try:
        return [float(cell) for cell in features]
    except ValueError:
        columns = names[:target] + names[target + 1 :]
        wrong = next(i for i, cell in enumerate(features) if not _is_number(cell))
        raise DataError(
            f"{path}, line {line}, column {columns[wrong].strip()!r}: {features[wrong]!r} is not "
            "a number; encode or drop the column, or name the label column with target="
        ) from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
