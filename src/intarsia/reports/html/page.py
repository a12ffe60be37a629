"""The page of a report: one HTML file that holds all it shows and asks the network for nothing."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from matplotlib.figure import Figure

from intarsia.errors import DataError
from intarsia.files import write_whole
from intarsia.plots import check_format, save
from intarsia.reports.html.elements import facts, paragraph


@dataclass(frozen=True)
class Section:
    """A part of a page: `key` is its anchor, `title` plain text, `body` HTML, already escaped."""

    key: str
    title: str
    body: str


@dataclass(frozen=True)
class Report:
    """A page and its figures by name."""

    html: str
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def __repr__(self) -> str:
        size, count = len(self.html.encode()) / 1000, len(self.figures)
        return f"Report({size:,.0f} kB, {count} figures; save(path) writes it)"

    def save(
        self,
        path: str | Path,
        figures: str | Path | None = None,
        formats: Sequence[str] = ("svg",),
    ) -> list[Path]:
        """Write the page, and its figures into a folder if one is given; returns the paths.

        Formats are svg, pdf and png.
        """
        wanted = []
        if figures is not None:
            kinds = dict.fromkeys(formats)
            wanted = [Path(figures) / f"{name}.{kind}" for name in self.figures for kind in kinds]
        for file in wanted:
            check_format(file)  # before anything is written
        write_whole(path, self.html.encode())
        for file in wanted:
            save(self.figures[file.stem], file)
        return [Path(path), *wanted]


def page(title: str, lead: str, sections: Sequence[Section], made: Mapping[str, str]) -> str:
    """The whole page as HTML text: a heading, a table of contents, the sections and a foot.

    `lead` is plain text, one paragraph; `made` says at the foot what the page was made of.
    """
    keys = [section.key for section in sections]
    repeated = next((key for place, key in enumerate(keys) if key in keys[:place]), None)
    if repeated is not None:
        raise DataError(f"two sections of a page have the key {repeated!r}: give each its own")
    script = _resource("page.js")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{_resource('page.css')}</style>",
            "</head>",
            "<body>",
            '<a class="skip" href="#content">Skip to the content</a>',
            f"<header>\n<h1>{escape(title)}</h1>\n{paragraph(lead)}\n</header>",
            _contents(sections),
            '<main id="content" tabindex="-1">',
            *map(_section, sections),
            "</main>",
            f"<footer>\n{facts(made)}\n</footer>",
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _contents(sections: Sequence[Section]) -> str:
    links = "".join(
        f'<li><a href="#{escape(s.key)}">{escape(s.title)}</a></li>\n' for s in sections
    )
    return (
        '<nav aria-labelledby="contents">\n<h2 id="contents">On this page</h2>\n'
        f"<ol>\n{links}</ol>\n</nav>"
    )


def _section(section: Section) -> str:
    key = escape(section.key)
    return (
        f'<section id="{key}" aria-labelledby="{key}-title">\n'
        f'<h2 id="{key}-title">{escape(section.title)}</h2>\n{section.body}\n</section>'
    )


def _policy(script: str) -> str:
    """The content security policy: nothing but what is in the page, and no other script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


@cache
def _resource(name: str) -> str:
    return files("intarsia.reports.html").joinpath(name).read_text("utf-8")
