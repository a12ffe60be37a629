"""Small modules for tests that need no training, and compositions compared to the last bit."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from intarsia.composition import Composition
from intarsia.data import Scaling
from intarsia.modules import Architecture, Module


def small_module(
    name: str,
    state: dict[str, Tensor],
    mask: dict[str, Tensor],
    catalogue: Sequence[str],
    model: str,
    shape: tuple[int, ...],
    **others: Any,
) -> Module:
    """A module for the class of its name; `others` are fields of the module, such as its origin."""
    fields = {
        "rewarded": (name,),
        "architecture": Architecture.of(model, shape, len(catalogue)),
        "scaling": Scaling("unit", torch.tensor(0.0), torch.tensor(1 / 255)),
        "temperature": 5.0,
        "origin": "0" * 64,
    }
    return Module(name=name, state=state, mask=mask, catalogue=catalogue, **(fields | others))


def same(one: Composition, other: Composition, x: Tensor) -> bool:
    """Equal to the last bit: weights, answers to `x` and what is reported about them."""
    states = one.state_dict(), other.state_dict()
    with torch.no_grad():
        equal = torch.equal(one(x), other(x))
    return (
        equal
        and states[0].keys() == states[1].keys()
        and all(torch.equal(v, states[1][k]) for k, v in states[0].items())
        and one.report == other.report
    )
