"""SCE: select entries by variance, compute weights from energy, erase what has the lesser sign.

Source: the paper, https://arxiv.org/abs/2408.07990; mergekit 0.1.5, whose result it equals,
but that mergekit weighs parts alike whose mean squares add up to less than 1e-6; here, where to 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.arithmetic import check_fraction, combination
from intarsia.composition.operators.changes.tensor_changes import TensorJoin, tensor_operator
from intarsia.composition.operators.pieces import PieceJoin, TensorPieces, largest, sums
from intarsia.composition.operators.registry import copies
from intarsia.modules.statistics import total


@tensor_operator(
    "sce",
    paper="https://arxiv.org/abs/2408.07990",
    pieces=lambda tensor, context, settings: _sce_pieces(tensor, len(context.parts), settings),
    memory=copies(11),
)
def sce(context: MergeContext, density: float = 1.0, scale: float = 1.0) -> TensorJoin:
    """theta = origin + scale * sum of w_i tau_i / sum of w_i, over the parts that have the sign.

    Of the entries in which the parts vary, the fraction `density` that varies most is selected. w_i
    is the mean square of what is left of tau_i in this tensor, and the sign that of the sum of
    tau_i, or plus where it is 0.
    """
    check_fraction("sce", "density", density)
    return lambda name, each: scale * select_and_erase(each, density)


def select_and_erase(changes: Sequence[Tensor], density: float) -> Tensor:
    """The joined change of one tensor; one change is itself."""
    if len(changes) == 1:
        return changes[0]
    if density < 1:
        selected = _varied(changes, density)
        changes = [torch.where(selected, change, 0) for change in changes]
    return _erased(changes, [float(change.square().mean()) for change in changes])


def _sce_pieces(tensor: TensorPieces, parts: int, settings: Mapping[str, Any]) -> PieceJoin:
    density, scale = settings["density"], settings["scale"]
    if parts == 1:
        return lambda changes, start: scale * changes[0]

    def selected(changes: list[Tensor], start: int) -> list[Tensor]:
        return changes

    if density < 1:
        varied = sums(tensor, lambda changes, start: [variance_of(changes) > 0])
        count = int(density * int(varied[0]))
        (most,) = largest(tensor, lambda changes: [variance_of(changes)], [count])

        def selected(changes: list[Tensor], start: int) -> list[Tensor]:
            kept = most.of(variance_of(changes), start)
            return [torch.where(kept, change, 0) for change in changes]

    squares = sums(tensor, lambda c, start: [t.square() for t in selected(c, start)])
    energies = [square / tensor.entries for square in squares]
    return lambda changes, start: scale * _erased(selected(changes, start), energies)


def _erased(changes: Sequence[Tensor], energies: Sequence[float]) -> Tensor:
    """The mean of the changes that have the sign of their sum, by their energies."""
    sign = torch.where(total(changes) >= 0, 1.0, -1.0)
    if sum(energies) == 0:
        return torch.zeros_like(changes[0])
    agree = [(change.sign() == sign).to(change.dtype) for change in changes]
    weight = combination(energies, agree)
    value = combination(energies, [c * a for c, a in zip(changes, agree, strict=True)])
    return value / torch.where(weight == 0, 1.0, weight)


def variance_of(changes: Sequence[Tensor]) -> Tensor:
    """The variance of every entry over the parts, by Welford's recurrence: 0 where all are equal.

    torch's own rounds by the shape that it is given, so that pieces would differ from the whole.
    """
    mean, squares = changes[0], torch.zeros_like(changes[0])
    for count, change in enumerate(changes[1:], start=2):
        delta = change - mean
        mean = mean + delta / count
        squares += delta * (change - mean)
    return squares / len(changes)


def _varied(changes: Sequence[Tensor], density: float) -> Tensor:
    """True for the entries of the largest variance, the earlier of equals."""
    variance = variance_of(changes)
    count = int(density * int((variance > 0).sum()))
    order = variance.flatten().sort(descending=True, stable=True).indices[:count]
    selected = torch.zeros(variance.numel(), dtype=torch.bool, device=variance.device)
    selected[order] = True
    return selected.reshape(variance.shape)
