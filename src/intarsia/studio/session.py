"""What the page knows: modules, the data they are measured on, and all that was measured so far."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import TypeVar

import torch
from torch import Tensor

from intarsia import measure
from intarsia.cli.arguments import labelled
from intarsia.composition import OPERATORS, Composition, MergeContext
from intarsia.composition.build import MergeOptions
from intarsia.composition.checks import check_fit
from intarsia.composition.operators.registry import total
from intarsia.data import Data, Split, subsample
from intarsia.errors import CompositionError, IntarsiaError, nearest
from intarsia.measure import Evaluation, Matrix
from intarsia.modules import Module, logits_of
from intarsia.specs import Spec
from intarsia.studio.pair_measures import FEW, Pairs, caution
from intarsia.studio.scores import scored

NETWORKS, LOGITS = 4, 64  # joined networks, and their answers for the test split, that are kept
WIDEST = 10**8  # numbers of an inlay that is made without being asked for

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
    health: tuple[str, ...] = ()  # dead, undertrained, inconsistent; nothing if it is well


class Session:
    """Modules that share a catalogue, measured on one split; answers are computed once.

    One session serves all pages that are open: what a page has switched on it gives each time. The
    options and samples of a composition that it is to be `like` hold for that one's operator.
    Without an operator that is the inlay, or the sum of logits, which it equals, where no inlay can
    be made.
    """

    def __init__(
        self,
        modules: Iterable[Module],
        data: Data,
        operator: str | Spec | None = None,
        *,
        like: Composition | None = None,
        rows: int | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        modules = tuple(modules)
        if not modules:
            raise CompositionError("the studio needs at least one module")
        self.like = like
        self.folders = tuple(folders)
        self.data = labelled(modules[0], data)
        self.catalogue = modules[0].catalogue
        self.test = subsample(self.data.test, rows or len(self.data.test))
        self.samples = _samples(data, modules[0])
        self._modules: dict[str, Module] = {}
        self._own: dict[str, Tensor] = {}  # N x C, each module's logits on the test split
        self._read: dict[str, Module] = {}
        self._scores: dict[Key, Evaluation] = {}
        self._logits: OrderedDict[Key, Tensor] = OrderedDict()
        self._wholes: OrderedDict[Key, Composition] = OrderedDict()
        self._pairs = Pairs(replace(self.data, test=self.test), self.samples)
        self._joining = RLock()
        for module in modules:
            self.add(module)
        self.given = self.names  # those it started with; others can be removed again
        self.operator = OPERATORS.spec(operator or self._first_operator())

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
            first = self.modules[0]
        return "" if module is first else caution(first, module)

    def take(self, module: Module) -> tuple[str, str]:
        """Take in a module of a file under a free name: that name, and the caution of `add`."""
        with self._joining:
            name, count = module.name, 1
            while name in self._modules:
                count += 1
                name = f"{module.name} ({count})"
            said = self.add(module if count == 1 else replace(module, name=name))
            self._read[name] = module
        return name, said

    @property
    def read(self) -> tuple[Module, ...]:
        """The modules as their files have them, whatever they are called here."""
        return tuple(self._read.get(name, module) for name, module in self._modules.items())

    def remove(self, name: str) -> None:
        """Let go of a module that came later; its name may then be another's."""
        if name in self.given:
            raise CompositionError(f"module {name!r} was here from the start: switch it off")
        with self._joining:
            del self._modules[self[name].name], self._own[name]
            self._read.pop(name, None)
            for kept in (self._scores, self._logits, self._wholes):
                for key in [key for key in kept if name in key[0]]:
                    del kept[key]
            self._pairs.forget(name)

    def own(self, name: str) -> Evaluation:
        """What a module alone does on the test split."""
        return scored(self.logits(name), self.test.y, self[name])

    @property
    def cards(self) -> list[Card]:
        result = []
        for name, module in self._modules.items():
            score = self.own(name)
            share = score.entropy / score.ceiling if score.ceiling else 0.0
            kinds = tuple(dict.fromkeys(f.kind for f in module.health.findings))
            result.append(Card(name, module.rewarded, score.accuracy, share, module.density, kinds))
        return result

    def logits(self, name: str) -> Tensor:
        """A module's answers for the test split, N x C."""
        return self._own[self[name].name]

    def score(self, names: Iterable[str], operator: str | Spec) -> Evaluation:
        """What these modules do together; the same figures as `compose` and `evaluate` give."""
        key = self._key(names, operator)
        with self._joining:
            if key not in self._scores:
                logits = self.joined_logits(*key)
                self._scores[key] = scored(logits, self.test.y, self.merged(*key))
            return self._scores[key]

    def joined_logits(self, names: Iterable[str], operator: str | Spec) -> Tensor:
        """What these modules answer together for the test split, N x C."""
        key = self._key(names, operator)
        with self._joining:
            if key not in self._logits:
                self._logits[key] = self._answers(self.merged(*key))
            return _latest(self._logits, key, LOGITS)

    def merged(self, names: Iterable[str], operator: str | Spec) -> Composition:
        """The modules of these names, joined."""
        key = self._key(names, operator)
        with self._joining:
            if key not in self._wholes:
                if not key[0]:
                    raise CompositionError("no module is on: switch at least one on")
                self._check_weights(key[1])
                parts = [self[name] for name in key[0]]
                samples, options = self.around(key[1])
                self._wholes[key] = Composition(parts, key[1], samples=samples, options=options)
            return _latest(self._wholes, key, NETWORKS)

    def around(self, operator: str | Spec) -> tuple[Split | None, MergeOptions]:
        """The samples and options that an operator gets: of the composition where it is its own."""
        if self.like is not None and OPERATORS.spec(operator).name == self.like.operator.name:
            return self.like.samples, self.like.options
        return self.samples, MergeOptions()

    def path(self, a: str, b: str) -> measure.WeightPath:
        """The way between two modules, on a few rows of the training and the test split."""
        return self._pairs.path(self[a], self[b])

    def matrix(self) -> Matrix:
        """How every two modules fit, of those that can be compared with the first."""
        return self._pairs.matrix(self.modules)

    def _first_operator(self) -> str:
        size = sum(module.parameters for module in self.modules) * len(self.modules)
        try:
            if size <= WIDEST:
                self.merged(self.names, "inlay")
                return "inlay"
        except IntarsiaError:
            pass  # of another model, say, or of one that cannot be laid out by units
        return "logits"

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

    def _answers(self, merged: Composition) -> Tensor:
        """For the test split, from the answers of the parts where they add up."""
        own = [self._own[part.name] for part in merged.parts]
        spec, how = merged.operator, OPERATORS[merged.operator.name]
        if merged.offset is not None:  # calibrated: the parts speak louder or softer than alone
            return logits_of(merged, self.test.x)
        if getattr(how, "on", None) == "logits":
            result: Tensor = how(own, MergeContext(merged.parts, merged.samples), **spec.arguments)
            return result
        # An inlay is the logit sum: its own network, many times as wide, would only say it later.
        return total(own) if spec.name == "inlay" else logits_of(merged, self.test.x)


def _latest(kept: OrderedDict[Key, Kept], key: Key, most: int) -> Kept:
    """What is kept under a key; of the others those used last stay."""
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)
    return kept[key]


def _samples(data: Data, module: Module) -> Split:
    """What joining may look at: as for `compose`, the validation part of the training data."""
    held = data.validation if len(data.validation) else data.train
    some = subsample(held, FEW)
    return Split(some.x, data.labels_in(module.catalogue)[some.y].to(torch.int64))
