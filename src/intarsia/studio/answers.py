"""What every module, and what they together, answer for one sample."""

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

UNSURE = 0.95  # of the largest entropy


@dataclass(frozen=True, eq=False)
class Answer:
    """A distribution over the catalogue."""

    name: str
    catalogue: tuple[str, ...]
    probabilities: np.ndarray  # C
    entropy: float  # as a share of log C: 0 is sure, 1 is uniform

    @property
    def best(self) -> str:
        """The most probable class."""
        return self.catalogue[int(self.probabilities.argmax())]

    @property
    def unsure(self) -> bool:
        """Whether it is as good as no answer, which is what classes that are off should get."""
        return self.entropy > UNSURE

    @property
    def sureness(self) -> float:
        """Its probability."""
        return float(self.probabilities.max())


@dataclass(frozen=True, eq=False)
class Sample:
    """One input, 1 x *shape: a test sample with its number and class, or a drawing with neither."""

    x: Tensor
    number: int | None = None
    label: str | None = None


def sample(session: Session, number: float | None) -> Sample:
    """A test sample; they are counted from 0."""
    count = len(session.test)
    if number is None or number != int(number) or not 0 <= number < count:
        which = "no number is given" if number is None else f"there is no sample {number:g}"
        raise DataError(f"{which}: give a whole number from 0 to {count - 1}")
    place = int(number)
    label = session.catalogue[int(session.test.y[place])]
    return Sample(session.test.x[place : place + 1], place, label)


def each_answer(session: Session, seen: Sample) -> list[Answer]:
    """What each module alone says of a sample."""
    result = []
    for module in session.modules:
        if seen.number is None:
            logits = logits_of(module.to_module(), seen.x)
        else:
            logits = session.logits(module.name)[seen.number][None]
        result.append(_answer(module.name, logits, module))
    return result


def whole_answer(
    session: Session,
    seen: Sample,
    names: Sequence[str],
    operator: str | Spec,
    without: str = "",
) -> Answer:
    """What the modules of these names say together, with those of a class taken out if asked."""
    if without:
        gone = taken_out(session, names, without)
        names = [name for name in names if name not in gone]
        if not names:
            raise CompositionError(f"without {without!r} no module is left: switch another one on")
    if seen.number is None:
        logits = logits_of(session.merged(names, operator), seen.x)
    else:
        logits = session.joined_logits(names, operator)[seen.number][None]
    return _answer("whole", logits, session[names[0]])


def taken_out(session: Session, names: Sequence[str], without: str) -> tuple[str, ...]:
    """The modules that recognise a class and no other; an error of ours where there are none."""
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


def next_of(session: Session, name: str, after: float | None) -> int:
    """The number of the next test sample of a class, or of any where none is named; goes round."""
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
