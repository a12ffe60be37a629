"""The ways of joining modules: pure functions on state dicts or on logits, with their papers."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor

from intarsia.modules.architecture import Plan
from intarsia.specs import Registry

State = Mapping[str, Tensor]
On = Literal["weights", "logits"]

# A user sets the other arguments of an operator, as in compose(bank, "name(key=value)").
OPERATORS = Registry("operator", given=("states", "plan", "logits"))


class Operator:
    """A registered function, what it works on, and the address of its paper.

    On weights it is called with `states` and `plan` and gives a state; on logits with `logits`, one
    N x C tensor per module, and gives N x C. Either way the modules come sorted by name.
    """

    def __init__(self, function: Callable[..., Any], on: On, paper: str) -> None:
        self.function = function
        self.on = on
        self.paper = paper
        self.__doc__ = function.__doc__
        self.__signature__ = inspect.signature(function)

    def __call__(self, *args: Any, **settings: Any) -> Any:
        return self.function(*args, **settings)


def operator(name: str, *, on: On, paper: str) -> Callable[[Callable[..., Any]], Operator]:
    """Register a function as an operator; its signature is its schema."""

    def add(function: Callable[..., Any]) -> Operator:
        OPERATORS[name] = made = Operator(function, on, paper)
        return made

    return add


@operator("sum", on="weights", paper="https://openreview.net/forum?id=Z0j9NJt08I")
def sum_of_weights(states: Sequence[State], plan: Plan) -> dict[str, Tensor]:
    """theta = sum of theta_i; a unit's statistics are averaged over the modules that keep it."""
    return {
        name: _sum([state[name] for state in states]) if entry.learned else _buffer(name, states)
        for name, entry in plan.items()
    }


@operator("logits", on="logits", paper="https://doi.org/10.1162/089976602760128018")
def sum_of_logits(logits: Sequence[Tensor]) -> Tensor:
    """z = sum of z_i, a product of experts: those that are uniform drop out."""
    return _sum(logits)


def _sum(tensors: Sequence[Tensor]) -> Tensor:
    # One after another: the order of a reduction over a stacked axis is not ours to know.
    return reduce(torch.add, tensors)


def _buffer(name: str, states: Sequence[State]) -> Tensor:
    """The mean over the modules whose normalisation weight is not pruned; of counts the largest."""
    tensors = [state[name] for state in states]
    if not tensors[0].is_floating_point():
        return reduce(torch.maximum, tensors)
    gain = name.rpartition(".")[0] + ".weight"
    kept = [
        (state[gain] != 0).to(tensor.dtype)
        if gain in state and state[gain].shape == tensor.shape
        else torch.ones_like(tensor)
        for state, tensor in zip(states, tensors, strict=True)
    ]
    keepers = _sum(kept)
    everyone = _sum(tensors) / len(tensors)
    mean = _sum([t * k for t, k in zip(tensors, kept, strict=True)]) / keepers.clamp_min(1)
    return torch.where(keepers > 0, mean, everyone)
