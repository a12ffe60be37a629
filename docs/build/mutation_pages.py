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
        "Do the tests notice small faults in the source? A mutant is the source with one small "
        "fault: another comparison or sign, a condition negated or dropped, a number increased by "
        "one, arguments swapped, a statement or a `raise` removed, or nothing returned. It is "
        "killed if a test of its room (a folder or file at the top of the package) fails, crashes "
        "or takes several times as long as without the fault, and survives if all pass. "
        f"{_extent(result)} {_effort(result)} {_verdict(result)}",
        table("room|tests|mutants|killed|surviving|equivalent|score|raw score", rows),
        "Equivalent mutants are survivors that compute the same as the source, for the reason "
        "given with each below; they are tried like all others. The score is killed / (mutants - "
        "equivalent), the raw score killed / mutants.",
        "No mutants are made of docstrings, annotations and types, `__all__`, messages of errors "
        "and warnings, the parts of f-strings, a registry entry's paper, colour and label, tables "
        "for the terminal, `assert`, the `strict` of `zip`, and the `frozen` of a dataclass, "
        "which the type checker enforces throughout; nor are arguments swapped in `min`, `max` "
        "and other functions for which their order does not matter. Tests that fail or are "
        f"skipped without a fault are not used: {_left_out(rooms)}.",
        *(_listed(row, "survivors") for row in rooms if row["survivors"]),
        *(_listed(row, "equivalent") for row in rooms if row["equivalent"]),
    )


def _extent(result: Result) -> str:
    files = sum(len(row["files"]) for row in result["rooms"])
    if result["sample"]:
        return f"At most {result['sample']} mutants were drawn per room, from {files} files."
    return f"All mutants of {files} files were tried."


def _effort(result: Result) -> str:
    workers = result["workers"]
    where = "one process" if workers == 1 else f"{workers} processes"
    return f"This took {result['seconds']:.0f} s in {where}."


def _verdict(result: Result) -> str:
    low = [row["room"] for row in result["rooms"] if row["score"] < result["aim"]]
    which = f" (below it: {', '.join(low)})" if low else ""
    return f"The target, a score of {result['aim']:.0%} in every room, is {met(not low)}{which}."


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
