"""What the page knows: modules, the data they are measured on, and all that was measured so far."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TypeVar

import torch
from torch import Tensor

from intarsia import measure
from intarsia.arguments import labelled
from intarsia.composition import OPERATORS, Composition, Ground
from intarsia.composition.fit import check_fit
from intarsia.composition.operators import total
from intarsia.data import Data, Split, spaced
from intarsia.errors import CompositionError, nearest
from intarsia.measure import Evaluation, Matrix, compatibility_matrix
from intarsia.modules import Module, logits_of
from intarsia.specs import Spec
from intarsia.studio.scores import scored

NETWORKS, LOGITS = 4, 64  # joined networks, and their answers for the test split, that are kept
FEW = 1000  # rows that pairs of modules are measured on, along paths and for compatibility

Key = tuple[tuple[str, ...], str]
"""Modules that are on, by name, and the operator that joins them."""

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Card:
    """What a tile says of a module."""

    name: str
    rewarded: tuple[str, ...]
    accuracy: float  # on its own classes
    entropy: float  # on the others, as a share of its ceiling
    density: float


class Session:
    """Modules that share a catalogue, measured on one split; answers are computed once.

    One session serves all pages that are open: what a page has switched on it gives each time.
    """

    def __init__(
        self,
        modules: Iterable[Module],
        data: Data,
        operator: str | Spec = "sum",
        *,
        rows: int | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        modules = tuple(modules)
        if not modules:
            raise CompositionError("the studio needs at least one module")
        self.operator = OPERATORS.spec(operator)
        self.folders = tuple(folders)
        self.data = labelled(modules[0], data)
        self.catalogue = modules[0].catalogue
        self.test = _few(self.data.test, rows)
        self.samples = _samples(data, modules[0])
        self._modules: dict[str, Module] = {}
        self._own: dict[str, Tensor] = {}  # N x C, each module's logits on the test split
        self._scores: dict[Key, Evaluation] = {}
        self._logits: OrderedDict[Key, Tensor] = OrderedDict()
        self._wholes: OrderedDict[Key, Composition] = OrderedDict()
        self._paths: dict[tuple[str, str], measure.Path] = {}
        self._matrices: dict[tuple[str, ...], Matrix] = {}
        self._joining, self._pairing = RLock(), RLock()
        for module in modules:
            self.add(module)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._modules)

    @property
    def modules(self) -> tuple[Module, ...]:
        return tuple(self._modules.values())

    def __getitem__(self, name: str) -> Module:
        if name not in self._modules:
            raise CompositionError(f"the studio has no module {name!r}: load it again")
        return self._modules[name]

    def add(self, module: Module) -> str:
        """Take in a module whose answers can be joined with the others', or say why not.

        Returns a caution where its weights cannot be added to theirs, else nothing.
        """
        with self._joining:
            check_fit((*self.modules, module), "logits")
            self._own[module.name] = logits_of(module.to_module(), self.test.x)
            self._modules[module.name] = module
        try:
            check_fit(self.modules, "weights")
        except CompositionError as error:
            return str(error)
        return ""

    def own(self, name: str) -> Evaluation:
        """What a module alone does on the test split."""
        return scored(self.logits(name), self.test.y, self[name])

    @property
    def cards(self) -> list[Card]:
        found = []
        for name, module in self._modules.items():
            score = self.own(name)
            share = score.entropy / score.ceiling if score.ceiling else 0.0
            found.append(Card(name, module.rewarded, score.accuracy, share, module.density))
        return found

    def logits(self, name: str) -> Tensor:
        """A module's answers for the test split, N x C."""
        return self._own[self[name].name]

    def score(self, names: Iterable[str], operator: str | Spec) -> Evaluation:
        """What these modules do together; the same figures as `compose` and `evaluate` give."""
        key = self._key(names, operator)
        with self._joining:
            if key not in self._scores:
                logits = self.joined_logits(*key)
                self._scores[key] = scored(logits, self.test.y, self.whole(*key))
            return self._scores[key]

    def joined_logits(self, names: Iterable[str], operator: str | Spec) -> Tensor:
        """What these modules answer together for the test split, N x C."""
        key = self._key(names, operator)
        with self._joining:
            if key not in self._logits:
                self._logits[key] = self._answers(self.whole(*key))
            return _latest(self._logits, key, LOGITS)

    def whole(self, names: Iterable[str], operator: str | Spec) -> Composition:
        """The modules of these names, joined."""
        key = self._key(names, operator)
        with self._joining:
            if key not in self._wholes:
                if not key[0]:
                    raise CompositionError("no module is on: switch at least one on")
                self._check_weights(key[1])
                parts = [self[name] for name in key[0]]
                self._wholes[key] = Composition(parts, key[1], samples=self.samples)
            return _latest(self._wholes, key, NETWORKS)

    def path(self, a: str, b: str) -> measure.Path:
        """The way between two modules, on a few rows of the training and the test split."""
        with self._pairing:
            if (a, b) not in self._paths:
                if a == b:
                    raise CompositionError(f"a path needs two modules, both are {a!r}")
                self._paths[a, b] = measure.path(self[a], self[b], self._little)
            return self._paths[a, b]

    def matrix(self) -> Matrix:
        """How every two modules fit; the interference is read from the samples."""
        with self._pairing:
            if self.names not in self._matrices:
                self._matrices = {self.names: compatibility_matrix(self.modules, self.samples)}
            return self._matrices[self.names]

    @cached_property
    def _little(self) -> Data:
        train, test = (_few(split, FEW) for split in (self.data.train, self.test))
        return replace(self.data, train=train, test=test)

    def _key(self, names: Iterable[str], operator: str | Spec) -> Key:
        """One spelling for what is on, in whatever order it was switched."""
        return tuple(sorted(names)), str(OPERATORS.spec(operator))

    def _check_weights(self, operator: str) -> None:
        """A weight may be given for a module that is off, not for one that is not here."""
        given = OPERATORS.spec(operator).arguments.get("weights")
        for name in given if isinstance(given, Mapping) else ():
            if name not in self._modules:
                raise CompositionError(
                    f"a weight is given for {name!r}: {nearest(name, self._modules)}"
                )

    def _answers(self, whole: Composition) -> Tensor:
        """For the test split, from the answers of the parts where they add up."""
        own = [self._own[part.name] for part in whole.parts]
        spec, how = whole.operator, OPERATORS[whole.operator.name]
        if getattr(how, "on", None) == "logits":
            found: Tensor = how(own, Ground(whole.parts, whole.samples), **spec.arguments)
            return found
        # An inlay is the logit sum: its own network, many times as wide, would only say it later.
        return total(own) if spec.name == "inlay" else logits_of(whole, self.test.x)


def _latest(kept: OrderedDict[Key, Kept], key: Key, most: int) -> Kept:
    """What is kept under a key; of the others those used last stay."""
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return kept[key]


def _few(split: Split, rows: int | None) -> Split:
    places = spaced(len(split), rows or len(split))
    return Split(split.x[places], split.y[places])


def _samples(data: Data, module: Module) -> Split:
    """What joining may look at: as for `compose`, the validation part of the training data."""
    held = data.validation if len(data.validation) else data.train
    few = _few(held, FEW)
    return Split(few.x, data.labels_in(module.catalogue)[few.y].to(torch.int64))
