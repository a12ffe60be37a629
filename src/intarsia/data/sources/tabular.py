"""Tables with a label column: .csv files in any encoding, and parquet."""

import codecs
import csv
import io
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.data.arrays import Raw, as_raw
from intarsia.data.sources.budget import check_entries, file_size
from intarsia.data.texts import Tokens
from intarsia.errors import DataError, DataWarning, nearest

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")  # cells without a value, in lower case
_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def from_csv(
    path: Path,
    target: str | int | None = None,
    encoding: str | None = None,
    *,
    missing: bool = False,
    groups: str | int | None = None,
    tokens: Tokens | None = None,
) -> Raw:
    """A table with one label column: the last one, or `target` by name or position.

    The column `groups`, if it is named, is not a feature: its rows stay together when splits are
    cut.

    Columns are parted by comma, semicolon or tab. The first line is a header if none of its
    feature cells is a number. Cells without a value are refused, or NaN where `missing` is allowed.
    With `tokens` features are texts, and cells are joined by a space where there are several.
    """
    text, guess = _text(path, encoding)
    try:
        raw = _table(_rows(text, path), path, target, missing, groups, tokens)
    except DataError as error:
        if guess:
            raise DataError(f"{path} cannot be read as .csv: {guess}: {error}") from None
        raise
    if guess:
        advice = "if its names come out wrong, name the encoding with encoding="
        warnings.warn(f"{path} {guess}: {advice}", DataWarning, stacklevel=2)
    return raw


def _table(
    rows: list[tuple[int, list[str]]],
    path: Path,
    target: str | int | None,
    missing: bool,
    groups: str | int | None,
    tokens: Tokens | None,
) -> Raw:
    first = rows[0][1]
    column = _target(first, target, path)
    grouping = _grouping(first, groups, column, path)
    header = isinstance(target, str) or isinstance(groups, str)
    header = header or not any(
        is_number_text(cell) for i, cell in enumerate(first) if i not in (column, grouping)
    )
    _check_first(rows, column, header, path)
    names = [cell.strip() for cell in first] if header else [str(i) for i in range(len(first))]
    rows = rows[header:]
    if not rows:
        raise DataError(f"{path} has a header but no rows")
    if len(names) < 2:
        raise DataError(f"{path} has one column only; expected features and a label")
    if len(names) < 3 and grouping is not None:
        raise DataError(f"{path} has two columns only; expected features, a label and groups")
    if tokens is not None:
        others = [i for i in range(len(names)) if i not in (column, grouping)]
        x = tokens([" ".join(cells[i].strip() for i in others) for _, cells in rows])
    else:
        x = np.array(
            [_numbers(cells, names, column, line, path, missing, grouping) for line, cells in rows]
        )
    labels = [cells[column].strip() for _, cells in rows]
    raw = as_raw(str(path), x, np.array(labels), missing=missing)
    if grouping is None:
        return raw
    return raw.grouped(np.array([cells[grouping].strip() for _, cells in rows]), str(path))


