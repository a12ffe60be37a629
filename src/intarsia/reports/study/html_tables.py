"""Tables of a study as HTML: marks that are text, groups of rows apart, the best in bold."""

import re
from collections.abc import Callable, Sequence
from html import escape

from intarsia.reports.html.elements import folded
from intarsia.studies.tables import (
    BEYOND,
    NOTHING,
    SUSPECT,
    Difference,
    Entry,
    Paper,
    Spread,
    Table,
    labels_of,
    right_aligned,
    str_of,
)

MINUS = "\N{MINUS SIGN}"  # as wide as a plus
LONG = 24  # rows: a longer table is folded
MANY = 4  # tables, above which notes that all of them have stand once, before them
SPOKEN = {BEYOND: "beyond two deviations", SUSPECT: "suspect"}  # by screen readers, for a mark


def tables_html(tables: Sequence[Table], take: Callable[[str], str] = str) -> str:
    """Each under its title, long ones folded; of many, notes that all of them have stand once.

    What `take` gives nothing for is left out.
    """
    shared = _shared(tables)
    parts = [f"<p>Of all tables here:</p>\n{_notes(shared)}"] if shared else []
    for table in tables:
        notes = [note for note in table.all_notes() if note not in shared]
        body, rows = table_html(table) + _notes(notes), len(table.rows)
        if rows > LONG:
            parts.append(take(folded(f"{table.title} ({rows} rows)", body)))
        else:
            parts.append(take(f"<h3>{escape(table.title)}</h3>\n{body}"))
    return "\n".join(parts)


def table_html(table: Table) -> str:
    """The table alone, in a box that scrolls by itself where it is too wide."""
    columns, rows = table.with_n()
    labels = labels_of(rows)
    places = ['class="number"' if number else "" for number in right_aligned(columns, rows)]
    head = "".join(
        f'<th scope="col" {place}>{escape(name)}</th>'
        for name, place in zip(columns, places, strict=True)
    )
    bodies = "\n".join(
        "<tbody>\n" + "\n".join(_row(row, places) for row in group) + "\n</tbody>"
        for group in row_groups(rows, labels)
    )
    title = escape(table.title)
    return (
        f'<div class="scroll dense" role="group" aria-label="{title}" tabindex="0">\n'
        f'<table>\n<caption class="unseen">{title}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n{bodies}\n</table>\n</div>\n"
    )


def row_groups(rows: Sequence[Sequence[Entry]], labels: int) -> list[list[Sequence[Entry]]]:
    """Rows that follow one another and differ in their last label alone; all, where none do."""
    groups: list[list[Sequence[Entry]]] = []
    for row in rows:
        if groups and list(groups[-1][0][: labels - 1]) == list(row[: labels - 1]):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups if len(groups) < len(rows) else [list(rows)]


def _row(row: Sequence[Entry], places: Sequence[str]) -> str:
    rest = zip(row[1:], places[1:], strict=True)
    cells = "".join(f"<td {place}>{_entry(entry)}</td>" for entry, place in rest)
    return f'<tr><th scope="row">{_entry(row[0])}</th>{cells}</tr>'


def _entry(entry: Entry) -> str:
    text = escape(str_of(entry))
    if isinstance(entry, float | Spread | Paper | Difference) and text != NOTHING:
        text = text.replace("-", MINUS)
        text = re.sub(r" (\(.*?\))", r" <small>\1</small>", text)
    for mark, words in SPOKEN.items():
        if text.endswith(mark):
            text = f'{text.removesuffix(mark)}<span aria-hidden="true">{mark}</span>'
            text += f'<span class="unseen"> {words}</span>'
            return f"<mark>{text}</mark>" if mark == BEYOND else text
    return f"<strong>{text}</strong>" if isinstance(entry, Spread) and entry.best else text


def _shared(tables: Sequence[Table]) -> list[str]:
    """Notes that every one of many tables has."""
    if len(tables) <= MANY:
        return []
    return [n for n in tables[0].all_notes() if all(n in t.all_notes() for t in tables[1:])]


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    lines = "\n".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes">\n{lines}\n</ul>'
