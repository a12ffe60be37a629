"""Training from a base: changes are pruned and rewound, and what is frozen stays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from intarsia.data import Data
from intarsia.errors import ModelError, RecipeError
from intarsia.modules import BASES, Base
from intarsia.training.settings.recipe import Recipe
from intarsia.training.settings.trainable import frozen_names, still_layers

from .normed_networks import SHAPE, normed, with_statistics

SETTINGS: dict[str, Any] = {
    "preset": "paper", "sparsity": 0.9, "rounds": 2, "epochs": 2, "progress": False,
    "partition": [["a"], ["b", "c"]],
}  # fmt: skip


def built(shape: tuple[int, ...] = SHAPE, outputs: int = 4) -> nn.Sequential:
    return normed(nn.Linear(384, outputs))


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(3)
    return with_statistics(built())


def at_base(module: ia.Module) -> bool:
    """Whether what is pruned has the base's bits, and something has moved."""
    assert module.base is not None
    same = all(
        torch.equal(
            module.state[name][~kept].view(torch.int32),
            module.base.state[name][~kept].view(torch.int32),
        )
        for name, kept in module.mask.items()
    )
    moved = any(
        not torch.equal(module.state[name], module.base.state[name]) for name in module.mask
    )
    return same and moved


@pytest.mark.parametrize("engine", ["single", "stack", "plain"])
def test_what_is_pruned_stays_at_the_base(
    small_data: Data, network: nn.Sequential, engine: str
) -> None:
    bank = ia.train(small_data, base=network, engine=engine, keep_rounds=True, **SETTINGS)
    oracle = ia.train(small_data, base=network, engine="plain", **SETTINGS)
    for module, same in zip(bank, oracle, strict=True):
        assert at_base(module)
        assert module.origin == bank[0].origin
        assert module.base is not None
        assert not module.state["1.num_batches_tracked"].eq(0)
        weights = [module.mask[name] for name in ("0.weight", "4.weight")]
        kept = sum(int(m.sum()) for m in weights) / sum(m.numel() for m in weights)
        assert kept == pytest.approx(0.1, abs=0.01)
        for name, tensor in module.state.items():
            torch.testing.assert_close(tensor, same.state[name], rtol=1e-3, atol=1e-4)
        assert {n: m.sum() for n, m in module.mask.items()} == {
            n: m.sum() for n, m in same.mask.items()
        }
    assert bank.rounds[0][0].density == 1.0


def test_the_hand_written_engine_keeps_the_base_too(small_data: Data) -> None:
    """Units all of whose changes are pruned are not dead; a denormal stays what it is."""
    start = ia.initialise("mlp([16], dropout=0.0)", (1, 8, 8), 4, 5)
    with torch.no_grad():
        start.layers[0].weight[0, :4] = 1e-40  # type: ignore[union-attr, index, operator]
    settings = {**SETTINGS, "sparsity": 0.99}
    hand = ia.train(small_data, base=start, **settings)
    plain = ia.train(small_data, base=start, engine="plain", **settings)
    assert hand.report["engine"] == "mlp"
    for one, other in zip(hand, plain, strict=True):
        assert at_base(one)
        assert at_base(other)
        for name, tensor in one.state.items():
            torch.testing.assert_close(tensor, other.state[name], rtol=1e-3, atol=1e-4)


def test_the_smallest_changes_go(small_data: Data, network: nn.Sequential) -> None:
    """Not the smallest weights: of a base with a large one that hardly moves, its change goes."""
    bank = ia.train(
        small_data, base=network, keep_rounds=True, **{**SETTINGS, "rounds": 1, "sparsity": 0.5}
    )
    before, after = bank.rounds[0][0], bank[0]
    assert before.base is not None
    names = ("0.weight", "4.weight")
    change = torch.cat([(before.state[n] - before.base.state[n]).abs().flatten() for n in names])
    kept = torch.cat([after.mask[n].flatten() for n in names])
    assert float(change[kept].min()) >= float(change[~kept].max())


