"""How the command line speaks: tables for people, one JSON object for machines, one-line errors."""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.status import Status
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from intarsia.errors import DataWarning, HealthWarning, IntarsiaError

RESUMING = ("train", "demo", "run")
JSON = "intarsia.json"  # in a context's meta: whether errors are JSON
# The base of all errors of usage, which typer takes from click or has of its own.
CommandError: Any = typer.BadParameter.__mro__[2]


class Verbs(TyperGroup):
    """The commands; an error of ours is one clear line, and Ctrl-C says what to do next.

    With --json among the words an error is one JSON object on stdout, wrong usage too.
    """

    def main(self, args: Sequence[str] | None = None, *more: Any, **settings: Any) -> Any:
        with _careful_output():
            words = sys.argv[1:] if args is None else args
            if not _wants_json(words) or not settings.get("standalone_mode", True):
                return super().main(args, *more, **settings)
            try:
                code = super().main(args, *more, **{**settings, "standalone_mode": False})
            except CommandError as error:
                show_error(type(error).__name__, error.format_message())
                code = error.exit_code
            sys.exit(code if isinstance(code, int) else 0)

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        as_json = _wants_json(args)
        context = super().make_context(info_name, args, parent, **extra)
        context.meta.setdefault(JSON, as_json)
        return context

    def invoke(self, ctx: Any) -> Any:
        try:
            # What is not healthy the verbs say themselves, in a line without Python in it.
            with warnings.catch_warnings(action="ignore", category=HealthWarning):
                return super().invoke(ctx)
        except IntarsiaError as error:
            message = " ".join(str(error).split())
            if ctx.meta.get(JSON):
                show_error(type(error).__name__, message)
            else:
                print(f"error: {message}", file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            again = "; the same command resumes" if ctx.invoked_subcommand in RESUMING else ""
            if ctx.meta.get(JSON):
                show_error("KeyboardInterrupt", f"stopped{again}")
            else:
                print(f"\nstopped{again}", file=sys.stderr)
            raise typer.Exit(130) from None


def show_error(kind: str, message: str) -> None:
    """What went wrong, for machines."""
    show_json({"error": {"type": kind, "message": message}})


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
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=not unicode)
    print(text, flush=True)


def show_content(text: str) -> None:
    """What else would be a file, on stdout: UTF-8 whatever the terminal has."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


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


def _wants_json(words: Sequence[str]) -> bool:
    """Whether --json is among the options, those before a lone --."""
    words = list(words)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


@contextmanager
def _careful_output() -> Iterator[None]:
    """Letters that a terminal does not have are escaped, and warnings of ours are notes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.simplefilter("default", DataWarning)
        usual = warnings.showwarning

        def show_warning(message: Any, category: Any, *where: Any, **more: Any) -> None:
            if issubclass(category, DataWarning):
                note(f"note: {message}")
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show_warning
        yield


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-")[:1].isdigit()
