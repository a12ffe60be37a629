"""Modules over a larger catalogue: old logits stay, the new class has no evidence."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from intarsia.errors import ModelError, WiringError
from intarsia.modules import Module
from intarsia.modules.grow import grown

Make = Callable[..., Module]
OLD = ("0", "1", "2", "3")


@pytest.mark.parametrize(
    ("model", "shape"), [("mlp(8)", (6,)), ("mlp([])", (6,)), ("lenet", (1, 28, 28))]
)
def test_old_logits_stay_and_new_ones_are_their_mean(
    make_module: Make, model: str, shape: tuple[int, ...]
) -> None:
    module = make_module(model=model, shape=shape)
    larger = grown(module, ("new", "0", "1", "2", "3", "last"))
    x = torch.rand(7, *shape) * 255
    with torch.no_grad():
        before, after = module.to_module()(x), larger.to_module()(x)
    assert torch.allclose(after[:, 1:5], before, atol=1e-5)
    for column in (0, 5):
        assert torch.allclose(after[:, column], before.mean(dim=1), atol=1e-5)


def test_rows_are_the_old_ones_and_their_mean_by_hand(make_module: Make) -> None:
    module = make_module()
    larger = grown(module, (*OLD, "4"))
    rows, row = larger.state["layers.1.weight"][:4], larger.state["layers.1.weight"][4]
    assert torch.equal(rows, module.state["layers.1.weight"])
    assert torch.allclose(row, sum(rows) / 4)  # type: ignore[arg-type]
    mask = larger.mask["layers.1.weight"]
    assert torch.equal(mask[:4], module.mask["layers.1.weight"])
    assert torch.equal(mask[4], module.mask["layers.1.weight"].any(dim=0))
    for name in ("layers.0.weight", "layers.0.bias"):
        assert torch.equal(larger.state[name], module.state[name])
    assert larger.architecture.outputs == 5
    assert larger.rewarded == module.rewarded


def test_growing_in_two_steps_gives_the_bytes_of_one(make_module: Make) -> None:
    module = make_module()
    steps = grown(grown(module, ("a", *OLD)), ("a", *OLD, "b"))
    assert steps.digest == grown(module, ("a", *OLD, "b")).digest


def test_the_same_catalogue_is_the_same_module(module: Module) -> None:
    assert grown(module, OLD) is module


@pytest.mark.parametrize("origins", [("a" * 64, "a" * 64), ("a" * 64, "b" * 64)])
def test_origins_follow_from_the_old_ones(make_module: Make, origins: tuple[str, str]) -> None:
    one, other = (make_module(name=str(i), origin=origin) for i, origin in enumerate(origins))
    wide = [grown(module, (*OLD, "4")) for module in (one, other)]
    assert (wide[0].origin == wide[1].origin) == (origins[0] == origins[1])
    assert wide[0].origin != one.origin
    assert grown(one, (*OLD, "5")).origin != wide[0].origin


def test_an_explicit_other_stays_last_and_out_of_the_mean(make_module: Make) -> None:
    module = make_module(outputs=5)
    larger = grown(module, (*OLD, "4"))
    weight = larger.state["layers.1.weight"]
    assert larger.architecture.outputs == 6
    assert torch.equal(weight[5], module.state["layers.1.weight"][4])
    assert torch.allclose(weight[4], module.state["layers.1.weight"][:4].mean(dim=0))


def test_saves_and_loads_like_any_module(make_module: Make, tmp_path: object) -> None:
    larger = grown(make_module(), (*OLD, "4"))
    path = f"{tmp_path}/grown.safetensors"
    larger.save(path)
    again = Module.load(path)
    assert again.digest == larger.digest
    assert again.provenance["grown"]["catalogue"] == list(OLD)


def test_a_forged_history_is_not_believed(make_module: Make) -> None:
    module = make_module()
    for forged in (3, {"origin": "x"}, {"origin": "x", "catalogue": ["9"]}):
        provenance = {**module.provenance, "grown": forged}
        larger = grown(replace(module, provenance=provenance), (*OLD, "4"))
        assert larger.origin == grown(module, (*OLD, "4")).origin


@pytest.mark.parametrize("catalogue", [("0", "1", "2"), (*OLD, "4", "4"), ()])
def test_catalogues_that_do_not_fit_are_refused(module: Module, catalogue: tuple[str]) -> None:
    with pytest.raises(ModelError, match="cannot grow"):
        grown(module, catalogue)


def test_outputs_that_meet_cannot_grow(make_module: Make) -> None:
    module = make_module(model=_normalised_outputs, density=1.0)
    with pytest.raises(WiringError, match="meet"):
        grown(module, (*OLD, "4"))


def _normalised_outputs(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], outputs), nn.LayerNorm(outputs))


@pytest.mark.parametrize("known", [[["0"]], [0], "0123", None])
def test_a_provenance_that_makes_no_sense_is_not_followed(make_module: Make, known: object) -> None:
    module = make_module()
    odd = replace(module, provenance={"grown": {"origin": "x", "catalogue": known}})
    assert grown(odd, (*OLD, "4")).origin == grown(module, (*OLD, "4")).origin
