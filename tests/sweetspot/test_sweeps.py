"""Sweeps: the pictures of networks whose weight was written anew."""

from typing import Any

import pytest
import torch

from intarsia.errors import RecipeError
from intarsia.sweetspot import PatternNetwork, initial_bank, load_network, prune, sweep


@pytest.fixture(scope="module")
def totem() -> PatternNetwork:
    return load_network("totem")


def place_in(network: PatternNetwork, layer: int) -> tuple[int, int, int]:
    """The first weight of a layer that is not 0."""
    row, column = network.weights[layer].nonzero()[0].tolist()
    return layer, row, column


def test_each_step_is_the_picture_of_another_network(totem: PatternNetwork) -> None:
    layer, row, column = place = place_in(totem, 1)
    result = sweep(totem, place, size=16)
    assert result.steps == (-1, -0.5, 0, 0.5, 1)
    assert result.place == place
    assert result.value == float(totem.weights[layer][row, column])
    assert result.labels == [f"{result.value + step:.2f}" for step in result.steps]
    for step, picture in zip(result.steps, result.pictures, strict=True):
        weights = [w.clone() for w in totem.weights]
        weights[layer][row, column] += step
        assert torch.allclose(picture, PatternNetwork(totem.layout, weights).image(16), atol=1e-5)
    assert torch.allclose(result.pictures[2], totem.image(16), atol=1e-5)


def test_a_number_counts_the_weights_that_are_not_0(totem: PatternNetwork) -> None:
    places = [sweep(totem, n, steps=[0], size=4).place for n in range(totem.nonzero)]
    assert len(set(places)) == totem.nonzero
    assert places == sorted(places)
    assert all(totem.weights[layer][row, column] != 0 for layer, row, column in places)
    with pytest.raises(RecipeError, match=f"0 to {totem.nonzero - 1}"):
        sweep(totem, totem.nonzero)


def test_along_a_row_a_random_direction_of_length_one(totem: PatternNetwork) -> None:
    layer, row, column = place_in(totem, 1)
    result = sweep(totem, (layer, row, column), along="row", size=16)
    assert result.direction is not None
    assert float(result.direction.norm()) == pytest.approx(1)
    assert not result.direction[totem.weights[layer][row] == 0].any()
    assert result.labels[0] == "-1.00"
    weights = [w.clone() for w in totem.weights]
    weights[layer][row] += result.direction
    expected = PatternNetwork(totem.layout, weights).image(16)
    assert torch.allclose(result.pictures[-1], expected, atol=1e-5)
    pruned = prune(initial_bank(totem.layout, 1), "magnitude", weights=200)[0]
    assert pruned.masks is not None
    place = pruned.masks[2].nonzero()[0].tolist()
    other = sweep(pruned, (2, *place), along="row", size=4)
    assert other.direction is not None
    assert torch.equal(other.direction != 0, pruned.masks[2][place[0]])
    seeds = [sweep(totem, 9, along="row", seed=s, size=4).direction for s in (0, 0, 1)]
    assert torch.equal(seeds[0], seeds[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight": (0, 0, 9)}, "there is no weight"),
        ({"weight": True}, "there is no weight True"),
        ({"weight": 0, "along": "column"}, "'weight' or 'row'"),
        ({"weight": 0, "steps": []}, "at least one finite"),
        ({"weight": 0, "steps": [float("nan")]}, "at least one finite"),
        ({"weight": 0, "steps": ["a"]}, "expected numbers"),
    ],
)
def test_what_cannot_be_swept_is_said(
    totem: PatternNetwork, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        sweep(totem, **settings)
