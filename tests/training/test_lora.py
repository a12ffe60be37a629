"""LoRA: products train beside a base that stays, and a module keeps and stores their factors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.data import Data
from intarsia.errors import RecipeError
from intarsia.modules.grow import grown
from intarsia.training.settings.recipe import Recipe, selected

from .normed_networks import SHAPE, normed, with_statistics

SETTINGS: dict[str, Any] = {
    "preset": "paper", "epochs": 2, "progress": False, "partition": [["a"], ["b", "c"]],
    "trainable": "lora(2, alpha=4), head",
}  # fmt: skip


def built(shape: tuple[int, ...] = SHAPE, outputs: int = 4) -> nn.Sequential:
    return normed(nn.Linear(384, 16), nn.ReLU(), nn.Linear(16, outputs))


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(3)
    return with_statistics(built())


@pytest.mark.parametrize("engine", ["auto", "stack", "streams"])
def test_products_train_alike_on_every_engine_and_the_rest_stays(
    small_data: Data, network: nn.Sequential, engine: str
) -> None:
    bank = ia.train(small_data, base=network, engine=engine, **SETTINGS)
    oracle = ia.train(small_data, base=network, engine="plain", **SETTINGS)
    for module, same in zip(bank, oracle, strict=True):
        assert module.base is not None
        assert list(module.low_rank) == ["0.weight", "4.weight"]
        for name, change in module.low_rank.items():
            assert (change.rank, change.scale) == (2, 2.0)
            assert bool(change.up.any())
            base = module.base.state[name]
            product = 2.0 * (change.up.double() @ change.down.double()).reshape(base.shape)
            torch.testing.assert_close(module.state[name].double(), base + product)
            torch.testing.assert_close(change.up, same.low_rank[name].up, rtol=1e-3, atol=1e-4)
        for name in ("1.weight", "1.running_mean", "4.bias"):
            assert torch.equal(module.state[name], module.base.state[name])
        assert not torch.equal(module.state["6.weight"], module.base.state["6.weight"])


def test_files_hold_the_factors_and_give_the_same_bits(
    small_data: Data, network: nn.Sequential, tmp_path: Path
) -> None:
    bank = ia.train(small_data, base=network, out=tmp_path / "low", **SETTINGS)
    whole = {**SETTINGS, "trainable": "all", "rounds": 0, "sparsity": 0.0}
    ia.train(small_data, base=network, out=tmp_path / "full", **whole)
    low, full = (
        sum(f.stat().st_size for f in (tmp_path / n).glob("[ab]*")) for n in ("low", "full")
    )
    assert low < full / 2
    for module, again in zip(bank, ia.Bank.load(tmp_path / "low", built), strict=True):
        assert module.digest == again.digest
        assert all(torch.equal(again.state[n], t) for n, t in module.state.items())
    taken = ia.compose(bank, "sum")
    alone = ia.compose(list(bank)[:1], "sum").add(bank[1])
    for name, tensor in taken.networks[0].state_dict().items():
        assert torch.equal(tensor, alone.networks[0].state_dict()[name])
    name = "4.weight"
    base = bank[0].base
    assert base is not None
    changes = sum(m.state[name].double() - base.state[name].double() for m in bank)
    joined = next(t for n, t in taken.state_dict().items() if n.endswith(name))
    assert torch.equal(joined, (base.state[name].double() + changes).float())
    taken.save(tmp_path / "taken.safetensors")
    loaded = ia.Composition.load(tmp_path / "taken.safetensors", built)
    assert [list(part.low_rank) for part in loaded.parts] == [list(m.low_rank) for m in bank]


def test_a_stopped_run_goes_on_to_the_same_bytes(
    small_data: Data, network: nn.Sequential, tmp_path: Path
) -> None:
    straight = ia.train(small_data, base=network, **SETTINGS)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) == 1

    with pytest.raises(ia.IntarsiaError, match="stopped"):
        ia.train(small_data, base=network, out=tmp_path, stop=stop, **SETTINGS)
    bank = ia.train(small_data, base=network, out=tmp_path, **SETTINGS)
    assert [m.digest for m in bank] == [m.digest for m in straight]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trainable": "lora(2)", "sparsity": 0.5}, "low rank no more"),
        ({"trainable": "lora(2), all"}, "one lora"),
        ({"trainable": "lora(0)"}, "whole number from 1"),
        ({"trainable": "lora(99999)"}, "to 65,536"),
        ({"trainable": "lora(2, layers=3)"}, "layers is 3"),
        ({"trainable": "lora(2, alpha=-1)"}, "alpha"),
        ({"trainable": "lora(2, layer='0')"}, "layer"),
        ({"trainable": "lora(9)"}, "has no more than 6"),
        ({"trainable": "lora(2, layers='1')"}, "no linear or convolution layer"),
        ({"trainable": "lora(2, layers='6'), head"}, "as a whole and by a low rank"),
        ({"trainable": "lora(2)", "engine": "mlp"}, "of low rank"),
        ({"trainable": "lora(2)", "engine": "grouped"}, "of low rank"),
        ({"trainable": "lora(2)", "engine": "compiled"}, "of low rank"),
    ],
)
def test_what_cannot_be_is_refused(
    small_data: Data, network: nn.Sequential, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        ia.train(small_data, base=network, **{**SETTINGS, **settings})


def test_a_base_without_outputs_wants_a_head(small_data: Data) -> None:
    with pytest.raises(RecipeError, match="head"):
        ia.train(small_data, base=built(outputs=7), **{**SETTINGS, "trainable": "lora(2)"})
    with pytest.raises(RecipeError, match="no base"):
        Recipe(trainable="lora(2)").resolve()


def test_commas_in_brackets_do_not_part_what_trains() -> None:
    assert selected("lora(2, layers=('a', 'b')), head") == ["lora(2, layers=('a', 'b'))", "head"]


def test_modules_of_products_grow_leave_and_are_modulated(
    small_data: Data, network: nn.Sequential
) -> None:
    bank = ia.train(small_data, base=network, **SETTINGS)
    larger = grown(bank[0], [*bank[0].catalogue, "new"])
    assert list(larger.low_rank) == list(bank[0].low_rank)
    assert larger.base is not None
    for name in larger.low_rank:
        assert torch.equal(larger.state[name], bank[0].state[name])
    with_head = {**SETTINGS, "trainable": "lora(2, layers='6')"}
    of_head = ia.train(small_data, base=network, **with_head)[0]
    assert list(of_head.low_rank) == ["6.weight"]
    wider = grown(of_head, [*of_head.catalogue, "new"])  # a mean of rows is none of its factors
    assert not wider.low_rank
    assert torch.equal(wider.state["6.weight"][:4], of_head.state["6.weight"])
    left, alone = ia.compose(bank, "sum").remove(bank[1].name), ia.compose(bank[:1], "sum")
    for name, tensor in alone.networks[0].state_dict().items():
        assert torch.equal(tensor, left.networks[0].state_dict()[name])
    whole = [replace(module, low_rank={}) for module in bank]
    for settings in ("emr", "emr(base='zero')"):
        made, same = (ia.compose(modules, settings) for modules in (bank, whole))
        for name, tensor in same.state_dict().items():
            assert torch.equal(tensor, made.state_dict()[name])
