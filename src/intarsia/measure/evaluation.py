"""All measures of one model on one split, as a value that prints itself."""

import io
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.data import Data, Split
from intarsia.errors import DataError, ModelError, nearest
from intarsia.files import plain
from intarsia.limits import out_of_memory
from intarsia.measure.logits import (
    accuracy_per_class,
    auroc,
    confusion,
    entropy,
    entropy_per_class,
    nonrewarded_entropy,
    rewarded_accuracy,
)
from intarsia.modules import Finding, Module, Predicting, logits_of
from intarsia.modules.classifier import Inputs, uncertainty
from intarsia.modules.traits import check_columns

if TYPE_CHECKING:
    from rich.console import Group


class Renderable:
    """A result that rich draws by its `__rich__`; as a text, the same for any terminal."""

    def __str__(self) -> str:
        return printed(self)


@dataclass(frozen=True, eq=False)
class Evaluation(Renderable):
    """What `evaluate` measured; nan is a mean over no sample, None in JSON."""

    accuracy: float  # over samples whose label is rewarded
    entropy: float  # nats, over samples whose label is not rewarded
    ceiling: float  # log C, the largest entropy there is
    catalogue: tuple[str, ...]
    rewarded: tuple[str, ...]
    confusion: np.ndarray  # C x C counts, true by predicted
    accuracy_per_class: np.ndarray  # C
    entropy_per_class: np.ndarray  # C, rewarded classes included
    n: int
    unknown: "OpenSet | None" = None  # where samples of unknown classes were given

    def entropy_on(self, classes: Collection[str]) -> float:
        """Mean entropy over the samples of these classes; nan where there are none."""
        counts = self.confusion.sum(axis=1) * [name in classes for name in self.catalogue]
        known = counts > 0
        if not known.any():
            return math.nan
        return float(np.average(self.entropy_per_class[known], weights=counts[known]))

    def to_json(self) -> dict[str, Any]:
        own = {key: value for key, value in vars(self).items() if key != "unknown"}
        unknown = {} if self.unknown is None else {"unknown": self.unknown.to_json()}
        return plain(own | unknown, "evaluation")

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(caption="* rewarded")
        for heading in ("class", "samples", "accuracy", "entropy"):
            table.add_column(heading, justify="left" if heading == "class" else "right")
        samples = self.confusion.sum(axis=1)
        for i, name in enumerate(self.catalogue):
            mark = "*" if name in self.rewarded else " "
            numbers = (self.accuracy_per_class[i], self.entropy_per_class[i])
            table.add_row(Text(f"{mark} {name}"), str(samples[i]), *map(format_number, numbers))
        unknown = [] if self.unknown is None else [Text(str(self.unknown))]
        return Group(Text(self._summary()), *unknown, table)

    def _summary(self) -> str:
        return (
            f"rewarded accuracy {format_number(self.accuracy)}, non-rewarded entropy "
            f"{format_number(self.entropy)} of {format_number(self.ceiling)}, {self.n} samples"
        )


@dataclass(frozen=True)
class OpenSet:
    """What `open_set` measured; nan is a mean over no sample, None in JSON."""

    entropy: float  # nats, over samples of unknown classes
    known_entropy: float  # nats, over samples of known classes
    auroc_entropy: float  # an unknown sample has the larger entropy, ties count half
    auroc_softmax: float  # an unknown sample has the smaller largest probability
    known: int
    unknown: int

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self), "open set")

    def __str__(self) -> str:
        return (
            f"entropy {format_number(self.entropy)} on {self.unknown} samples of unknown classes, "
            f"{format_number(self.known_entropy)} on {self.known} of known ones\n"
            f"AUROC {format_number(self.auroc_entropy)} by entropy, "
            f"{format_number(self.auroc_softmax)} by largest probability"
        )


def evaluate(
    model: nn.Module | Module,
    split: Split,
    rewarded: Sequence[str | int] | None = None,
    batch: int = 4096,
    flips: bool = False,
    unknown: Split | Inputs | None = None,
) -> Evaluation:
    """Measure a Module, Classifier, Composition or any network on a split.

    The classes of a split of a Data are matched with the model's by name. `rewarded` (class names
    or indices) defaults to the model's own, or to all classes. A network
    that is not intarsia's gets the raw inputs as float32 and temperature 1; put it in a Classifier
    to scale them. Its outputs are the split's classes, in their order, or have numbers for names
    where the split has none, fewer or more. With `flips` its logits are the mean of those for a
    picture and for its mirror image.

    `unknown` are samples of classes that the catalogue has not, such as those of other data, in a
    shape that the model reads; their labels are not looked at. The result's `unknown` says how
    uncertain the model is of them, and how well that tells them from samples of rewarded classes.
    """
    if isinstance(model, Module):
        model = model.to_module()
    if not isinstance(model, nn.Module):
        raise DataError(
            f"a {type(model).__name__} cannot be evaluated: give one module, a composition "
            "or an nn.Module; of a ModularClassifier its composition_"
        )
    if not isinstance(split, Split):
        advice = (
            "pass one of its splits, as data.test"
            if isinstance(split, Data)
            else "pass a Split, as load_data(...).test is, or Split(x, y): two tensors, with "
            "labels that are places in the catalogue"
        )
        raise DataError(f"a model cannot be evaluated on a {type(split).__name__}: {advice}")
    if isinstance(model, Predicting):
        check_columns(split, model.columns)
        split = split.over(model.catalogue)
    logits = _logits(model, split.x, batch, flips)
    others = None if unknown is None else _unknown_logits(model, unknown, batch, flips)
    return evaluate_logits(logits, split.y, model, rewarded, others, split.catalogue)


