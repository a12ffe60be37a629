"""What every page of results has: a title, where its figures come from, tables."""

from collections.abc import Iterable, Sequence
from typing import Any

Result = dict[str, Any]


def page(title: str, results: Sequence[Result], *parts: str) -> str:
    """A title, where the figures come from, then the parts."""
    made = "<!-- Made by benchmarks/tables.py from the JSON files beside it; do not edit. -->"
    return "\n\n".join([f"# {title}", made, *(origin(r) for r in results), *parts]) + "\n"


def origin(result: Result) -> str:
    """The date, the machine, the versions and the command of a result."""
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    machine = result.get("machine") or result["device"]
    return f"{result['date']}, {machine}, {versions}:\n\n    {result['command']}"


def table(head: str, rows: Iterable[Sequence[object]]) -> str:
    """Markdown of a table; the head's cells are parted by |."""
    columns = head.split("|")
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
