"""Baselines do the work that they are compared by."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

import intarsia as ia
from benchmarks.experiments import imagenet_plan, repeats
from benchmarks.speed.conv_inlay import (
    block_layers,
    largest_difference,
    latency,
    others_stay,
    part_of,
    ways_of,
)
from benchmarks.speed.convolutions import speeds_of
from benchmarks.speed.expert import expert_on_device, train_expert
from benchmarks.speed.graph_scales import measure_random, measure_set
from benchmarks.speed.pattern_fits import measure, ours, plain
from intarsia.training.settings.recipe import Recipe


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


def test_the_plan_of_imagenet_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a case worked out by hand: 1,000 pictures of 10 classes, twice, for each module."""
    import plan_pages

    speed = {"model": "mlp(8)", "shape": [3, 4, 4], "outputs": 5, "modules": 2}
    speed |= {"engine": "stack", "batch": 8}
    rows = [
        {"model": "mlp(8)", "way": way, "modules": modules, "peak_MiB": peak}
        for way, modules, peak in (("stack", 1, 7), ("stack", 2, 64), ("streams", 2, 9))
    ]
    measured = {"speeds": [{**speed, "samples_per_second": 100.0}], "machine": "a GPU"}
    measured |= {"rows": rows}
    measured |= {"command": "python speeds.py", "date": "2026-01-01"}
    (tmp_path / "speeds.json").write_text(json.dumps(measured))
    words = "--sizes 4 8 --images 1000 --classes 10 --epochs 2 --negatives 3 --sparsity 0.5"
    words += f" --gpus 4 --price 1.5 --memory {100 * 2**20}"
    given = [str(tmp_path / "speeds.json"), *words.split()]
    monkeypatch.setattr(sys, "argv", ["imagenet_plan.py", *given, "--out", str(tmp_path)])
    imagenet_plan.main()
    result = json.loads((tmp_path / "imagenet.json").read_text())
    ((small, large),) = [network["rows"] for network in result["networks"]]
    work = (48 * 8 + 8 * 10) / (48 * 8 + 8 * 5)
    assert small["work_per_sample"] == pytest.approx(work)
    assert large["work_per_sample"] == pytest.approx((192 * 8 + 8 * 10) / (48 * 8 + 8 * 5))
    assert small["parameters"] == 48 * 8 + 8 + 8 * 10
    hours = 10 * 2 * 1000 / (100 / work) / 3600
    assert small["joint_hours"] == pytest.approx(hours / 10)
    plain = {"samples_per_epoch": 1000, "gpu_hours": hours}
    plain |= {"days": hours / 96, "dollars": 1.5 * hours}
    assert small["plain"] == pytest.approx(plain)
    assert small["balanced"]["samples_per_epoch"] == 100 * (1 + 3)
    assert small["balanced"]["gpu_hours"] == pytest.approx(0.4 * hours)
    assert small["bytes"]["pictures"] == 1000 * 48
    assert small["bytes"]["dense_files"] == 10 * 4 * small["parameters"]
    half = 10 * (2 + 1 / 8) * small["parameters"]  # every second number, and a bit for each
    assert small["bytes"]["sparse_files"] == pytest.approx(half, rel=1e-2)
    memory = [
        (row["bytes"]["module_in_training"], row["modules_at_a_time"]) for row in (small, large)
    ]
    assert memory == [(32 * 2**20, 3), (128 * 2**20, 0)]  # four times the pixels
    page = plan_pages.imagenet(lambda name: result)
    assert "nothing on this page was trained" in page
    assert f"| 4 x 4 | {work:.3g} |" in page
    assert "by `python speeds.py`" in page


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore::intarsia.errors.HealthWarning")
def test_repeated_runs_are_compared_by_bytes_weights_and_accuracy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, same = (repeats.trained("digits", "fastnet(2)", "bf16", 1, "cpu") for _ in range(2))
    assert one["digests"] == same["digests"]
    assert (one["modules"], one["engine"]) == (10, "single")
    apart = {**one, "digests": ("other",), "weights": 1.25 * one["weights"], "accuracy": 0.5}
    runs = iter([one, same, apart])

    class Pool:
        def __init__(self, *_: object, **__: object) -> None: ...
        def __enter__(self) -> "Pool":
            return self

        def __exit__(self, *_: object) -> None: ...
        def submit(self, *_: object) -> Namespace:
            return Namespace(result=lambda: next(runs))

    monkeypatch.setattr(repeats, "ProcessPoolExecutor", Pool)
    options = Namespace(data="digits", epochs=1, device="cpu", runs=3)
    row = repeats.repeated(options, "fastnet(2)", "bf16")
    assert (row["runs"], row["distinct"]) == (3, 2)
    assert row["distance"] == pytest.approx(0.25)
    assert row["accuracy"] == pytest.approx((2 * one["accuracy"] + 0.5) / 3)
    from speed_pages import _repeats

    made = {"command": "python repeats.py", "date": "2026-01-01", "versions": {}, "data": "digits"}
    table = _repeats({**made, "rows": [row]})[-1]
    assert "| fastnet(2) | bf16 | single | 10 | 1 | 3 | 2 of 3 | 0.25 |" in table


def test_the_speed_of_a_model_is_that_of_its_fastest_bank() -> None:
    key = "seconds_per_module_epoch"
    rows = [
        {"model": "a", "way": "eager", "modules": 1, key: 0.1},
        {"model": "a", "way": "grouped", "modules": 4, key: 0.5},
        {"model": "a", "way": "streams", "modules": 4, key: 0.25},
        {"model": "a", "way": "stack", "refused": "it cannot"},
        {"model": "b", "way": "eager", "modules": 1, key: 0.1},
    ]
    (speed,) = speeds_of(rows, 1000, 50)
    assert (speed["model"], speed["engine"], speed["modules"]) == ("a", "streams", 4)
    assert speed["samples_per_second"] == 4000


@pytest.mark.usefixtures("one_thread")
def test_pattern_fits_are_compared_by_the_same_work() -> None:
    """Stacked, alone and by torch's own Adam: the same networks at the end, to rounding."""
    together = ours(range(2), 2, 8, "cpu", None)
    assert together == pytest.approx([plain(seed, 2, 8, "cpu") for seed in range(2)], rel=1e-2)
    options = Namespace(device="cpu", networks=2, alone=1, steps=3)
    rows = {row["way"]: row for row in measure(options, 8)}
    assert list(rows) == ["stacked", "alone", "plain"]
    assert rows["stacked"]["ratio"] == 1
    alone = rows["alone"]["seconds_of_all"] / rows["stacked"]["seconds_of_all"]
    assert rows["alone"]["ratio"] == pytest.approx(alone, rel=0.2)


@pytest.mark.usefixtures("one_thread")
def test_graphs_are_compared_by_the_same_rewiring(tmp_path: Path) -> None:
    """In blocks and by eigenvectors; a kernel's columns keep all heat."""
    from planted_nodes import planted

    np.savez(tmp_path / "blocks.npz", **planted())
    row = measure_set(str(tmp_path / "blocks.npz"), 1.0)
    assert row["rewired"] == row["dense_rewired"]
    assert set(row["seconds_of"]) == {"spectrum", "groups", "rewire"}
    random = measure_random(300, 1.0)
    assert random["lost_heat"] < 1e-8
    assert 0.01 < random["tau"] < 100