def evaluate_logits(
    logits: Tensor,
    labels: Tensor,
    model: nn.Module | Module | None = None,
    rewarded: Sequence[str | int] | None = None,
    unknown: Tensor | None = None,
    catalogue: Sequence[str] | None = None,
) -> Evaluation:
    """What `evaluate` measures, from logits N x C that were computed before.

    Catalogue, temperature and, where they are not given, rewarded classes are the model's. Where it
    is not intarsia's, `catalogue` names the classes, if it has C of them. `unknown` are the logits
    of samples of unknown classes.
    """
    if catalogue is None or len(catalogue) != logits.shape[1]:
        catalogue = tuple(map(str, range(logits.shape[1])))
    catalogue = tuple(catalogue)
    own, temperature = catalogue, 1.0
    if isinstance(model, Module | Predicting):
        catalogue, own, temperature = model.catalogue, model.rewarded, model.temperature
    indices = [_index(c, catalogue) for c in (own if rewarded is None else rewarded)]
    places = torch.tensor(indices, dtype=labels.dtype, device=logits.device)
    known = torch.isin(labels.to(logits.device), places)
    return Evaluation(
        accuracy=rewarded_accuracy(logits, labels, indices),
        entropy=nonrewarded_entropy(logits, labels, indices, temperature),
        ceiling=math.log(len(catalogue)),
        catalogue=catalogue,
        rewarded=tuple(catalogue[i] for i in sorted(set(indices))),
        confusion=confusion(logits, labels, len(catalogue)),
        accuracy_per_class=accuracy_per_class(logits, labels),
        entropy_per_class=entropy_per_class(logits, labels, temperature),
        n=len(labels),
        unknown=None if unknown is None else open_set(logits[known], unknown, temperature),
    )


def open_set(known: Tensor, unknown: Tensor, temperature: float = 1.0) -> OpenSet:
    """Entropy on samples of unknown classes, and how well it tells them from those of known ones.

    Of logits N x C of either, over one catalogue.
    """
    either = [z.double() for z in (known, unknown)]
    entropies = [entropy(z, temperature) for z in either]
    unsure = [uncertainty(z, temperature) for z in either]
    largest = [torch.softmax(z / temperature, dim=1).amax(dim=1) for z in either]
    means = [float(values.mean()) if len(values) else math.nan for values in entropies]
    return OpenSet(
        entropy=means[1],
        known_entropy=means[0],
        auroc_entropy=auroc(*unsure),
        auroc_softmax=auroc(-largest[0], -largest[1]),
        known=len(known),
        unknown=len(unknown),
    )


def one_answer(scores: Mapping[str, Evaluation]) -> Iterator[Finding]:
    """Models, by name, that know several classes and answer one of them to all samples."""
    for name, score in scores.items():
        rewarded = [score.catalogue.index(c) for c in score.rewarded]
        asked = int((score.confusion[rewarded].sum(axis=1) > 0).sum())
        answers = score.confusion.sum(axis=0).nonzero()[0]
        if asked > 1 and len(answers) == 1:
            message = f"it answers {score.catalogue[answers[0]]!r} to all of {score.n} samples"
            advice = "look at the health of its modules, or join them by another operator"
            yield Finding("dead", name, message, advice)


def format_number(value: float | None) -> str:
    """Four decimals; a dash for a mean over nothing."""
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def printed(value: Any) -> str:
    """What rich shows of a value, as plain text of any terminal."""
    from rich.console import Console

    text = io.StringIO()
    Console(file=text, width=100, color_system=None).print(value)
    return text.getvalue().rstrip()


def _logits(model: nn.Module, x: Inputs, batch: int, flips: bool) -> Tensor:
    try:
        logits = logits_of(model, x, batch, flips)
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        shape = tuple(np.shape(x)[1:])
        raise ModelError(
            f"{type(model).__name__} fails on inputs of shape {shape}: {error}; give samples that "
            "it reads, or put it in a module that brings them to its shape"
        ) from error
    if logits.dim() != 2:
        raise DataError(f"the model gives {tuple(logits.shape)}: expected logits N x C")
    return logits


def _unknown_logits(model: nn.Module, unknown: Split | Inputs, batch: int, flips: bool) -> Tensor:
    if isinstance(unknown, Split) and isinstance(model, Predicting):
        check_columns(unknown, model.columns)
    try:
        return _logits(model, unknown.x if isinstance(unknown, Split) else unknown, batch, flips)
    except (DataError, ModelError) as error:
        raise type(error)(f"the unknown samples do not fit: {error}") from error


def _index(name: str | int, catalogue: tuple[str, ...]) -> int:
    """A class's index: text is always a name, so "3" need not be at place 3."""
    if isinstance(name, str):
        if name not in catalogue:
            raise DataError(f"there is no class {name!r}: {nearest(name, catalogue)}")
        return catalogue.index(name)
    if not 0 <= name < len(catalogue):
        raise DataError(f"there is no class number {name}: expected 0 to {len(catalogue) - 1}")
    return int(name)