@pytest.mark.parametrize(
    ("trainable", "moves", "still"),
    [
        ("head", {"4.weight", "4.bias"}, True),
        ("norms", {"1.weight", "1.bias"}, False),
        (["head", "norms"], {"4.weight", "4.bias", "1.weight", "1.bias"}, False),
        ("head, 0", {"4.weight", "4.bias", "0.weight"}, True),
        ("*.bias", {"1.bias", "4.bias"}, False),
    ],
)
def test_only_what_is_trainable_moves(
    small_data: Data, network: nn.Sequential, trainable: Any, moves: set[str], still: bool
) -> None:
    settings = {**SETTINGS, "sparsity": 0.0, "rounds": 0, "select": "last"}
    results = []
    for engine in ("plain", "stack"):
        bank = ia.train(small_data, base=network, trainable=trainable, engine=engine, **settings)
        module = bank[0]
        assert module.base is not None
        changed = {n for n, t in module.state.items() if not torch.equal(t, module.base.state[n])}
        buffers = {n for n in changed if not module.plan[n].learned}
        assert changed - buffers == moves
        assert bool(buffers) != still
        assert module.nonzero == sum(module.state[n].numel() for n in moves)
        results.append(module)
    for name, tensor in results[0].state.items():
        torch.testing.assert_close(tensor, results[1].state[name], rtol=1e-3, atol=1e-4)


def test_sparsity_counts_among_what_trains(small_data: Data, network: nn.Sequential) -> None:
    bank = ia.train(small_data, base=network, trainable="head", **SETTINGS)
    assert int(bank[0].mask["4.weight"].sum()) == pytest.approx(0.1 * 4 * 384, abs=2)
    assert not bank[0].mask["0.weight"].any()


def test_a_head_of_another_size(small_data: Data, tmp_path: Path) -> None:
    """The layers below are kept; the file of a module that trains its head alone is small."""
    torch.manual_seed(0)
    wide = built(outputs=1000)
    settings = {**SETTINGS, "sparsity": 0.0, "rounds": 0, "trainable": "head", "seeds": [0, 1]}
    bank = ia.train(small_data, base=wide, out=tmp_path / "bank", **settings)
    base = bank[0].base
    assert base is not None
    assert not base.state["4.weight"].any()
    assert len({module.origin for module in bank}) == 1  # of both seeds
    assert torch.equal(base.state["0.weight"], wide.state_dict()["0.weight"])
    head = 4 * (4 * 384 + 4)
    assert (tmp_path / "bank" / "a-s0.safetensors").stat().st_size < head + 4000
    loaded = ia.Bank.load(tmp_path / "bank", model=wide)
    assert [m.digest for m in loaded] == [m.digest for m in bank]
    (tmp_path / "bank" / "base.safetensors").unlink()
    again = ia.Bank.load(tmp_path / "bank", model=wide, base=wide)  # fitted as for the training
    assert [m.digest for m in again] == [m.digest for m in bank]


def test_a_run_that_is_stopped_ends_in_the_same_bytes(
    small_data: Data,
    network: nn.Sequential,
    tmp_path: Path,
    stop_at: Callable[[int], list[int]],
) -> None:
    settings = {**SETTINGS, "keep_rounds": True, "trainable": "0, head", "checkpoint_every": 0}
    ia.train(small_data, base=network, out=tmp_path / "whole", **settings)
    epochs = stop_at(4)
    with pytest.raises(KeyboardInterrupt):
        ia.train(small_data, base=network, out=tmp_path / "parts", **settings)
    ia.train(small_data, base=network, out=tmp_path / "parts", **settings)
    assert len(epochs) == 7  # none but the one that was cut off was trained again
    names = {p.relative_to(tmp_path / "whole") for p in (tmp_path / "whole").rglob("*.safetensors")}
    assert {str(n) for n in names} >= {"base.safetensors", "round-1/base.safetensors"}
    for name in names:
        one, other = (tmp_path / run / name for run in ("whole", "parts"))
        assert one.read_bytes() == other.read_bytes()
    finished = ia.train(small_data, base=network, out=tmp_path / "parts", **settings)
    assert len(finished.rounds) == 2
    assert finished[0].base is not None
    with pytest.raises(ia.IntarsiaError, match="another recipe"):
        ia.train(small_data, base=built(), out=tmp_path / "parts", **settings)


