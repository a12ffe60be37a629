"""Units of a vision transformer that changed places are found again."""

from dataclasses import replace

import pytest
import torch

import intarsia as ia
from intarsia.composition.alignment.align import How
from intarsia.composition.merge_context import MergeContext
from intarsia.models import initialise
from intarsia.models.axes import axis_sizes, hidden_axes
from intarsia.models.units import take_units
from intarsia.modules import Module


@pytest.fixture(scope="module")
def planted() -> tuple[Module, Module]:
    """A network, and itself with the residual stream, heads and hidden units in other places."""
    network = initialise("vit(patch=2, width=16, depth=2, heads=4)", (1, 8, 8), 3, 0)
    module = ia.Module.of(network, rewarded="a", catalogue="abc", shape=(1, 8, 8))
    wiring = MergeContext((module,)).wiring
    sizes = axis_sizes(wiring, module.state)
    draws = torch.Generator().manual_seed(0)
    orders = {a: torch.randperm(sizes[a], generator=draws) for a in hidden_axes(wiring)}
    assert sorted(sizes[axis] for axis in orders) == [4, 4, 16, 64, 64]
    moved = take_units(module.state, wiring, orders)
    return module, replace(module, state=moved, mask=take_units(module.mask, wiring, orders))


@pytest.mark.parametrize("how", ["weights", "activations"])
def test_planted_permutations_are_found(planted: tuple[Module, Module], how: How) -> None:
    samples = torch.randn(200, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    first, moved = planted
    assert any(not torch.equal(moved.state[name], own) for name, own in first.state.items())
    _, found = ia.align([first, moved], how, samples if how == "activations" else None)
    for name, own in first.state.items():
        assert torch.equal(found.state[name], own), name
