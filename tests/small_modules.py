"""Small modules for tests that need no training, and compositions compared to the last bit."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.composition import Composition
from intarsia.data import Scaling
from intarsia.modules import Architecture, Base, Module

SHAPES = {
    "mlp(9, 8)": (1, 4, 3),
    "lenet": (2, 8, 8),
    "resnet18(2)": (3, 8, 8),
    "vgg11(2)": (3, 64, 64),
    "fastnet(2)": (3, 9, 9),
}
"""Small ones of our networks, and inputs that they can read."""


def small_module(
    name: str,
    state: dict[str, Tensor],
    mask: dict[str, Tensor],
    catalogue: Sequence[str],
    model: Any,
    shape: tuple[int, ...],
    outputs: int | None = None,
    **others: Any,
) -> Module:
    """A module for the class of its name; `others` are fields of the module, such as its origin."""
    fields = {
        "rewarded": (name,),
        "architecture": Architecture.of(model, shape, outputs or len(catalogue)),
        "scaling": Scaling("unit", torch.tensor(0.0), torch.tensor(1 / 255)),
        "temperature": 5.0,
        "origin": "0" * 64,
        "factory": model if callable(model) else None,
    }
    return Module(name=name, state=state, mask=mask, catalogue=catalogue, **(fields | others))


def masked(
    network: nn.Module,
    density: float,
    generator: torch.Generator,
    state: Mapping[str, Tensor] | None = None,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The state, by default the network's, with a random mask over its parameters, and the mask."""
    full = dict(network.state_dict() if state is None else state)
    mask = {
        key: torch.rand(full[key].shape, generator=generator) < density
        for key, _ in network.named_parameters()
    }
    return full | {key: full[key] * kept for key, kept in mask.items()}, mask


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


def of_a_base(parts: Sequence[Module], origin: Mapping[str, Tensor]) -> list[Module]:
    """Modules of mlp(7) without their masks, as changes of their origin."""
    base = Base(dict(origin))
    return [
        small_module(
            part.name,
            dict(part.state),
            {},
            part.catalogue,
            "mlp(7)",
            (6,),
            origin=base.digest,
            base=base,
        )
        for part in parts
    ]
