"""From what is switched on to what is shown: plain values in, fragments of the page out."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from intarsia.composition import OPERATORS
from intarsia.errors import IntarsiaError
from intarsia.measure import Evaluation
from intarsia.measure.evaluation import one_answer
from intarsia.plots import svg
from intarsia.specs import Spec
from intarsia.studio.answers import (
    Sample,
    layer_entropies,
    merged_answer,
    module_answers,
    removable_modules,
    sample_at,
)
from intarsia.studio.drawing import DrawingScaler, read_drawing
from intarsia.studio.encoder_inputs import EncodedInput, InputReader
from intarsia.studio.scores import describe_switch
from intarsia.studio.session import Session
from intarsia.studio.ui import fragments
from intarsia.studio.ui.operator_controls import about, spec_of

Shown = tuple[tuple[str, ...], str]
"""The names of the modules that are on, and the operator."""


@dataclass(frozen=True)
class Selection:
    """The modules that a page has on, and its operator with the values of its controls."""

    names: tuple[str, ...]
    operator: str
    values: Mapping[str, Any]

    @property
    def spec(self) -> Spec:
        return spec_of(self.operator, self.values)


@dataclass(frozen=True)
class SampleRequest:
    """The sample to look at: the number of a test sample, or what takes its place.

    That is a drawing as the page sends it, or a picture or text that was encoded when it came, so
    that a switch of modules encodes nothing.
    """

    number: float | None = 0
    drawing: str = ""
    given: EncodedInput | None = None


class MergedView(NamedTuple):
    """What is shown of the modules joined."""

    confusion: str
    accuracy: str
    entropy: str
    change: str
    message: str
    shown: Shown | None  # what the next switch is compared with


class SampleView(NamedTuple):
    """What is shown of one sample, in the order of its places on the page."""

    picture: str
    merged: str
    each: str
    message: str


class Views:
    """What the page shows of a session; errors of ours become messages on it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.scaler = DrawingScaler.of(session.data)
        self.reader = InputReader.of(session.modules)
        x = session.data.train.x
        self.bounds = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)

    def of(self, session: Session) -> "Views":
        """The same page of another session with these data."""
        views = copy(self)
        views.session = session
        return views

    def merged_view(self, selection: Selection, before: Shown | None) -> MergedView:
        """The numbers of the modules joined, and what changed since those shown before."""
        try:
            spec = selection.spec
            score = self.session.score(selection.names, spec)
        except IntarsiaError as error:
            return self._blank(selection, before, str(error))
        now = (tuple(sorted(selection.names)), str(spec))
        change = fragments.no_change()
        if before is not None and before != now:
            switch = describe_switch(before[0], now[0], (before[1], now[1]), self.session.names)
            change = fragments.change_summary(switch, self._score(before), score)
        count = len(selection.names)
        steps = "".join(f", {step}" for step in self.merge_steps(spec))
        title = f"{count} {'module' if count == 1 else 'modules'}, {spec}{steps}"
        dead = [f"{finding.kind}: {finding.message}" for finding in one_answer({title: score})]
        return MergedView(
            fragments.confusion_picture(score, title),
            fragments.accuracy_number(score),
            fragments.entropy_number(score),
            change,
            fragments.message("; ".join(dead), bad=True),
            now,
        )

    def _blank(self, selection: Selection, before: Shown | None, error: str) -> MergedView:
        """No numbers; with nothing on, that is what the next switch is compared with."""
        shown, change = before, "Last switch"
        if not selection.names and before is not None:
            shown = ((), before[1])
            switch = describe_switch(before[0], (), None, self.session.names)
            change = f"Last switch: {switch or 'all off'}"
        accuracy, entropy, last = map(fragments.blank_number, ("Accuracy", "Entropy", change))
        message = fragments.message(error, bad=True)
        return MergedView("", accuracy, entropy, last, message, shown)

    def _score(self, shown: Shown) -> Evaluation | None:
        """What was shown before; None where that was nothing, or one of its modules is gone."""
        is_there = shown[0] and set(shown[0]) <= set(self.session.names)
        return self.session.score(*shown) if is_there else None

    def merge_steps(self, operator: str | Spec) -> list[str]:
        """What is done around an operator, as in the composition that was opened."""
        _, options = self.session.merge_options(operator)
        steps = [f"aligned by {options.align}"] if options.align else []
        steps += ["calibrated"] if options.calibrate else []
        return steps + ([] if options.recalibrate else ["BatchNorm averaged"])

    def about(self, operator: str) -> str:
        """What an operator does, and what is done around it."""
        steps = self.merge_steps(operator)
        return about(operator) + (f" As in the composition: {', '.join(steps)}." if steps else "")

    def sample_view(self, selection: Selection, request: SampleRequest, without: str) -> SampleView:
        """One sample: what the network sees, what each module answers, and all of them joined."""
        try:
            sample, picture = self._sample(request)
        except IntarsiaError as error:
            return SampleView("", "", "", fragments.message(str(error), bad=True))
        each = fragments.answer_rows(module_answers(self.session, sample), selection.names)
        answers, message = {}, ""
        try:
            spec = selection.spec
            answers["joined"] = merged_answer(self.session, sample, selection.names, spec)
            if without:
                removed = removable_modules(self.session, selection.names, without)
                title = f"without module{'s' if len(removed) > 1 else ''} {', '.join(removed)}"
                answers[title] = merged_answer(self.session, sample, selection.names, spec, without)
                message = fragments.message(self._still(selection.names, removed, without))
        except IntarsiaError as error:
            message = fragments.message(str(error), bad=True)
        return SampleView(picture, fragments.merged_bars(answers, sample.label), each, message)

    def layers_view(self, wanted: bool, request: SampleRequest, names: Sequence[str]) -> str:
        """How unsure the layers of the surest modules are of a sample; empty where not wanted."""
        if not wanted:
            return ""
        try:
            sample, _ = self._sample(request)
            found = layer_entropies(self.session, sample, names)
        except IntarsiaError as error:
            return fragments.message(str(error), bad=True)
        return fragments.layer_picture(found, len(self.session.catalogue))

    def _still(self, names: Sequence[str], removed: Sequence[str], without: str) -> str:
        """Which modules recognise a class, together with others, though it was taken out."""
        left = [n for n in names if n not in removed and without in self.session[n].rewarded]
        return f"{', '.join(left)} still recognises {without!r}, with others" if left else ""

    def path(self, a: str, b: str) -> str:
        """The path between two modules, drawn."""
        try:
            path = self.session.path(a, b)
        except IntarsiaError as error:
            return fragments.message(str(error), bad=True)
        verdict = "connected" if path.connected else "not connected"
        text = (
            f"The loss rises at most {path.barrier:.2f}% above the straight line: {verdict} "
            "at the usual 2%. In the middle the weights of both are added. Measured on "
            + " and ".join(f"{curve.n:,} {split}" for split, curve in path.curves.items())
            + " samples."
        )
        scrolls = "tabindex='0' role='group' aria-label='Charts of the path'"  # on a phone
        return f"<p>{text}</p><div class='picture wide' {scrolls}>{svg(path.figure())}</div>"

    def matrix(self, measure: str, chosen: tuple[str, str] | None) -> str:
        try:
            matrix = self.session.matrix()
            missing = [name for name in self.session.names if name not in matrix.names]
            note = f"Left out, since their weights cannot be compared: {', '.join(missing)}."
            return fragments.matrix_table(matrix, measure, chosen, note if missing else "")
        except IntarsiaError as error:
            return fragments.message(str(error), bad=True)

    def tiles(self) -> list[tuple[str, str]]:
        """The text of each tile, and the module it is for."""
        return [(fragments.tile(tile), tile.name) for tile in self.session.tiles]

    def classes(self) -> list[tuple[str, str]]:
        """What can be taken out: nothing, or a class that some module rewards."""
        known = {name for module in self.session.modules for name in module.rewarded}
        return [("nothing", ""), *((c, c) for c in self.session.catalogue if c in known)]

    def operators(self) -> list[str]:
        return sorted(OPERATORS)

    def _sample(self, request: SampleRequest) -> tuple[Sample, str]:
        """The sample, and what is shown of it."""
        if request.given is not None:
            return Sample(request.given.features), fragments.given_input(request.given)
        if request.drawing and self.scaler is not None:
            x = self.scaler.transform(read_drawing(request.drawing))
            about = ("your drawing", fragments.DRAWN, self.bounds, "drawing")
            return Sample(x), fragments.seen_picture(x, *about)
        asked = sample_at(self.session, request.number)
        encoder = None if self.reader is None else self.reader.encoder
        return asked, fragments.sample_picture(asked, self.bounds, encoder)
