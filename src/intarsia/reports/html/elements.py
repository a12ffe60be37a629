"""Elements of a page as HTML; each escapes the text it is given."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from intarsia.errors import DataError

TableValue = str | int | float | None
"""A cell of a table; integers are written as they are, floats with four digits."""

SCROLLS_FROM = 420  # pixels of a drawing: narrower ones fit a phone
SMALLEST, LARGEST = 0.75, 1.15  # of a size as drawn, so that letters stay readable
NUMBER = re.compile(r"[-+±<]?\s?[.\d]")


def paragraph(text: str) -> str:
    return f"<p>{inline(text)}</p>"


def inline(text: str) -> str:
    """Escaped text, in which what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def notice(title: str, text: str) -> str:
    """What a reader must not miss, in a box."""
    body = f"<strong>{escape(title)}</strong>\n{paragraph(text)}"
    return f'<div class="notice" role="note">\n{body}\n</div>'


def listing(items: Iterable[str]) -> str:
    """A list with bullets."""
    lines = "".join(f"<li>{inline(item)}</li>\n" for item in items)
    return f"<ul>\n{lines}</ul>"


def facts(pairs: Mapping[str, TableValue]) -> str:
    """Names and values, one pair per line."""
    lines = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(entry_text(value))}</dd></div>\n"
        for name, value in pairs.items()
    )
    return f'<dl class="facts">\n{lines}</dl>'


def numbers(pairs: Iterable[tuple[str, str]]) -> str:
    """The few numbers to be seen first, each with what it is, as tiles."""
    lines = "".join(
        f"<li><strong>{escape(number)}</strong> {escape(label)}</li>\n" for number, label in pairs
    )
    return f'<ul class="numbers">\n{lines}</ul>'


def table(columns: Sequence[str], rows: Iterable[Sequence[TableValue]], caption: str) -> str:
    """A table whose first column heads its rows; a wide one scrolls by itself."""
    texts = [[entry_text(entry) for entry in row] for row in rows]
    for row in texts:
        if len(row) != len(columns):
            raise DataError(
                f"the table {caption!r} has a row of {len(row)} entries for {len(columns)} columns"
            )
    by_column = [[row[place] for row in texts] for place in range(len(columns))]
    classes = [
        ' class="number"' if place and _are_numbers(column) else ""
        for place, column in enumerate(by_column)
    ]
    head = "".join(
        f'<th scope="col"{class_}>{escape(name)}</th>'
        for name, class_ in zip(columns, classes, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, classes)}</tr>\n" for row in texts)
    return (
        f'<div class="scroll" role="group" aria-label="{escape(caption)}" tabindex="0">\n'
        f"<table>\n<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}</tbody>\n</table>\n</div>"
    )


def figure(svg: str, caption: str, label: str, *, name: str) -> str:
    """A drawing in the page, on paper of its own in light and in dark.

    `label` is what a screen reader says in its place: its message, not its title. `name` is unique
    on the page; it is the figure's anchor, and ids inside the drawing are kept apart by it.
    """
    head = re.match(r"\s*(?:<\?xml[^>]*>\s*)?<svg\b([^>]*)>", svg)
    size = head and re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head[1])
    if head is None or size is None:
        raise DataError(f"the figure {name!r} is not an SVG with a viewBox from 0 0: draw it again")
    width, height = float(size[1]), float(size[2])
    inside = re.sub(r"<title>.*?</title>\s*", "", svg[head.end() :], count=1, flags=re.S)
    inside = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{escape(name)}-", inside).strip()
    letters = re.sub(r'\s(?:width|height|role|aria-label|viewBox|xmlns)="[^"]*"', "", head[1])
    reach = f"min-width:{SMALLEST * width:.0f}px;max-width:{LARGEST * width:.0f}px"
    drawing = (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"{letters} '
        f'role="img" aria-label="{escape(label)}" style="{reach}">{inside}'
    )
    scrolls = f' tabindex="0" role="group" aria-label="{escape(caption)}"'
    return (
        f'<figure id="figure-{escape(name)}">\n'
        f'<div class="scroll drawing"{scrolls if width > SCROLLS_FROM else ""}>{drawing}</div>\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


def commands(lines: Iterable[str]) -> str:
    """Lines for a shell; a button that copies them is added where scripts run."""
    text = "\n".join(escape(line) for line in lines)
    return f'<pre class="commands"><code>{text}</code></pre>'


def folded(summary: str, body: str) -> str:
    """HTML that opens on a click, or when the page is printed."""
    return f"<details>\n<summary>{escape(summary)}</summary>\n{body}\n</details>"


def side_by_side(pieces: Iterable[str]) -> str:
    """Figures, or other pieces, next to each other where each has the room it needs."""
    body = "\n".join(pieces)
    least = max([240, *map(int, re.findall(r"min-width:(\d+)px", body))])
    return f'<div class="side-by-side" style="--least:{least}px">\n{body}\n</div>'


def entry_text(value: TableValue) -> str:
    """A value of a table or of facts; a dash for a missing one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _cells(row: Sequence[str], classes: Sequence[str]) -> str:
    first = f'<th scope="row">{escape(row[0])}</th>' if row else ""
    rest = zip(row[1:], classes[1:], strict=True)
    return first + "".join(f"<td{class_}>{escape(text)}</td>" for text, class_ in rest)


def _are_numbers(column: Sequence[str]) -> bool:
    known = [text for text in column if text != "-"]
    return bool(known) and all(map(NUMBER.match, known))
