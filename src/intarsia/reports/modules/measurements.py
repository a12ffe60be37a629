"""What a report measures: each module, all of them joined, the steps between, and every pair."""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, reduce

import numpy as np
import torch
from torch import Tensor

from intarsia.composition import OPERATORS, Composition
from intarsia.composition.checks import check_fit
from intarsia.data import subsample
from intarsia.errors import CompositionError, ModelError
from intarsia.measure import (
    Evaluation,
    Matrix,
    WeightPath,
    compatibility_matrix,
    evaluate,
    evaluate_logits,
    path,
)
from intarsia.modules import Module, logits_of
from intarsia.reports.modules.report_input import ReportInput
from intarsia.specs import Spec

WEIGHT_SUM, LOGIT_SUM = "sum", "logits"  # what every composition is compared with
PAIRS_ROWS, PATH_ROWS, LARGE_ROWS = 1_000, 1_000, 200  # samples; the last of large networks
POINTS = 21  # of a path
MOST = 20  # modules in a matrix, and points of a merge curve

Curve = Mapping[int, Evaluation]
"""Scores by the number of modules that are joined."""


class Measurements:
    """All that is measured of a report's modules; each part is computed when first asked for.

    Ways of joining go by their label, which is the operator and, of the composition that was
    given, what is done around it (`label_of`).
    """

    def __init__(self, inputs: ReportInput) -> None:
        self.inputs = inputs
        self.split = inputs.test
        self.refused: dict[str, str] = {}  # label -> why these modules are not joined so
        self.own = None if inputs.merged is None else label_of(inputs.merged)
        self._logits: dict[str, Tensor] = {}

    @cached_property
    def single(self) -> dict[str, Evaluation]:
        """Every module alone, by name."""
        return {m.name: self._score(self.logits(m), [m]) for m in self.inputs.modules}

    @cached_property
    def joined(self) -> dict[str, Evaluation]:
        """All modules that are together, by label: the last points of the curves."""
        last = len(self.inputs.together)
        return {operator: curve[last] for operator, curve in self.curves.items()}

    @cached_property
    def seeded(self) -> dict[str, list[Evaluation]]:
        """All modules joined, by label: one score for every seed whose modules can be joined."""
        seeds = {label: [score] for label, score in self.joined.items()}
        for label, scores in seeds.items():
            for modules in self.inputs.families[1:]:
                with suppress(CompositionError, ModelError):
                    scores.append(self._joined(label, modules))
        return seeds

    @cached_property
    def compared(self) -> dict[str, Evaluation]:
        """The other classifiers that the report was given, by name."""
        return {name: evaluate(other, self.split) for name, other in self.inputs.compared.items()}

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Modules joined one after another in their order, by label."""
        together = self.inputs.together
        labels = [] if self.own is None else [self.own]
        summed = any(map(self.is_logit_sum, labels))  # as an inlay is: the logits need no curve
        labels += [o for o in (WEIGHT_SUM, LOGIT_SUM) if not (summed and self.is_logit_sum(o))]
        curves: dict[str, Curve] = {}
        for label in dict.fromkeys(labels):
            try:
                curves[label] = {
                    count: self._joined(label, together[:count]) for count in steps(together)
                }
            except (CompositionError, ModelError) as error:
                self.refused[label] = str(error)
        return curves

    @cached_property
    def added(self) -> Evaluation | None:
        """The sum of all logits; None where the modules do not fit."""
        try:
            return self._joined(LOGIT_SUM, self.inputs.together)
        except CompositionError:
            return None

    @cached_property
    def without(self) -> dict[str, Evaluation]:
        """The sum of all logits but one module's, by that module; all others are rewarded."""
        together = self.inputs.together
        return {
            m.name: self._joined(LOGIT_SUM, [other for other in together if other is not m])
            for m in together[:MOST]
            if len(together) > 1 and self.added is not None
        }

    @cached_property
    def matrix(self) -> Matrix | None:
        """The compatibility of every two modules; None where no two can be compared."""
        data, modules = self.inputs.data, self.inputs.together[:MOST]
        assert data is not None
        samples = subsample(
            data.validation if len(data.validation) else data.train, self._limit(PAIRS_ROWS)
        )
        try:
            return compatibility_matrix(modules, samples) if len(modules) > 1 else None
        except CompositionError:
            return None

    @cached_property
    def pair(self) -> tuple[Module, Module] | None:
        """The two modules of the largest interference; None where it is unknown."""
        values = np.array([np.nan]) if self.matrix is None else self.matrix["interference"]
        if not np.isfinite(values).any():
            return None
        row, column = np.unravel_index(np.nanargmax(values), values.shape)
        modules = self.inputs.together
        return modules[row], modules[column]

    @cached_property
    def path(self) -> WeightPath | None:
        """The path from one of the pair to the other; None where their origins differ."""
        data = self.inputs.data
        if self.pair is None or data is None or self.pair[0].origin != self.pair[1].origin:
            return None
        limit = self._limit(PATH_ROWS)
        small = replace(data, train=subsample(data.train, limit), test=subsample(data.test, limit))
        return path(*self.pair, small, POINTS)

    def logits(self, module: Module) -> Tensor:
        """A module's logits on the test samples, N x C."""
        if module.name not in self._logits:
            self._logits[module.name] = logits_of(module.to_module(), self.split.x)
        return self._logits[module.name]

    def answers(self, logits: Tensor) -> np.ndarray:
        """The mean probability of every answer, true class by answer; nan for absent classes."""
        temperature = self.inputs.modules[0].temperature
        p = torch.softmax(logits.double() / temperature, dim=1).numpy()
        labels = self.split.y.numpy()
        none = np.full(p.shape[1], math.nan)
        rows = [p[labels == c] for c in range(p.shape[1])]
        return np.stack([own.mean(axis=0) if len(own) else none for own in rows])

    def joined_logits(self, label: str, modules: Sequence[Module] | None = None) -> Tensor:
        """The logits of modules joined, N x C; by default of all that are together."""
        modules = self.inputs.together if modules is None else modules
        if len(modules) == 1:
            return self.logits(modules[0])
        if self.is_logit_sum(label) and OPERATORS.entry(self.spec(label)).on == "logits":
            check_fit(modules, "logits", False)
            return reduce(torch.add, map(self.logits, modules))
        merged = self.inputs.merged
        if merged is None or label != self.own:
            data = self.inputs.data
            samples = data.validation if data is not None and len(data.validation) else None
            made = Composition(modules, label, samples=samples)  # for BatchNorm's statistics
        elif len(modules) == len(merged.parts):
            made = merged
        else:
            made = Composition(
                modules, merged.operator, samples=merged.samples, options=merged.options
            )
        return logits_of(made, self.split.x)

    def spec(self, label: str) -> Spec:
        """The operator of a label, without what is done around it."""
        merged = self.inputs.merged
        if merged is not None and label == self.own:
            return merged.operator
        return OPERATORS.spec(label)

    def is_logit_sum(self, label: str) -> bool:
        """Whether this is the plain sum of the modules' logits, whatever computes it."""
        spec = self.spec(label)
        return label == str(spec) and bool(OPERATORS[spec.name].logit_sum)

    def _joined(self, label: str, modules: Sequence[Module]) -> Evaluation:
        return self._score(self.joined_logits(label, modules), modules)

    def _score(self, logits: Tensor, modules: Iterable[Module]) -> Evaluation:
        first = self.inputs.modules[0]
        classes = {name for module in modules for name in module.rewarded}
        rewarded = [name for name in first.catalogue if name in classes]
        return evaluate_logits(logits, self.split.y, first, rewarded)

    def _limit(self, rows: int) -> int:
        return LARGE_ROWS if self.inputs.large else rows


def label_of(merged: Composition) -> str:
    """The operator, and what is done around it, if anything: `logits, calibrated`."""
    options = merged.options
    words = [str(merged.operator)]
    words += [f"aligned by {options.align}"] if options.align else []
    words += [] if options.recalibrate else ["not recalibrated"]
    words += ["calibrated"] if options.calibrate else []
    return ", ".join(words)


def steps(modules: Sequence[Module]) -> list[int]:
    """The numbers of modules at which a curve has a point: all, or evenly spaced to the last."""
    count = len(modules)
    return sorted({round(place) for place in np.linspace(1, count, min(count, MOST))})
