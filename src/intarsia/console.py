"""How the command line speaks: tables for people, one JSON object for machines, one-line errors."""

import json
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.status import Status
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from intarsia.errors import HealthWarning, IntarsiaError

RESUMING = ("train", "demo", "run")


class Verbs(TyperGroup):
    """The commands; an error of ours is one clear line, and Ctrl-C says what to do next."""

    def invoke(self, ctx: Any) -> Any:
        try:
            # What is not healthy the verbs say themselves, in a line without Python in it.
            with warnings.catch_warnings(action="ignore", category=HealthWarning):
                return super().invoke(ctx)
        except IntarsiaError as error:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            again = "; the same command resumes" if ctx.invoked_subcommand in RESUMING else ""
            print(f"\nstopped{again}", file=sys.stderr)
            raise typer.Exit(130) from None


def show(*parts: RenderableType) -> None:
    """Print for people: tables to the window's width, lines as they are, to be copied."""
    width = None if sys.stdout.isatty() else 110
    console = Console(width=width, highlight=False)
    for part in parts:
        if isinstance(part, str):
            console.print(part, markup=False, soft_wrap=True)
        else:
            console.print(part)


def show_whole(parts: Iterable[RenderableType]) -> None:
    """Print tables with all of their columns: what is wider than the window goes on below."""
    console = Console(width=1000, highlight=False)
    for place, part in enumerate(parts):
        if place:
            console.print()
        console.print(part)


def note(line: str) -> None:
    """A remark beside the result, on stderr."""
    print(line, file=sys.stderr)


def busy(words: str) -> Status:
    """While it is entered, a terminal says what is being done; a file or pipe gets nothing."""
    return Console(stderr=True).status(words)


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None
) -> Table:
    """Text left, numbers right; the first column is always text."""
    texts = [[str(cell) for cell in row] for row in rows]
    made = Table(title=None if title is None else Text(title, "bold"), title_justify="left")
    for place, heading in enumerate(headings):
        numbers = place > 0 and all(_is_number(row[place]) for row in texts)
        made.add_column(Text(heading), justify="right" if numbers else "left", overflow="fold")
    for row in texts:
        made.add_row(*map(Text, row))  # Text: a class may be called [red]
    return made


def facts(pairs: Iterable[tuple[str, Any]]) -> Table:
    """Names and values, one pair a line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(name, "bold"), Text(str(value)))
    return grid


def plain_text(value: Any) -> str:
    """A value of a JSON object as people write it; nothing for what is not there."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {plain_text(v)}" for k, v in value.items() if v not in (None, {}))
    if isinstance(value, list):
        return ", ".join(map(plain_text, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-")[:1].isdigit()
