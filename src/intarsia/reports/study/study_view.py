"""Pieces of a study's page: its verdict, figures and tables, the commands to reproduce it."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure

from intarsia.errors import StudyError
from intarsia.plots import svg
from intarsia.reports.html.elements import commands, figure, folded, listing, paragraph
from intarsia.reports.html.words import duration
from intarsia.reports.study.html_tables import tables_html
from intarsia.reports.study.parts import Part
from intarsia.reports.study.run_section import cells_text, reproduce_lines
from intarsia.studies import Table, Verdict
from intarsia.studies.wording import several

STATES = {"imp": "with IMP", "unpruned": "without IMP"}  # parts of figures' names, in words


@dataclass
class StudyView:
    """A part with its tables, figures and verdict; `mark` sets it apart from others."""

    part: Part
    tables: list[Table]
    figures: Mapping[str, Figure]
    verdict: Verdict
    mark: str = ""

    @classmethod
    def of(cls, part: Part) -> "StudyView":
        measured = part.archive.measured
        try:
            tables = part.study.tables(measured)
            figures = part.study.figures(measured)
            verdict = part.verdict()
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StudyError(
                f"the cells of the study {part.study.name!r} in {part.source} cannot be shown "
                f"({type(error).__name__}: {error}): another version of the study measured them, "
                "run it again"
            ) from error
        return cls(part, tables, figures, verdict)

    @property
    def name(self) -> str:
        return f"{self.part.study.name}{self.mark}"


@dataclass
class PageBudget:
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


def numbers_html(view: StudyView) -> str:
    """The few numbers to be seen first."""
    runs, missing = view.part.archive.runs, view.part.archive.missing
    result = [(cells_text(view.part), "cells are finished" if missing else "cells, all finished")]
    result += [(c.counted, c.short) for c in view.verdict.claims if c.short]
    if runs["modules"]:
        took = duration(runs["training_seconds"])
        result.append((f"{runs['modules']:,}", f"modules, trained in {took}"))
    items = "\n".join(
        f"<li><strong>{escape(number)}</strong> {escape(words)}</li>" for number, words in result
    )
    return f'<ul class="numbers">\n{items}\n</ul>\n'


def verdict_html(view: StudyView) -> str:
    """What the numbers say."""
    verdict, points = view.verdict, view.verdict.details
    claims = [claim.marked for claim in verdict.statements]
    pieces = [listing(claims)] if claims else []
    if points:
        pieces.append(folded(f"in detail: {several(len(points), 'point')}", listing(points)))
    if missing := view.part.archive.missing:
        note = f"{several(missing, 'cell')} missing: numbers and their order may still change."
        pieces.append(paragraph(note))
    return "\n".join(pieces)


def figures_html(view: StudyView, budget: PageBudget, most: int) -> str:
    """The first few, the others folded."""
    out, drawn = budget.out, []
    for name, picture in view.figures.items():
        title = _title(picture, name, view.part.study.name)
        label = f"{title}; its numbers are in the tables"
        html = figure(svg(picture), f"{title}.", label, name=f"{name}{view.mark}")
        if taken := budget.take(html):
            drawn.append(taken)
    pieces = drawn[:most]
    if drawn[most:]:
        words = several(len(drawn) - most, "more figure")
        pieces.append(folded(words, "\n".join(drawn[most:])))
    if budget.out > out:
        command = f"report {view.part.source} --figures FOLDER"
        pieces.append(_too_large(budget.out - out, "figure", command))
    return "\n".join(pieces)


def tables_section(view: StudyView, budget: PageBudget) -> str:
    """The tables, as far as there is room."""
    out = budget.out
    html = tables_html(view.tables, budget.take)
    if budget.out > out:
        html += _too_large(budget.out - out, "table", f"study table {view.part.study.name}")
    return html


def reproduce_html(view: StudyView) -> str:
    """The commands."""
    words = "A run measures only what its store does not have yet."
    return paragraph(words) + commands(reproduce_lines(view.part))


def _too_large(count: int, what: str, command: str) -> str:
    return paragraph(
        f"{several(count, what)} found no room on this page: `intarsia {command}` has all of them."
    )


def _title(picture: Figure, name: str, study: str) -> str:
    """What the drawing says of itself, and what of its name it does not say."""
    words = [STATES.get(part, part) for part in name.removeprefix(study).strip("-").split("-")]
    title = str(picture.get_label()).replace(name, ", ".join(words))
    if not title:
        return ", ".join(words)
    named = all(word in title for word in words)
    return title[:1].upper() + title[1:] + ("" if named else f" ({', '.join(words)})")
