"""The joint reference by the recipe of the modules: what it is trained by, and who has none."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.data import Data
from intarsia.errors import RecipeError
from intarsia.measure.probe import train_joint

pytestmark = pytest.mark.usefixtures("one_thread")
HOW: dict[str, Any] = {"preset": "paper", "model": "mlp(12, dropout=0)", "learning_rate": 1e-2}
HOW |= {"sparsity": 0.5, "rounds": 2, "epochs": 2, "pruning_epochs": 1, "progress": False}


@pytest.fixture(scope="module")
def data() -> Data:
    return ia.load_data("digits", classes=["1", "2", "8", "9"])


@pytest.fixture(scope="module")
def bank(data: Data) -> ia.Bank:
    return ia.train(data, seeds=[3], device="cpu", **HOW)


def test_it_is_what_train_makes_of_all_classes(bank: ia.Bank, data: Data) -> None:
    """As long as a module in all its rounds, unpruned, by cross-entropy, from the same seed."""
    given = {**HOW, "sparsity": 0.0, "rounds": 0, "epochs": 2 * 1 + 2, "objective": "xe"}
    sets = [list(data.catalogue)]
    (expected,) = ia.train(data, partition=sets, seeds=[3], device="cpu", **given)
    whole = ia.compose(bank, "sum")
    joint = train_joint(whole, data, "cpu")
    assert joint.rewarded == data.catalogue
    assert all(torch.equal(tensor, expected.state[name]) for name, tensor in joint.state.items())
    result = ia.fresh_head(whole, data, joint=["train", 0.5], epochs=1, device="cpu")
    assert result.joint is not None
    assert result.joint.values == (ia.evaluate(expected, data.test).accuracy, 0.5)
    assert result.to_json()["joint_recipe"]["epochs"] == 4
    assert "joint trained here for 4 epochs" in " ".join(str(result).split())
    assert ia.fresh_head(whole, data, joint=0.5, epochs=1).to_json()["joint_recipe"] is None


def test_changes_of_a_base_start_there(bank: ia.Bank, data: Data) -> None:
    changes = ia.train(data, base=bank[0], device="cpu", **HOW)
    joint = train_joint(ia.compose(changes, "task_arithmetic"), data, "cpu")
    assert joint.base is not None
    assert changes[0].base is not None
    assert joint.base.digest == changes[0].base.digest
    assert train_joint(changes[1], data, "cpu").digest == joint.digest  # a module is enough


def test_a_network_of_ones_own_is_built_again(data: Data) -> None:
    def own(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, outputs))

    modules = ia.train(data, device="cpu", **{**HOW, "model": own})
    assert train_joint(ia.compose(modules, "mean"), data, "cpu").plan == modules[0].plan


def test_who_has_no_recipe_is_told(bank: ia.Bank, data: Data) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    with pytest.raises(RecipeError, match="a Sequential does not say how it was trained"):
        ia.fresh_head(network, data, joint="train")
    silent = [replace(bank[0], provenance={}), *list(bank)[1:]]
    with pytest.raises(RecipeError, match="module '1' does not say by what recipe"):
        train_joint(ia.compose(silent, "sum"), data)
    longer = ia.train(data, seeds=[3], device="cpu", **{**HOW, "epochs": 1})
    mixed = ia.compose([bank[0], *list(longer)[1:]], "sum")
    with pytest.raises(RecipeError, match=r"several recipes \(epochs is 2 and 1\)"):
        train_joint(mixed, data)
    with pytest.raises(RecipeError, match=r"joint is 'trained': .* a network or 'train'"):
        ia.fresh_head(ia.compose(bank, "sum"), data, joint="trained")  # type: ignore[arg-type]
