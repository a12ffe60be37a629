"""Rows of a study's tables, as the sentences about them read them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from intarsia.studies.entries import Difference, Entry, Paper, Spread, str_of
from intarsia.studies.tables import Table

Row = Mapping[str, Entry]
HALVES = {"yes": "with IMP", "no": "without IMP"}
PLAIN = ("data", "model", "objective", "operator", "way", "matrix")  # values that name themselves


@dataclass(frozen=True)
class Summary:
    """Sentences, a list for details, and large numbers with a few words each."""

    sentences: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    numbers: list[tuple[str, str]] = field(default_factory=list)


def rows_of(table: Table) -> list[dict[str, Entry]]:
    """Rows as mappings from column to entry."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def labels_of(rows: Sequence[Sequence[Entry]]) -> int:
    """How many columns come before the first that holds a measured number; at least one."""
    measured = (Spread, Paper, Difference)
    firsts = [
        next((i for i, entry in enumerate(row) if isinstance(entry, measured)), len(row))
        for row in rows
    ]
    return max(1, min(firsts, default=1))


def label(row: Row, names: Sequence[str]) -> str:
    """`mnist, shallow, with IMP`: what a row is of."""
    parts = []
    for name in names:
        text = str_of(row[name])
        if name == "IMP":
            parts.append(HALVES.get(text, text))
        elif name.startswith("|"):
            parts.append(f"{name} = {text}")
        else:
            parts.append(text if name in PLAIN else f"{name} {text}")
    return ", ".join(parts)


def grouped_rows(rows: Sequence[Row], names: Sequence[str]) -> dict[tuple[Entry, ...], list[Row]]:
    """Rows by their entries under these columns, in the order in which they come."""
    groups: dict[tuple[Entry, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def known(entry: Entry) -> bool:
    """Whether there is a mean."""
    return isinstance(entry, Spread) and entry.n > 0
