"""Tables with a label column: .csv files in any encoding, parquet, and pandas' data frames."""

import codecs
import csv
import io
import json
import math
import re
import shlex
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.data.arrays import Raw, as_raw
from intarsia.data.sources.budget import check_entries, file_size
from intarsia.data.texts import Tokens
from intarsia.errors import LONGEST, DataError, DataWarning, nearest, shortened

Column = str | int
"""A column of a table, by its name or by its number; -1 is the last."""

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")  # cells without a value, in lower case
MOST = 12  # columns that a message names
TRUTH = {"true": 1.0, "false": 0.0}  # as pandas writes columns of truth values, in lower case
_IDENTIFIER = re.compile(r"(?i:(?:^|[_\s.-])(?:id|uuid|index|unnamed: \d+)$)|[a-z]I[dD]$")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
_BOMS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class TableColumns:
    """What a user says of a table's columns: those of labels, groups and no use."""

    target: Column | None = None
    groups: Column | None = None
    drop: Column | Sequence[Column] | None = None

    @property
    def dropped(self) -> tuple[Column, ...]:
        if self.drop is None:
            return ()
        return (self.drop,) if isinstance(self.drop, str | int) else tuple(self.drop)

    @property
    def named(self) -> bool:
        """Whether one is given by its name, so that there must be a header."""
        return any(isinstance(one, str) for one in (self.target, self.groups, *self.dropped))

    def places(self, names: Sequence[str], where: str) -> "ColumnPlaces":
        """Where they are among the columns of a table."""
        label = _place(names, -1 if self.target is None else self.target, where, "target")
        grouping = None
        if self.groups is not None:
            grouping = _place(names, self.groups, where, "groups")
        if grouping == label:
            raise DataError(
                f"{where}: column {self.groups!r} is that of the groups and of the labels: name "
                "the label column with target="
            )
        dropped = {_place(names, one, where, "drop"): one for one in self.dropped}
        for place, what in ((label, "labels"), (grouping, "groups")):
            if place in dropped:
                raise DataError(
                    f"{where}: column {dropped[place]!r} is to be dropped, and is that of the "
                    f"{what}: leave it out of drop=, or name another column"
                )
        used = {label, grouping, *dropped}
        features = [place for place in range(len(names)) if place not in used]
        if not features and self.dropped:
            raise DataError(f"{where} has no column of features left: drop fewer")
        if not features:
            raise DataError(f"{where} has two columns only; expected features, a label and groups")
        return ColumnPlaces(label, grouping, features)


@dataclass(frozen=True)
class ColumnPlaces:
    """The columns of a table, counted from 0."""

    label: int
    grouping: int | None
    features: list[int]


def from_csv(
    path: Path,
    columns: TableColumns | None = None,
    encoding: str | None = None,
    *,
    missing: bool = False,
    tokens: Tokens | None = None,
) -> Raw:
    """A table with one label column: the last one, or the target.

    The column of groups, if there is one, is not a feature: its rows stay together when splits are
    cut. Columns that are dropped are not read.

    Columns are parted by comma, semicolon or tab. The first line is a header if none of its
    feature cells is a number. Cells without a value are refused, or NaN where `missing` is allowed.
    With `tokens` features are texts, and cells are joined by a space where there are several.
    """
    text, guess = _text(path, encoding)
    try:
        raw = _table(_rows(text, path), path, columns or TableColumns(), missing, tokens)
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
    columns: TableColumns,
    missing: bool,
    tokens: Tokens | None,
) -> Raw:
    first = [cell.strip() for cell in rows[0][1]]
    if len(first) < 2:
        raise DataError(f"{path} has one column only; expected features and a label")
    places = columns.places(first, str(path))
    header = columns.named or not _holds_values([first[i] for i in places.features])
    _check_first(rows, places, header, path)
    names = first if header else [str(i) for i in range(len(first))]
    rows = rows[header:]
    if not rows:
        raise DataError(f"{path} has a header but no rows")
    for line, cells in rows:
        _check_cells(cells, names, places, f"{path}, line {line}", texts=tokens is not None)
    if tokens is not None:
        x = tokens([" ".join(cells[i].strip() for i in places.features) for _, cells in rows])
    else:
        x = np.array([_numbers(cells, names, places, line, path, missing) for line, cells in rows])
        _warn_of_numbers(x, [names[i] for i in places.features], str(path))
    labels = [cells[places.label].strip() for _, cells in rows]
    features = tuple(names[i] for i in places.features) if header and tokens is None else ()
    raw = replace(as_raw(str(path), x, np.array(labels), missing=missing), columns=features)
    if places.grouping is None:
        return raw
    return raw.grouped(np.array([cells[places.grouping].strip() for _, cells in rows]), str(path))


