"""Which tables of a study its page shows, and how: nothing stands there twice."""

from collections.abc import Sequence
from dataclasses import replace

from intarsia.studies import Table
from study_packs import Variant

MANY = 4  # tables, above which notes that they share stand once, before them


def shown_tables(variant: Variant) -> list[str]:
    """Markdown of the tables, with a sentence for what is left out."""
    words, tables = _left_out(variant)
    if len(tables) > MANY:
        shared, tables = _shared_notes(tables)
        words += [f"Notes to the tables below:\n\n{shared}"] if shared else []
    return [*words, *(table.markdown().rstrip() for table in tables)]


def _shared_notes(tables: Sequence[Table]) -> tuple[str, list[Table]]:
    """Notes of several tables as one list, and the tables with those of their own alone."""
    having = {
        note: [t.title for t in tables if note in t.notes] for t in tables for note in t.notes
    }
    shared = {note: titles for note, titles in having.items() if len(titles) > 1}
    lines = []
    for note, titles in shared.items():
        kinds = {title.rpartition(": ")[2] for title in titles}
        kind = f"{kinds.pop()}: " if len(titles) < len(tables) and len(kinds) == 1 else ""
        lines.append(f"- {kind}{note}")
    own = [replace(t, notes=[note for note in t.notes if note not in shared]) for t in tables]
    return "\n".join(lines), own


def _left_out(variant: Variant) -> tuple[list[str], list[Table]]:
    """The tables that say something of their own, and what to say of the others."""
    name, tables = variant.study.name, variant.tables
    if name == "pairs":
        words = ["Table 2 is the half of Table 4 that is with IMP."]
        return words, [table for table in tables if not table.title.startswith("Table 2")]
    if name == "controls":
        amounts = {cell.settings["amount"] for cell in variant.measured} - {None}
        if len(amounts) < 2:
            return [], [table for table in tables if "every amount" not in table.title]
    return [], tables
