"""Small modules, with weights of an origin and a random mask."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from intarsia.data import Scaling
from intarsia.models import initialise
from intarsia.modules import Architecture, Module


def build_module(
    name: str = "2",
    model: Any = "mlp(8)",
    shape: tuple[int, ...] = (6,),
    density: float = 0.3,
    seed: int = 0,
    **changes: Any,
) -> Module:
    catalogue = changes.get("catalogue", ("0", "1", "2", "3"))
    outputs = changes.pop("outputs", len(catalogue))
    network = initialise(model, shape, outputs, seed)
    generator = torch.Generator().manual_seed(seed)
    state, mask = dict(network.state_dict()), {}
    for key, _ in network.named_parameters():
        mask[key] = torch.rand(state[key].shape, generator=generator) < density
        state[key] = state[key] * mask[key]
    fields: dict[str, Any] = {
        "rewarded": (name,),
        "catalogue": catalogue,
        "architecture": Architecture.of(model, shape, outputs),
        "scaling": Scaling("unit", torch.tensor(0.0), torch.tensor(1 / 255)),
        "temperature": 5.0,
        "origin": "0" * 64,
        "provenance": {"seed": seed, "scores": {"accuracy": 0.5}},
        "factory": model if callable(model) else None,
    }
    return Module(name=name, state=state, mask=mask, **(fields | changes))


@pytest.fixture
def make_module() -> Callable[..., Module]:
    return build_module


@pytest.fixture
def module() -> Module:
    return build_module()
