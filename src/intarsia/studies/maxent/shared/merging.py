"""Merging: many pairs of modules of one bank, joined and measured in the time of their forwards.

It takes as long to build a composition of two as for a network of a few hundred units to answer all
test samples. Here the bank is moved to the device once, weights are added there, and each module's
logits are computed once. The numbers are those of `compose` and `evaluate`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.composition import compose
from intarsia.composition.checks import check_fit
from intarsia.data import Data
from intarsia.errors import CompositionError, WiringError
from intarsia.measure import compatibility_matrix
from intarsia.models.wiring import hidden_axes, live_units
from intarsia.modules import Bank, Module, logits_of
from intarsia.modules.statistics import total
from intarsia.specs import Spec
from intarsia.studies.maxent.shared.complete_merges import Merges

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
    merges = _Sums(bank, data, device)
    names = {frozenset(module.rewarded): module.name for module in bank}
    result: dict[str, Numbers] = {name: {"accuracy": [], "entropy": []} for name in JOINED}
    for pair in pairs:
        keys = [names[part] for part in map(frozenset, pair) if part in names]
        for operator, numbers in result.items():
            complete = len(keys) == len(pair)
            accuracy, entropy = merges.point(operator, keys) if complete else (None, None)
            numbers["accuracy"].append(accuracy)
            numbers["entropy"].append(entropy)
    return result


class _Sums(Merges):
    """Weights are added on the device, in one network that takes the sums in turn."""

    def __init__(self, bank: Bank, data: Data, device: torch.device | str) -> None:
        super().__init__(bank, data, device)
        modules = check_fit(bank, "weights") if len(bank) else ()
        self._networks = {m.name: m.to_module().to(self._device) for m in modules}
        self._sum = modules[0].to_module().to(self._device) if modules else None

    def _joined(self, operator: Spec, modules: Sequence[Module]) -> Tensor:
        if self._sum is None or not all(entry.learned for entry in modules[0].plan.values()):
            return super()._joined(operator, modules)  # BatchNorm's statistics take more than a sum
        states = [self._networks[module.name].network.state_dict() for module in modules]
        self._sum.network.load_state_dict(
            {name: total([state[name] for state in states]) for name in states[0]}
        )
        return logits_of(self._sum, self._x)


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
    if merged.parts[0].architecture.outputs == data.classes or merged.joined is None:
        return merged
    one = merged.joined.to_module()
    one.network.register_forward_hook(lambda network, x, logits: logits[:, : data.classes])
    return one


def live_count(module: Module) -> tuple[int, int]:
    """From how many hidden units kept weights lead to the output, and how many there are."""
    wiring = module.architecture.wiring(module.factory)
    live = live_units(wiring, module.state, module.live)
    units = [live[axis] for axis in hidden_axes(wiring)]
    return sum(int(u.sum()) for u in units), sum(len(u) for u in units)


def overlaps(bank: Bank) -> list[float]:
    """Mask Jaccard of every two modules, 1 where nothing is pruned."""
    if len(bank) < 2:
        return []
    matrix = compatibility_matrix(bank)["mask_jaccard"]
    result: list[float] = matrix[np.triu_indices(len(bank), 1)].tolist()
    return result
