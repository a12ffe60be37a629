"""What does it take to remove a class from the inlays of study `cifar10`, against training again?

    python benchmarks/experiments/cifar_removal.py --store studies --archive archive.json

The study was run with its banks kept, and archived. The first classes in turn are taken out of the
inlay of each network and seed, and of the modules whose logits are added; the network without one
is compared with the others' own inlay, bit by bit. What it is compared with is the time that the
joint network of the same seed was trained for, as the archive noted it, or that of `--trained`,
where the modules at hand are there for their size alone and were hardly trained: a network without
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
    parser.add_argument("--trained", type=Path, help="archive that has the training's seconds")
    parser.add_argument("--classes", type=int, default=3, help="that are taken out, one by one")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    result = {**made_by(__file__, "--classes", options.classes), "rows": []}
    trained = load_archive(options.trained or options.archive)
    for row in removals(load_archive(options.archive), options.store, trained, options.classes):
        result["rows"].append(row)
        print(json.dumps(row), flush=True)
    save(options.out, "cifar_removal", result)


def removals(archive: Archive, store: Path, trained: Archive, classes: int) -> list[dict[str, Any]]:
    """A row for each network and seed whose inlay was measured and whose bank is in the store."""
    seconds, rows = training_seconds(trained), []
    joint = {_place(c.settings): c.result["bank"] for c in trained.measured if _way(c) == JOINT}
    for cell in archive.measured:
        folder = store / "banks" / str(cell.result.get("bank"))
        if _way(cell) != INLAY or not folder.exists():
            continue
        rows.append(
            {
                **dict(zip(("data", "model", "seed"), _place(cell.settings), strict=True)),
                "pruning": cell.settings["pruning"],
                "retraining": seconds.get(joint.get(_place(cell.settings), "")),
                **taken_out(ia.Bank.load(folder, quiet=True), classes),
            }
        )
    return rows


def taken_out(bank: ia.Bank, classes: int) -> dict[str, Any]:
    """Median seconds by the clock until the network without a class is there."""
    apart = ia.compose(bank, "logits")
    some = apart.parts[:classes]
    result: dict[str, Any] = {
        "classes": len(some),
        "logits": statistics.median(timed(lambda m=m: apart - m) for m in some),
    }
    if (inlay := build_inlay(bank)) is not None:
        some = inlay.parts[:classes]
        with limited(memory=MEMORY):  # networks are joined when they are first asked for
            result["inlay"] = statistics.median(timed(lambda m=m: (inlay - m).joined) for m in some)
        result["exact"] = sum(removed_exactly(inlay, part.name) for part in some)
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