class ColumnTable(ABC):
    """A table whose columns are read one by one; `where` is what messages call it."""

    where: str
    names: list[str]

    def read(
        self,
        columns: TableColumns | None = None,
        *,
        missing: bool = False,
        tokens: Tokens | None = None,
    ) -> Raw:
        """Its features, labels and groups; columns, cells and texts are those of `from_csv`."""
        places = (columns or TableColumns()).places(self.names, self.where)
        names = tuple(self.names[place] for place in places.features)
        if tokens is not None:
            cells = zip(*map(self.texts, places.features), strict=True)
            x = tokens([" ".join(row) for row in cells])
        else:
            texts = self.texts_in(places.features)
            if texts:
                raise DataError(f"{self.where}, {_kinds(texts)}; {_advice(list(texts))}")
            x = np.stack([self._complete(place, missing) for place in places.features], axis=1)
            _warn_of_numbers(x, names, self.where)
        raw = as_raw(self.where, x, self.values(places.label), missing=missing)
        raw = replace(raw, columns=names if tokens is None else ())
        if places.grouping is None:
            return raw
        return raw.grouped(self.values(places.grouping), self.where)

    @abstractmethod
    def kind(self, place: int) -> Any:
        """The type of a column that holds neither numbers nor truth values; None of others."""

    @abstractmethod
    def numbers(self, place: int) -> np.ndarray:
        """A column of numbers or truth values as float64, NaN where it has none."""

    @abstractmethod
    def texts(self, place: int) -> list[str]:
        """A column as texts, of any type; empty where it has no value."""

    @abstractmethod
    def values(self, place: int) -> np.ndarray:
        """A column as it is: labels or groups."""

    def _complete(self, place: int, missing: bool) -> np.ndarray:
        numbers = self.numbers(place)
        if not missing and np.isnan(numbers).any():
            row = int(np.flatnonzero(np.isnan(numbers))[0])
            where = f"{self.where}, row {row} (counted from 0)"
            raise DataError(_no_value(where, self.names[place], None))
        return numbers

    def texts_in(self, places: Sequence[int]) -> dict[str, Any]:
        """The types of those columns that hold neither numbers nor truth values, by name."""
        kinds = {self.names[place]: self.kind(place) for place in places}
        return {name: kind for name, kind in kinds.items() if kind is not None}


class ParquetTable(ColumnTable):
    """A parquet file; the index that pandas writes into it is not a column."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self._table = _parquet(path)
        names = self._table.column_names
        self.names = [name for name in names if not name.startswith("__index_level_")]
        if len(self.names) < 2 or not self._table.num_rows:
            raise DataError(
                f"{path} has {len(self.names)} columns and {self._table.num_rows} rows; expected "
                "features and a label"
            )
        if len(set(self.names)) < len(self.names):
            twice = next(name for i, name in enumerate(self.names) if name in self.names[:i])
            raise DataError(f"{path} has two columns called {twice!r}: rename one of them")

    def kind(self, place: int) -> Any:
        from pyarrow import types

        kind = self._table.column(self.names[place]).type
        known = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)
        return None if any(is_one(kind) for is_one in known) else kind

    def numbers(self, place: int) -> np.ndarray:
        from pyarrow import float64, types

        column = self._table.column(self.names[place])
        if types.is_boolean(column.type):
            column = column.cast("uint8")
        return np.asarray(column.cast(float64(), safe=False).to_numpy(), dtype=np.float64)

    def texts(self, place: int) -> list[str]:
        return ["" if cell is None else str(cell) for cell in self._cells(place)]

    def values(self, place: int) -> np.ndarray:
        """Truth values are numbers here, as in arrays of them; categories come as their text."""
        cells = [int(cell) if isinstance(cell, bool) else cell for cell in self._cells(place)]
        return np.array(cells, dtype=object)

    def _cells(self, place: int) -> list[Any]:
        cells: list[Any] = self._table.column(self.names[place]).to_pylist()
        return cells


class FrameTable(ColumnTable):
    """A data frame of pandas; its index is not a column."""

    where = "the table"

    def __init__(self, frame: Any) -> None:
        self.names = [str(name) for name in frame.columns]
        self._frame = frame

    def kind(self, place: int) -> Any:
        kind = self._frame.dtypes.iloc[place]
        return None if getattr(kind, "kind", "O") in "biuf" else kind

    def numbers(self, place: int) -> np.ndarray:
        column = self._frame.iloc[:, place]
        numbers: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers

    def measurements(self, name: str = "x") -> np.ndarray:
        """All columns as features, N x D; whole numbers are measurements, too."""
        rows = np.empty((len(self._frame), len(self.names)))
        texts = self.texts_in(range(len(self.names)))
        if texts:  # drop= and target= are of tables with their labels in them
            one = len(texts) == 1
            them = "it" if one else "them"
            raise DataError(
                f"{name}, {_kinds(texts)}; encode {them}, or leave {them} out, as in "
                f"{name}.drop(columns={shortened(next(iter(texts)) if one else list(texts))})"
            )
        for place in range(len(self.names)):
            rows[:, place] = self.numbers(place)
        _warn_of_numbers(rows, self.names, name, f"{name}.drop(columns={{!r}})")
        return rows

    def texts(self, place: int) -> list[str]:
        column = self._frame.iloc[:, place]
        cells = np.where(column.isna(), "", column.astype(str).to_numpy(dtype=object))
        texts: list[str] = cells.tolist()
        return texts

    def values(self, place: int) -> np.ndarray:
        values: np.ndarray = self._frame.iloc[:, place].to_numpy()
        return values


def measured_frames(frames: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Data frames of inputs as features, by name, and their columns, which must be the same."""
    tables = {name: FrameTable(frame) for name, frame in frames.items()}
    columns = {name: tuple(table.names) for name, table in tables.items()}
    first = next(iter(columns), "")
    for name, own in columns.items():
        if own != columns[first]:
            raise DataError(
                f"{name} has the columns {shortened(own)}, and {first} {shortened(columns[first])}:"
                f" give both the same ones in one order, as in {name}[{first}.columns]"
            )
    rows = {name: table.measurements(name) for name, table in tables.items()}
    return rows, columns.get(first, ())


