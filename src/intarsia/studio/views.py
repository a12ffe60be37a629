"""From what is switched on to what is shown: plain values in, pieces of the page out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from intarsia.composition import OPERATORS
from intarsia.errors import IntarsiaError
from intarsia.specs import Spec
from intarsia.studio import pieces
from intarsia.studio.answers import Sample, each_answer, sample, taken_out, whole_answer
from intarsia.studio.controls import spec_of
from intarsia.studio.drawing import Paper, read_drawing
from intarsia.studio.scores import switched
from intarsia.studio.session import Session

NOTHING = "<div class='figure'><h2>{}</h2><p class='big'>-</p></div>"


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
    shown: tuple[tuple[str, ...], str] | None  # what the next switch is compared with


@dataclass(frozen=True)
class Looked:
    """What is shown of one sample."""

    picture: str
    whole: str
    each: str
    said: str


class Views:
    """What a session shows; errors of ours become words on the page."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.paper = Paper.of(session.data)
        x = session.data.train.x
        self.bounds = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)

    def joined(self, choice: Choice, before: tuple[tuple[str, ...], str] | None) -> Joined:
        """The whole's figures, and what changed since the ones shown before."""
        try:
            spec = choice.spec
            score = self.session.score(choice.names, spec)
        except IntarsiaError as error:
            blank = [NOTHING.format(title) for title in ("Accuracy", "Entropy", "Last switch")]
            said = pieces.message(str(error), bad=True)
            return Joined("", blank[0], blank[1], blank[2], said, before)
        now = (tuple(sorted(choice.names)), str(spec))
        change = pieces.first_figure()
        if before is not None and before != now:
            done = switched(before[0], now[0], (before[1], now[1]))
            change = pieces.change_figure(done, self.session.score(*before), score)
        count = len(choice.names)
        title = f"{count} {'module' if count == 1 else 'modules'}, {spec}"
        return Joined(
            pieces.confusion_picture(score, title),
            pieces.accuracy_figure(score),
            pieces.entropy_figure(score),
            change,
            "",
            now,
        )

    def looked(self, choice: Choice, seen: Seen, without: str) -> Looked:
        """One sample: what the network is given, what each module says, what they say together."""
        try:
            found, words = self._sample(seen)
        except IntarsiaError as error:
            return Looked("", "", "", pieces.message(str(error), bad=True))
        picture = pieces.seen_picture(found.x, words, self.bounds)
        each = pieces.answer_rows(each_answer(self.session, found), choice.names)
        answers, said = {}, ""
        try:
            spec = choice.spec
            answers["together"] = whole_answer(self.session, found, choice.names, spec)
            if without and any(without in self.session[n].rewarded for n in choice.names):
                title = f"without module {taken_out(self.session, choice.names, without)}"
                answers[title] = whole_answer(self.session, found, choice.names, spec, without)
        except IntarsiaError as error:
            said = pieces.message(str(error), bad=True)
        return Looked(picture, pieces.whole_bars(answers, found.label), each, said)

    def path(self, a: str, b: str) -> str:
        """The walk between two modules, drawn."""
        try:
            way = self.session.path(a, b)
        except IntarsiaError as error:
            return pieces.message(str(error), bad=True)
        verdict = "connected" if way.connected else "not connected"
        words = (
            f"The loss rises at most {way.barrier:.2f}% above the straight line: {verdict} "
            "at the usual 2%. In the middle the weights of both are added."
        )
        return f"<p>{words}</p><div class='picture wide'>{way.figure()}</div>"

    def matrix(self, measure: str, chosen: tuple[str, str] | None) -> str:
        try:
            return pieces.matrix_table(self.session.matrix(), measure, chosen)
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

    def _sample(self, seen: Seen) -> tuple[Sample, str]:
        """The sample, and what it is in words."""
        if seen.drawing and self.paper is not None:
            x = self.paper.fit(read_drawing(seen.drawing))
            return Sample(x), f"Your drawing as the network sees it, {_size(x)}"
        found = sample(self.session, seen.number)
        return found, f"Test sample {found.number}, class {found.label}, {_size(found.x)}"


def _size(x: Tensor) -> str:
    shape = tuple(x.shape[1:])
    if len(shape) == 3:
        return f"{shape[2]} by {shape[1]} pixels"
    return f"{x[0].numel()} numbers"
