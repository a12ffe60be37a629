"""How the command line prints: tables for people, one JSON object for machines, notes on stderr."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.status import Status
from rich.table import Table
from rich.text import Text


def show(*parts: RenderableType) -> None:
    """Print for people: tables to the window's width, lines as they are, to be copied."""
    width = None if sys.stdout.isatty() else 110
    console = Console(width=width, highlight=False)
    for part in parts:
        if isinstance(part, str):
            console.print(part, markup=False, soft_wrap=True)
        else:
            console.print(part)


def show_wide(tables: Iterable[RenderableType]) -> None:
    """Print tables with all of their columns: what is wider than the window goes on below."""
    console = Console(width=1000, highlight=False)
    for index, part in enumerate(tables):
        if index:
            console.print()
        console.print(part)


def show_json(value: Any) -> None:
    """Print one JSON object."""
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=not unicode)
    print(text, flush=True)


def show_result(value: Any, as_json: bool, display: Callable[[Any], None]) -> None:
    """Print a result, for machines or for people."""
    (show_json if as_json else display)(value)


def show_error(kind: str, message: str) -> None:
    """Print what went wrong, for machines."""
    show_json({"error": {"type": kind, "message": message}})


def show_content(text: str) -> None:
    """Print what would otherwise be a file: UTF-8 whatever the terminal has."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def say(line: str) -> None:
    """A line on stderr: progress, warnings, errors."""
    print(line, file=sys.stderr)


def note(remark: str) -> None:
    """A remark on the result, on stderr."""
    say(f"note: {remark}")


def busy(doing: str) -> Status:
    """While it is entered, a terminal says what is being done; a file or pipe gets nothing."""
    return Console(stderr=True).status(doing)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None
) -> Table:
    """Text left, numbers right; the first column is always text."""
    texts = [[str(cell) for cell in row] for row in rows]
    made = Table(title=None if title is None else Text(title, "bold"), title_justify="left")
    for index, heading in enumerate(headings):
        numbers = index > 0 and all(_is_number(row[index]) for row in texts)
        made.add_column(Text(heading), justify="right" if numbers else "left", overflow="fold")
    for row in texts:
        made.add_row(*map(Text, row))  # Text: a class may be called [red]
    return made


def facts(pairs: Iterable[tuple[str, Any]]) -> Table:
    """Names and values, one pair per line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(name, "bold"), Text(str(value)))
    return grid


def plain_text(value: Any) -> str:
    """A value of a JSON object as people write it; nothing for null."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {plain_text(v)}" for k, v in value.items() if v not in (None, {}))
    if isinstance(value, list):
        return ", ".join(map(plain_text, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-")[:1].isdigit()
