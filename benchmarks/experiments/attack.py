"""Crafted inputs at every way in: is each refused by an error of ours, or read as it is meant?

    python benchmarks/experiments/attack.py --seed 0 --inputs 20000
    python benchmarks/experiments/attack.py --seed 0 --only "module files" --index 1234

hands in damaged, hostile and huge module files, compositions, banks, run folders, data files,
recipes, archives, specs, commands and requests, and writes armour.json to docs/results, or to the
file of --output. The seed decides every input; with --only and --index one of them is tried again.
An input holds if it is refused by an error of ours, read as the untouched artifact, or read as the
valid other artifact that it is. It is a fault if anything else is raised, if a value is believed
that nobody wrote, or if it takes over 10 s of processor time, waits that long, or takes over 2 GiB.
For Linux.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import intarsia
from benchmarks.attack.surface import FAULTS, HELD, Outcome, Surface
from benchmarks.attack.watch import Limits, Number, attempt, judged, watch
from benchmarks.record import RESULTS, made_by, save

# The files of benchmarks/attack that make inputs, and the surfaces of each.
ROOMS = {
    "module_inputs": ("module files", "compositions", "banks"),
    "run_inputs": ("run folders",),
    "data_inputs": ("data files",),
    "text_inputs": ("recipes", "specs"),
    "study_inputs": ("archives and stores",),
    "command_inputs": ("commands",),
    "studio_inputs": ("studio requests",),
}
EXAMPLES = 3  # of every kind of fault


def main() -> None:
    options = _arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    limits = Limits()
    with tempfile.TemporaryDirectory(prefix="attack-originals-") as scratch:
        surfaces, skipped = prepare(Path(scratch), options.only)
        if options.index is not None:
            sys.exit(_try_one(surfaces[options.only[0]], options.seed, options.index, limits))
        begun = time.monotonic()
        table = run(surfaces, options.seed, options.inputs, options.workers, limits)
        seconds = time.monotonic() - begun
    result = {
        **made_by(
            __file__,
            *("--seed", options.seed, "--inputs", options.inputs),
            *(word for name in options.only for word in ("--only", f'"{name}"')),
            intarsia=intarsia.__version__,
        ),
        "workers": options.workers,
        "seconds": round(seconds, 1),
        "limits": {"seconds": limits.seconds, "bytes": limits.memory},
        "skipped": skipped,
        "inputs": sum(row["tried"] for row in table),
        "faults": sum(sum(row[v] for v in FAULTS) for row in table),
        "rows": table,
    }
    if options.output is not None:
        save(options.output.parent, options.output.stem, result)
    _print(result)
    sys.exit(1 if result["faults"] else 0)


def prepare(scratch: Path, only: Sequence[str] = ()) -> tuple[dict[str, Surface], dict[str, str]]:
    """All surfaces by name, and those that this machine cannot try, with the reason."""
    names = [name for own in ROOMS.values() for name in own]
    if unknown := set(only) - set(names):
        sys.exit(f"there is no surface {unknown.pop()!r}: {', '.join(names)}")
    skipped = {name: "it was left out by --only" for name in names if only and name not in only}
    if find_spec("gradio") is None:
        skipped["studio requests"] = "the package gradio is not installed"
    made: dict[str, Surface] = {}
    for room, own in ROOMS.items():
        if not set(own) <= skipped.keys():
            module = import_module(f"benchmarks.attack.{room}")
            made |= {surface.name: surface for surface in module.surfaces(scratch / room)}
    return {name: made[name] for name in made if name not in skipped}, skipped


def run(
    surfaces: Mapping[str, Surface], seed: int, inputs: int, workers: int, limits: Limits
) -> list[dict[str, Any]]:
    """Rows of surface, kind, how many were tried, what became of them, and faults to look at."""
    counts: Counter[tuple[str, str, str]] = Counter()
    examples: dict[tuple[str, str], list[dict[str, Any]]] = {}
    most: dict[tuple[str, str], list[float]] = {}
    seen: Counter[tuple[str, str, str, str]] = Counter()

    def done(number: Number, outcome: Outcome) -> None:
        name, index = number
        kinds = list(surfaces[name].kinds)
        kind = kinds[index % len(kinds)]
        counts[name, kind, outcome.verdict] += 1
        took = most.setdefault((name, kind), [0.0, 0.0])
        most[name, kind] = [max(took[0], outcome.seconds), max(took[1], outcome.peak / 2**20)]
        if outcome.verdict in FAULTS:
            sign = (name, kind, outcome.verdict, outcome.detail[:40])
            seen[sign] += 1
            if seen[sign] <= EXAMPLES:
                detail = without_places(outcome.detail)
                fault = {"index": index, "verdict": outcome.verdict, "detail": detail}
                examples.setdefault((name, kind), []).append(fault)

    numbers = divided(surfaces, inputs)
    watch(surfaces, numbers, seed, workers, limits, done)
    return [
        {
            "surface": name,
            "kind": kind,
            "tried": sum(counts[name, kind, verdict] for verdict in (*HELD, *FAULTS)),
            **{verdict: counts[name, kind, verdict] for verdict in (*HELD, *FAULTS)},
            "most_seconds": round(most.get((name, kind), [0, 0])[0], 2),
            "most_MiB": round(most.get((name, kind), [0, 0])[1]),
            "examples": sorted(examples.get((name, kind), []), key=lambda e: e["index"]),
        }
        for name, surface in surfaces.items()
        for kind in surface.kinds
    ]


def without_places(detail: str) -> str:
    """What went wrong, without where things lie on this machine."""
    for place in (sys.prefix, str(Path(__file__).resolve().parents[2]), tempfile.gettempdir()):
        detail = detail.replace(place, "...")
    return detail


def divided(surfaces: Mapping[str, Surface], inputs: int) -> list[Number]:
    """The numbers of all inputs, by the weights of the surfaces; the rest goes to the first."""
    total = sum(surface.weight for surface in surfaces.values())
    each = {name: inputs * surface.weight // total for name, surface in surfaces.items()}
    each[next(iter(each))] += inputs - sum(each.values())
    return [(name, index) for name, count in each.items() for index in range(count)]


def _try_one(surface: Surface, seed: int, index: int, limits: Limits) -> int:
    """One input, in this process, with what is printed."""
    with tempfile.TemporaryDirectory(prefix="attack-") as scratch:
        outcome = judged(attempt(surface, seed, index, Path(scratch)), limits)
    kind = list(surface.kinds)[index % len(surface.kinds)]
    size = f"{outcome.seconds:.2f} s, {outcome.peak / 2**20:.0f} MiB"
    print(f"{surface.name}, {kind}, {index}: {outcome.verdict} ({size}) {outcome.detail}")
    return int(outcome.verdict in FAULTS)


def _print(result: Mapping[str, Any]) -> None:
    for row in result["rows"]:
        faults = sum(row[verdict] for verdict in FAULTS)
        print(f"{row['surface']:16} {row['kind']:30} {row['tried']:6} tried, {faults} faults")
        for example in row["examples"]:
            print(f"    {example['index']}: {example['verdict']}: {example['detail']}")
    for surface, reason in result["skipped"].items():
        print(f"{surface}: not tried, {reason}")
    print(f"{result['inputs']} inputs, {result['faults']} faults, {result['seconds']} s")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", action="append", default=[], metavar="SURFACE")
    parser.add_argument("--index", type=int, help="One input of the surface of --only.")
    parser.add_argument("--output", type=Path, default=RESULTS / "armour.json")
    options = parser.parse_args()
    if options.index is not None and len(options.only) != 1:
        parser.error("--index is the number of an input of one surface: name it with --only")
    return options


if __name__ == "__main__":
    main()
