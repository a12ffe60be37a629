"""A bank, a composition or modules, as a report."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from intarsia import __version__
from intarsia.composition import Composition
from intarsia.data import Data
from intarsia.measure import Evaluation
from intarsia.models import Model
from intarsia.modules import Module
from intarsia.plots import weights
from intarsia.reports.html.elements import numbers, paragraph
from intarsia.reports.html.page import Report, Section, page
from intarsia.reports.html.words import capital, counted, listed, mean, nats, percent, spread
from intarsia.reports.modules.cards import cards, own_scores
from intarsia.reports.modules.figure_set import FigureSet
from intarsia.reports.modules.measurements import Measured, label_of
from intarsia.reports.modules.merged import (
    alone,
    apart,
    asked,
    best_of,
    joined,
    name_of,
    one_by_one,
    overview,
    reached,
    taken_out,
)
from intarsia.reports.modules.pairwise import fits, way
from intarsia.reports.modules.report_input import ReportInput, Source, subject_of
from intarsia.reports.modules.reproduce import again
from intarsia.reports.modules.trained import health, papers, trained

UNSURE = ("me", "qme", "other")  # objectives that ask for no answer to what is not rewarded


def modules_report(
    artifact: Source,
    data: str | Data | None = None,
    *,
    title: str | None = None,
    compare: Mapping[str, Module | Composition] | None = None,
    sections: Sequence[Section] = (),
    rows: int | None = None,
    data_options: Mapping[str, Any] | None = None,
    model: Model | None = None,
) -> Report:
    """The report of modules; arguments are those of `intarsia.report`."""
    subject = subject_of(artifact, data, compare, rows, data_options, model)
    measured = Measured(subject) if subject.data is not None else None
    drawn = FigureSet()
    scores = {} if measured is None else measured.single
    split = None if measured is None else measured.split
    modules, pictures = cards(subject.together, subject.others, scores, split)
    parts = [*health(subject), _glance(subject, measured, drawn), trained(subject), modules]
    if pictures:
        drawn.figures["weights"] = weights(pictures)
    if measured is not None:
        parts += _found(measured, drawn)
    parts += [*sections, again(subject, measured)]
    html = page(title or _title(subject), _lead(subject, measured), parts, _made(subject))
    return Report(html, drawn.figures)


def _found(measured: Measured, drawn: FigureSet) -> list[Section]:
    """What can be told of modules together, as far as they can be joined and compared."""
    parts = []
    if len(measured.subject.together) > 1:
        if measured.joined:
            parts += [joined(measured, drawn), one_by_one(measured, drawn)]
        else:
            parts.append(apart(measured))
        if measured.without:
            parts.append(taken_out(measured))
        if measured.matrix is not None:
            parts.append(fits(measured, drawn))
        if measured.path is not None:
            parts.append(way(measured, drawn))
    cells = papers(measured)
    return [*parts, cells] if cells else parts


def _title(subject: ReportInput) -> str:
    modules = subject.modules
    if subject.merged is not None:
        return f"{capital(counted(len(modules), 'module'))} joined by {label_of(subject.merged)}"
    if len(modules) == 1:
        return f"A module for {listed(modules[0].rewarded)}"
    return f"{capital(counted(len(modules), 'module'))} trained on {subject.data_name}"


def _lead(subject: ReportInput, measured: Measured | None) -> str:
    accuracy, entropy, ceiling = _means(subject, measured)
    many = len(subject.modules) > 1
    which = "test" if measured is not None else "validation"
    words = (
        f"{_goal(subject)} {'On average they are' if many else 'It is'} right on "
        f"{percent(accuracy)} of {'their' if many else 'its'} own {which} samples"
    )
    if not math.isnan(entropy):  # which it is where every class is rewarded
        words += (
            f" and {'keep' if many else 'keeps'} {nats(entropy)} of at most {nats(ceiling)} nats "
            "of entropy on the rest"
        )
    words += "."
    if measured is not None and len(subject.together) > 1 and measured.joined:
        best = best_of(measured)
        who = ", those of a seed" if subject.others else " they"
        words += (
            f" Joined without training{who} are right on {reached(measured, best)} of "
            f"{asked(measured.joined[best])}."
        )
    return words


def _goal(subject: ReportInput) -> str:
    """What the modules were trained for, by their objective."""
    who = "Each module was" if len(subject.modules) > 1 else "The module was"
    rewarded, goal = subject.modules[0].rewarded, str(subject.recipe.get("objective") or "me")
    if len(rewarded) == len(subject.catalogue):
        return f"{who} trained for all {counted(len(rewarded), 'class', 'classes')}."
    own = "its own class" if len(rewarded) == 1 else "its own classes"
    if goal in UNSURE:
        return f"{who} trained to be sure of {own} and to know nothing about all others."
    return f"{who} trained for {own} by the objective {goal}."


def _glance(subject: ReportInput, measured: Measured | None, drawn: FigureSet) -> Section:
    accuracy, entropy, ceiling = _means(subject, measured)
    density = mean(module.density for module in subject.modules)
    which = "test" if measured is not None else "validation"
    classes, many = counted(len(subject.catalogue), "class", "classes"), len(subject.modules) > 1
    tiles = [
        (str(len(subject.modules)), f"module{'s' * many} over a catalogue of {classes}"),
        (percent(accuracy), f"of {'their' if many else 'its'} own {which} samples answered right"),
        (f"{nats(entropy)} nats", f"of entropy on all others, of at most {nats(ceiling)}"),
        (percent(density), "of the parameters kept"),
    ]  # fmt: skip
    tiles = [tile for tile in tiles if not tile[0].startswith("-")]  # means over nothing
    picture, opening = "", _without_data(subject)
    if measured is not None:
        opening = f"The numbers are of {len(measured.split):,} test samples."
        if len(subject.together) > 1:
            tiles += [_tile(operator, scores) for operator, scores in measured.seeded.items()]
            picture = overview(measured, drawn)
            if picture:
                opening += " The picture shows what they answer, each alone and all of them joined."
        else:
            picture = alone(measured, drawn)
            opening += " The picture counts what it answers"
            opening += "." if math.isnan(entropy) else "; where it is unsure, that is by chance."
    body = f"{paragraph(opening)}\n{numbers(tiles)}\n{picture}"
    return Section("glance", "At a glance", body)


def _tile(operator: str, scores: Sequence[Evaluation]) -> tuple[str, str]:
    seeds = f", of {counted(len(scores), 'seed')}" if len(scores) > 1 else ""
    return spread([s.accuracy for s in scores]), f"right when joined: {name_of(operator)}{seeds}"


def _without_data(subject: ReportInput) -> str:
    return (
        f"The data set is not at hand ({subject.missing}), so this page has what the files say: "
        "scores on validation data from the time of training. With the data it also shows what "
        "the modules are together."
    )


def _means(subject: ReportInput, measured: Measured | None) -> tuple[float, float, float]:
    scores = {} if measured is None else measured.single
    each = [own_scores(module, scores.get(module.name)) for module in subject.modules]
    return mean(a for a, _, _ in each), mean(e for _, e, _ in each), each[0][2]


def _made(subject: ReportInput) -> dict[str, str]:
    paths = listed([str(path) for path in subject.paths])
    return {
        **({"Made of": paths} if paths else {}),
        "Modules": listed([module.digest[:12] for module in subject.modules]),
        "Made by": f"intarsia {__version__}",
    }
