"""What an operator is: a pure function on states or on logits, registered with its paper."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor

from intarsia.errors import RecipeError
from intarsia.specs import Registry, RegistryEntry

State = Mapping[str, Tensor]
On = Literal["weights", "units", "logits"]

# A user sets the other arguments of an operator, as in compose(bank, "name(key=value)").
OPERATORS = Registry(
    "operator",
    given=("states", "logits", "context"),
    on="weights",
    paper="",
    samples=False,
    colour=None,
    label="",
    logit_sum=False,
)
"""Ways of joining by name; `@operator(...)` adds one, with its traits."""

Operator = RegistryEntry


def operator(
    name: str,
    *,
    on: On,
    paper: str,
    samples: bool = False,
    colour: str | None = None,
    label: str = "",
    logit_sum: bool = False,
) -> Callable[[Callable[..., Any]], Operator]:
    """Register a function as an operator; its signature is its schema.

    It is called with what it works on and the `context` of the parts (see MergeContext):

    - on weights, `states` of one shape give a state of that shape;
    - on units, they give a state with more units on some hidden axes;
    - on logits, one N x C tensor per part gives N x C.

    The parts come sorted by name. One that `samples` must be given for says so. `colour` is the
    operator's own in figures, as #rrggbb; without it one is chosen. `label` is what sentences call
    it instead of its name, and `logit_sum` says that it gives exactly the sum of the parts' logits.
    """

    def add(function: Callable[..., Any]) -> Operator:
        takes = list(inspect.signature(function).parameters)
        expected = ["logits" if on == "logits" else "states", "context"]
        if takes[:2] != expected:
            raise RecipeError(
                f"operator {name!r} takes ({', '.join(takes)}): expected ({', '.join(expected)}) "
                "first, then its settings"
            )
        traits = {"colour": colour, "label": label, "logit_sum": logit_sum}
        OPERATORS.register(name, on=on, paper=paper, samples=samples, **traits)(function)
        entry: Operator = OPERATORS[name]
        return entry

    return add


def total(tensors: Sequence[Tensor]) -> Tensor:
    """The sum, one after another: the order of a reduction over an axis is not ours to know."""
    return reduce(torch.add, tensors)
