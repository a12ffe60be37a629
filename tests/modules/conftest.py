"""Small modules, with weights of an origin and a random mask."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from intarsia.models import initialise
from intarsia.modules import Module
from small_modules import masked, small_module


def build_module(
    name: str = "2",
    model: Any = "mlp(8)",
    shape: tuple[int, ...] = (6,),
    density: float = 0.3,
    seed: int = 0,
    **changes: Any,
) -> Module:
    catalogue = changes.pop("catalogue", ("0", "1", "2", "3"))
    outputs = changes.pop("outputs", len(catalogue))
    network = initialise(model, shape, outputs, seed)
    state, mask = masked(network, density, torch.Generator().manual_seed(seed))
    changes = {"provenance": {"seed": seed, "scores": {"accuracy": 0.5}}} | changes
    return small_module(name, state, mask, catalogue, model, shape, outputs, **changes)


@pytest.fixture
def make_module() -> Callable[..., Module]:
    return build_module


@pytest.fixture
def module() -> Module:
    return build_module()
