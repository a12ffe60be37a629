"""Baselines do the work that they are compared by."""

from argparse import Namespace

import pytest
import torch

import intarsia as ia
from benchmarks.speed.conv_inlay import (
    block_layers,
    largest_difference,
    latency,
    others_stay,
    part_of,
    ways_of,
)
from benchmarks.speed.expert import expert_on_device, train_expert
from intarsia.training.recipe import Recipe


@pytest.mark.usefixtures("one_thread")
def test_the_experts_loop_trains_what_we_train() -> None:
    """The same batches, masks, checkpoints and rewinding as the engine `plain`, to rounding."""
    data = ia.load_data("digits")
    recipe = Recipe(preset="paper", data="digits", model="mlp(24)", epochs=3, sparsity=0.8)
    settings = {"model": "mlp(24)", "epochs": 3, "sparsity": 0.8, "partition": [["3"]]}
    bank = ia.train(data, preset="paper", engine="plain", device="cpu", progress=False, **settings)
    ours, theirs = bank[0], train_expert(data, recipe.resolve(), [3])
    assert ours.state.keys() == theirs.keys()
    for name, mask in ours.mask.items():
        assert torch.equal(theirs[name] != 0, mask), name
    for name, value in ours.state.items():
        torch.testing.assert_close(theirs[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("one_thread")
def test_a_row_counts_all_rounds() -> None:
    row = expert_on_device("digits", "mlp(8)", 1, "cpu")
    assert (row["modules"], row["epochs"]) == (1, 3)
    assert row["seconds_per_module_epoch"] == pytest.approx(row["seconds"] / 3, abs=1e-3)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.usefixtures("one_thread")
def test_convolutional_inlays_are_compared_by_what_they_hold(ragged: bool) -> None:
    parts = [part_of(k, "fastnet(2)", 3, ragged) for k in range(3)]
    merged, ways = ways_of(parts, "fastnet(4)")
    options = Namespace(device="cpu", precision="float32", repetitions=1)
    assert list(ways) == ["joint", "inlay", "one by one", "logits", "block diagonal"]
    assert largest_difference(ways, options) < 1e-4
    assert latency(ways, 2, options)["over_inlay"]["inlay"] == 1
    fewer = merged - "1"
    assert others_stay(merged, fewer)
    for layer in block_layers(fewer):
        with torch.no_grad():
            layer.blocks()[1][0, 0, 0, 0] += 1e-6
    assert not others_stay(merged, fewer)
