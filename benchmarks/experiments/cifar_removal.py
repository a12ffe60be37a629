"""What does it take to remove a class from the inlays of study `cifar10`, against training again?

    python benchmarks/experiments/cifar_removal.py --store studies

The study was run with its banks kept, and archived in docs/results. Every class in turn is taken
out of the inlay of each network and seed, and of the modules whose logits are added; the network
without it is compared with the others' own inlay, bit by bit. What it is compared with is the time
that the joint network of the same seed was trained for, as the archive noted it: a network without
the class would see one class less, for a tenth of the samples.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.limits import limited
from intarsia.studies.archive import Archive, load_archive
from intarsia.studies.scale.cifar10_study import INLAY, JOINT
from intarsia.studies.scale.merged_weights import MEMORY, build_inlay, removed_exactly


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, default=Path("studies"))
    parser.add_argument("--archive", type=Path, default=RESULTS / "study_cifar10.json")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    result = {**made_by(__file__, "--store", options.store), "rows": []}
    for row in removals(load_archive(options.archive), options.store):
        result["rows"].append(row)
        print(json.dumps(row), flush=True)
    save(options.out, "cifar_removal", result)


def removals(archive: Archive, store: Path) -> list[dict[str, Any]]:
    """A row for each network and seed whose inlay was measured and whose bank is in the store."""
    seconds, rows = training_seconds(archive), []
    joint = {_place(c.settings): c.result["bank"] for c in archive.measured if _way(c) == JOINT}
    for cell in archive.measured:
        folder = store / "banks" / str(cell.result.get("bank"))
        if _way(cell) != INLAY or not folder.exists():
            continue
        rows.append(
            {
                **dict(zip(("data", "model", "seed"), _place(cell.settings), strict=True)),
                "pruning": cell.settings["pruning"],
                "retraining": seconds.get(joint.get(_place(cell.settings), "")),
                **taken_out(ia.Bank.load(folder, quiet=True)),
            }
        )
    return rows


def taken_out(bank: ia.Bank) -> dict[str, Any]:
    """Median seconds by the clock to take one class out, by logits and, if it is built, inlay."""
    apart = ia.compose(bank, "logits")
    result: dict[str, Any] = {
        "classes": len(bank),
        "logits": statistics.median(timed(lambda m=m: apart - m) for m in apart.parts),
    }
    if (inlay := build_inlay(bank)) is not None:
        with limited(memory=MEMORY):
            result["inlay"] = statistics.median(timed(lambda m=m: inlay - m) for m in inlay.parts)
        result["exact"] = sum(removed_exactly(inlay, part.name) for part in inlay.parts)
    return result


def training_seconds(archive: Archive) -> dict[str, float]:
    """By the key of a bank, the seconds of its training; banks trained as one share them evenly."""
    return {
        key: event["seconds"] / len(event["keys"])
        for event in archive.events
        if event["event"] == "banks"
        for key in event["keys"]
    }


def timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _place(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return settings["data"], settings["model"], settings["seed"]


def _way(cell: Any) -> str:
    return str(cell.settings["way"])


if __name__ == "__main__":
    main()
