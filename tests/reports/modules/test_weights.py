"""Effective weights by the formula of a small network, and live units by a count."""

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.data import Scaling, Split
from intarsia.modules import Architecture
from intarsia.modules.compact import live_hidden_units
from intarsia.reports.modules.cards import effective_weights


def module(rewarded: tuple[str, ...], mask: dict[str, torch.Tensor] | None = None) -> ia.Module:
    """Four inputs, five hidden units, three classes, weights from a seed."""
    architecture = Architecture.of("mlp(5, dropout=0)", (4,), 3)
    draw = torch.Generator().manual_seed(1)
    state = {
        name: torch.randn(entry.shape, generator=draw)
        for name, entry in architecture.plan().items()
    }
    mask = mask or {}
    kept = {name: tensor * mask.get(name, 1) for name, tensor in state.items()}
    scaling = Scaling("standard", torch.full((4,), 2.0), torch.full((4,), 0.5))
    return ia.Module("m", kept, mask, rewarded, ("a", "b", "c"), architecture, scaling, 1.0, "o")


@pytest.fixture
def split() -> Split:
    draw = torch.Generator().manual_seed(2)
    return Split(torch.randn(40, 4, generator=draw) * 2 + 2, torch.arange(40) % 3)


def test_weights_are_those_of_every_way_to_the_logits(split: Split) -> None:
    seen = effective_weights(module(("b",)), split)
    state = {name: tensor.numpy() for name, tensor in module(("b",)).state.items()}
    own = (split.x[split.y == 1].numpy() - 2) * 0.5
    on = own @ state["layers.0.weight"].T + state["layers.0.bias"] > 0  # N, units
    last = state["layers.1.weight"]
    gap = last[1] - (last[0] + last[2]) / 2
    expected = (on.mean(axis=0) * gap) @ state["layers.0.weight"]
    np.testing.assert_allclose(seen, expected, rtol=1e-5)


def test_weights_without_data_are_repeatable_and_those_of_all_classes_are_none() -> None:
    one, other = (effective_weights(module(("a", "b")), None) for _ in range(2))
    assert one is not None
    np.testing.assert_array_equal(one, other)
    assert effective_weights(module(("a", "b", "c")), None) is None


def test_inputs_that_only_name_rows_have_no_weights() -> None:
    class Lookup(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table.weight.T[x.reshape(len(x)).long() % 4] + self.table.bias

    made = ia.Module.of(Lookup(), rewarded=["b"], catalogue=("a", "b", "c"), shape=(1,))
    assert effective_weights(made, None) is None


def test_a_class_without_samples_is_looked_at_without_data(split: Split) -> None:
    only = split.select([0])
    seen, expected = (effective_weights(module(("b",)), part) for part in (only, None))
    np.testing.assert_array_equal(seen, expected)


def test_live_units_are_those_that_reach_the_output() -> None:
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[:, [1, 4]] = False
    (units,) = live_hidden_units(module(("a",), {"layers.1.weight": mask})).values()
    assert units.tolist() == [True, False, True, True, False]
