"""Kills and flipped bits, through the benchmark that makes them: experiments/kills.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "experiments" / "kills.py"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs kill -9 and fork")


def assert_survives(kills, flips, out, *engines):
    words = ["--kills", str(kills), "--flips", str(flips), "--output", str(out / "kills.json")]
    chosen = ["--engines", *engines] if engines else []
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *words, *chosen], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads((out / "kills.json").read_text())
    assert result["kills"] == kills
    assert result["equal"]
    for row in result["cases"]:
        assert row["differing"] == []
        assert row["files"] == 3 * (4 + 1) + 1
        assert row["chunks"] == 2
        assert row["kills"] == sum(row["by"].values())
    assert sum(row["count"] for row in result["flips"]) == flips
    assert f"{kills} kills" in run.stdout
    return result


def test_few_kills_and_flips_change_no_byte(tmp_path):
    result = assert_survives(8, 4, tmp_path, "mlp")
    assert [row["locks"] for row in result["cases"]] == ["flock", "files"]


@pytest.mark.slow
def test_few_kills_change_no_byte_of_convolutional_modules(tmp_path):
    result = assert_survives(6, 0, tmp_path, "streams", "grouped")
    assert {row["model"] for row in result["cases"]} == {"fastnet(2)", "resnet18(2)"}


@pytest.mark.slow
def test_many_kills_and_flips_on_all_engines_change_no_byte(tmp_path):
    result = assert_survives(200, 50, tmp_path)
    engines = {"mlp", "single", "stack", "plain", "grouped", "streams"}
    assert {row["engine"] for row in result["cases"]} == engines
    assert all({"KILL", "TERM", "HUP"} <= row["by"].keys() for row in result["cases"])
