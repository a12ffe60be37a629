"""From what is switched on to what is shown: plain values in, pieces of the page out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from intarsia.composition import OPERATORS
from intarsia.errors import IntarsiaError
from intarsia.measure import Evaluation
from intarsia.measure.evaluation import one_answer
from intarsia.plots import svg
from intarsia.specs import Spec
from intarsia.studio.answers import Sample, each_answer, sample, taken_out, whole_answer
from intarsia.studio.drawing import Paper, read_drawing
from intarsia.studio.scores import switched
from intarsia.studio.session import Session
from intarsia.studio.ui import pieces
from intarsia.studio.ui.operator_controls import about, spec_of

NOTHING = "<div class='figure'><h2>{}</h2><p class='big'>-</p></div>"

Shown = tuple[tuple[str, ...], str]  # names that are on, and the operator


@dataclass(frozen=True)
class Choice:
    """What a page has switched on: modules, and an operator with the values of its controls."""

    names: tuple[str, ...]
    operator: str
    values: Mapping[str, Any]

    @property
    def spec(self) -> Spec:
        return spec_of(self.operator, self.values)


@dataclass(frozen=True)
class Seen:
    """The sample that is looked at: a test sample's number, or a drawing as the page sends it."""

    number: float | None = 0
    drawing: str = ""


@dataclass(frozen=True)
class Joined:
    """What is shown of the whole."""

    confusion: str
    accuracy: str
    entropy: str
    change: str
    said: str
    shown: Shown | None  # what the next switch is compared with


@dataclass(frozen=True)
class Looked:
    """What is shown of one sample."""

    picture: str
    merged: str
    each: str
    said: str


class Views:
    """What a session shows; errors of ours become words on the page."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.paper = Paper.of(session.data)
        x = session.data.train.x
        self.bounds = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)

    def joined(self, choice: Choice, before: Shown | None) -> Joined:
        """The whole's figures, and what changed since the ones shown before."""
        try:
            spec = choice.spec
            score = self.session.score(choice.names, spec)
        except IntarsiaError as error:
            return self._blank(choice, before, str(error))
        now = (tuple(sorted(choice.names)), str(spec))
        change = pieces.first_figure()
        if before is not None and before != now:
            done = switched(before[0], now[0], (before[1], now[1]), self.session.names)
            change = pieces.change_figure(done, self._score(before), score)
        count = len(choice.names)
        ways = "".join(f", {word}" for word in self.around(spec))
        title = f"{count} {'module' if count == 1 else 'modules'}, {spec}{ways}"
        dead = [f"{finding.kind}: {finding.message}" for finding in one_answer({title: score})]
        return Joined(
            pieces.confusion_picture(score, title),
            pieces.accuracy_figure(score),
            pieces.entropy_figure(score),
            change,
            pieces.message("; ".join(dead), bad=True),
            now,
        )

    def _blank(self, choice: Choice, before: Shown | None, error: str) -> Joined:
        """No figures; with nothing on, that is what the next switch is compared with."""
        blank = [NOTHING.format(title) for title in ("Accuracy", "Entropy", "Last switch")]
        shown = before
        if not choice.names and before is not None:
            shown = ((), before[1])
            done = switched(before[0], (), None, self.session.names)
            blank[2] = blank[2].replace("Last switch", f"Last switch: {escape(done or 'all off')}")
        said = pieces.message(error, bad=True)
        return Joined("", blank[0], blank[1], blank[2], said, shown)

    def _score(self, shown: Shown) -> Evaluation | None:
        """What was shown before; None where that was nothing, or one of its modules is gone."""
        there = shown[0] and set(shown[0]) <= set(self.session.names)
        return self.session.score(*shown) if there else None

    def around(self, operator: str | Spec) -> list[str]:
        """What a composition has done around its operator, in words."""
        _, options = self.session.around(operator)
        done = [f"aligned by {options.align}"] if options.align else []
        done += ["calibrated"] if options.calibrate else []
        return done + ([] if options.recalibrate else ["BatchNorm averaged"])

    def about(self, operator: str) -> str:
        """What an operator does, and what the composition has done around it."""
        done = self.around(operator)
        return about(operator) + (f" As in the composition: {', '.join(done)}." if done else "")

    def looked(self, choice: Choice, seen: Seen, without: str) -> Looked:
        """One sample: what the network is given, what each module says, what they say together."""
        try:
            result, title, about = self._sample(seen)
        except IntarsiaError as error:
            return Looked("", "", "", pieces.message(str(error), bad=True))
        picture = pieces.seen_picture(result.x, title, about, self.bounds)
        each = pieces.answer_rows(each_answer(self.session, result), choice.names)
        answers, said = {}, ""
        try:
            spec = choice.spec
            answers["together"] = whole_answer(self.session, result, choice.names, spec)
            if without:
                gone = taken_out(self.session, choice.names, without)
                title = f"without module{'s' if len(gone) > 1 else ''} {', '.join(gone)}"
                answers[title] = whole_answer(self.session, result, choice.names, spec, without)
                said = pieces.message(self._still(choice.names, gone, without))
        except IntarsiaError as error:
            said = pieces.message(str(error), bad=True)
        return Looked(picture, pieces.whole_bars(answers, result.label), each, said)

    def _still(self, names: Sequence[str], gone: Sequence[str], without: str) -> str:
        """Which modules recognise a class, together with others, though it was taken out."""
        left = [n for n in names if n not in gone and without in self.session[n].rewarded]
        return f"{', '.join(left)} recognises {without!r} still, with others" if left else ""

    def path(self, a: str, b: str) -> str:
        """The walk between two modules, drawn."""
        try:
            way = self.session.path(a, b)
        except IntarsiaError as error:
            return pieces.message(str(error), bad=True)
        verdict = "connected" if way.connected else "not connected"
        words = (
            f"The loss rises at most {way.barrier:.2f}% above the straight line: {verdict} "
            "at the usual 2%. In the middle the weights of both are added. Measured on "
            + " and ".join(f"{curve.n:,} {split}" for split, curve in way.curves.items())
            + " samples."
        )
        return f"<p>{words}</p><div class='picture wide'>{svg(way.figure())}</div>"

    def matrix(self, measure: str, chosen: tuple[str, str] | None) -> str:
        try:
            matrix = self.session.matrix()
            out = [name for name in self.session.names if name not in matrix.names]
            note = f"Not in it, since weights of another kind cannot be compared: {', '.join(out)}."
            return pieces.matrix_table(matrix, measure, chosen, note if out else "")
        except IntarsiaError as error:
            return pieces.message(str(error), bad=True)

    def tiles(self) -> list[tuple[str, str]]:
        """What stands on each tile, and the module it is for."""
        return [(pieces.tile(card), card.name) for card in self.session.cards]

    def classes(self) -> list[tuple[str, str]]:
        """What can be taken out: nothing, or a class that some module rewards."""
        known = {name for module in self.session.modules for name in module.rewarded}
        return [("nothing", ""), *((c, c) for c in self.session.catalogue if c in known)]

    def operators(self) -> list[str]:
        return sorted(OPERATORS)

    def _sample(self, seen: Seen) -> tuple[Sample, str, str]:
        """The sample, which it is, and what there is to say of it."""
        if seen.drawing and self.paper is not None:
            x = self.paper.fit(read_drawing(seen.drawing))
            return Sample(x), "your drawing", pieces.DRAWN
        result = sample(self.session, seen.number)
        return result, f"test sample {result.number}", f"class {result.label}"
