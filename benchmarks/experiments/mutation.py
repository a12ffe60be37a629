"""Small faults put into the source, one at a time: do the tests of their room notice?

    python benchmarks/experiments/mutation.py
    python benchmarks/experiments/mutation.py --rooms pruning --sample 40 --output /tmp/some.json

makes mutants of the files of every room, tries each on the tests of the room that reach it, and
writes docs/results/mutation.json. A mutant survives where all of them pass. Those that no test
could notice, since they compute the same, are listed with the reason in
benchmarks/mutation/equivalent.toml; they are tried like all others. It forks, so it needs Linux.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import intarsia
from benchmarks.mutation.mutate import Mutant
from benchmarks.mutation.trials import Order, room_mutants
from benchmarks.record import RESULTS, ROOT, made_by, save

EQUIVALENT = ROOT / "benchmarks" / "mutation" / "equivalent.toml"
AIM = 0.9
MODULES, COMPOSITION = "src/intarsia/modules", "src/intarsia/composition"


@dataclass(frozen=True)
class Room:
    """Files whose mutants are tried, and the tests that should notice; patterns below the root."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "objectives": Room(("src/intarsia/objectives.py",), ("tests/test_objectives.py",)),
    "pruning": Room(("src/intarsia/pruning/*.py",), ("tests/pruning",)),
    "operators": Room((f"{COMPOSITION}/operators/**/*.py",), ("tests/composition",)),
    "statistics": Room(
        (
            f"{MODULES}/statistics.py",
            "src/intarsia/measure/significance.py",
            "src/intarsia/measure/logits.py",
            "src/intarsia/measure/evaluation.py",
            "src/intarsia/measure/abstention.py",
        ),
        (
            "tests/measure",
            "tests/modules/test_statistics.py",
            "tests/composition/operators/test_weights.py",
        ),
    ),
    "files": Room(
        (
            "src/intarsia/files.py",
            "src/intarsia/limits.py",
            "src/intarsia/parsing.py",
            f"{MODULES}/file.py",
            f"{MODULES}/header.py",
            f"{COMPOSITION}/composition_file.py",
        ),
        (
            "tests/test_files.py",
            "tests/test_limits.py",
            "tests/test_parsing.py",
            "tests/modules",
            "tests/composition/test_composition.py",
            "tests/composition/test_composition_file.py",
        ),
    ),
}


def main() -> None:
    options = _arguments()
    begun = time.monotonic()
    rooms = {name: room for name, room in ROOMS.items() if name in options.rooms}
    equivalent = read_equivalent(EQUIVALENT)
    stale = stale_entries(ROOMS, equivalent)
    if stale:
        sys.exit("no mutant is any more what equivalent.toml lists: " + "; ".join(map(str, stale)))
    answers = try_rooms(rooms, options.workers, options.sample, options.seed)
    rows = [row(name, *answers[name], equivalent) for name in rooms]
    words = ["--seed", options.seed]
    if options.sample:
        words += ["--sample", options.sample]
    if set(options.rooms) < set(ROOMS):
        words = ["--rooms", *options.rooms, *words]
    result = {
        **made_by(
            __file__,
            *words,
            machine=f"{os.cpu_count()} CPU cores",
            intarsia=intarsia.__version__,
        ),
        "workers": options.workers,
        "seconds": round(time.monotonic() - begun, 1),
        "sample": options.sample,
        "aim": AIM,
        "rooms": rows,
    }
    save(options.output.parent, options.output.stem, result)
    for found in rows:
        print(
            f"{found['room']}: {found['killed']} of {found['mutants']} killed, "
            f"{len(found['survivors'])} survive, {len(found['equivalent'])} equivalent; "
            f"score {found['score']:.1%}, raw {found['raw_score']:.1%}"
        )
    wrong = [mutant for found in rows for mutant in found["wrongly_listed"]]
    if wrong:
        print("listed as equivalent, but killed:", *wrong, sep="\n  ")
    sys.exit(0 if not wrong and all(found["score"] >= AIM for found in rows) else 1)


