"""Sections of the modules' report: a registry, and what each section is made from.

A section of your own is a function of the context that returns HTML, registered before `report`:

    @section("sizes", "Sizes", order=35)
    def sizes(context):
        rows = [[module.name, module.nonzero] for module in context.inputs.modules]
        return table(["module", "parameters"], rows, "Parameters that each module keeps")
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from matplotlib.figure import Figure

from intarsia.modules import Module
from intarsia.plots import svg
from intarsia.reports.html.elements import figure
from intarsia.reports.html.page import Section
from intarsia.reports.html.words import mean
from intarsia.reports.modules.measurements import Measurements
from intarsia.reports.modules.report_input import ReportInput
from intarsia.specs import Registry

GIVEN = 100.0  # the order of sections that are given to `report`: before the commands at the end

SECTIONS = Registry("section", given=("context",), title="", order=GIVEN, needs_data=False)
"""Sections of the modules' report by key; `@section(...)` adds one, or replaces that of its key."""


@dataclass(frozen=True)
class OwnScores:
    """How a module does alone: on test samples, or on validation samples as its file says."""

    accuracy: float  # on its own classes
    entropy: float  # on all others, in nats; nan where there are none
    ceiling: float  # the largest entropy there is


@dataclass(eq=False)
class ReportContext:
    """What a section is made from: the modules, what is measured, and the figures so far."""

    inputs: ReportInput
    figures: dict[str, Figure] = field(default_factory=dict)  # by name, in page order

    @property
    def has_data(self) -> bool:
        return self.inputs.data is not None

    @cached_property
    def measured(self) -> Measurements:
        """Scores on the data; for sections that need it."""
        return Measurements(self.inputs)

    @property
    def split_name(self) -> str:
        """Which samples the modules' own scores are of."""
        return "test" if self.has_data else "validation"

    def own_scores(self, module: Module) -> OwnScores:
        if self.has_data:
            score = self.measured.single[module.name]
            return OwnScores(score.accuracy, score.entropy, score.ceiling)
        stored = (module.provenance.get("scores") or {}).get("validation") or {}
        accuracy, entropy = (
            math.nan if stored.get(key) is None else float(stored[key])
            for key in ("accuracy", "entropy")
        )
        return OwnScores(accuracy, entropy, math.log(len(module.catalogue)))

    def mean_scores(self, modules: Iterable[Module]) -> OwnScores:
        """The means over modules, of the values that are known."""
        scores = [self.own_scores(module) for module in modules]
        return OwnScores(
            mean(s.accuracy for s in scores), mean(s.entropy for s in scores), scores[0].ceiling
        )

    def figure(self, name: str, drawn: Figure, caption: str, label: str) -> str:
        """Keep a figure for a file of its own and give its HTML, as `elements.figure` does."""
        self.figures[name] = drawn
        return figure(svg(drawn), caption, label, name=name)


def section(
    key: str, title: str, *, order: float, needs_data: bool = False
) -> Callable[[Callable[..., str | None]], Callable[..., str | None]]:
    """Register a function of the ReportContext that returns HTML, or None to leave itself out.

    `key` is the anchor on the page. Sections are sorted by `order`: intarsia's own are tens, and
    the commands at the end are above GIVEN. One that `needs_data` is left out where there is none.
    """
    return SECTIONS.register(key, title=title, order=order, needs_data=needs_data)


def sections_of(context: ReportContext, given: Sequence[Section] = ()) -> list[Section]:
    """All sections that have something to show, in their order, with those that are given."""
    shown: list[tuple[float, Section]] = []
    for entry in sorted(SECTIONS.values(), key=lambda entry: float(entry.order)):
        body = entry(context) if context.has_data or not entry.needs_data else None
        if body:
            shown.append((entry.order, Section(entry.name, entry.title, body)))
    shown += [(GIVEN, section) for section in given]
    return [section for _, section in sorted(shown, key=lambda pair: pair[0])]