def test_a_recipe_names_its_base(small_data: Data, network: nn.Sequential, tmp_path: Path) -> None:
    Base(network.state_dict()).save(tmp_path / "b.safetensors")
    settings = {**SETTINGS, "epochs": 1, "rounds": 0, "sparsity": 0.0}
    recipe = Recipe(base=str(tmp_path / "b.safetensors"), trainable=["head"])
    one = ia.train(small_data, recipe, model=built(), **settings)
    assert one[0].provenance["recipe"]["base"] == recipe.base
    assert one[0].provenance["recipe"]["trainable"] == ["head"]

    @BASES.register("toy")
    def toy() -> tuple[Any, dict[str, Tensor]]:
        return built, network.state_dict()

    try:
        other = ia.train(small_data, base="toy", trainable="head", **settings)
    finally:
        del BASES["toy"]
    assert one[0].origin == other[0].origin
    assert all(torch.equal(t, other[0].state[n]) for n, t in one[0].state.items())
    tuned = ia.train(small_data, base=other[0], **settings)  # with the model of the module
    assert tuned[0].base is not None
    assert torch.equal(tuned[0].base.state["4.weight"], other[0].state["4.weight"])
    assert tuned[0].provenance["recipe"]["base"] == "custom"


def test_a_recipe_without_a_base_is_as_it_was() -> None:
    assert "base" not in Recipe().as_dict()
    assert "trainable" not in Recipe().as_dict()
    assert Recipe(trainable="all").identity() == Recipe().identity()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trainable": "head"}, "no base"),
        ({"base": "nowhere"}, "no file 'nowhere'"),
        ({"base": built(), "trainable": "heat"}, "heat.*did you mean 'head'"),
        ({"base": built(), "trainable": []}, "trainable is"),
        ({"base": built(), "trainable": "3"}, "no parameter"),
        ({"base": built(), "trainable": [3]}, "trainable is"),
        ({"base": built(), "pruning": "territory"}, "territory"),
        ({"recipe": Recipe(base="custom")}, "give it again"),
    ],
)
def test_what_cannot_be_asked_of_a_base(
    small_data: Data, settings: dict[str, Any], message: str
) -> None:
    given = {k: v for k, v in SETTINGS.items() if k not in ("sparsity", "rounds")}
    with pytest.raises(RecipeError, match=message):
        ia.train(small_data, **given, **settings)


def test_tensors_that_do_not_fit_are_named(small_data: Data, network: nn.Sequential) -> None:
    state = network.state_dict()
    del state["1.running_mean"]
    with pytest.raises(ModelError, match=r"'1\.running_mean' is not there"):
        ia.train(small_data, base=state, model=built, **SETTINGS)


def test_norms_without_parameters_stand_still_unless_asked_for() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2))
    head = ("2.weight", "2.bias")
    for trainable, still in (("head", ("1",)), ("norms, head", ()), ("1, head", ()), (None, ())):
        frozen = frozen_names(network, trainable, head)
        assert still_layers(network, trainable, frozen) == still


def test_parts_of_a_base_are_taken_out_again_bit_for_bit(
    small_data: Data, network: nn.Sequential
) -> None:
    settings = {**SETTINGS, "partition": "each", "rounds": 1, "epochs": 1}
    bank = ia.train(small_data, base=network, **settings)
    x = small_data.test.x
    for operator in ("sum", "ties", "logits"):
        some = ia.compose(list(bank)[:3], operator)
        back = ia.compose(bank, operator).remove(bank[3].name)
        assert torch.equal(some(x), back(x))
        assert torch.equal(back.add(bank[3])(x), ia.compose(bank, operator)(x))
