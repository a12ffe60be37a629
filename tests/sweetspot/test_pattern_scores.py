"""Scores against plain loops, and the numbers of the published networks."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from intarsia.errors import DataError, RecipeError
from intarsia.sweetspot import (
    Inflation,
    PatternLayout,
    PatternNetwork,
    distinct_maps,
    inflation,
    initial_bank,
    judged,
    load_network,
    orthogonality,
    perturb,
    png_ratio,
    published_picture,
)
from intarsia.sweetspot.pattern_scores import PerturbedPictures, check_place, choose_weights
from intarsia.sweetspot.pictures import png, png_encoder

PUBLISHED = ("skull", "butterfly", "apple")


@pytest.fixture(scope="module")
def totem() -> PatternNetwork:
    return load_network("totem")


def changed(network: PatternNetwork, place: tuple[int, int, int], change: float) -> PatternNetwork:
    """The network with one weight written anew."""
    weights = [w.clone() for w in network.weights]
    weights[place[0]][place[1], place[2]] += change
    return PatternNetwork(network.layout, weights)


def test_perturbed_pictures_are_those_of_changed_networks(totem: PatternNetwork) -> None:
    places = choose_weights(totem, None, torch.Generator())
    assert len(places) == totem.nonzero
    changes = torch.linspace(-1, 1, len(places))
    pictures = perturb(totem, places, changes, size=12)
    for place, change, picture in zip(places, changes, pictures, strict=True):
        assert torch.allclose(picture, changed(totem, place, change).image(12), atol=1e-5)


def test_pictures_do_not_depend_on_how_many_are_made_at_once(
    totem: PatternNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = choose_weights(totem, 9, torch.Generator().manual_seed(0))
    whole = perturb(totem, places, 0.3, size=12)
    monkeypatch.setattr("intarsia.sweetspot.pattern_scores.CHUNK", 2 * 12 * 12 * 10)
    assert torch.allclose(perturb(totem, places, 0.3, size=12), whole, atol=1e-6)


def test_inflation_is_what_a_loop_over_weights_measures(totem: PatternNetwork) -> None:
    result = inflation(totem, size=16, weights=12)
    before = totem.image(16)
    assert result.tried == 12
    assert 4 <= len(result.ratios) <= 12
    rows = zip(result.places, result.changes, result.errors, result.ratios, strict=True)
    for place, change, error, ratio in rows:
        after = changed(totem, place, float(change)).image(16)
        assert float((after - before).square().mean()) == pytest.approx(float(error), rel=1e-3)
        assert 0.01 <= error <= 0.04
        assert len(png(after)) / len(png(before)) == pytest.approx(float(ratio), rel=0.02)
    assert (result.errors - 0.02).abs().median() < 0.002
    assert result.median == pytest.approx(float(result.ratios.quantile(0.5)))
    assert result.to_json() == {
        "median": result.median,
        "weights": len(result.ratios),
        "tried": 12,
        "encoder": png_encoder(),
    }


def test_only_errors_in_the_window_count(
    totem: PatternNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = torch.tensor([0.005, 0.011, 0.02, 0.039, 0.041, math.inf])

    def bisected(*_: object) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(6.0), errors

    monkeypatch.setattr("intarsia.sweetspot.pattern_scores._bisect", bisected)
    result = inflation(totem, size=8, weights=6)
    assert result.changes.tolist() == [1, 2, 3]
    assert result.tried == 6


def test_signs_and_weights_follow_the_seed(totem: PatternNetwork) -> None:
    one, same, other = (inflation(totem, size=12, weights=8, seed=s) for s in (0, 0, 1))
    assert one.places == same.places
    assert torch.equal(one.changes, same.changes)
    assert one.places != other.places
    signs = inflation(totem, size=12, weights=None).changes.sign()
    assert len(signs.unique()) == 2


def test_a_picture_that_no_weight_moves_has_no_score() -> None:
    layout = PatternLayout("cache 3", 2)
    still = PatternNetwork(layout, [torch.zeros(s) for s in layout.shapes])
    with pytest.raises(DataError, match="no weight that is not 0"):
        inflation(still)
    weights = [torch.zeros(s) for s in layout.shapes]
    weights[0][0, 0] = 1.0  # nothing reads the unit
    result = inflation(PatternNetwork(layout, weights), size=8)
    assert (len(result.ratios), result.tried) == (0, 1)
    assert math.isnan(result.median)
    assert result.to_json()["median"] is None
    assert math.isnan(result.auc(result))


def test_auc_counts_pairs_and_halves_of_ties() -> None:
    def of(*ratios: float) -> Inflation:
        numbers = torch.tensor(ratios, dtype=torch.float64)
        return Inflation(numbers, (), numbers, numbers, len(ratios))

    assert of(1, 2).auc(of(3, 4)) == 1
    assert of(3, 4).auc(of(1, 2)) == 0
    assert of(1, 2, 3).auc(of(2)) == pytest.approx((1 + 0.5) / 3)


def test_distinct_maps_by_hand() -> None:
    """x, twice x with an offset, y; then -x, a constant, x + y."""
    first = [[1.0, 0, 0, 0], [2.0, 0, 0, 1], [0, 1.0, 0, 0]]
    second = [[-1.0, 0, 0], [0, 0, 0], [1.0, 0, 1]]
    out = torch.ones(3, 3)
    net = PatternNetwork(
        PatternLayout("cache 3", 2), [torch.tensor(first), torch.tensor(second), out]
    )
    maps = distinct_maps(net, 16)
    assert maps.new.tolist() == [[True, False, True], [False, False, True]]
    assert maps.still.tolist() == [[False] * 3, [False, True, False]]
    assert (maps.count, maps.total) == (3, 5)
    # Of layer one the pairs are (1, 0, 0), of layer two x against x + y: 1 / sqrt(2).
    assert orthogonality(net, 16) == pytest.approx(1 - (1 + 0 + 0 + 0.5**0.5) / 4, abs=1e-6)


def test_no_pair_of_maps_has_no_orthogonality() -> None:
    layout = PatternLayout("cache 1", 2)
    assert math.isnan(orthogonality(initial_bank(layout, 1)[0], 8))


def test_a_judge_is_any_function_of_a_picture(totem: PatternNetwork) -> None:
    seen = []

    def judge(picture: torch.Tensor) -> bool:
        seen.append(picture)
        return len(seen) % 4 != 0

    assert judged(totem, judge, change=0.5, size=16, weights=12) == 0.75
    assert {tuple(picture.shape) for picture in seen} == {(16, 16, 3)}
    before = totem.image(16)
    assert all(0 <= float(p.min()) <= float(p.max()) <= 1 for p in seen)
    assert sum(not torch.allclose(p, before) for p in seen) > 8
    for kind in (np.bool_, torch.tensor):  # what comparisons of arrays and tensors give
        assert judged(totem, lambda picture, kind=kind: kind(True), size=8, weights=2) == 1  # type: ignore[misc]
    with pytest.raises(RecipeError, match="the judge answered 1"):
        judged(totem, lambda picture: torch.tensor(1), size=8, weights=1)  # type: ignore[arg-type,return-value]
    with pytest.raises(RecipeError, match="the judge answered 'yes'"):
        judged(totem, lambda picture: "yes", size=8, weights=1)  # type: ignore[arg-type,return-value]


def test_places_and_settings_are_checked(totem: PatternNetwork) -> None:
    assert check_place(totem, [0, 1, 2]) == (0, 1, 2)
    for place in [(0, 0, 4), (7, 0, 0), (-1, 0, 0), (0, 0), "abc", (0, 0.5, 1), None]:
        with pytest.raises(RecipeError, match="there is no weight"):
            check_place(totem, place)
    with pytest.raises(RecipeError, match="not in the window"):
        inflation(totem, error=0.1)
    with pytest.raises(RecipeError, match="weights is 0"):
        inflation(totem, weights=0)
    with pytest.raises(RecipeError, match="size is 0"):
        inflation(totem, size=0)
    with pytest.raises(RecipeError, match="error 'a' is not in the window"):
        inflation(totem, error="a")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="no weight is named"):
        perturb(totem, [], 0.1)
    for change in (math.nan, torch.ones(3)):
        with pytest.raises(RecipeError, match="one for each of the 2 weights"):
            perturb(totem, [(0, 0, 0), (0, 0, 1)], change)
    with pytest.raises(RecipeError, match="change is 'a'"):
        judged(totem, lambda picture: True, change="a")  # type: ignore[arg-type]


def test_the_slider_answers_while_a_hand_moves(totem: PatternNetwork) -> None:
    """What lies before the changed layer is not drawn anew."""
    pictures = PerturbedPictures(totem, 16)
    assert torch.allclose(pictures.picture, totem.image(16), atol=1e-6)
    again = next(pictures.each([(0, 0, 3)], torch.zeros(1)))[0]
    assert torch.allclose(again, pictures.picture, atol=1e-6)


@pytest.mark.parametrize("name", PUBLISHED)
def test_evolved_networks_have_a_tenth_of_the_maps(
    name: str, require_data: Callable[[str], Path]
) -> None:
    require_data(f"cppn/{name}")
    evolved, trained = (distinct_maps(load_network(n)) for n in (name, f"{name}-sgd"))
    assert (evolved.count, evolved.total) == {
        "skull": (20, 97),
        "butterfly": (33, 190),
        "apple": (72, 698),
    }[name]
    assert evolved.count <= trained.count / 10
    assert trained.count >= 0.99 * trained.total


def test_the_order_of_png_ratios_breaks_at_64_pixels(require_data: Callable[[str], Path]) -> None:
    """Depths are 12, 16 and 33: at 256 pixels the ratios rise with them, at 64 they do not."""
    for name in PUBLISHED:
        require_data(f"cppn/{name}")
    large = [png_ratio(published_picture(name)) for name in PUBLISHED]
    small = [png_ratio(load_network(name).image(64)) for name in PUBLISHED]
    assert large == sorted(large)
    assert large == pytest.approx([0.210, 0.226, 0.260], abs=0.01)
    assert small == pytest.approx([0.582, 0.415, 0.561], abs=0.02)
    assert small[0] > small[2] > small[1]


def test_inflation_tells_the_evolved_skull_from_its_twin(
    require_data: Callable[[str], Path],
) -> None:
    require_data("cppn/skull")
    evolved, trained = (load_network(name) for name in ("skull", "skull-sgd"))
    one, two = (inflation(net, weights=80) for net in (evolved, trained))
    assert one.auc(two) >= 0.93
    assert one.median < 1.01 < two.median


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_inflation_tells_evolved_networks_from_their_twins(
    name: str, require_data: Callable[[str], Path]
) -> None:
    require_data(f"cppn/{name}")
    evolved, trained = (load_network(n) for n in (name, f"{name}-sgd"))
    found = [inflation(evolved, seed=s).auc(inflation(trained, seed=s)) for s in range(5)]
    assert sum(found) / 5 >= 0.95


def test_a_weight_that_is_not_there_is_not_moved() -> None:
    network = load_network("totem")
    for place in ((9, 0, 0), (0, 0, 4), (0, -1, 0), (1, 0)):
        with pytest.raises(RecipeError, match="there is no weight"):
            perturb(network, [(0, 0, 0), place], 0.5, size=4)  # type: ignore[list-item]
