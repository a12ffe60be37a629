"""What training changed, tensor by tensor: for operators that look at one tensor at a time.

Such an operator makes, from the context and its settings, a function of the parts' changes of a
tensor that gives the joined change of it, to be added to that tensor of the origin; the changes are
those of task_vectors.py. As nothing else is looked at, tensors can come one after another from
files. Its last setting is the `base` of the changes.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.changes.task_vectors import Base
from intarsia.composition.operators.registry import Operator, States, operator
from intarsia.composition.operators.weights import join_states

TensorJoin = Callable[[str, list[Tensor]], Tensor]
"""From the name of a tensor and the parts' changes of it to the joined change."""


def tensor_operator(
    name: str, *, base: Base = "origin", **traits: Any
) -> Callable[[Callable[..., TensorJoin]], Operator]:
    """Register a function of context and settings that makes a TensorJoin, as an operator.

    `base` is the default of the setting of that name, which comes after the function's own.
    """

    def add(function: Callable[..., TensorJoin]) -> Operator:
        @wraps(function)
        def join(states: States, context: MergeContext, **settings: Any) -> dict[str, Tensor]:
            chosen = settings.pop("base", base)
            return join_changes(states, context, chosen, function(context, **settings))

        own = inspect.signature(function).parameters.values()
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        join.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter("states", kind, annotation=States),
                *own,
                inspect.Parameter("base", kind, default=base, annotation=Base),
            ]
        )
        return operator(name, on="weights", tensorwise=True, **traits)(join)

    return add


def join_changes(
    states: States, context: MergeContext, base: Base, join: TensorJoin
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
        if changed:  # states are changes: of the weights themselves, the origin is taken off
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
