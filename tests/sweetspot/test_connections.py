"""Connections of a network: their names, and their effects against differences of pictures."""

import pytest
import torch

from intarsia.errors import RecipeError
from intarsia.sweetspot import PatternNetwork, connections, load_network
from intarsia.sweetspot.networks import PatternLayout
from intarsia.sweetspot.pattern_scores import PerturbedPictures
from intarsia.sweetspot.sweeps import unit_names, weight_effects


@pytest.fixture(scope="module")
def totem() -> PatternNetwork:
    return load_network("totem")


def test_effects_are_the_slopes_of_the_picture(totem: PatternNetwork) -> None:
    listed = connections(totem, size=32)
    step = 1e-3
    perturbed = PerturbedPictures(totem, 32)
    for one in listed[:: len(listed) // 12]:
        pictures = next(perturbed.each([one.place] * 2, torch.tensor([step, -step])))
        slope = float(((pictures[0] - pictures[1]) / (2 * step)).square().mean().sqrt())
        assert one.effect == pytest.approx(slope, rel=0.02, abs=1e-3)


def test_every_weight_that_is_not_0_is_listed_by_its_effect(totem: PatternNetwork) -> None:
    listed = connections(totem)
    assert len(listed) == len({one.place for one in listed}) == totem.nonzero
    effects = [one.effect for one in listed]
    assert effects == sorted(effects, reverse=True)
    for layer, row, column in (one.place for one in listed[:5]):
        own = next(one for one in connections(totem, layer) if one.place[1:] == (row, column))
        assert own in listed
        assert own.value == float(totem.weights[layer][row, column])
    assert all(one.place[0] == 2 for one in connections(totem, 2))
    assert [tuple(own.shape) for own in weight_effects(totem, 8)] == totem.layout.shapes
    with pytest.raises(RecipeError, match="there is no weight"):
        connections(totem, 99)


def test_units_are_called_by_activation_and_number() -> None:
    layout = PatternLayout((("cache", 2), ("sin", 1), ("cache", 1)), 2)
    assert unit_names(layout, 1) == ("cache 1", "cache 2", "sin 1", "cache 3")
    assert unit_names(layout, 0) == ("x", "y", "distance", "1")
    assert unit_names(layout, 3) == ("hue", "saturation", "value")


def test_a_unit_draws_what_the_whole_network_with_the_weight_changed_has_there(
    totem: PatternNetwork,
) -> None:
    perturbed = PerturbedPictures(totem, 12)
    for layer in (0, 3, totem.layout.depth):
        place = connections(totem, layer)[0].place
        weights = [w.clone() for w in totem.weights]
        weights[layer][place[1], place[2]] += 0.4
        moved = PatternNetwork(totem.layout, tuple(weights))
        drawn = perturbed.unit_map(place, 0.4)
        if layer < totem.layout.depth:
            assert torch.allclose(drawn, moved.maps(12)[layer][place[1]], atol=1e-5)
        else:
            last = weights[-1] @ moved.maps(12)[-1].flatten(1)
            assert torch.allclose(drawn.flatten(), last[place[1]], atol=1e-5)
