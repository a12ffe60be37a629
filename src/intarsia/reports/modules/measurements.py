"""What a report measures: every module, the whole, the way there, and what fits."""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, reduce

import numpy as np
import torch
from torch import Tensor

from intarsia.composition import Composition
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

PAIRS_ROWS, PATH_ROWS, LARGE_ROWS = 1_000, 1_000, 200  # samples; the last of large networks
POINTS = 21  # of a path
MOST = 20  # modules in a matrix, and points of a merge curve

Curve = Mapping[int, Evaluation]
"""What holds after so many modules are joined."""


class Measured:
    """All that is measured of a subject with data; each is computed when it is first asked for."""

    def __init__(self, subject: ReportInput) -> None:
        self.subject = subject
        self.split = subject.test
        self.refused: dict[str, str] = {}  # operator -> why it does not take these modules
        self.own = None if subject.merged is None else label_of(subject.merged)
        self._logits: dict[str, Tensor] = {}

    @cached_property
    def single(self) -> dict[str, Evaluation]:
        """Every module alone, by name."""
        return {m.name: self._score(self.logits(m), [m]) for m in self.subject.modules}

    @cached_property
    def joined(self) -> dict[str, Evaluation]:
        """All modules that are together, by operator: the last points of the curves."""
        last = len(self.subject.together)
        return {operator: curve[last] for operator, curve in self.curves.items()}

    @cached_property
    def seeded(self) -> dict[str, list[Evaluation]]:
        """All modules joined, by operator, once for every seed that can be."""
        result = {operator: [score] for operator, score in self.joined.items()}
        for operator, scores in result.items():
            for modules in self.subject.families[1:]:
                with suppress(CompositionError, ModelError):
                    scores.append(self._joined(operator, modules))
        return result

    @cached_property
    def compared(self) -> dict[str, Evaluation]:
        """The other ways that the subject was given, by name."""
        return {k: evaluate(artifact, self.split) for k, artifact in self.subject.compared.items()}

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Modules joined one after another in their order, by operator."""
        together = self.subject.together
        own = [] if self.own is None else [self.own]
        others = ["sum"] if "inlay" in own else ["sum", "logits"]  # an inlay is the logit sum
        result: dict[str, Curve] = {}
        for operator in dict.fromkeys([*own, *others]):
            try:
                result[operator] = {
                    count: self._joined(operator, together[:count]) for count in steps(together)
                }
            except (CompositionError, ModelError) as error:
                self.refused[operator] = str(error)
        return result

    @cached_property
    def added(self) -> Evaluation | None:
        """The sum of all logits; None where the modules do not fit."""
        try:
            return self._joined("logits", self.subject.together)
        except CompositionError:
            return None

    @cached_property
    def without(self) -> dict[str, Evaluation]:
        """The sum of all logits but one module's, by that module; all others are rewarded."""
        together = self.subject.together
        return {
            m.name: self._joined("logits", [other for other in together if other is not m])
            for m in together[:MOST]
            if len(together) > 1 and self.added is not None
        }

    @cached_property
    def matrix(self) -> Matrix | None:
        """What holds between every two modules; None where there are no two of one kind."""
        data, modules = self.subject.data, self.subject.together[:MOST]
        assert data is not None
        samples = subsample(
            data.validation if len(data.validation) else data.train, self._limit(PAIRS_ROWS)
        )
        try:
            return compatibility_matrix(modules, samples) if len(modules) > 1 else None
        except CompositionError as error:
            self.refused["compatibility"] = str(error)
            return None

    @cached_property
    def pair(self) -> tuple[Module, Module] | None:
        """The two modules of the largest interference; None where none is known."""
        values = np.array([np.nan]) if self.matrix is None else self.matrix["interference"]
        if not np.isfinite(values).any():
            return None
        row, column = np.unravel_index(np.nanargmax(values), values.shape)
        modules = self.subject.together
        return modules[row], modules[column]

    @cached_property
    def path(self) -> WeightPath | None:
        """From one of the pair to the other; None where they have two origins."""
        data = self.subject.data
        if self.pair is None or data is None or self.pair[0].origin != self.pair[1].origin:
            return None
        limit = self._limit(PATH_ROWS)
        less = replace(data, train=subsample(data.train, limit), test=subsample(data.test, limit))
        return path(*self.pair, less, POINTS)

    def logits(self, module: Module) -> Tensor:
        """A module's logits on the test samples, N x C."""
        if module.name not in self._logits:
            self._logits[module.name] = logits_of(module.to_module(), self.split.x)
        return self._logits[module.name]

    def answers(self, logits: Tensor) -> np.ndarray:
        """The mean probability of every answer, true class by answer; nan for absent classes."""
        temperature = self.subject.modules[0].temperature
        shares = torch.softmax(logits.double() / temperature, dim=1).numpy()
        labels = self.split.y.numpy()
        none = np.full(shares.shape[1], math.nan)
        rows = [shares[labels == c] for c in range(shares.shape[1])]
        return np.stack([own.mean(axis=0) if len(own) else none for own in rows])

    def whole_logits(self, operator: str) -> Tensor:
        """The logits of all modules that are together, joined."""
        return self._join(operator, self.subject.together)

    def _joined(self, operator: str, modules: Sequence[Module]) -> Evaluation:
        return self._score(self._join(operator, modules), modules)

    def _join(self, operator: str, modules: Sequence[Module]) -> Tensor:
        if len(modules) == 1:
            return self.logits(modules[0])
        if operator == "logits":
            check_fit(modules, "logits", False)
            return reduce(torch.add, map(self.logits, modules))
        merged = self.subject.merged
        if merged is None or operator != self.own:
            made = Composition(modules, operator)
        elif len(modules) == len(merged.parts):
            made = merged
        else:
            made = Composition(
                modules, merged.operator, samples=merged.samples, options=merged.options
            )
        return logits_of(made, self.split.x)

    def _score(self, logits: Tensor, modules: Iterable[Module]) -> Evaluation:
        first = self.subject.modules[0]
        classes = {name for module in modules for name in module.rewarded}
        rewarded = [name for name in first.catalogue if name in classes]
        return evaluate_logits(logits, self.split.y, first, rewarded)

    def _limit(self, rows: int) -> int:
        return LARGE_ROWS if self.subject.large else rows


def label_of(merged: Composition) -> str:
    """Its operator, and what is done around it: `logits, calibrated`; without that, the operator.

    Only a plain `logits` is the bare sum of the modules' logits.
    """
    options = merged.options
    words = [str(merged.operator)]
    words += [f"aligned by {options.align}"] if options.align else []
    words += [] if options.recalibrate else ["not recalibrated"]
    words += ["calibrated"] if options.calibrate else []
    return ", ".join(words)


def steps(modules: Sequence[Module]) -> list[int]:
    """After which modules a curve has a point: all, or evenly spaced ones with the last."""
    count = len(modules)
    return sorted({round(place) for place in np.linspace(1, count, min(count, MOST))})