def from_parquet(
    path: Path,
    target: str | int | None = None,
    *,
    missing: bool = False,
    groups: str | int | None = None,
    tokens: Tokens | None = None,
) -> Raw:
    """A parquet file as a table; the index that pandas writes into it is not a column."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError(
            f"{path}: parquet needs the package pyarrow: install it with "
            "pip install 'intarsia[parquet]'"
        ) from None
    size = file_size(path)
    try:
        with path.open("rb") as file, parquet.ParquetFile(file) as content:
            _check_rows(content.metadata, size, path)
            table = content.read()
    except DataError:
        raise
    except Exception as error:  # what pyarrow raises for damaged files is anything
        raise DataError(f"{path} cannot be read as parquet: {error}") from error
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    if len(names) < 2 or not table.num_rows:
        raise DataError(
            f"{path} has {len(names)} columns and {table.num_rows} rows; expected features and a "
            "label"
        )
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise DataError(f"{path} has two columns called {twice!r}: rename one of them")
    label = _target(names, target, path)
    grouping = _grouping(names, groups, label, path)
    others = [name for i, name in enumerate(names) if i not in (label, grouping)]
    if not others:
        raise DataError(f"{path} has two columns only; expected features, a label and groups")
    if tokens is not None:
        words = zip(*(table.column(name).to_pylist() for name in others), strict=True)
        x = tokens([" ".join("" if cell is None else str(cell) for cell in row) for row in words])
    else:
        columns = [_feature(table.column(name), name, path, missing) for name in others]
        x = np.stack(columns, axis=1)
    y = np.array([_plain(v) for v in table.column(names[label]).to_pylist()], dtype=object)
    raw = as_raw(str(path), x, y, missing=missing)
    if grouping is None:
        return raw
    values = table.column(names[grouping]).to_pylist()
    return raw.grouped(np.array(values, dtype=object), str(path))


def _check_rows(metadata: Any, size: int, path: Path) -> None:
    """Cells, of which a label costs as much as four numbers, and bytes, by the file's own count."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    unpacked = sum(group.total_byte_size for group in groups)
    cells = metadata.num_rows * (metadata.num_columns + 3)
    check_entries(max(cells, unpacked // 8), size, path)


def _feature(column: Any, name: str, path: Path, missing: bool) -> np.ndarray:
    """A column of numbers or truth values as float64, NaN where it has none."""
    from pyarrow import float64, types

    kind = column.type
    if types.is_boolean(kind):
        column = column.cast("uint8")
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        raise DataError(
            f"{path}, column {name!r}: its type is {kind}, not numbers; encode or drop the column, "
            "or name the label column with target="
        )
    numbers = np.asarray(column.cast(float64(), safe=False).to_numpy(), dtype=np.float64)
    if not missing and np.isnan(numbers).any():
        row = int(np.flatnonzero(np.isnan(numbers))[0])
        raise DataError(_no_value(f"{path}, row {row} (counted from 0)", name, None))
    return numbers


def _plain(label: Any) -> Any:
    """Truth values are numbers here, as in arrays of them; categories come as their text."""
    return int(label) if isinstance(label, bool) else label


def _rows(text: str, path: Path) -> list[tuple[int, list[str]]]:
    """Line numbers and cells of all lines that are not blank."""
    start = text.partition("\n")[0]
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=max(",;\t", key=start.count), strict=True)
    try:
        rows = [(reader.line_num, cells) for cells in reader if any(c.strip() for c in cells)]
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as .csv: {error}") from error
    if not rows:
        raise DataError(f"{path} is empty")
    return rows


def _text(path: Path, encoding: str | None) -> tuple[str, str]:
    """The text, and what was guessed: the encoding is that given, by its mark, UTF-8, latin-1."""
    size = file_size(path)
    try:
        content = path.read_bytes()
        check_entries(len(content), size, path)  # a file may grow, and some have no size
    except OSError as error:
        raise DataError(f"{path} cannot be read as .csv: {error}") from error
    marked = next((name for bom, name in _BOMS.items() if content.startswith(bom)), None)
    chosen = encoding or marked or "utf-8"
    if not isinstance(chosen, str):
        raise DataError(f"{path}: encoding is not text: give one such as utf-8, utf-16, latin-1")
    try:
        return content.decode(chosen), ""
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        where = f"see byte {error.start} in line {line}"
    except (LookupError, ValueError):  # no encoding, or none of text
        raise DataError(
            f"{path}: there is no encoding {chosen!r}: give one such as utf-8, utf-16, latin-1"
        ) from None
    # A text has no zero bytes in latin-1: it is UTF-16 without its mark, or no text at all.
    if encoding or marked or b"\0" in content:
        raise DataError(
            f"{path} cannot be read as .csv: it is not text in {chosen}, {where}; "
            "name its encoding with encoding="
        )
    return content.decode("latin-1"), f"is not UTF-8, {where}, and was read as latin-1"


def _grouping(first: list[str], groups: str | int | None, label: int, path: Path) -> int | None:
    """The column of groups, if one is named."""
    if groups is None:
        return None
    column = _target(first, groups, path, "groups")
    if column == label:
        raise DataError(
            f"{path}: column {groups!r} is that of the groups and of the labels: name the label "
            "column with target="
        )
    return column


def _target(first: list[str], target: str | int | None, path: Path, what: str = "target") -> int:
    if target is None:
        return len(first) - 1
    names = [cell.strip() for cell in first]
    if isinstance(target, str):
        if target not in names:
            raise DataError(f"{path} has no column {target!r}: {nearest(target, names)}")
        return names.index(target)
    if isinstance(target, bool) or not isinstance(target, int):
        raise DataError(f"{what} is {target!r}: expected the name of a column, or its number")
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
    if not others or is_number_text(label) or label in others:
        return False
    return counted or all(map(is_number_text, others))


def _numbers(
    cells: list[str],
    names: list[str],
    target: int,
    line: int,
    path: Path,
    missing: bool,
    grouping: int | None = None,
) -> list[float]:
    where = f"{path}, line {line}"
    if len(cells) != len(names):
        raise DataError(f"{where}: {len(cells)} columns where the first line has {len(names)}")
    if not cells[target].strip():
        raise DataError(f"{where}: the label (column {names[target]!r}) is empty")
    if grouping is not None and not cells[grouping].strip():
        raise DataError(f"{where}: the group (column {names[grouping]!r}) is empty")
    return [
        _number(cell, name, where, missing)
        for i, (cell, name) in enumerate(zip(cells, names, strict=True))
        if i not in (target, grouping)
    ]


def _number(cell: str, name: str, where: str, missing: bool) -> float:
    try:
        value = float(cell)
    except ValueError:
        if cell.strip().lower() not in MISSING:
            raise DataError(
                f"{where}, column {name!r}: {cell!r} is not a number; encode or drop the column, "
                "or name the label column with target="
            ) from None
        value = math.nan
    if math.isnan(value) and not missing:
        raise DataError(_no_value(where, name, cell.strip()))
    return value


def _no_value(where: str, name: str, seen: Any) -> str:
    return (
        f"{where}, column {name!r}: {seen!r} is not a number, the value is missing; drop the row, "
        "or have it filled in with missing=mean, median or most_frequent"
    )


def is_number_text(cell: str) -> bool:
    """Whether a cell of a table reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