def try_rooms(
    rooms: Mapping[str, Room], workers: int, sample: int, seed: int, root: Path = ROOT
) -> dict[str, tuple[dict[int, Mutant], dict[str, Any]]]:
    """For each room its mutants, and what their trials gave; all rooms at the same time."""
    tokens = os.pipe()
    os.set_blocking(tokens[0], False)
    os.write(tokens[1], b"." * workers)
    given = os.environ.get("PYTHONPATH", "")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([*map(str, (root / "src", root, ROOT)), given]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "CUDA_VISIBLE_DEVICES": "",
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }
    with tempfile.TemporaryDirectory() as scratch:
        orders = {
            name: room_order(name, room, tokens, Path(scratch), sample, seed, root)
            for name, room in rooms.items()
        }
        processes = []
        for name, order in orders.items():
            path = Path(scratch) / f"{name}.order.json"
            path.write_text(json.dumps(asdict(order)))
            command = [sys.executable, "-m", "benchmarks.mutation.trials", str(path)]
            processes.append(
                subprocess.Popen(
                    command, cwd=root, env=environment, pass_fds=tokens, stdout=subprocess.DEVNULL
                )
            )
        ended = [process.wait() for process in processes]
        if any(ended):
            sys.exit("a room's tests could not be run, see above")
        return {
            name: (order.mutants, json.loads(Path(order.answer).read_text()))
            for name, order in orders.items()
        }


def room_order(
    name: str,
    room: Room,
    tokens: tuple[int, int],
    scratch: Path,
    sample: int,
    seed: int,
    root: Path,
) -> Order:
    """What the process of a room is to do; the sample is drawn by the seed."""
    sources = sources_of(room, root)
    tests = [test for test in room.tests if (root / test).exists()]
    total = len(room_mutants(root, sources))
    chosen = None
    if 0 < sample < total:
        chosen = sorted(random.Random(f"{seed}/{name}").sample(range(total), sample))
    folder = scratch / name
    folder.mkdir()
    answer = str(scratch / f"{name}.json")
    return Order(name, str(root), sources, tests, chosen, tokens, str(folder), answer)


def sources_of(room: Room, root: Path = ROOT) -> list[str]:
    """The files of a room; a pattern that names none is a mistake."""
    sources: list[str] = []
    for pattern in room.sources:
        matching = sorted(str(path.relative_to(root)) for path in root.glob(pattern))
        if not matching:
            sys.exit(f"there is no file {pattern}: correct the table of rooms")
        sources += matching
    return sources


def row(
    name: str,
    mutants: Mapping[int, Mutant],
    answer: Mapping[str, Any],
    equivalent: Mapping[tuple[str, ...], str],
) -> dict[str, Any]:
    """A room's counts and scores, and its survivors one by one."""
    outcomes = {number: answer["outcomes"][str(number)] for number in mutants}
    counts = Counter(outcomes.values())
    alive = [mutants[n] for n, outcome in outcomes.items() if outcome == "survived"]
    same = [mutant for mutant in alive if mutant.key in equivalent]
    survivors = [mutant for mutant in alive if mutant.key not in equivalent]
    listed = [m for n, m in mutants.items() if m.key in equivalent and outcomes[n] != "survived"]
    killed = len(mutants) - len(alive)
    return {
        "room": name,
        "files": sorted({mutant.file for mutant in mutants.values()}),
        "tests": answer["tests"],
        "left_out": answer["left_out"],
        "processor_seconds": round(sum(answer["seconds"].values()), 1),
        "mutants": len(mutants),
        "killed": killed,
        "of_them_out_of_time": counts["out of time"],
        "of_them_crashed": counts["crashed"],
        "raw_score": round(killed / len(mutants), 4),
        "score": round(killed / (len(mutants) - len(same)), 4),
        "survivors": [described(mutant) for mutant in survivors],
        "equivalent": [{**described(m), "reason": equivalent[m.key]} for m in same],
        "wrongly_listed": [f"{m.file}:{m.line}: {m.before} -> {m.after}" for m in listed],
    }


def described(mutant: Mutant) -> dict[str, Any]:
    names = ("file", "line", "function", "kind", "before", "after")
    return {name: getattr(mutant, name) for name in names}


def read_equivalent(path: Path) -> dict[tuple[str, ...], str]:
    """Changes that compute the same, with the reason."""
    entries = tomllib.loads(path.read_text()).get("equivalent", [])
    names = ("file", "function", "line", "before", "after")
    return {tuple(entry[name] for name in names): entry["reason"] for entry in entries}


def stale_entries(
    rooms: Mapping[str, Room], equivalent: Iterable[tuple[str, ...]]
) -> Sequence[tuple[str, ...]]:
    """Entries of the list that no mutant of any room is."""
    known = {m.key for room in rooms.values() for m in room_mutants(ROOT, sources_of(room))}
    return [entry for entry in equivalent if entry not in known]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rooms", nargs="+", choices=list(ROOMS), default=list(ROOMS))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--sample", type=int, default=0, help="mutants of each room; 0 for all")
    parser.add_argument("--output", type=Path, default=RESULTS / "mutation.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
