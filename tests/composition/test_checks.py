"""What is wrong with a composition, besides what is wrong with its parts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from intarsia.composition import Composition, MergeContext, compose
from intarsia.errors import HealthWarning
from intarsia.modules import Module

Make = Callable[..., MergeContext]


def silent(module: Module) -> Module:
    """The module with hidden units that never speak: weights everywhere, and the same answers."""
    low = torch.full_like(module.state["layers.0.bias"], -1e9)
    mask = {k: v for k, v in module.mask.items() if k != "layers.0.bias"}
    return replace(module, state={**module.state, "layers.0.bias": low}, mask=mask)


@pytest.mark.parametrize("operator", ["sum", "logits", "inlay"])
def test_parts_that_speak_make_a_healthy_composition(make_context: Make, operator: str) -> None:
    assert compose(make_context(3).parts, operator).health.ok


@pytest.mark.parametrize("operator", ["logits", "inlay", "mean"])
@pytest.mark.parametrize("given", [False, True])
def test_a_whole_that_answers_the_same_is_dead(
    make_context: Make, operator: str, given: bool
) -> None:
    """Its weights do not tell: it is asked, about its samples if it has any."""
    parts = [silent(part) for part in make_context(3).parts]
    assert all(part.health.ok for part in parts)
    samples = torch.arange(60.0).reshape(10, 6) if given else None
    with pytest.warns(HealthWarning, match="dead: 'composition'"):
        merged = compose(parts, operator, samples=samples)
    (finding,) = merged.health.findings
    what = "10 samples" if given else "32 inputs that were made up"
    assert finding.message == f"it answers the same to all of {what}"


def test_samples_that_are_all_the_same_prove_nothing(make_context: Make) -> None:
    merged = compose(make_context(2).parts, "logits", samples=torch.ones(20, 6))
    assert merged.health.ok


def test_health_follows_what_is_added_and_removed(make_context: Make) -> None:
    one, two, three = make_context(3).parts
    merged = compose([silent(one), silent(two)], "logits")
    assert not merged.health.ok
    merged.add(three)
    assert merged.health.ok
    merged.remove(three)
    assert not merged.health.ok


def test_classes_that_are_counted_more_often_are_inconsistent(make_context: Make) -> None:
    uneven = make_context(3, rewarded=(("a",), ("a", "b"), ("c",))).parts
    with pytest.warns(HealthWarning, match="inconsistent"):
        (finding,) = compose(uneven, "logits").health.findings
    assert finding.message.startswith("2 parts reward 'a' and 1 ")
    even = make_context(2, rewarded=(("a", "b"), ("a", "b"))).parts  # an ensemble
    assert compose(even, "logits").health.ok


def test_a_saved_whole_says_it_and_a_healthy_one_is_as_it_was(
    make_context: Make, tmp_path: Path
) -> None:
    path = tmp_path / "whole.safetensors"
    parts = [silent(part) for part in make_context(2).parts]
    compose(parts, "logits").save(path)
    with pytest.warns(HealthWarning, match=r"whole\.safetensors is not healthy: dead"):
        loaded = Composition.load(path)
    assert loaded.health == compose(parts, "logits").health
    loaded.save(tmp_path / "again.safetensors")
    assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()


def test_a_network_that_cannot_read_made_up_inputs_is_joined_all_the_same(
    make_context: Make,
) -> None:
    class Picky(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            if float(x.abs().max()) > 3:
                raise ValueError("out of range")
            return super().forward(x)

    parts = make_context(2, model=lambda shape, outputs: Picky(*shape, outputs)).parts
    assert compose(parts, "logits").health.ok
