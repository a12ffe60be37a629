"""What an operator is: a pure function on states or on logits, registered with its paper."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor

from intarsia.errors import RecipeError
from intarsia.specs import Registry

State = Mapping[str, Tensor]
On = Literal["weights", "units", "logits"]

# A user sets the other arguments of an operator, as in compose(bank, "name(key=value)").
OPERATORS = Registry("operator", given=("states", "logits", "ground"))
"""Ways of joining by name; `@operator(...)` adds one. Each entry is an Operator."""


class Operator:
    """A registered function, what it works on, and the address of its paper.

    It is called with what it works on and the `ground` that the parts stand on (see Ground):

    - on weights, `states` of one shape give a state of that shape;
    - on units, they give a state with more units on some hidden axes;
    - on logits, one N x C tensor per part gives N x C.

    The parts come sorted by name. One that `samples` must be given for says so.
    """

    def __init__(self, function: Callable[..., Any], on: On, paper: str, samples: bool) -> None:
        self.function = function
        self.on = on
        self.paper = paper
        self.samples = samples
        self.__doc__ = function.__doc__
        self.__signature__ = inspect.signature(function)

    def __call__(self, *args: Any, **settings: Any) -> Any:
        return self.function(*args, **settings)


def operator(
    name: str, *, on: On, paper: str, samples: bool = False
) -> Callable[[Callable[..., Any]], Operator]:
    """Register a function as an operator; its signature is its schema."""

    def add(function: Callable[..., Any]) -> Operator:
        takes = list(inspect.signature(function).parameters)
        expected = ["logits" if on == "logits" else "states", "ground"]
        if takes[:2] != expected:
            raise RecipeError(
                f"operator {name!r} takes ({', '.join(takes)}): expected ({', '.join(expected)}) "
                "first, then its settings"
            )
        OPERATORS[name] = made = Operator(function, on, paper, samples)
        return made

    return add


def total(tensors: Sequence[Tensor]) -> Tensor:
    """The sum, one after another: the order of a reduction over an axis is not ours to know."""
    return reduce(torch.add, tensors)