def is_frame(source: Any) -> bool:
    """Whether something is a data frame of pandas, which is never imported."""
    return hasattr(source, "columns") and hasattr(source, "iloc")


def _parquet(path: Path) -> Any:
    """The table of pyarrow, which is imported here alone."""
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
            return content.read()
    except DataError:
        raise
    except Exception as error:  # what pyarrow raises for damaged files is anything
        raise DataError(f"{path} cannot be read as parquet: {error}") from error


def _warn_of_numbers(
    x: np.ndarray, names: Sequence[str], where: str, leaving: str = "drop={!r}{}"
) -> None:
    """Say so where a column seems to name the rows: it tells nothing of what they are."""
    for place, name in enumerate(names):
        if _IDENTIFIER.search(name) and len(np.unique(x[:, place])) == len(x) > 2:
            warnings.warn(
                f"{where}: column {name!r} has another number in every row and is taken for a "
                "feature: if it only names the rows, leave it out with "
                f"{leaving.format(name, _in_a_shell(name))}",
                DataWarning,
                stacklevel=2,
            )


def _check_rows(metadata: Any, size: int, path: Path) -> None:
    """Cells, of which a label costs as much as four numbers, and bytes, by the file's own count."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    unpacked = sum(group.total_byte_size for group in groups)
    cells = metadata.num_rows * (metadata.num_columns + 3)
    check_entries(max(cells, unpacked // 8), size, path)


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


def _place(names: Sequence[str], column: Any, where: str, what: str) -> int:
    """Where a column is."""
    if isinstance(column, str):
        if column not in names:
            raise DataError(f"{where} has no column {column!r}: {nearest(column, names)}")
        return list(names).index(column)
    if isinstance(column, bool) or not isinstance(column, int):
        raise DataError(f"{what} is {column!r}: expected the name of a column, or its number")
    if not -len(names) <= column < len(names):
        raise DataError(f"{where} has {len(names)} columns, so there is no column {column}")
    return column % len(names)


def _check_first(
    rows: list[tuple[int, list[str]]], places: ColumnPlaces, header: bool, path: Path
) -> None:
    """Refuse a column without a name, and a header that was taken for a row."""
    first, column = [cell.strip() for cell in rows[0][1]], places.label
    names_are_numbers = not header and _looks_like_header(rows, column)
    unnamed = [i for i in (*places.features, places.grouping) if i is not None and not first[i]]
    if unnamed and (header or names_are_numbers):
        raise DataError(
            f"{path}: column {unnamed[0]} (counted from 0) has no name; if it is the index that "
            "pandas writes, write the file with index=False or leave the column out with "
            f"drop={unnamed[0]}, else name it in the header"
        )
    if names_are_numbers:
        raise DataError(
            f"{path}: line {rows[0][0]} looks like a header with numbers for names; if it is, name "
            f"the label column with target={first[column]!r}, else correct the label, which is "
            "one of its kind"
        )


def _holds_values(cells: Sequence[str]) -> bool:
    """Whether a first line is a row already; a column may be called "true", but not all of them."""
    return any(map(is_number_text, cells)) or all(cell.lower() in TRUTH for cell in cells)


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


def _check_cells(
    cells: list[str], names: list[str], places: ColumnPlaces, where: str, texts: bool
) -> None:
    """Refuse a row that is not as long as the first, and one without a label or a group."""
    if len(cells) != len(names):
        quote = "; a text that holds a separator has to be in quotes" if texts else ""
        raise DataError(
            f"{where}: {len(cells)} columns where the first line has {len(names)}{quote}"
        )
    for place, what in ((places.label, "label"), (places.grouping, "group")):
        if place is not None and not cells[place].strip():
            raise DataError(
                f"{where}: the {what} (column {names[place]!r}) is empty: give it one, or leave "
                "the row out"
            )


def _numbers(
    cells: list[str],
    names: list[str],
    places: ColumnPlaces,
    line: int,
    path: Path,
    missing: bool,
) -> list[float]:
    where = f"{path}, line {line}"
    values = [_number(cells[i]) for i in places.features]
    if None in values:
        texts = [i for i, value in zip(places.features, values, strict=True) if value is None]
        raise DataError(_no_numbers(where, [names[i] for i in texts], [cells[i] for i in texts]))
    numbers = [value for value in values if value is not None]
    for i, value in zip(places.features, numbers, strict=True):
        if math.isnan(value) and not missing:
            raise DataError(_no_value(where, names[i], cells[i].strip()))
        if math.isinf(value):
            raise DataError(
                f"{where}, column {names[i]!r}: {cells[i].strip()!r} is infinite: correct it, or "
                "leave the row out"
            )
    return numbers


def _number(cell: str) -> float | None:
    """What a cell says; NaN where it has no value, None where it is text."""
    try:
        return float(cell)
    except ValueError:
        text = cell.strip().lower()
        return math.nan if text in MISSING else TRUTH.get(text)


def _kinds(texts: Mapping[str, Any]) -> str:
    """Columns that hold no numbers, with their types."""
    if len(texts) == 1:
        ((name, kind),) = texts.items()
        return f"column {name!r}: its type is {kind}, not numbers"
    return f"columns {_some(f'{name!r} ({kind})' for name, kind in texts.items())}: not numbers"


def _some(items: Iterable[str]) -> str:
    """The first of them, where there are many."""
    first = list(items)
    more = f" and {len(first) - MOST} more" if len(first) > MOST else ""
    return ", ".join(first[:MOST]) + more


def _no_value(where: str, name: str, seen: Any) -> str:
    return (
        f"{where}, column {name!r}: {seen!r} is not a number, the value is missing; drop the row, "
        "or have it filled in with missing=mean, median or most_frequent (in a shell "
        "--set missing=mean)"
    )


def _no_numbers(where: str, names: Sequence[str], cells: Sequence[str]) -> str:
    """What to do about the columns that hold these cells, which are texts."""
    comma = " (a decimal comma is not read)" if any(map(_DECIMAL_COMMA.fullmatch, cells)) else ""
    if len(names) == 1:
        seen = f"column {names[0]!r}: {cells[0]!r} is not a number"
    else:
        shown = _some(f"{name!r} ({cell!r})" for name, cell in zip(names, cells, strict=True))
        seen = f"columns {shown}: not numbers"
    return f"{where}, {seen}{comma}; {_advice(names)}"


def _advice(names: Sequence[str]) -> str:
    dropped: str | list[str] = names[0] if len(names) == 1 else list(names)
    return (
        f"encode or drop the column{'' if len(names) == 1 else 's'}, as with "
        f"drop={shortened(dropped)}{_in_a_shell(dropped)}, or name the label column with target= "
        "(--target)"
    )


def _in_a_shell(dropped: str | list[str]) -> str:
    """How a command drops columns, unless that is too long to be shown."""
    words = shlex.quote(f"drop={json.dumps(dropped, ensure_ascii=False)}")
    return f" (in a shell --set {words})" if len(words) <= LONGEST else ""


def is_number_text(cell: str) -> bool:
    """Whether a cell of a table reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
