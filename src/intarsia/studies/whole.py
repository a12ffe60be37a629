"""All modules of a bank as one classifier, and what they have in common."""

import numpy as np
from torch import Tensor, nn

from intarsia.composition import compose
from intarsia.data import Data
from intarsia.errors import CompositionError, WiringError
from intarsia.measure import compatibility_matrix
from intarsia.models.wiring import hidden_axes, live_units
from intarsia.modules import Bank, Module


def whole_of(bank: Bank, operator: str, data: Data) -> nn.Module | None:
    """All modules joined; None where the operator cannot, or one of them diverged.

    Added weights of networks with an explicit other hold it once for every module, so large that
    the classes, which share it out, come out equal in float32. All classes are rewarded here,
    nothing is left for other, and the answer is taken from the outputs of the classes alone.
    """
    if len(bank) < data.classes:
        return None
    try:
        whole = compose(bank, operator, samples=data)
    except (CompositionError, WiringError):
        return None
    if whole.joined is None or whole.joined.architecture.outputs == data.classes:
        return whole
    one = whole.joined.to_module()
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
    found: list[float] = matrix[np.triu_indices(len(bank), 1)].tolist()
    return found


class _First(nn.Module):
    """The first columns of logits."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, logits: Tensor) -> Tensor:
        return logits[:, : self.columns]
