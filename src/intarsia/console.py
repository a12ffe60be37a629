"""How the command line speaks: tables for people, one JSON object for machines, one-line errors."""

import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from intarsia.errors import IntarsiaError

RESUMING = ("train", "demo")


class Verbs(TyperGroup):
    """The commands; an error of ours is one clear line, and Ctrl-C says what to do next."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except IntarsiaError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            again = "; the same command resumes" if ctx.invoked_subcommand in RESUMING else ""
            print(f"\nstopped{again}", file=sys.stderr)
            raise typer.Exit(130) from None


def show(*parts: RenderableType) -> None:
    """Print for people; where nobody's window sets the width, tables get room."""
    width = None if sys.stdout.isatty() else 110
    console = Console(width=width, highlight=False)
    for part in parts:
        console.print(Text(part) if isinstance(part, str) else part)


def note(line: str) -> None:
    """A remark beside the result, on stderr."""
    print(line, file=sys.stderr)


def show_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None
) -> Table:
    """Text left, numbers right; the first column is always text."""
    rows = [[cell if isinstance(cell, Text) else str(cell) for cell in row] for row in rows]
    made = Table(title=title, title_justify="left", title_style="bold")
    for place, heading in enumerate(headings):
        numbers = place > 0 and all(_is_number(str(row[place])) for row in rows)
        made.add_column(heading, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return made


def facts(pairs: Iterable[tuple[str, Any]]) -> Table:
    """Names and values, one pair a line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, Text(str(value)))
    return grid


def figure(value: float | None) -> str:
    """Four decimals; a dash for a mean over nothing."""
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def plain_text(value: Any) -> str:
    """A value of a JSON object as people write it; nothing for what is not there."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {plain_text(v)}" for k, v in value.items() if v not in (None, {}))
    if isinstance(value, list):
        return ", ".join(map(plain_text, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def spread(values: Iterable[float | None]) -> str:
    """Mean and standard deviation of what is there."""
    known = [v for v in values if v is not None and not math.isnan(v)]
    if not known:
        return "-"
    mean = f"{statistics.fmean(known):.4f}"
    return mean if len(known) == 1 else f"{mean} ± {statistics.stdev(known):.4f}"


def _is_number(text: str) -> bool:
    return text == "-" or text[:1].isdigit()
