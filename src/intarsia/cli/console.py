"""How the command line prints: tables for people, one JSON object for machines, notes on stderr."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from intarsia.errors import comma_separated
from intarsia.files import plain

# Orders to a terminal: of colours and cursors, of titles and links, and all others.
_ORDERS = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b."
)
# Control characters but line breaks and tabs, and what reverses the order of letters.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Text that a terminal shows and does not obey: names in files may be anything."""
    return _CONTROL.sub("", _ORDERS.sub("", text))


class HarmlessConsole(Console):
    """A console that has its own colours, and takes no orders from what it prints."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


def show(*parts: RenderableType) -> None:
    """Print for people: tables to the window's width, lines as they are, to be copied."""
    console = _console()
    for part in parts:
        if isinstance(part, str):
            console.print(harmless(part), markup=False, soft_wrap=True)
        else:
            console.print(part)


def fits(table: Table) -> bool:
    """Whether all of a table can be seen in the window, no cell cut or folded."""
    return Console(width=100_000).measure(table).maximum <= _console().width


def _console() -> HarmlessConsole:
    return HarmlessConsole(width=None if sys.stdout.isatty() else 110, highlight=False)


def show_wide(tables: Iterable[RenderableType]) -> None:
    """Print tables with all of their columns: what is wider than the window goes on below."""
    console = HarmlessConsole(width=1000, highlight=False)
    for index, part in enumerate(tables):
        if index:
            console.print()
        console.print(part)


def show_json(value: Any) -> None:
    """Print one JSON object; what is no finite number is null."""
    unicode = (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
    text = json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=not unicode)
    # What JSON leaves as it is of control characters, it may also have by number.
    print(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=True)


def show_result(value: Any, as_json: bool, display: Callable[[Any], None]) -> None:
    """Print a result, for machines or for people."""
    (show_json if as_json else display)(value)


def show_error(kind: str, message: str) -> None:
    """Print what went wrong, for machines."""
    show_json({"error": {"type": kind, "message": message}})


def show_content(text: str) -> None:
    """Print what would otherwise be a file: UTF-8 always, and no orders to a terminal."""
    text = harmless(text) if sys.stdout.isatty() else text
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def say(line: str) -> None:
    """A line on stderr: progress, warnings, errors."""
    print(harmless(line), file=sys.stderr)


def note(remark: str) -> None:
    """A remark on the result, on stderr."""
    say(f"note: {remark}")


def busy(doing: str) -> Status:
    """While it is entered, a terminal says what is being done; a file or pipe gets nothing."""
    return HarmlessConsole(stderr=True).status(doing)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None
) -> Table:
    """Text left, numbers right; the first column is always text."""
    texts = [[harmless(str(cell)) for cell in row] for row in rows]
    made = Table(
        title=None if title is None else Text(harmless(title), "bold"), title_justify="left"
    )
    for index, heading in enumerate(headings):
        numbers = index > 0 and all(_is_number(row[index]) for row in texts)
        made.add_column(
            Text(harmless(heading)), justify="right" if numbers else "left", overflow="fold"
        )
    for row in texts:
        made.add_row(*map(Text, row))  # Text: a class may be called [red]
    return made


def facts(pairs: Iterable[tuple[str, Any]]) -> Table:
    """Names and values, one pair per line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(Text(harmless(name), "bold"), Text(harmless(str(value))))
    return grid


def plain_text(value: Any) -> str:
    """A value of a JSON object as people write it; nothing for null."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {plain_text(v)}" for k, v in value.items() if v not in (None, {}))
    if isinstance(value, list):
        names = bool(value) and all(isinstance(item, str) for item in value)
        return comma_separated(value) if names else ", ".join(map(plain_text, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-")[:1].isdigit()
