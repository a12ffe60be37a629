"""The report of a study: what was asked, what came out, and how to get it again, on one page."""

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
    Room,
    Shown,
    again_html,
    figures_html,
    numbers_html,
    shown_tables,
    summary_html,
)
from intarsia.studies import Store
from intarsia.studies.archive import Pack

FIGURES = 4  # that are seen at once; more are folded
ROOM = 4_000_000  # bytes of figures and tables on a page, which is to stay below 5 MB


def study_report(
    source: str | Path | Pack | Store,
    study: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """The page of a pack, of a study in a store, or of all studies in a store.

    `source` is the file of a pack or the folder of a store, or either one as it was read. Of a
    store, `study` names one; `options` are those of its run, worked out from its cells if None.
    """
    result = [Shown.of(part) for part in parts_of(source, study, options)]
    for place, shown in enumerate(result):
        before = sum(other.part.study is shown.part.study for other in result[:place])
        shown.mark = f"-{before + 1}" if before else ""
    make = _alone if len(result) == 1 else _together
    title, lead, sections = make(result, Room(ROOM))
    made = {
        "Made of": result[0].part.source,
        "Made on": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "Made by": f"intarsia {__version__}",
    }
    figures = {f"{name}{s.mark}": one for s in result for name, one in s.figures.items()}
    return Report(page(title, lead, sections, made), figures)


def _alone(result: Sequence[Shown], room: Room) -> tuple[str, str, list[Section]]:
    """Title, lead and sections of a page on one set of cells."""
    (shown,) = result
    sections = [Section("summary", "In short", numbers_html(shown) + summary_html(shown))]
    if shown.figures:
        sections.append(Section("figures", "Figures", figures_html(shown, room, FIGURES)))
    sections += [
        Section("tables", "Tables", shown_tables(shown, room)),
        Section("run", "What was run", run_html(shown.part)),
        Section("again", "Run it again", again_html(shown)),
    ]
    return shown.part.study.title, shown.part.study.about, sections


def _together(result: Sequence[Shown], room: Room) -> tuple[str, str, list[Section]]:
    """The same on several: an overview, then a section each, most of it to be opened."""
    studies = {shown.part.study.name: shown.part.study for shown in result}
    names = list(studies)
    title, lead = studies[names[0]].title, studies[names[0]].about
    if len(names) > 1:
        title = f"{len(names)} studies"
        lead = f"What is finished of {', '.join(names[:-1])} and {names[-1]}."
    columns = ["study", "shows", "cells", "training", "tables", "figures"]
    overview = table(columns, map(_overview, result), "What is on this page")
    sections = [Section("overview", "Overview", overview)]
    for shown in result:
        study, apart = shown.part.study, _apart(shown, result)
        words = [study.about] if len(names) > 1 else []
        words += [f"Measured with {apart}."] if apart else []
        body = "\n".join([*map(paragraph, words), _folded(shown, room)])
        called = f"{study.title} ({shown.name})" if apart else study.title
        sections.append(Section(f"study-{shown.name}", called, body))
    return title, lead, sections


def _overview(shown: Shown) -> list[str | int | float | None]:
    runs = shown.part.pack.runs
    head = [shown.name, shown.part.study.title, cells_text(shown.part)]
    return [*head, duration(runs["training_seconds"]), len(shown.tables), len(shown.figures)]


def _apart(shown: Shown, result: Sequence[Shown]) -> str:
    """The options by which a set of cells differs from others of its study, as words."""
    same = [other.part.pack.options for other in result if other.part.study is shown.part.study]
    mine = shown.part.pack.options
    differing = [key for key, value in mine.items() if any(o.get(key) != value for o in same)]
    return "; ".join(f"{key}: {value_text(mine[key])}" for key in differing)


def _folded(shown: Shown, room: Room) -> str:
    pieces = [numbers_html(shown), summary_html(shown), figures_html(shown, room, 1)]
    pieces.append(folded(f"Tables ({len(shown.tables)})", shown_tables(shown, room)))
    pieces.append(folded("What was run", run_html(shown.part)))
    pieces.append(folded("Run it again", again_html(shown)))
    return "\n".join(pieces)
