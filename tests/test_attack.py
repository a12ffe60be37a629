"""A few hundred crafted inputs, as benchmarks/experiments/attack.py hands in thousands."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from benchmarks.attack.surface import Input, Outcome, Surface, outcome_of
from benchmarks.attack.watch import Limits, judged, watch
from intarsia.errors import DataError

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "experiments" / "attack.py"
SURFACES = (
    "module files",
    "compositions",
    "banks",
    "run folders",
    "data files",
    "recipes",
    "specs",
    "archives and stores",
    "commands",
)
"""All but the studio's requests, which tests/studio tries in its own way."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


@pytest.mark.slow  # half a minute, in a process for every surface; .ci/run names it
def test_no_fault_is_found(tmp_path: Path) -> None:
    only = [word for name in SURFACES for word in ("--only", name)]
    words = ["--seed", "7", "--inputs", "60", "--output", str(tmp_path / "armour.json"), *only]
    run = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def _taking(bytes_: int) -> str:
    return str(len(bytearray(bytes_)))


def _refuse(cause: BaseException | None = None) -> None:
    raise DataError("refused") from cause


def _endless() -> None:
    while True:
        pass


INPUTS = {
    "refused": Input(_refuse),
    "same": Input(lambda: 1, same=lambda result: result == 1, sealed=True),
    "other": Input(lambda: 2, same=lambda result: result == 1),
    "wrong": Input(lambda: 2, same=lambda result: result == 1, sealed=True),
    "foreign": Input(lambda: {}["a"]),
    "memory": Input(lambda: _refuse(MemoryError())),
}


@pytest.mark.parametrize("verdict", INPUTS)
def test_outcomes_are_told_apart(verdict: str) -> None:
    assert outcome_of(INPUTS[verdict]).verdict == verdict


def test_a_value_that_nobody_wrote_is_wrong() -> None:
    assert outcome_of(Input(lambda: 2, right=lambda result: result == 3)).verdict == "wrong"


def test_what_it_took_is_judged() -> None:
    limits = Limits(seconds=1, memory=100)
    assert judged(Outcome("same", peak=101), limits).verdict == "memory"
    assert judged(Outcome("refused", seconds=1.1), limits).verdict == "time"
    assert judged(Outcome("wrong", seconds=1.1), limits).verdict == "wrong"


def test_hogs_and_endless_ones_do_not_hide() -> None:
    """One that takes memory, one that never ends, one that ends the process, one that is well."""
    import os

    uses = [lambda: _taking(3 * 2**27), _endless, lambda: os._exit(3), lambda: "fine"]

    def make(chance: Random, place: Path) -> Input:
        return Input(uses[int(place.name)])

    outcomes: dict[int, str] = {}
    watch(
        {"one": Surface("one", {"only": make})},
        [("one", index) for index in range(len(uses))],
        seed=0,
        workers=2,
        limits=Limits(seconds=0.5, memory=2**28),
        done=lambda number, outcome: outcomes.update({number[1]: outcome.verdict}),
    )
    assert outcomes == {0: "memory", 1: "time", 2: "died", 3: "other"}
