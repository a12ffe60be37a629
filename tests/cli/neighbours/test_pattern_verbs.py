"""sweetspot prune, score, sweep, depth on the embedded network: no data is needed."""

from pathlib import Path

import pytest
import torch
from command_line import CommandLine

from intarsia.sweetspot import (
    DepthRow,
    DepthScan,
    PatternBank,
    PatternNetwork,
    initial_bank,
    load_network,
)

sweetspot = CommandLine("sweetspot")
QUICK = ("--seeds", "2", "--steps", "3", "--size", "8", "--weights", "3", "--device", "cpu")


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    path = tmp_path / "bank.safetensors"
    initial_bank(load_network("totem").layout, 2).save(path)
    return path


def test_prune_writes_networks_of_the_budget(bank: Path, tmp_path: Path) -> None:
    out = tmp_path / "pruned.safetensors"
    answer = sweetspot.answer("prune", bank, "similarity", "--weights", 150, "-o", out)
    assert (answer["arm"], answer["out"]) == ("similarity", str(out))
    assert [n["nonzero"] for n in answer["networks"]] == [150, 150]
    assert PatternBank.load(out).nonzero == (150, 150)
    assert "150" in sweetspot.call("prune", bank, "wanda", "--weights", 150, "-o", out).stdout
    before = bank.read_bytes()
    assert "another file" in sweetspot.refusal("prune", bank, "random", "--weights", 9, "-o", bank)
    assert bank.read_bytes() == before


def test_prune_trains_on_and_rewinds(bank: Path, tmp_path: Path) -> None:
    out = tmp_path / "pruned.safetensors"
    words = ("--image", "totem", "--steps", 2, "--size", 8, "-o", out, "--device", "cpu")
    trained = sweetspot.answer("prune", bank, "evolved", "--wiring", "totem", *words)
    assert all(n["loss"] > 0 for n in trained["networks"])
    won = sweetspot.answer("prune", bank, "ticket", "--weights", 90, "--origin", bank, "-o", out)
    assert [n["nonzero"] for n in won["networks"]] == [90, 90]
    assert "give `origin`" in sweetspot.refusal("prune", bank, "magnitude", "--weights", 90,
                                                "--rewind")  # fmt: skip
    for option in (("--steps", 2500), ("--size", 8), ("--learning-rate", 0.1)):
        said = sweetspot.refusal("prune", bank, "random", "--weights", 9, *option, "-o", out)
        assert f"{option[0]} is of training on" in said
        assert "--image" in said
    few = ("--weights", 90, "-o", out)
    assert "give --rewind" in sweetspot.refusal("prune", bank, "random", "--origin", bank, *few)
    assert "wanda takes none" in sweetspot.refusal("prune", bank, "wanda", "--wiring", "x", *few)
    assert "end in .safetensors" in sweetspot.refusal("prune", bank, "random", "-o", "x.bin")
    assert "did you mean 'wanda'" in sweetspot.refusal("prune", bank, "wand", "--weights", 9)


def test_score_shows_one_row_for_each_network(bank: Path, tmp_path: Path) -> None:
    atlas = tmp_path / "maps.svg"
    answer = sweetspot.answer(
        "score", bank, "--weights", 5, "--size", 12, "--seeds", 2, "--against", "totem",
        "--atlas", atlas, "--device", "cpu",
    )  # fmt: skip
    assert len(answer["networks"]) == 2
    for row in answer["networks"]:
        assert row["nonzero"] == 570
        assert row["distinct_maps"] <= row["maps"] <= 60
        assert 0 <= row["orthogonality"] <= 1
        assert len(row["weights"]) == 2
    assert "zlib" in answer["encoder"]
    few = ("score", "totem", "--weights", 5, "--size", 12)
    assert 0 <= sweetspot.answer(*few, "--against", bank)["networks"][0]["auc"] <= 1
    assert atlas.read_text().startswith("<svg")
    run = sweetspot.call("score", "--weights", 5, "--size", 12)
    assert "totem" in run.stdout
    assert "compare networks of like loss" in run.stderr


