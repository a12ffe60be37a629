"""What every module, and all of them joined, answer for one sample."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from intarsia.errors import CompositionError, DataError
from intarsia.modules import Module, logits_of
from intarsia.modules.classifier import uncertainty
from intarsia.specs import Spec
from intarsia.studio.session import Session

UNSURE = 0.95  # fraction of the largest entropy


@dataclass(frozen=True, eq=False)
class Answer:
    """A distribution over the catalogue."""

    name: str
    catalogue: tuple[str, ...]
    probabilities: np.ndarray  # C
    entropy: float  # as a fraction of log C: 0 is certain, 1 is uniform

    @property
    def best(self) -> str:
        """The most probable class."""
        return self.catalogue[int(self.probabilities.argmax())]

    @property
    def unsure(self) -> bool:
        """Whether it is nearly uniform, as it should be for classes that are off."""
        return self.entropy > UNSURE

    @property
    def confidence(self) -> float:
        """The probability of the best class."""
        return float(self.probabilities.max())


@dataclass(frozen=True, eq=False)
class Sample:
    """One input, 1 x *shape: a test sample with its number and class, or another with neither."""

    x: Tensor
    number: int | None = None
    label: str | None = None


def sample_at(session: Session, number: float | None) -> Sample:
    """A test sample by its number, from 0."""
    count = len(session.test)
    if number is None or number != int(number) or not 0 <= number < count:
        which = "no number is given" if number is None else f"there is no sample {number:g}"
        raise DataError(f"{which}: give a whole number from 0 to {count - 1}")
    place = int(number)
    label = session.catalogue[int(session.test.y[place])]
    return Sample(session.test.x[place : place + 1], place, label)


def module_answers(session: Session, asked: Sample) -> list[Answer]:
    """What each module alone answers for a sample."""
    answers = []
    for module in session.modules:
        if asked.number is None:
            logits = logits_of(module.to_module(), asked.x)
        else:
            logits = session.logits(module.name)[asked.number][None]
        answers.append(_answer(module.name, logits, module))
    return answers


def layer_entropies(
    session: Session, asked: Sample, names: Sequence[str], most: int = 3
) -> dict[str, dict[str, float]]:
    """Of the surest of these modules, how unsure each layer is of a sample, in nats."""
    if not names:
        raise CompositionError("no module is on: switch at least one on")
    answers = [answer for answer in module_answers(session, asked) if answer.name in names]
    surest = sorted(answers, key=lambda answer: answer.entropy)[:most]
    found = {}
    for answer in surest:
        lens = session.lens(answer.name)
        values = lens.entropies(asked.x)[:, 0].tolist()
        found[answer.name] = dict(zip(lens.layers, values, strict=True))
    return found


def merged_answer(
    session: Session,
    asked: Sample,
    names: Sequence[str],
    operator: str | Spec,
    without: str = "",
) -> Answer:
    """What the modules of these names answer joined; `without` takes out those of a class."""
    if without:
        removed = removable_modules(session, names, without)
        names = [name for name in names if name not in removed]
        if not names:
            raise CompositionError(f"without {without!r} no module is left: switch another one on")
    if asked.number is None:
        logits = logits_of(session.merged(names, operator), asked.x)
    else:
        logits = session.joined_logits(names, operator)[asked.number][None]
    return _answer("all modules", logits, session[names[0]])


def removable_modules(session: Session, names: Sequence[str], without: str) -> tuple[str, ...]:
    """The modules that recognise this class and no other; an error where there are none."""
    knowing = [name for name in names if without in session[name].rewarded]
    alone = tuple(name for name in knowing if len(session[name].rewarded) == 1)
    if not knowing:
        raise CompositionError(f"no module that is on recognises {without!r}: it is out already")
    if not alone:
        raise CompositionError(
            f"class {without!r} cannot be taken out alone, module {knowing[0]!r} recognises it "
            f"together with others: switch {knowing[0]!r} off"
        )
    return alone


def next_sample(session: Session, name: str, after: float | None) -> int:
    """The number of the next test sample of a class, or of any; the first follows the last."""
    start = -1 if after is None else int(after)
    if not name:
        return (start + 1) % len(session.test)
    places = (session.test.y == session.catalogue.index(name)).nonzero().flatten()
    if not len(places):
        raise DataError(f"the test split has no sample of class {name!r}: choose another")
    later = places[places > start]
    return int(later[0] if len(later) else places[0])


def _answer(name: str, logits: Tensor, like: Module) -> Answer:
    p = torch.softmax(logits.double() / like.temperature, dim=1)[0].numpy()
    return Answer(name, like.catalogue, p, float(uncertainty(logits, like.temperature)[0]))
