"""kill -9 at random moments, through the benchmark that does it: experiments/kills.py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "experiments" / "kills.py"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs kill -9 and fork")


def assert_survives(kills, out):
    command = [sys.executable, str(SCRIPT), "--kills", str(kills), "--out", str(out)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads((out / "kills.json").read_text())
    assert result["kills"] == kills
    assert result["equal"]
    assert [row["differing"] for row in result["recipes"]] == [[], []]
    assert all(row["files"] == 3 * (20 + 1) + 1 for row in result["recipes"])
    assert f"{kills} kills" in run.stdout
    print(run.stdout.splitlines()[-1])


def test_four_kills_change_no_byte(tmp_path):
    assert_survives(4, tmp_path)


@pytest.mark.slow
def test_two_hundred_kills_change_no_byte(tmp_path):
    assert_survives(200, tmp_path)
