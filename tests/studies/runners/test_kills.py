"""kill -9 at random moments of a study, through the benchmark that does it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "experiments" / "study_kills.py"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks its processes")


def assert_survives(kills, size, out):
    command = [
        sys.executable,
        str(SCRIPT),
        "--kills",
        str(kills),
        "--size",
        size,
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((out / "study_kills.json").read_text())
    assert [trial["at_once"] for trial in result["trials"]] == [1, 2]
    for trial in result["trials"]:
        assert trial["kills"] == kills
        assert trial["equal"], trial["differing"]
        assert not any(run["repeated"] for run in trial["runs"])
    assert result["files"] > 20


@pytest.mark.slow
def test_six_kills_change_no_byte(tmp_path):
    assert_survives(3, "short", tmp_path)


@pytest.mark.slow
def test_a_hundred_kills_change_no_byte(tmp_path):
    assert_survives(50, "whole", tmp_path)
