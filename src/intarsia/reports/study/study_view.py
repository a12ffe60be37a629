"""Pieces of a study's page: what it says, its figures and tables, the commands to get it again."""

from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure

from intarsia.errors import StudyError
from intarsia.plots import svg
from intarsia.reports.html.elements import commands, figure, folded, listing, paragraph
from intarsia.reports.html.words import duration
from intarsia.reports.study.html_tables import tables_html
from intarsia.reports.study.parts import Part
from intarsia.reports.study.run_section import again_lines, cells_text, several
from intarsia.reports.study.summary import Summary, summary_of
from intarsia.studies import Table

HALVES = {"imp": "with IMP", "unpruned": "without IMP"}  # parts of figures' names, in words


@dataclass
class Shown:
    """A part with its tables, figures and sentences; `mark` sets it apart from others."""

    part: Part
    tables: list[Table]
    figures: dict[str, Figure]
    summary: Summary
    mark: str = ""

    @classmethod
    def of(cls, part: Part) -> "Shown":
        measured = part.pack.measured
        try:
            tables = part.study.tables(measured)
            figures = part.study.figures(measured)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StudyError(
                f"the cells of the study {part.study.name!r} in {part.source} cannot be shown "
                f"({type(error).__name__}: {error}): another version of the study measured them, "
                "run it again"
            ) from error
        return cls(part, tables, figures, summary_of(tables))

    @property
    def name(self) -> str:
        return f"{self.part.study.name}{self.mark}"


@dataclass
class Room:
    """What a page can still hold, in bytes; what did not fit is counted."""

    left: int
    out: int = 0

    def take(self, html: str) -> str:
        """The piece, or nothing where it does not fit any more."""
        size = len(html.encode())
        if size > self.left:
            self.out += 1
            return ""
        self.left -= size
        return html


def numbers_html(shown: Shown) -> str:
    """The few numbers to be seen first."""
    runs, missing = shown.part.pack.runs, shown.part.pack.missing
    result = [(cells_text(shown.part), "cells are finished" if missing else "cells, all finished")]
    result += shown.summary.numbers
    if runs["modules"]:
        took = duration(runs["training_seconds"])
        result.append((f"{runs['modules']:,}", f"modules, trained in {took}"))
    items = "\n".join(
        f"<li><strong>{escape(number)}</strong> {escape(words)}</li>" for number, words in result
    )
    return f'<ul class="numbers">\n{items}\n</ul>\n'


def summary_html(shown: Shown) -> str:
    """What the numbers say."""
    sentences, points = shown.summary.sentences, shown.summary.points
    pieces = [paragraph(" ".join(sentences))] if sentences else []
    if points:
        pieces.append(listing(points))
    if missing := shown.part.pack.missing:
        lack = f"{several(missing, 'cell')} missing: numbers and their order may still change."
        pieces.append(paragraph(lack))
    return "\n".join(pieces)


def figures_html(shown: Shown, room: Room, most: int) -> str:
    """The first few, the others folded."""
    out, drawn = room.out, []
    for name, picture in shown.figures.items():
        title = _title(picture, name, shown.part.study.name)
        label = f"{title}; its numbers are in the tables"
        html = figure(svg(picture), f"{title}.", label, name=f"{name}{shown.mark}")
        if taken := room.take(html):
            drawn.append(taken)
    pieces = drawn[:most]
    if drawn[most:]:
        words = several(len(drawn) - most, "more figure")
        pieces.append(folded(words, "\n".join(drawn[most:])))
    if room.out > out:
        command = f"report {shown.part.source} --figures FOLDER"
        pieces.append(_too_large(room.out - out, "figure", command))
    return "\n".join(pieces)


def shown_tables(shown: Shown, room: Room) -> str:
    """The tables, as far as there is room."""
    out = room.out
    html = tables_html(shown.tables, room.take)
    if room.out > out:
        html += _too_large(room.out - out, "table", f"study table {shown.part.study.name}")
    return html


def again_html(shown: Shown) -> str:
    """The commands."""
    words = "A run measures only what its store does not have yet."
    return paragraph(words) + commands(again_lines(shown.part))


def _too_large(count: int, what: str, command: str) -> str:
    return paragraph(
        f"{several(count, what)} found no room on this page: `intarsia {command}` has all of them."
    )


def _title(picture: Figure, name: str, study: str) -> str:
    """What the drawing says of itself, and what of its name it does not say."""
    words = [HALVES.get(part, part) for part in name.removeprefix(study).strip("-").split("-")]
    title = str(picture.get_label()).replace(name, ", ".join(words))
    if not title:
        return ", ".join(words)
    told = all(word in title for word in words)
    return title[:1].upper() + title[1:] + ("" if told else f" ({', '.join(words)})")
