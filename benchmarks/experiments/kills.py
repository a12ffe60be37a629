"""kill -9 at random moments of a training run, resumed each time: are the final bytes the same?

    python benchmarks/experiments/kills.py --kills 200

trains digit modules into a folder once undisturbed, then again and again under kills, and compares
every file. It writes kills.json to docs/results, or to the folder of --out. A kill counts where it
hit a process that had begun to train.
"""

import argparse
import multiprocessing
import random
import signal
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import intarsia
from benchmarks.record import RESULTS, made_by, save
from intarsia.training.run_folder import TIME

# Two chunks of ten modules, three rounds; the second recipe carries Adam's moments along.
SETTINGS = {"model": "mlp(64)", "batch": 256, "seeds": [0, 1], "sparsity": 0.9, "epochs": 5}
RECIPES = {
    "paper": {**SETTINGS, "preset": "paper"},
    "released": {**SETTINGS, "preset": "released", "epochs": 8, "patience": 2},
}


def main() -> None:
    options = _arguments()
    begun = time.monotonic()
    # Processes are forked from one that has imported torch and computed nothing with it.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["intarsia.training", "sklearn.datasets"])
    chance = random.Random(options.seed)
    by_recipe = _divide(options.kills, list(RECIPES))
    with tempfile.TemporaryDirectory() as scratch:
        rows = [
            _trial(processes, name, kills, chance, Path(scratch) / name)
            for name, kills in by_recipe.items()
        ]
    result = {
        **made_by(
            __file__,
            *("--kills", options.kills, "--seed", options.seed),
            intarsia=intarsia.__version__,
        ),
        "kills": sum(row["kills"] for row in rows),
        "runs": sum(row["runs"] for row in rows),
        "equal": all(row["equal"] for row in rows),
        "seconds": round(time.monotonic() - begun, 1),
        "recipes": rows,
    }
    save(options.out, "kills", result)
    verdict = "every file has the same bytes" if result["equal"] else "FILES DIFFER"
    print(
        f"{result['kills']} kills, {result['runs']} runs, {result['seconds']} s: {verdict} "
        "as in an undisturbed run"
    )
    sys.exit(0 if result["equal"] else 1)


def train(folder: str, recipe: dict[str, Any], ready: Connection) -> None:
    """What is killed: one call that checkpoints after every epoch."""
    data = intarsia.load_data("digits")
    ready.send("begun")
    intarsia.train(data, out=folder, keep_rounds=True, checkpoint_every=0, progress=False, **recipe)


def _trial(
    processes: Any, name: str, kills: int, chance: random.Random, folder: Path
) -> dict[str, Any]:
    """Runs of one recipe under kills, each compared with the undisturbed one."""
    process, ready = _start(processes, folder / "undisturbed", RECIPES[name])
    ready.recv()
    begun = time.monotonic()
    process.join()
    length = time.monotonic() - begun
    if process.exitcode != 0:
        sys.exit(f"{name}: the undisturbed run failed with exit code {process.exitcode}")
    expected = _contents(folder / "undisturbed")
    done = runs = 0
    differing: set[str] = set()
    per_run: list[int] = []
    while done < kills:
        runs += 1
        place = folder / f"run-{runs}"
        hit = _run_under_kills(processes, RECIPES[name], place, kills - done, length, chance)
        done += hit
        per_run.append(hit)
        result = _contents(place)
        differing |= {f for f in expected.keys() | result if expected.get(f) != result.get(f)}
        print(
            f"{name}: {done} of {kills} kills, {runs} runs, {len(differing)} differing", flush=True
        )
    return {
        "recipe": RECIPES[name],
        "kills": done,
        "runs": runs,
        "kills_per_run": per_run,
        "undisturbed_seconds": round(length, 2),
        "files": len(expected),
        "bytes": sum(map(len, expected.values())),
        "equal": not differing,
        "differing": sorted(differing),
    }


def _run_under_kills(
    processes: Any,
    recipe: dict[str, Any],
    folder: Path,
    most: int,
    length: float,
    chance: random.Random,
) -> int:
    """Train into a folder, killed at random moments, until a process comes to its end."""
    kills = 0
    while True:
        process, ready = _start(processes, folder, recipe)
        ready.recv()
        if kills < most:
            process.join(chance.uniform(0, 0.4 * length))
            process.kill()
        process.join()
        if process.exitcode == 0:
            return kills
        if process.exitcode != -signal.SIGKILL:
            sys.exit(f"a run resumed after {kills} kills failed: exit code {process.exitcode}")
        kills += 1


def _start(processes: Any, folder: Path, recipe: dict[str, Any]) -> tuple[Any, Connection]:
    here, there = processes.Pipe()
    process = processes.Process(target=train, args=(str(folder), recipe, there))
    process.start()
    there.close()
    return process, here


def _contents(folder: Path) -> dict[str, bytes]:
    """All files but the one that tells how long it took."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != TIME
    }


def _divide(kills: int, names: list[str]) -> dict[str, int]:
    return {n: kills // len(names) + (i < kills % len(names)) for i, n in enumerate(names)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
