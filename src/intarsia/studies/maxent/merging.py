"""Merging: many pairs of modules of one bank, joined and measured in the time of their forwards.

A composition of two takes as long to lay as a network of a few hundred units takes to answer all
test samples. Here the bank is moved to the device once, weights are added there, and each module's
logits are computed once. The numbers are those of `compose` and `evaluate`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.composition import compose
from intarsia.composition.checks import check_fit
from intarsia.data import Data
from intarsia.errors import CompositionError, WiringError
from intarsia.measure import compatibility_matrix, nonrewarded_entropy, rewarded_accuracy
from intarsia.models.wiring import hidden_axes, live_units
from intarsia.modules import Bank, Classifier, Module, logits_of
from intarsia.studies.tables import known

JOINED = ("sum", "logits")  # the operators by which they are
Pair = Sequence[Sequence[str]]
Numbers = dict[str, list[float | None]]


def merge_pairs(
    bank: Bank, pairs: Sequence[Pair], data: Data, device: torch.device | str = "cpu"
) -> dict[str, Numbers]:
    """Rewarded accuracy and non-rewarded entropy on the test samples, by operator, pair by pair.

    A pair names the classes of two modules of the bank. Both numbers are None where one of the two
    diverged in training, the entropy where no class is left that is not rewarded.
    """
    merges = _Merges(bank, data, torch.device(device))
    result: dict[str, Numbers] = {name: {"accuracy": [], "entropy": []} for name in JOINED}
    for pair in pairs:
        for operator in JOINED:
            accuracy, entropy = merges.measure(pair, operator)
            result[operator]["accuracy"].append(accuracy)
            result[operator]["entropy"].append(entropy)
    return result


class _Merges:
    def __init__(self, bank: Bank, data: Data, device: torch.device) -> None:
        self.data, self.device = data, device
        self.x = data.test.x.to(device)
        modules = check_fit(bank, "weights") if len(bank) else ()
        self.modules = {frozenset(module.rewarded): module for module in modules}
        self.networks = {c: m.to_module().to(device) for c, m in self.modules.items()}
        self.logits: dict[frozenset[str], Tensor] = {}
        self.merged: Classifier | None = None  # one network that takes the sums in turn

    def measure(self, pair: Pair, operator: str) -> tuple[float | None, float | None]:
        parts = [frozenset(classes) for classes in pair]
        if not all(part in self.modules for part in parts):
            return None, None
        # Compositions sort their parts by name.
        parts.sort(key=lambda part: self.modules[part].name)
        logits = self._summed(parts) if operator == "sum" else self._added(parts)
        rewarded = sorted({self.data.catalogue.index(c) for part in parts for c in part})
        labels, temperature = self.data.test.y, self.modules[parts[0]].temperature
        entropy = nonrewarded_entropy(logits, labels, rewarded, temperature)
        accuracy = rewarded_accuracy(logits, labels, rewarded)
        return known(accuracy), known(entropy)

    def _added(self, parts: Sequence[frozenset[str]]) -> Tensor:
        for part in parts:
            if part not in self.logits:
                self.logits[part] = logits_of(self.networks[part], self.x)
        first, second = (self.logits[part] for part in parts)
        return first + second

    def _summed(self, parts: Sequence[frozenset[str]]) -> Tensor:
        modules = [self.modules[part] for part in parts]
        if not all(entry.learned for entry in modules[0].plan.values()):
            # Statistics of BatchNorm take more than a sum.
            return logits_of(compose(modules, "sum", samples=self.data).to(self.device), self.x)
        if self.merged is None:
            self.merged = modules[0].to_module().to(self.device)
        first, second = (self.networks[part].network.state_dict() for part in parts)
        self.merged.network.load_state_dict(_sum(first, second))
        return logits_of(self.merged, self.x)


def _sum(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: first[name] + second[name] for name in first}


def whole_of(bank: Bank, operator: str, data: Data) -> nn.Module | None:
    """All modules joined; None where the operator cannot, or one of them diverged.

    Added weights of networks with an explicit other hold it once for every module, so large that
    the classes, which share it out, come out equal in float32. All classes are rewarded here,
    nothing is left for other, and the answer is taken from the outputs of the classes alone.
    """
    if len(bank) < data.classes:
        return None
    try:
        merged = compose(bank, operator, samples=data)
    except (CompositionError, WiringError):
        return None
    if merged.joined is None or merged.joined.architecture.outputs == data.classes:
        return merged
    one = merged.joined.to_module()
    one.network = nn.Sequential(one.network, _First(data.classes))
    return one


def live_count(module: Module) -> tuple[int, int]:
    """From how many hidden units kept weights lead to the output, and how many there are."""
    wiring = module.architecture.wiring(module.factory)
    live = live_units(wiring, module.state, module.mask)
    units = [live[axis] for axis in hidden_axes(wiring)]
    return sum(int(u.sum()) for u in units), sum(len(u) for u in units)


def overlaps(bank: Bank) -> list[float]:
    """Mask Jaccard of every two modules, 1 where nothing is pruned."""
    if len(bank) < 2:
        return []
    matrix = compatibility_matrix(bank)["mask_jaccard"]
    result: list[float] = matrix[np.triu_indices(len(bank), 1)].tolist()
    return result


class _First(nn.Module):
    """The first columns of logits."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, logits: Tensor) -> Tensor:
        return logits[:, : self.columns]