def test_a_judge_that_nobody_set_up_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADDRESS", "MODEL", "KEY"):
        monkeypatch.delenv(f"INTARSIA_JUDGE_{name}", raising=False)
    refusal = sweetspot.refusal("score", "totem", "--judge", "a totem")
    assert "INTARSIA_JUDGE_ADDRESS is not set" in refusal


def test_sweep_moves_weights_and_draws_strips(bank: Path, tmp_path: Path) -> None:
    figure = tmp_path / "sweeps.svg"
    answer = sweetspot.answer(
        "sweep", "totem", "--weight", "0,0,0", "--weight", 3, "--size", 12, "--figure", figure
    )
    assert answer["sweeps"][0]["weight"] == [0, 0, 0]
    for swept in answer["sweeps"]:
        assert swept["steps"] == [-1, -0.5, 0, 0.5, 1]
        assert swept["errors"][2] == pytest.approx(0, abs=1e-9)
    assert max(answer["sweeps"][1]["errors"]) > 1e-4
    assert figure.read_text().count("<image") == 10
    shown = sweetspot.call("sweep", "--size", 8, "--along", "row", "--steps=-2,2").stdout
    assert "-2" in shown
    assert len(sweetspot.answer("sweep", "--size", 8)["sweeps"]) == 4
    assert "there is no weight" in sweetspot.refusal("sweep", "--weight", "9,9,9")
    assert "ending of a figure" in sweetspot.refusal("sweep", "--figure", "x.gif")
    few = ("--size", 8, "--weight", 0)
    assert sweetspot.answer("sweep", bank, *few)["name"] == "seed-0"
    assert sweetspot.answer("sweep", bank, *few, "--network", "seed-1")["name"] == "seed-1"
    assert "did you mean 'seed-1'" in sweetspot.refusal("sweep", bank, "--network", "seed1")


def test_depth_scans_depths_or_maps_widths(tmp_path: Path) -> None:
    figure, out = tmp_path / "depth.svg", tmp_path / "scan"
    words = ("depth", "totem", "--offsets=-2,0", "--arms", "dense,similarity(by='correlation')")
    answer = sweetspot.answer(*words, *QUICK, "-o", out, "--figure", figure)
    rows = [(row["depth"], row["arm"]) for row in answer["rows"]]
    assert rows[:2] == [(4, "dense"), (4, "similarity(by='correlation')")]
    assert len(rows) == 4
    assert figure.read_text().startswith("<svg")
    assert "correlation" in sweetspot.call(*words, *QUICK, "-o", out).stdout
    mapped = sweetspot.answer("depth", "--widths", "4,5", "--offsets=-5", *QUICK)
    assert (mapped["widths"], mapped["depths"]) == ([4, 5], [1])
    assert "whole numbers" in sweetspot.refusal("depth", "--offsets=a")
    assert "no depth is left" in sweetspot.refusal("depth", "--widths", "4", "--offsets=-9", *QUICK)
    assert "center is 0" in sweetspot.refusal("depth", "--center", 0, *QUICK)


def test_a_network_of_zeros_is_swept_where_someone_says(tmp_path: Path) -> None:
    layout = load_network("totem").layout
    path = tmp_path / "zeros.safetensors"
    PatternNetwork(layout, tuple(torch.zeros(shape) for shape in layout.shapes)).save(path)
    assert "no weight that is not 0" in sweetspot.refusal("sweep", path, "--size", 8)
    answer = sweetspot.answer("sweep", path, "--weight", "0,0,0", "--size", 8)
    assert answer["sweeps"][0]["value"] == 0


def test_a_scan_says_which_networks_diverged(monkeypatch: pytest.MonkeyPatch) -> None:
    nan = float("nan")
    rows = (
        DepthRow(4, 3, "dense", (5, 5), (0.1, nan), (1.0, nan), 0, 77),
        DepthRow(5, 3, "dense", (5, 5), (nan, nan), (nan, nan), 0, 77),
    )
    monkeypatch.setattr("intarsia.sweetspot.depth", lambda *_, **__: DepthScan(rows, 0.2, "none"))
    said = sweetspot.call("depth", "totem").stdout
    assert "diverged" in said
    assert "77 steps" in said
    assert sweetspot.answer("depth", "totem")["rows"][0]["losses"] == [0.1, None]
