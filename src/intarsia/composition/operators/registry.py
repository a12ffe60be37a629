"""What an operator is: a pure function on states or on logits, registered with its traits."""

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

MaskOf = Callable[..., Mapping[str, Tensor]]  # of a MergeContext

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
    weight_sum=False,
    mask=None,
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
    weight_sum: bool = False,
    mask: MaskOf | None = None,
) -> Callable[[Callable[..., Any]], Operator]:
    """Register a function as an operator; its signature is its schema.

    It is called with what it works on and the `context` of the parts (see MergeContext):

    - on weights, `states` of one shape give a state of that shape;
    - on units, they give a state with more units on some hidden axes;
    - on logits, one N x C tensor per part gives N x C.

    The parts come sorted by name. The other traits:

    - `samples`: it looks at samples, which must then be given;
    - `colour`: its own in figures, as #rrggbb; without it one is chosen;
    - `label`: what sentences call it instead of its name;
    - `logit_sum`: it gives exactly the sum of the parts' logits;
    - `weight_sum`: it adds up weights, so that parts which share no unit give the sum of their
      logits;
    - `mask`: for an operator on units, a function of the context that gives the mask of its state;
      without it those entries survive that are not 0.
    """

    def add(function: Callable[..., Any]) -> Operator:
        takes = list(inspect.signature(function).parameters)
        expected = ["logits" if on == "logits" else "states", "context"]
        if takes[:2] != expected:
            raise RecipeError(
                f"operator {name!r} takes ({', '.join(takes)}): expected ({', '.join(expected)}) "
                "first, then its settings"
            )
        OPERATORS.register(
            name,
            on=on,
            paper=paper,
            samples=samples,
            colour=colour,
            label=label,
            logit_sum=logit_sum,
            weight_sum=weight_sum,
            mask=mask,
        )(function)
        entry: Operator = OPERATORS[name]
        return entry

    return add


def total(tensors: Sequence[Tensor]) -> Tensor:
    """The sum, one after another: the order of a reduction over an axis is not ours to know."""
    return reduce(torch.add, tensors)
