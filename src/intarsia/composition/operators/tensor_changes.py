"""What training changed, tensor by tensor: for operators that look at one tensor at a time.

Such an operator is a function of the parts' changes of a tensor that gives the joined change of it,
to be added to that tensor of the origin; the changes are those of task_vectors.py. As nothing else
is looked at, tensors can come one after another from files.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.registry import State
from intarsia.composition.operators.task_vectors import Base
from intarsia.composition.operators.weights import join_states

TensorJoin = Callable[[str, list[Tensor]], Tensor]  # name and changes -> the joined change


def join_changes(
    states: Sequence[State], context: MergeContext, base: Base, join: TensorJoin
) -> dict[str, Tensor]:
    """The state of which every parameter is that of the origin and the joined change, in float64.

    Entries that no part keeps stay 0, whatever the operator makes of them.
    """
    changed = context.base is not None
    origin = None if changed != (base == "zero") else context.origin()

    def learned(name: str, tensors: list[Tensor]) -> Tensor:
        changes = [tensor.double() for tensor in tensors]
        start = torch.zeros_like(changes[0])
        if origin is not None:
            start = origin[name].to(start)
        if (
            changed
        ):  # states are changes already: of the weights themselves, the origin is taken off
            joined = join(name, [change + start for change in changes]) - start
            return joined.to(tensors[0].dtype)
        kept = context.kept(name)
        union = torch.stack(kept).any(dim=0)
        own = [c - torch.where(m, start, 0) for c, m in zip(changes, kept, strict=True)]
        return torch.where(union, start + join(name, own), 0).to(tensors[0].dtype)

    return join_states(states, context.plan, learned)


def rows_of(tensor: Tensor) -> Tensor:
    """A tensor as a matrix with a row for each output unit; a vector, or a number, is one row."""
    return tensor.reshape(1, -1) if tensor.ndim < 2 else tensor.flatten(1)
