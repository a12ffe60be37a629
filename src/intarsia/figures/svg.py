"""What every picture is made of: texts, a page, and colours that hold on any background."""

from collections.abc import Sequence
from html import escape

INK, PAPER, EMPTY = "#33261b", "#fffdf9", "#e4e0da"
GAP, LETTER, MARGIN = 28, 7, 16  # pixels; LETTER is the width of one


def short(name: str, letters: int = 18) -> str:
    """A name cut to fit beside a picture."""
    return name if len(name) <= letters else name[: letters - 1] + "…"


def per_row(panels: int, most: int) -> int:
    """How many panels stand side by side where at most so many may, in rows of like length."""
    rows = max(1, -(-panels // most))
    return -(-panels // rows)


def text(
    x: float,
    y: float,
    words: str,
    anchor: str = "start",
    *,
    bold: bool = False,
    colour: str = INK,
    extra: str = "",
) -> str:
    """Words at a place; `extra` holds more attributes."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}"{weight}{extra}>'
        f"{escape(words)}</text>"
    )


def page(width: float, height: float, marks: Sequence[str], title: str) -> str:
    """The whole picture; its title is what a screen reader says."""
    body = "\n".join(marks)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="12" '
        f'role="img" aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n'
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )
