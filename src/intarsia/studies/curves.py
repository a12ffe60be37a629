"""Curves: modules joined one after another, and what is measured after each addition."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.composition import OPERATORS, Ground, compose
from intarsia.composition.fit import check_fit
from intarsia.composition.operators import Operator
from intarsia.composition.samples import kept_samples
from intarsia.data import Data
from intarsia.data.splits import random_keys
from intarsia.errors import CompositionError, ModelError, StudyError
from intarsia.measure import nonrewarded_entropy, rewarded_accuracy
from intarsia.modules import Bank, Module, logits_of
from intarsia.studies.entries import known

Point = tuple[float, float | None]  # accuracy, entropy; no entropy where every class is rewarded
Curve = dict[str, list[Any]]  # "accuracy" and "entropy", one number for each addition


class Merges:
    """The merges of one bank's modules, each measured once however many orders come by it.

    A composition does not depend on the order of its parts, so orders share their full merge and
    many of the others. Operators on logits need each module's test logits once. Accuracy is over
    the test samples of the classes that are rewarded so far, entropy (nats) over all others.
    """

    def __init__(self, bank: Bank, data: Data, device: torch.device | str = "cpu") -> None:
        self.refused: dict[str, str] = {}  # operator -> why it does not take these modules
        self._bank, self._device = bank, torch.device(device)
        self._x, self._labels = data.test.x.to(self._device), data.test.y
        # Of a bank whose modules all diverged nothing can be asked.
        self._samples = kept_samples(data, bank[0]) if len(bank) else None
        self._logits: dict[str, Tensor] = {}
        self._known: dict[tuple[str, frozenset[str]], Point] = {}

    def curve(self, operator: str, order: Sequence[str]) -> Curve | None:
        """One point after each addition of a named module; None where the operator refuses."""
        try:
            points = [self.point(operator, order[: n + 1]) for n in range(len(order))]
        except (CompositionError, ModelError) as error:
            self.refused[operator] = str(error)
            return None
        return {
            "accuracy": [accuracy for accuracy, _ in points],
            "entropy": [entropy for _, entropy in points],
        }

    def point(self, operator: str, keys: Sequence[str]) -> Point:
        """Accuracy and entropy of the modules that are named, joined."""
        modules = [self._bank[key] for key in keys]
        merge = operator, frozenset(module.name for module in modules)
        if merge not in self._known:
            self._known[merge] = self._measure(operator, modules)
        return self._known[merge]

    def _measure(self, operator: str, modules: Sequence[Module]) -> Point:
        spec = OPERATORS.spec(operator)
        how: Operator = OPERATORS[spec.name]  # type: ignore[assignment]
        first = modules[0]
        if how.on == "logits":
            parts = check_fit(modules, how.on, False)
            ground = Ground(parts, self._samples)
            logits = how(list(map(self._own, parts)), ground, **spec.arguments).cpu()
        else:
            whole = compose(modules, spec, samples=self._samples).to(self._device)
            logits = logits_of(whole, self._x)
        classes = sorted({first.catalogue.index(c) for m in modules for c in m.rewarded})
        accuracy = rewarded_accuracy(logits, self._labels, classes)
        entropy = nonrewarded_entropy(logits, self._labels, classes, first.temperature)
        return accuracy, known(entropy)

    def _own(self, module: Module) -> Tensor:
        """A module's test logits, N x C, on the device where they are joined."""
        if module.name not in self._logits:
            logits = logits_of(module.to_module().to(self._device), self._x)
            self._logits[module.name] = logits.to(self._device)
        return self._logits[module.name]


def orders_of(catalogue: Sequence[str], count: int = 10, seed: int = 0) -> list[tuple[str, ...]]:
    """`count` distinct shuffles of the classes, or all where there are fewer.

    The first of many are those of a smaller count.
    """
    if count < 1:
        raise StudyError(f"the number of class orders is {count}: expected at least 1")
    found: dict[tuple[str, ...], None] = {}
    stream, wanted = 0, min(count, math.factorial(len(catalogue)))
    while len(found) < wanted:
        order = np.argsort(random_keys(len(catalogue), seed, stream), kind="stable")
        found[tuple(catalogue[i] for i in order)] = None
        stream += 1
    return list(found)
