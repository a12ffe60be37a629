"""The page on mutants: how many small faults the tests of each room notice, and which they miss."""

from collections.abc import Mapping, Sequence
from typing import Any

from pages import Load, Result, met, page, table


def mutation(load: Load) -> str:
    result = load("mutation")
    rooms = result["rooms"]
    rows = [
        [
            row["room"],
            row["tests"],
            row["mutants"],
            row["killed"],
            len(row["survivors"]),
            len(row["equivalent"]),
            f"{row['score']:.1%}",
            f"{row['raw_score']:.1%}",
        ]
        for row in rooms
    ]
    return page(
        "Mutants",
        [result],
        "A mutant is the source with one small fault: another comparison or another sign, a "
        "condition turned round or left out, a number one larger, arguments swapped, a statement "
        "or a `raise` removed, nothing returned. It is killed where a test of its room fails, "
        "crashes or takes several times as long as without the fault, and survives where all "
        f"pass. {_extent(result)} {_effort(result)}",
        table("room|tests|mutants|killed|survive|equivalent|score|raw score", rows),
        "Equivalent are survivors that compute the same as the source, by the reason that is "
        "listed with each below; they are tried like all others. The score is killed / (mutants - "
        "equivalent), the raw score killed / mutants. "
        f"{_verdict(result)}",
        "No mutants are made of docstrings, annotations and types, `__all__`, texts of errors and "
        "warnings, the parts of f-strings, a registry entry's paper, colour and label, tables for "
        "the terminal, `assert`, the `strict` of `zip`, and the `frozen` of a dataclass, which the "
        "type checker holds all code to; nor are the two arguments of `min`, `max` and others "
        "swapped whose order does not count. Tests that fail or are skipped without a fault are "
        f"left out: {_left_out(rooms)}.",
        *(_listed(row, "survivors") for row in rooms if row["survivors"]),
        *(_listed(row, "equivalent") for row in rooms if row["equivalent"]),
    )


def _extent(result: Result) -> str:
    files = sum(len(row["files"]) for row in result["rooms"])
    if result["sample"]:
        return f"At most {result['sample']} mutants were drawn of each room's, of {files} files."
    return f"These are all mutants of {files} files."


def _effort(result: Result) -> str:
    workers = result["workers"]
    where = "In one process at a time" if workers == 1 else f"On {workers} processes"
    return f"{where} that took {result['seconds']:.0f} s."


def _verdict(result: Result) -> str:
    low = [row["room"] for row in result["rooms"] if row["score"] < result["aim"]]
    which = f" (not by {', '.join(low)})" if low else ""
    return f"The aim, {result['aim']:.0%} in every room, is {met(not low)}{which}."


def _left_out(rooms: Sequence[Mapping[str, Any]]) -> str:
    reasons = [reason for row in rooms for reason in row["left_out"].values()]
    counts = [f"{reasons.count(reason)} {reason}" for reason in sorted(set(reasons))]
    return ", ".join(counts) or "there were none"


def _listed(row: Mapping[str, Any], key: str) -> str:
    """A heading and a table of mutants, by place and change."""
    head = "where|function|source|mutant" + ("|reason" if key == "equivalent" else "")
    rows = [
        [
            f"{mutant['file'].removeprefix('src/intarsia/')}:{mutant['line']}",
            mutant["function"] and _code(mutant["function"]),
            _code(mutant["before"]),
            "removed" if mutant["after"] in ("pass", "nothing") else _code(mutant["after"]),
            *([mutant["reason"]] if key == "equivalent" else []),
        ]
        for mutant in row[key]
    ]
    return f"## {row['room']}: {key} ({len(rows)})\n\n{table(head, rows)}"


def _code(text: str) -> str:
    """Source as one line that a cell of a table can hold."""
    line = " ".join(text.split()).replace("|", "\\|")
    return f"``{line}``" if "`" in line else f"`{line}`"
