"""What all prunings may touch: weights, their biases if asked, never normalisation."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from intarsia.errors import RecipeError
from intarsia.pruning import PRUNINGS, Group, density, normalisations, prunable


def test_without_a_wiring_the_dimensions_decide() -> None:
    state = {
        "a.weight": torch.zeros(3, 2),
        "a.bias": torch.zeros(3),
        "conv.weight": torch.zeros(3, 2, 1, 1),
        "scale": torch.zeros(3),
        "lonely.bias": torch.zeros(3),
        "table": torch.zeros(4, 4, dtype=torch.int64),
        "norm.weight": torch.zeros(3, 3),
        "norm.bias": torch.zeros(3),
    }
    weights = ["a.weight", "conv.weight"]
    assert prunable(state, None, spared={"norm.weight"}) == weights
    assert prunable(state, None, biases=True, spared={"norm.weight"}) == [*weights, "a.bias"]
    with pytest.raises(RecipeError, match="no weight matrix"):
        prunable({"bias": torch.zeros(3)}, None)


def test_layers_that_normalise_are_found_by_class_by_name_and_by_weight_norm() -> None:
    class StrangeNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.ones(2))

    network = nn.ModuleDict(
        {
            "plain": nn.Linear(2, 2),
            "batch": nn.BatchNorm1d(2),
            "layer": nn.LayerNorm(2),
            "group": nn.GroupNorm(1, 2),
            "root": nn.RMSNorm(2),
            "own": StrangeNorm(),
            "new": parametrizations.weight_norm(nn.Linear(2, 2)),
            "turned": parametrizations.orthogonal(nn.Linear(2, 2)),
        }
    )
    old = nn.Module()
    old.weight_g, old.weight_v = nn.Parameter(torch.ones(2, 1)), nn.Parameter(torch.ones(2, 2))
    old.other_g = nn.Parameter(torch.ones(2, 1))
    network["old"] = old
    assert normalisations(network) == {
        *("batch.weight", "batch.bias", "layer.weight", "layer.bias", "group.weight"),
        *("group.bias", "root.weight", "own.gain", "old.weight_g"),
        "new.parametrizations.weight.original0",
    }
    assert normalisations(nn.LayerNorm(2)) == {"weight", "bias"}


@pytest.mark.parametrize("rule", ["magnitude", "random"])
def test_what_is_spared_stays(rule: str) -> None:
    """Also where no unit has a name: weights go one by one."""
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.randn(4, 5, generator=generator) for name in ("a.weight", "g")}
    group = Group([state], [{}], None, 0.5, [0], [3], spared={"g"})
    (mask,) = PRUNINGS.call(PRUNINGS.spec(rule), group=group)
    assert list(mask) == ["a.weight"]
    assert int(mask["a.weight"].sum()) == 10


def test_density_is_of_all_parameters() -> None:
    parameters = {"a": torch.zeros(4, 5), "b": torch.zeros(5)}
    mask = {"a": torch.arange(20).reshape(4, 5) < 8}
    assert density(mask, parameters) == pytest.approx(13 / 25)


def test_traits_are_off_unless_given() -> None:
    entry = PRUNINGS.entry("random")
    assert not any((entry.whole_group, entry.needs_units, entry.own_sparsity))
    for rule in ("magnitude", "random"):
        assert not PRUNINGS.entry(rule).before_training(PRUNINGS.settings(rule))
        layer = f"{rule}(scope='layer')"
        assert PRUNINGS.entry(rule).ranks_layers_together(PRUNINGS.settings(rule))
        assert not PRUNINGS.entry(rule).ranks_layers_together(PRUNINGS.settings(layer))
    territory = PRUNINGS.settings("territory")
    assert not PRUNINGS.entry("territory").ranks_layers_together(territory)
