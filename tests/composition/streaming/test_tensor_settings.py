"""Settings by name and layer: the values that mergekit finds, or a reason why there is none."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from intarsia.composition.streaming.tensor_settings import (
    TensorPlace,
    TensorSetting,
    tensor_places,
)
from intarsia.errors import RecipeError

NAMES = ("model.embed_tokens.weight", "model.layers.0.mlp.up.weight", "model.norm.weight")
GIVEN: list[Any] = [
    0.3,
    [0.25],
    [0, 0.5, 0.3, 0.7, 1],
    ["1e-3", 2],
    {"value": [1, 0]},
    {"filter": "mlp", "value": 0.2},
    [{"filter": "mlp", "value": [0.1, 0.4, 0.2]}, {"filter": "norm", "value": 1}, {"value": 0}],
    [{"filter": "embed", "value": 3}, {"filter": "*", "value": [5, 7]}, {"value": 9}],
]


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_values_are_mergekits(given: Any, library: Callable[[str], ModuleType]) -> None:
    config, pydantic = library("mergekit.config"), library("pydantic")
    theirs = config.MergeConfiguration.model_validate(
        {"merge_method": "slerp", "models": [{"model": "a"}], "parameters": {"t": given}}
    ).parameters["t"]
    validate = pydantic.TypeAdapter(float).validate_python
    ours = TensorSetting.read("t", given)
    for name in NAMES:
        for depth in (0, 0.1, 1 / 3, 0.5, 0.8, 1):
            expected = config.evaluate_setting(name, theirs, depth, validate=validate)
            assert ours.at(TensorPlace(name, depth=depth)) == expected, (name, depth)


def test_flags_are_not_interpolated(library: Callable[[str], ModuleType]) -> None:
    config, given = library("mergekit.config"), [True, False, True]
    ours = TensorSetting.read("normalize", given, flag=True)
    for depth in (0, 0.3, 0.5, 0.9, 1):
        expected = config.evaluate_setting("x", given, depth, validate=bool)
        assert ours.at(TensorPlace("x", depth=depth)) is expected
    with pytest.raises(RecipeError, match=r"normalize is 0\.5: expected true or false"):
        TensorSetting.read("normalize", [True, 0.5], flag=True)


def names_of(layers: int, stack: str = "model.layers") -> list[str]:
    return [*(f"{stack}.{i}.mlp.experts.7.weight" for i in range(layers)), "lm_head.weight"]


def test_depth_goes_over_the_layers_of_a_slice() -> None:
    places = {p.name: p for p in tensor_places(names_of(5))}
    assert [places[name].depth for name in names_of(5)] == [0, 0.25, 0.5, 0.75, 1, 0]
    spans = [(0, 1), (1, 4), (4, 5)]
    names = [*names_of(5), "model.embed_tokens.weight", "embed_out.weight", "extra"]
    by_name = {p.name: (p.slices, p.depth) for p in tensor_places(names, spans, 5)}
    expected = [((0,), 1), ((1,), 0), ((1,), 0.5), ((1,), 1), ((2,), 1), ((2,), 0)]
    assert [by_name[name] for name in names_of(5)] == expected
    assert by_name["model.embed_tokens.weight"] == ((0,), 0)
    assert by_name["embed_out.weight"] == ((2,), 0)
    assert list(by_name["extra"][0]) == [0, 2]


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (names_of(3) + names_of(2, "vision.blocks"), None),  # two stacks
        (names_of(3), 2),  # one more than the config has
        (names_of(3)[1:], None),  # no layer 0
        (["weight", "bias"], None),  # no layers
    ],
)
def test_layers_that_are_not_one_stack_have_no_depth(names: list[str], counted: int | None) -> None:
    assert {place.depth for place in tensor_places(names, (), counted)} == {None}
    with pytest.raises(RecipeError, match="do not say which layers there are"):
        list(tensor_places(names, [(0, 1), (1, 3)], counted))


def test_filters_that_never_count_are_idle() -> None:
    conditions = [("mlp", 1), ("mlp.up", 2), ("none", 3), ("norm", 4)]
    given: list[Any] = [{"filter": part, "value": value} for part, value in conditions]
    setting = TensorSetting.read("t", [*given, {"value": 5}])
    assert setting.idle_filters(NAMES) == ["mlp.up", "none"]
