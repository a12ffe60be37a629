"""kill -9 at random moments of a study, resumed each time: are cells and banks the same bytes?

    python benchmarks/experiments/study_kills.py --kills 50

runs a study of digits once undisturbed, then under kills in one process, then under kills in two
processes that share a store, and compares every file of its cells and banks. It writes
study_kills.json to docs/results, or to the folder of --out. A kill counts where it hit a process
that had begun to work.
"""

import argparse
import multiprocessing
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import intarsia
from benchmarks.record import RESULTS, made_by, save
from intarsia.studies import Cell, Measured, Store, Study, StudyContext, Table, register, run
from intarsia.studies.records import read_records
from intarsia.studies.runners import bank_training as training

SIZES = {
    "whole": {"objectives": ["me", "xe"], "seeds": 4, "classes": 6, "epochs": 8},
    "short": {"objectives": ["me", "xe"], "seeds": 2, "classes": 2, "epochs": 6},
}
SPREAD = 2.0  # lives that end by a kill are together half this long, in undisturbed runs


def cells(options: Mapping[str, Any], context: StudyContext) -> list[Cell]:
    sets = [(str(c),) for c in range(options["classes"])]
    recipe = {"epochs": options["epochs"], "sparsity": 0.9}
    return [
        Cell(
            "kills",
            {"objective": objective, "seed": seed},
            {
                "modules": context.plan(
                    "digits", "mlp(32)", sets, seed, objective=objective, **recipe
                )
            },
        )
        for objective in options["objectives"]
        for seed in range(options["seeds"])
    ]


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    data = context.data("digits")
    plan = cell.banks["modules"]
    banks = {"pruned": context.bank(plan), "unpruned": context.bank(plan, pruned=False)}
    return {
        name: intarsia.evaluate(intarsia.compose(bank, "sum"), data.test).accuracy
        for name, bank in banks.items()
    }


def tables(measured: Sequence[Measured]) -> list[Table]:
    return [Table("accuracy", ["objective"], [[m.settings["objective"]] for m in measured])]


STUDY = register(
    Study("kills", "killed", "Made to be killed.", SIZES, cells, measure, tables, lambda m: {})
)


def main() -> None:
    arguments = _arguments()
    begun = time.monotonic()
    options = STUDY.options(arguments.size)
    # Processes are forked from one that has imported torch and computed nothing with it.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["intarsia.studies", "sklearn.datasets"])
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        length = _undisturbed(processes, options, place / "undisturbed")
        expected = contents(place / "undisturbed")
        rows = [
            _trial(processes, options, at_once, arguments.kills, length, chance, expected, place)
            for at_once in (1, 2)
        ]
    result = {
        **made_by(
            __file__,
            *("--kills", arguments.kills, "--size", arguments.size, "--seed", arguments.seed),
            intarsia=intarsia.__version__,
        ),
        "seconds": round(time.monotonic() - begun, 1),
        "options": options,
        "undisturbed_seconds": round(length, 2),
        "files": len(expected),
        "bytes": sum(map(len, expected.values())),
        "kills": sum(row["kills"] for row in rows),
        "equal": all(row["equal"] for row in rows),
        "trials": rows,
    }
    save(arguments.out, "study_kills", result)
    verdict = "every file has the same bytes" if result["equal"] else "FILES DIFFER"
    print(f"{result['kills']} kills, {result['seconds']} s: {verdict} as in an undisturbed run")
    sys.exit(0 if result["equal"] else 1)


def work(folder: str, options: dict[str, Any], ready: Connection) -> None:
    """What is killed: a run of the study that checkpoints after every epoch."""
    training.CHECKPOINT_EVERY = 0.0
    context = StudyContext(store := Store(folder), "cpu")
    context.data("digits")
    ready.send("begun")
    run(STUDY, options, store, context=context)


def contents(folder: Path) -> dict[str, bytes]:
    """Every byte of cells and banks, and whatever a run should not leave."""
    parts = [p for part in ("cells", "banks", "work") for p in (folder / part).rglob("*")]
    return {str(p.relative_to(folder)): p.read_bytes() for p in parts if p.is_file()}


def _undisturbed(processes: Any, options: dict[str, Any], folder: Path) -> float:
    life = _Life(processes, options, folder)
    begun = time.monotonic()
    life.process.join()
    if life.process.exitcode != 0:
        sys.exit(f"the undisturbed run failed with exit code {life.process.exitcode}")
    return time.monotonic() - begun


def _trial(
    processes: Any,
    options: dict[str, Any],
    at_once: int,
    kills: int,
    length: float,
    chance: random.Random,
    expected: dict[str, bytes],
    place: Path,
) -> dict[str, Any]:
    """Runs with so many processes at once, each compared with the undisturbed one."""
    done = 0
    differing: set[str] = set()
    runs: list[dict[str, int]] = []
    while done < kills:
        folder = place / f"{at_once}-{len(runs)}"
        span = SPREAD * length * at_once / kills
        runs.append(
            _run_under_kills(processes, options, folder, at_once, kills - done, span, chance)
        )
        done += runs[-1]["kills"]
        result = contents(folder)
        differing |= {f for f in expected.keys() | result if expected.get(f) != result.get(f)}
        print(f"{at_once} at once: {runs[-1]}, {len(differing)} differing", flush=True)
    return {
        "at_once": at_once,
        "kills": done,
        "runs": runs,
        "equal": not differing,
        "differing": sorted(differing),
    }


class _Life:
    """A process at work, from the moment on which it has begun."""

    def __init__(self, processes: Any, options: dict[str, Any], folder: Path) -> None:
        here, there = processes.Pipe()
        self.process = processes.Process(target=work, args=(str(folder), options, there))
        self.process.start()
        there.close()
        here.recv()
        here.close()
        self.begun = time.monotonic()


def _run_under_kills(
    processes: Any,
    options: dict[str, Any],
    folder: Path,
    at_once: int,
    most: int,
    span: float,
    chance: random.Random,
) -> dict[str, int]:
    """Work on one store, killed at random moments and begun again, until it is finished."""
    kills = banks = finished = 0
    # The first entry is when the life is to end, from its beginning.
    lives = [(chance.uniform(0, span), _Life(processes, options, folder)) for _ in range(at_once)]
    while lives:
        end, life = lives.pop(0)
        if kills < most:
            life.process.join(max(0.0, life.begun + end - time.monotonic()))
            life.process.kill()
        life.process.join()
        if life.process.exitcode == 0:
            continue
        if life.process.exitcode != -signal.SIGKILL:
            sys.exit(f"a run resumed after {kills} kills failed: {life.process.exitcode}")
        kills += 1
        banks = len([*folder.glob("banks/*/bank.json")])
        finished = len([*folder.glob("cells/*/*.json")])
        lives.append((chance.uniform(0, span), _Life(processes, options, folder)))
    return {
        "kills": kills,
        "banks_at_last_kill": banks,
        "cells_at_last_kill": finished,
        "repeated": _repeated(folder),
    }


def _repeated(folder: Path) -> int:
    """Banks and cells that were finished more than once."""
    events = read_records(folder / "runs")
    done = [key for e in events for key in e.get("keys", [e["key"]] if "key" in e else [])]
    return len(done) - len(set(done))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=50, help="of each of the two trials")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=SIZES, default="whole")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
