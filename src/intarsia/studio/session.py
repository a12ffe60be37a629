"""The state behind the page: modules, the data to measure on, and all that was measured so far."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock

import torch
from torch import Tensor

from intarsia import measure
from intarsia.artifacts import labelled
from intarsia.composition import OPERATORS, Composition, MergeContext
from intarsia.composition.build import MergeOptions
from intarsia.composition.checks import check_fit
from intarsia.composition.operators.registry import joins_logits
from intarsia.data import Data, Split, subsample
from intarsia.errors import CompositionError, IntarsiaError, nearest
from intarsia.lens import TunedLens, tune
from intarsia.measure import Evaluation, Matrix, evaluate_logits
from intarsia.modules import Module, logits_of
from intarsia.modules.classifier import network_inputs
from intarsia.modules.statistics import total
from intarsia.specs import Spec
from intarsia.studio.pair_measures import PAIR_ROWS, PairMeasures, caution, latest

# Compositions, logits on the test split, and evaluations that are cached, for all visitors.
NETWORKS, LOGITS, SCORES = 4, 64, 4096
LENSES, LENS_ROWS = 64, 1000  # that are cached; samples that one is fitted on
WIDEST = 10**8  # numbers in an inlay that is built without being asked for

Key = tuple[tuple[tuple[str, str], ...], str]
"""The names and digests of the modules that are on, and the operator that joins them."""


@dataclass(frozen=True)
class ModuleTile:
    """What the tile of a module shows."""

    name: str
    rewarded: tuple[str, ...]
    accuracy: float  # on its own classes
    entropy: float  # on the others, as a fraction of its ceiling
    density: float
    health: tuple[str, ...] = ()  # dead, undertrained, inconsistent; empty if it is well


class Session:
    """Modules that share a catalogue, measured on one split; every answer is computed once.

    Each request says which modules its page has switched on. Visitors that load modules have a
    session of their own, whose answers come from the same cache: it knows modules by their digest,
    so that two visitors' modules of one name are never taken for each other.
    `like` is a composition whose options and samples are used with its operator. The default
    operator is the inlay, or the sum of logits, which equals it, where no inlay can be built.
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
        self._originals: dict[str, Module] = {}
        self._scores: OrderedDict[Key, Evaluation] = OrderedDict()
        self._logits: OrderedDict[Key, Tensor] = OrderedDict()
        self._compositions: OrderedDict[Key, Composition] = OrderedDict()
        self._lenses: OrderedDict[str, TunedLens] = OrderedDict()
        self._pairs = PairMeasures(replace(self.data, test=self.test), self.samples)
        self._joining = RLock()
        for module in modules:
            self.add(module)
        self.initial = self.names  # what it started with; later ones can be removed
        self.operator = OPERATORS.spec(operator or self._first_operator())

    def for_visitor(self) -> "Session":
        """A session with the same modules, to which others can be added that this one never has."""
        with self._joining:
            own = copy(self)
            own._modules, own._own = dict(self._modules), dict(self._own)
            own._originals = dict(self._originals)
            own.initial = self.names
        return own

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
        """Add a module whose logits can be joined with the others', or raise why not.

        Returns a caution where its weights cannot be added to theirs, else an empty text.
        """
        with self._joining:
            check_fit((*self.modules, module), "logits")
            self._own[module.name] = logits_of(module.to_module(), self.test.x)
            self._modules[module.name] = module
            first = self.modules[0]
        return "" if module is first else caution(first, module)

    def add_renamed(self, module: Module) -> tuple[str, str]:
        """Add a module under a free name; returns that name, and the caution of `add`."""
        with self._joining:
            name, count = module.name, 1
            while name in self._modules:
                count += 1
                name = f"{module.name} ({count})"
            caution = self.add(module if count == 1 else replace(module, name=name))
            self._originals[name] = module
        return name, caution

    @property
    def originals(self) -> tuple[Module, ...]:
        """The modules as their files have them, whatever they are called here."""
        return tuple(self._originals.get(name, module) for name, module in self._modules.items())

    def remove(self, name: str) -> None:
        """Remove a module that was added later; its name is free again."""
        if name in self.initial:
            raise CompositionError(f"module {name!r} was here from the start: switch it off")
        with self._joining:
            del self._modules[self[name].name], self._own[name]
            self._originals.pop(name, None)

    def own_score(self, name: str) -> Evaluation:
        """A module alone on the test split."""
        return evaluate_logits(self.logits(name), self.test.y, self[name])

    @property
    def tiles(self) -> list[ModuleTile]:
        tiles = []
        for name, module in tuple(self._modules.items()):  # others may be added meanwhile
            score = self.own_score(name)
            entropy = score.entropy / score.ceiling if score.ceiling else 0.0
            health = tuple(dict.fromkeys(f.kind for f in module.health.findings))
            own = (score.accuracy, entropy, module.density)
            tiles.append(ModuleTile(name, module.rewarded, *own, health))
        return tiles

    def logits(self, name: str) -> Tensor:
        """A module's logits on the test split, N x C."""
        return self._own[self[name].name]

    def score(self, names: Iterable[str], operator: str | Spec) -> Evaluation:
        """These modules joined, on the test split: what `evaluate` says of their composition."""
        names, operator = tuple(names), OPERATORS.spec(operator)
        with self._joining:
            key = self._key(names, operator)
            if key not in self._scores:
                logits = self.joined_logits(names, operator)
                merged = self.merged(names, operator)
                self._scores[key] = evaluate_logits(logits, self.test.y, merged)
            return latest(self._scores, key, SCORES)

    def joined_logits(self, names: Iterable[str], operator: str | Spec) -> Tensor:
        """The logits of these modules joined on the test split, N x C."""
        names, operator = tuple(names), OPERATORS.spec(operator)
        with self._joining:
            key = self._key(names, operator)
            if key not in self._logits:
                self._logits[key] = self._logits_of(self.merged(names, operator))
            return latest(self._logits, key, LOGITS)

    def merged(self, names: Iterable[str], operator: str | Spec) -> Composition:
        """The modules of these names, joined."""
        with self._joining:
            key = self._key(names, operator)
            if key not in self._compositions:
                if not key[0]:
                    raise CompositionError("no module is on: switch at least one on")
                self._check_weights(key[1])
                parts = [self[name] for name, _ in key[0]]
                samples, options = self.merge_options(key[1])
                self._compositions[key] = Composition(
                    parts, key[1], samples=samples, options=options
                )
            return latest(self._compositions, key, NETWORKS)

    def merge_options(self, operator: str | Spec) -> tuple[Split | None, MergeOptions]:
        """The samples and options for an operator; those of `like` where it is that one's."""
        if self.like is not None and OPERATORS.spec(operator).name == self.like.operator.name:
            return self.like.samples, self.like.options
        return self.samples, MergeOptions()

    def lens(self, name: str) -> TunedLens:
        """The tuned lens of a module, fitted on a subsample of the training split."""
        module = self[name]
        with self._joining:
            if module.digest not in self._lenses:
                train, held = (subsample(s, LENS_ROWS) for s in (self.data.train, self.samples))
                own = replace(self.data, train=train, validation=held)
                self._lenses[module.digest] = tune(module, own)
            return latest(self._lenses, module.digest, LENSES)

    def path(self, a: str, b: str) -> measure.WeightPath:
        """The path between two modules, on a subsample of the training and the test split."""
        return self._pairs.path(self[a], self[b])

    def matrix(self) -> Matrix:
        """The compatibility of every two modules that can be compared with the first."""
        return self._pairs.matrix(self.modules)

    def _first_operator(self) -> str:
        size = sum(module.parameters for module in self.modules) * len(self.modules)
        try:
            if size <= WIDEST:
                self.merged(self.names, "inlay")
                return "inlay"
        except IntarsiaError:
            pass  # the modules are of two models, say, or of one without wiring
        return "logits"

    def _key(self, names: Iterable[str], operator: str | Spec) -> Key:
        """One spelling for the same selection, in whatever order it was switched on."""
        parts = tuple((name, self[name].digest) for name in sorted(names))
        return parts, str(OPERATORS.spec(operator))

    def _check_weights(self, operator: str) -> None:
        """A weight may be given for a module that is off, but not for an unknown one."""
        given = OPERATORS.spec(operator).arguments.get("weights")
        for name in given if isinstance(given, Mapping) else ():
            if name not in self._modules:
                raise CompositionError(
                    f"a weight is given for {name!r}: {nearest(name, self._modules)}"
                )

    def _logits_of(self, merged: Composition) -> Tensor:
        """Logits on the test split, from those of the parts where these are all it takes."""
        own = [self._own[part.name] for part in merged.parts]
        spec, operator = merged.operator, OPERATORS[merged.operator.name]
        if merged.offset is not None:  # calibrated: the parts' logits are scaled
            return logits_of(merged, self.test.x)
        if operator.logit_sum:  # an inlay's own network, many times as wide, only takes longer
            return total(own)
        if joins_logits(operator):
            context = MergeContext(merged.parts, merged.samples)
            result: Tensor = operator(own, context, **spec.arguments)
            return result
        return logits_of(merged, self.test.x)


def _samples(data: Data, module: Module) -> Split:
    """The samples that operators may look at: as for `compose`, from the validation split."""
    held_out = data.validation if len(data.validation) else data.train
    samples = subsample(held_out, PAIR_ROWS)
    x = samples.x
    if module.encoder is not None:  # of raw inputs the features, once for all operators
        x = network_inputs(x, module.architecture.shape, module.encoder)
    return Split(x, data.labels_in(module.catalogue)[samples.y].to(torch.int64))
