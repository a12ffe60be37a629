"""Experts joined where they are measured: their logits once, and merges of their weights.

`compose` joins modules for good and takes seconds of a CPU for networks of some size. Here the
changes of a base lie on the device, are joined there by the operators' own steps, and all settings
of a merge are tried in one network. What comes out is what `compose` makes, to the last bit.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.composition import OPERATORS, compose
from intarsia.composition.batchnorm import has_batchnorm, recalibrate
from intarsia.composition.merge_context import MergeContext, kept_samples
from intarsia.composition.operators.registry import Operator
from intarsia.composition.scale_search import candidates
from intarsia.data import Data, Split, subsample
from intarsia.errors import StudyError
from intarsia.measure.probe import (
    HeadTraining,
    Readout,
    TrainedHead,
    readout_of,
    train_heads,
)
from intarsia.modules import Bank, Base, Classifier, Module, logits_of
from intarsia.modules.statistics import joint_buffer
from intarsia.specs import Spec
from intarsia.studies.maxent.shared.baselines import right
from intarsia.studies.options import check_count, check_numbers, check_operators

MERGING = ("scales", "densities", "selection")  # settings that say how merges are searched
ARITHMETIC, TIES = "task arithmetic", "ties"
SPECS = {ARITHMETIC: "task_arithmetic"}  # what operators are called here and in `compose`
ALL = "all"  # of operators: every one on weights or on logits that joins so many experts
AVERAGED, RECOMPUTED = "averaged", "recomputed"
NORMS = {AVERAGED: False, RECOMPUTED: True}  # BatchNorm statistics of a joined network


@dataclass(frozen=True)
class ExpertLogits:
    """What every expert says of the same samples, which are all looked at once."""

    context: MergeContext  # the experts, sorted by name as operators get them
    each: Sequence[Tensor]  # N, C for each of them, on the CPU
    labels: Tensor

    @classmethod
    def of(cls, bank: Bank, split: Split, device: torch.device) -> "ExpertLogits":
        parts = _sorted(bank)
        each = [logits_of(part.to_module().to(device), split.x) for part in parts]
        return cls(MergeContext(parts), each, split.y.cpu())

    def accuracy(self, operator: str, similarities: Tensor | None = None) -> float:
        """Of the experts joined by an operator on logits; routers are given similarities, N x K."""
        spec = OPERATORS.spec(operator)
        context = dataclasses.replace(self.context, similarities=similarities)
        joined = OPERATORS[spec.name](self.each, context, **spec.arguments)
        return float((joined.argmax(1) == self.labels).double().mean())

    def own_accuracies(self) -> list[float]:
        """Of every expert on the samples of its own classes, with answers among these."""
        found = []
        for logits, places in zip(self.each, self.context.rewarded, strict=True):
            columns = torch.tensor(places)
            own = torch.isin(self.labels, columns)
            answers = columns[logits[own][:, columns].argmax(1)]
            found.append(float((answers == self.labels[own]).double().mean()))
        return found


class ExpertMerges:
    """One network in which all merges of a bank's experts are tried, on the device of the data."""

    def __init__(self, bank: Bank, data: Data, statistics: int = 0) -> None:
        """Operators that look at samples see `statistics` of validation, or as many as `compose`
        would show them."""
        parts = _sorted(bank)
        first, base = parts[0], parts[0].base
        assert base is not None
        self.data, self.device = data, data.test.x.device
        self.classifier: Classifier = first.to_module().to(self.device)
        self.network: nn.Module = self.classifier.network
        self.kinds = NORMS if has_batchnorm(self.network) else {AVERAGED: False}
        seen = subsample(data.validation, statistics) if statistics else data.validation
        self.bank, self.count = bank, len(parts)
        self.context = MergeContext(parts, kept_samples(seen, first), device=self.device)
        self.names = self.context.learned
        self.shapes = [first.plan[name].shape for name in self.names]
        self.types = [first.plan[name].dtype for name in self.names]
        self.sizes = [tensor.numel() for tensor in map(base.state.__getitem__, self.names)]
        self.start = self._flat(base.state)
        self.changes = [self._changes(part, base) for part in parts]
        states, even = [part.state for part in parts], [1.0] * len(parts)
        self.buffers = {
            name: joint_buffer(name, states, even).to(self.device)
            for name, entry in first.plan.items()
            if not entry.learned
        }
        samples = kept_samples(data.validation, first)
        self.samples = first.scaling(samples.x.to(self.device))
        self._readout: Readout | None = None
        self._logits: dict[str, ExpertLogits] = {}

    def _flat(self, state: Mapping[str, Tensor]) -> Tensor:
        pieces = [state[name].flatten().to(self.device).double() for name in self.names]
        return torch.cat(pieces)

    def _changes(self, part: Module, base: Base) -> dict[str, Tensor]:
        """As an operator gets them: parameters as changes, in float64, and buffers as they are."""
        changes = {name: tensor.to(self.device) for name, tensor in part.state.items()}
        for name in self.names:
            changes[name] = changes[name].double() - base.state[name].to(self.device).double()
        return changes

    def joined(self, operator: str, **settings: Any) -> Tensor:
        """The change of the base that an operator makes of the experts' changes."""
        spec = OPERATORS.spec(SPECS.get(operator, operator))
        how: Operator = OPERATORS[spec.name]
        state = how(self.changes, self.context, **{**spec.arguments, **settings})
        return self._flat(state)

    def put(self, change: Tensor, norms: str = AVERAGED) -> None:
        """Give the network the base with this change, and its BatchNorm statistics."""
        state = dict(self.buffers)
        pieces = torch.split(self.start + change, self.sizes)
        for name, shape, kind, piece in zip(
            self.names, self.shapes, self.types, pieces, strict=True
        ):
            state[name] = piece.reshape(shape).to(kind)
        self.network.load_state_dict(state)
        self.network.eval()
        if self.kinds[norms]:
            recalibrate(self.network, self.samples)

    def search(self, operator: str, settings: Mapping[str, Any]) -> Iterator["ChosenMerge"]:
        """For each kind of BatchNorm statistics the settings that are best on validation samples.

        Tried are `scales`, and `densities`, where an operator has them and they are not given with
        it, on all validation samples or on so many of them as `selection` says. The change is
        proportional to the scale, so it is made once for all of them, unless the weights themselves
        are joined (base="zero"); 1 / K, a mean of weights, is always tried.
        """
        spec = OPERATORS.spec(SPECS.get(operator, operator))
        free = [key for key in OPERATORS.parameters(spec.name) if key not in spec.arguments]
        scales = candidates(self.count, settings["scales"]) if "scale" in free else [1.0]
        scaled = "scale" in free
        proportional = not scaled or spec.arguments.get("base") != "zero"
        densities = settings["densities"] if "density" in free else [None]
        validation = self._selected(settings)
        best: dict[str, tuple[float, float | None, float, Tensor]] = {}
        for density in densities:
            thinned = {} if density is None else {"density": density}
            for place, scale in enumerate(scales):
                if place == 0 or not proportional:
                    own = {"scale": 1.0 if proportional else scale} if scaled else {}
                    change = self.joined(operator, **own, **thinned)
                    rounded = (self.start + change).float().double() - self.start
                factor = scale if proportional else 1.0
                for norms in self.kinds:  # averaged first: recomputing comes on top of it
                    if norms == AVERAGED:
                        self.put(factor * rounded)
                    else:
                        recalibrate(self.network, self.samples)
                    score = right(self.classifier, validation)
                    if norms not in best or score > best[norms][0]:  # of equals the first
                        best[norms] = (score, density, scale, change)
        for norms, (score, density, scale, change) in best.items():
            chosen = {} if density is None else {"density": density}
            named = Spec(
                spec.name, {**spec.arguments, **chosen, **({"scale": scale} if scaled else {})}
            )
            whole = scale * change if proportional else change
            yield ChosenMerge(operator, norms, str(named), score, whole)

    def accuracies(self, operator: str, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """What an operator leaves on validation and test samples, by its best settings.

        By the kind of BatchNorm statistics; where logits are joined, the first kind alone.
        """
        how: Operator = OPERATORS.entry(operator)
        if how.on == "weights":
            found = {}
            for best in self.search(operator, settings):
                self.put(best.change, best.norms)
                test = right(self.classifier, self.data.test)
                own = {"validation": best.validation, "test": test, "chosen": best.spec}
                found[best.norms] = own
            return found
        splits = {"validation": self._selected(settings), "test": self.data.test}
        if how.router or how.modules:
            samples = Split(self.data.validation.x.cpu(), self.data.validation.y.cpu())
            network = compose(self.bank, operator, samples=samples).to(self.device)
            scores = {name: right(network, split) for name, split in splits.items()}
        else:
            said = {name: self._said(name, split) for name, split in splits.items()}
            scores = {name: logits.accuracy(operator) for name, logits in said.items()}
        return {AVERAGED: {**scores, "chosen": operator}}

    def _said(self, name: str, split: Split) -> ExpertLogits:
        """What the experts say of a split, once for all operators."""
        if name not in self._logits:
            self._logits[name] = ExpertLogits.of(self.bank, split, self.device)
        return self._logits[name]

    def _selected(self, settings: Mapping[str, Any]) -> Split:
        """The validation samples that settings are chosen on."""
        validation, count = self.data.validation, settings["selection"]
        return subsample(validation, count) if count else validation

    def probed(self) -> tuple[float, dict[str, Tensor]]:
        """Of the network as it is now the accuracy on test samples, and what its readout reads of
        every split: one pass gives both."""
        if self._readout is None:
            self._readout = readout_of(self.classifier, self.data.train.x)
        return native_and_features(self._readout, self.data)


@dataclass(frozen=True, eq=False)
class ChosenMerge:
    """A merge whose settings validation samples chose."""

    operator: str
    norms: str
    spec: str  # as `compose` takes it
    validation: float
    change: Tensor


def check_merging(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say how merges are searched, as settings of cells."""
    check_count(options, "selection", least=0)
    check_numbers(options, "scales")
    for value in check_numbers(options, "densities"):
        if value > 1:
            raise StudyError(f"option 'densities' has {value:g}: expected fractions up to 1")
    return {key: options[key] for key in MERGING}


def check_compared(options: Mapping[str, Any]) -> list[str]:
    """The operators that are compared besides task arithmetic and TIES: specs, or "all"."""
    given = options["operators"]
    if given in (ALL, [ALL]):
        given = [
            name
            for name, how in OPERATORS.items()
            if how.on in ("weights", "logits") and (how.most or math.inf) >= options["tasks"]
        ]
    return check_operators({"operators": given}) if given else []


def native_and_features(readout: Readout, data: Data) -> tuple[float, dict[str, Tensor]]:
    """The accuracy on test samples, and what the readout reads of every split."""
    splits = {name: getattr(data, name) for name in ("train", "validation", "test")}
    read = {name: readout.features(split.x) for name, split in splits.items()}
    answers = read["test"][1].argmax(1)
    native = float((answers == data.test.y.to(answers.device)).double().mean())
    return native, {name: features for name, (features, _) in read.items()}


def fresh_heads(
    features: Sequence[Mapping[str, Tensor]], data: Data, training: HeadTraining, seed: int
) -> list[TrainedHead]:
    """A fresh head on each network's features; `intarsia.fresh_head` is this probe for anybody's.

    A head is for the data's classes, whose labels lie where the features do.
    """
    splits = {name: getattr(data, name) for name in ("train", "validation", "test")}
    labels = {name: split.y.to(features[0]["train"].device) for name, split in splits.items()}
    return train_heads(features, data.classes, labels, training, seed)


def _sorted(bank: Bank) -> tuple[Module, ...]:
    return tuple(sorted(bank, key=lambda module: module.name))
