"""Networks that were trained elsewhere, as modules."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.errors import CompositionError, ModelError

CATALOGUE = ("a", "b", "c")


def network(seed: int = 0, outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, outputs))


def test_a_module_answers_as_its_network(tmp_path: Path) -> None:
    mine = network()
    module = ia.Module.of(mine, rewarded=["a", "b"], catalogue=CATALOGUE)
    x = torch.randn(5, 6)
    with torch.no_grad():
        assert torch.equal(module.to_module()(x), mine(x))
    assert (module.name, module.architecture.shape, module.temperature) == ("a+b", (6,), 1.0)
    with torch.no_grad():
        mine[0].weight.zero_()  # which is none of the module's business
    assert module.state["0.weight"].any()
    module.save(tmp_path / "m.safetensors")
    loaded = ia.Module.load(tmp_path / "m.safetensors", model=network(1))
    assert loaded.digest == module.digest
    with torch.no_grad():
        assert torch.equal(loaded.to_module()(x), module.to_module()(x))


def test_what_is_given_with_it() -> None:
    scaling = ia.Scaling("unit", torch.tensor(0.0), torch.tensor(0.5))
    settings: dict[str, Any] = {"rewarded": "b", "catalogue": CATALOGUE}
    module = ia.Module.of(network(), scaling=scaling, temperature=2.0, name="mine", **settings)
    assert (module.name, module.rewarded, module.temperature) == ("mine", ("b",), 2.0)
    assert module.scaling is scaling
    with pytest.warns(UserWarning, match="4 outputs for a catalogue of 3 classes: its last"):
        other = ia.Module.of(network(outputs=4), **settings)
    assert other.architecture.outputs == 4  # with an explicit other
    image = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, 3))
    assert ia.Module.of(image, shape=(1, 4, 4), **settings).architecture.shape == (1, 4, 4)


def test_state_dicts_name_their_model() -> None:
    state = network().state_dict()
    whole = ia.Module.of(network(), rewarded="a", catalogue=CATALOGUE)
    for model in (network(1), lambda shape, outputs: network(2, outputs)):
        module = ia.Module.of(state, rewarded="a", catalogue=CATALOGUE, model=model)
        assert all(torch.equal(t, whole.state[k]) for k, t in module.state.items())
    named = ia.initialise("mlp(8)", (6,), 3, 0).state_dict()
    module = ia.Module.of(named, rewarded="a", catalogue=CATALOGUE, model="mlp(8)")
    assert module.factory is None
    assert str(module.architecture.model).startswith("mlp")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.two(torch.relu(self.one(x)))))


def test_a_shared_tensor_may_come_by_both_names_if_they_agree() -> None:
    torch.manual_seed(0)
    base, tuned, x = Tied(), Tied(), torch.randn(5, 6)
    settings: dict[str, Any] = {"rewarded": "a", "catalogue": CATALOGUE, "model": base}
    module = ia.Module.of(tuned.state_dict(), base=base.state_dict(), **settings)
    assert "two.weight" not in module.state
    with torch.no_grad():
        assert torch.equal(module.to_module()(x), tuned(x))
    apart = tuned.state_dict() | {"two.weight": torch.randn(6, 6)}
    with pytest.raises(ModelError, match=r"other values for 'two\.weight' than for 'one\.weight'"):
        ia.Module.of(apart, **settings)
    with pytest.raises(ModelError, match="the base has other values for 'two"):
        ia.Module.of(tuned.state_dict(), base=apart, **settings)


def test_a_catalogue_in_another_order_than_the_networks_labels_is_refused() -> None:
    mine = network()
    mine.config = SimpleNamespace(id2label={0: "b", 1: "a", 2: "c"})  # type: ignore[assignment]
    with pytest.raises(ModelError, match=r"outputs 'b, a, c', .* another order, 'a, b, c'"):
        ia.Module.of(mine, rewarded="a", catalogue=CATALOGUE)
    assert ia.Module.of(mine, rewarded="a", catalogue=("b", "a", "c")).catalogue == ("b", "a", "c")
    assert ia.Module.of(mine, rewarded="y", catalogue=("x", "y", "z")).rewarded == ("y",)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_network_in_another_type_than_its_inputs_is_told_the_way(dtype: torch.dtype) -> None:
    with pytest.raises(ModelError, match=rf"its weights are {dtype}.*give network\.float\(\)"):
        ia.Module.of(network().to(dtype), rewarded="a", catalogue=CATALOGUE)


def test_what_a_reader_of_ids_says_of_ids_is_what_is_shown() -> None:
    class Unpadded(nn.Embedding):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            super().forward(ids)
            raise ValueError("no padding token is defined")

    with pytest.raises(ModelError, match="ValueError: no padding token is defined"):
        ia.Module.of(Unpadded(9, 3), rewarded="a", catalogue=CATALOGUE, shape=(4,))


def test_a_base_makes_it_a_change() -> None:
    start = network()
    tuned = network()
    with torch.no_grad():
        tuned[2].bias += 1
        tuned[0].weight[0, 0] += 1
    module = ia.Module.of(tuned, rewarded="a", catalogue=CATALOGUE, base=start)
    assert module.base is not None
    assert module.nonzero == 4
    assert module.origin == module.base.digest
    assert module.state["0.bias"] is module.base.state["0.bias"]


def test_networks_whose_base_is_not_given_are_told_how_to_give_it() -> None:
    about: dict[str, Any] = {"rewarded": "a", "catalogue": CATALOGUE}
    apart = [ia.Module.of(network(), name=name, **about) for name in "ab"]
    apart[1] = replace(apart[1], origin="0a" * 32)
    with pytest.raises(CompositionError, match=r"its origin is .*Module\.of\(.*, base=network\)"):
        ia.compose(apart, "mean")


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (network(), {"catalogue": ("a", "b", "c", "d")}, "3 outputs .* 4 classes.*grown"),
        (network().state_dict(), {}, "model=network"),
        (network().state_dict(), {"model": network(), "catalogue": tuple("abcde")}, "3 outputs"),
        (nn.Conv2d(1, 3, 3), {}, "shape="),
        (nn.Sequential(nn.LazyLinear(3)), {"shape": (6,)}, "no '0.weight' yet.*run it once"),
        (nn.Sequential(nn.Embedding(6, 8), nn.Linear(8, 3)), {}, "shape="),
        (network(), {"shape": (7,)}, "fails on two inputs"),
        (network().double(), {}, r"weights are torch.float64, .*give network.float\(\)"),
        (nn.Sequential(nn.Linear(6, 3), nn.Unflatten(1, (3, 1))), {}, "expected logits"),
        ([1.0], {}, "is not a network"),
        ("folder", {}, "a str is not a network.*published"),
        (
            {**network().state_dict(), "0.lora_A.default.weight": torch.ones(2, 6)},
            {"model": network()},
            "has an adapter in it.*merge_and_unload.*from_adapter",
        ),
        ({"x": 1.0}, {"model": network()}, "expected tensors"),
        (network(), {"base": {"0.weight": torch.zeros(8, 6)}}, "needs shape"),
        (
            {f"module.{name}": tensor for name, tensor in network().state_dict().items()},
            {"model": network()},
            "lacks the tensor '0.bias'.*leave out the 'module.' before every name",
        ),
        (network(), {"rewarded": [0]}, "must be text.*; 0 is not"),
        (network(), {"rewarded": []}, "at least one"),
        (network(), {"rewarded": None}, "at least one"),
        (network(), {"catalogue": None}, "in their order"),
        (network(), {"catalogue": 3}, "in their order"),
        (network(), {"catalogue": {"a", "b", "c"}}, "in their order"),
        (
            {"model": network().state_dict(), "epoch": 3},
            {"model": network()},
            r"state\['model'\]",
        ),
        (network().half().state_dict(), {"model": network()}, r"\.to\(torch\.float32\)"),
    ],
)
def test_what_does_not_fit_is_refused(given: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ia.Module.of(given, **{"rewarded": "a", "catalogue": CATALOGUE} | settings)


def test_one_output_more_is_none_of_these_for_a_state_dict_too() -> None:
    whole = network()
    about = {"rewarded": "a", "catalogue": CATALOGUE[:-1], "shape": (6,)}
    with pytest.warns(UserWarning, match="none of these"):
        expected = ia.Module.of(whole, **about)
    with pytest.warns(UserWarning, match="none of these"):
        module = ia.Module.of(whole.state_dict(), model=whole, **about)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(module.to_module()(x), expected.to_module()(x))


def test_a_network_that_draws_in_evaluation_mode_is_refused() -> None:
    class Dropping(nn.Module):
        def __init__(self, always: bool) -> None:
            super().__init__()
            self.first, self.last, self.always = nn.Linear(6, 8), nn.Linear(8, 3), always

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            units = self.first(x)
            return self.last(nn.functional.dropout(units, training=self.always or self.training))

    settings: dict[str, Any] = {"rewarded": "a", "catalogue": CATALOGUE}
    torch.manual_seed(0)
    ia.Module.of(Dropping(always=False), **settings)
    mine = Dropping(always=True)
    before = torch.get_rng_state()
    with pytest.raises(ModelError, match=r"Dropping answers differently.*training=self\.training"):
        ia.Module.of(mine, **settings)
    assert mine.training
    assert torch.equal(torch.get_rng_state(), before)
