"""The report of a study: what was asked, what came out, and how to reproduce it, on one page."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from intarsia import __version__
from intarsia.reports.html.elements import folded, paragraph, table
from intarsia.reports.html.page import Report, Section, page
from intarsia.reports.html.words import duration
from intarsia.reports.study.parts import parts_of
from intarsia.reports.study.run_section import cells_text, run_html, value_text
from intarsia.reports.study.study_view import (
    PageBudget,
    StudyView,
    figures_html,
    numbers_html,
    reproduce_html,
    tables_section,
    verdict_html,
)
from intarsia.studies import Store
from intarsia.studies.archive import Archive

FIGURES = 4  # that are seen at once; more are folded
BYTES = 4_000_000  # bytes of figures and tables on a page, which is to stay below 5 MB


def study_report(
    source: str | Path | Archive | Store,
    study: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """The page of an archive, of a study in a store, or of all studies in a store.

    `source` is the file of an archive or the folder of a store, or either one as it was read. Of a
    store, `study` names one; `options` are those of its run, worked out from its cells if None.
    """
    views = [StudyView.of(part) for part in parts_of(source, study, options)]
    for place, view in enumerate(views):
        before = sum(other.part.study is view.part.study for other in views[:place])
        view.mark = f"-{before + 1}" if before else ""
    make = _alone if len(views) == 1 else _together
    title, lead, sections = make(views, PageBudget(BYTES))
    made = {
        "Made of": views[0].part.source,
        "Made on": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "Made by": f"intarsia {__version__}",
    }
    figures = {f"{name}{s.mark}": one for s in views for name, one in s.figures.items()}
    return Report(page(title, lead, sections, made), figures)


def _alone(views: Sequence[StudyView], budget: PageBudget) -> tuple[str, str, list[Section]]:
    """Title, lead and sections of a page on one set of cells."""
    (view,) = views
    sections = [Section("summary", "In short", numbers_html(view) + verdict_html(view))]
    if view.figures:
        sections.append(Section("figures", "Figures", figures_html(view, budget, FIGURES)))
    sections += [
        Section("tables", "Tables", tables_section(view, budget)),
        Section("run", "What was run", run_html(view.part)),
        Section("again", "Run it again", reproduce_html(view)),
    ]
    return view.part.study.title, view.part.study.about, sections


def _together(views: Sequence[StudyView], budget: PageBudget) -> tuple[str, str, list[Section]]:
    """The same on several: an overview, then a section each, most of it to be opened."""
    studies = {view.part.study.name: view.part.study for view in views}
    names = list(studies)
    title, lead = studies[names[0]].title, studies[names[0]].about
    if len(names) > 1:
        title = f"{len(names)} studies"
        lead = f"What is finished of {', '.join(names[:-1])} and {names[-1]}."
    columns = ["study", "shows", "cells", "training", "tables", "figures"]
    overview = table(columns, map(_overview, views), "What is on this page")
    sections = [Section("overview", "Overview", overview)]
    for view in views:
        study, apart = view.part.study, _apart(view, views)
        words = [study.about] if len(names) > 1 else []
        words += [f"Measured with {apart}."] if apart else []
        body = "\n".join([*map(paragraph, words), _folded(view, budget)])
        called = f"{study.title} ({view.name})" if apart else study.title
        sections.append(Section(f"study-{view.name}", called, body))
    return title, lead, sections


def _overview(view: StudyView) -> list[str | int | float | None]:
    runs = view.part.archive.runs
    head = [view.name, view.part.study.title, cells_text(view.part)]
    return [*head, duration(runs["training_seconds"]), len(view.tables), len(view.figures)]


def _apart(view: StudyView, views: Sequence[StudyView]) -> str:
    """The options by which a set of cells differs from others of its study, as words."""
    same = [other.part.archive.options for other in views if other.part.study is view.part.study]
    mine = view.part.archive.options
    differing = [key for key, value in mine.items() if any(o.get(key) != value for o in same)]
    return "; ".join(f"{key}: {value_text(mine[key])}" for key in differing)


def _folded(view: StudyView, budget: PageBudget) -> str:
    pieces = [numbers_html(view), verdict_html(view), figures_html(view, budget, 1)]
    pieces.append(folded(f"Tables ({len(view.tables)})", tables_section(view, budget)))
    pieces.append(folded("What was run", run_html(view.part)))
    pieces.append(folded("Run it again", reproduce_html(view)))
    return "\n".join(pieces)
