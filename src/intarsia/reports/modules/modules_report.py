"""The report of a bank, a composition or modules: title, lead, the registered sections, foot."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from intarsia import __version__
from intarsia.composition import Composition
from intarsia.data import Data
from intarsia.models import Model
from intarsia.modules import Module
from intarsia.objectives import OBJECTIVES
from intarsia.reports.html.page import Report, Section, page
from intarsia.reports.html.words import capital, counted, listed, nats, percent

# Each of these files registers its sections.
from intarsia.reports.modules import (  # noqa: F401
    cards,
    layered,
    overview,
    pairwise,
    probed,
    reproduce,
    trained,
)
from intarsia.reports.modules.measurements import label_of
from intarsia.reports.modules.merged import best_of, joined_accuracy, samples_of
from intarsia.reports.modules.report_input import ReportInput, Source, subject_of
from intarsia.reports.modules.sections import ReportContext, sections_of
from intarsia.specs import name_of


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
    probe: bool = False,
) -> Report:
    """The report of modules; arguments are those of `intarsia.report`."""
    inputs = subject_of(artifact, data, compare, rows, data_options, model, probe)
    context = ReportContext(inputs)
    parts = sections_of(context, sections)
    html = page(title or _title(inputs), _lead(context), parts, _made_of(inputs))
    return Report(html, context.figures)


def _title(inputs: ReportInput) -> str:
    modules = inputs.modules
    if inputs.merged is not None:
        return f"{capital(counted(len(modules), 'module'))} joined by {label_of(inputs.merged)}"
    if len(modules) == 1:
        return f"A module for {listed(modules[0].rewarded)}"
    title = capital(counted(len(modules), "module"))
    if not inputs.recipe:
        return title if inputs.data is None else f"{title} measured on {inputs.data_name}"
    return f"{title} trained on {inputs.data_name}"


def _lead(context: ReportContext) -> str:
    inputs, scores = context.inputs, context.mean_scores(context.inputs.modules)
    many = len(inputs.modules) > 1
    text = (
        f"{_goal(inputs)} {'On average they are' if many else 'It is'} right on "
        f"{percent(scores.accuracy)} of {'their' if many else 'its'} own {context.split_name} "
        "samples"
    )
    if not math.isnan(scores.entropy):  # which it is where every class is rewarded
        text += (
            f" and {'keep' if many else 'keeps'} {nats(scores.entropy)} of at most "
            f"{nats(scores.ceiling)} nats of entropy on the rest"
        )
    text += "."
    if context.has_data and len(inputs.together) > 1 and context.measured.joined:
        best = best_of(context.measured)
        who = ", those of one seed" if inputs.others else " they"
        text += (
            f" Joined without training{who} are right on {joined_accuracy(context.measured, best)} "
            f"of {samples_of(context.measured.joined[best])}."
        )
    return text


def _goal(inputs: ReportInput) -> str:
    """What the modules were trained for."""
    who = "Each module was" if len(inputs.modules) > 1 else "The module was"
    rewarded = inputs.modules[0].rewarded
    if len(rewarded) == len(inputs.catalogue):
        return f"{who} trained for all {counted(len(rewarded), 'class', 'classes')}."
    own = "its own class" if len(rewarded) == 1 else "its own classes"
    if not inputs.recipe:
        return f"{who} trained elsewhere, for {own}."
    goal = inputs.recipe.get("objective") or "me"
    entry = OBJECTIVES.get(name_of(goal))  # None where it is not registered here
    if entry is not None and entry.uncertain_elsewhere:
        return f"{who} trained to be sure of {own} and to know nothing about all others."
    return f"{who} trained for {own} with the objective {goal}."


def _made_of(inputs: ReportInput) -> dict[str, str]:
    """The foot of the page."""
    paths = listed([str(path) for path in inputs.paths])
    return {
        **({"Made of": paths} if paths else {}),
        "Modules": listed([module.digest[:12] for module in inputs.modules]),
        "Made by": f"intarsia {__version__}",
    }
