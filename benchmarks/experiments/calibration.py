"""What does one scale and one offset per module bring? Merges with and without, on test samples.

    python benchmarks/experiments/calibration.py

Fitted on 1000 validation samples, for the banks of banks.py; the pull towards doing nothing
(calibration.PULL) was chosen on the other validation samples.
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import intarsia as ia
from benchmarks.experiments.banks import FOLDER, bank_of
from benchmarks.experiments.merge import accuracy, loaded
from benchmarks.record import RESULTS, made_by, save, spread_of_all
from intarsia.composition.merge_context import ROWS

KINDS = ("territory", "sparse", "paper")
NETWORKS = (("mnist", "shallow"), ("fashion_mnist", "shallow"), ("mnist", "deep"))
CASES = [(data, model, kind) for data, model in NETWORKS for kind in KINDS]
CASES.append(("fashion_mnist", "deep", "paper"))
OPERATORS = {"territory": "sum", "sparse": "inlay", "paper": "inlay"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--banks", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for data, model, kind in CASES:
        bank = bank_of(data, model, kind, options.seeds, options.banks)
        rows.append(row_of(bank, data, OPERATORS[kind], options.seeds))
        rows[-1] = {"data": data, "model": model, "kind": kind} | rows[-1]
        print(json.dumps(rows[-1]), flush=True)
    result = {
        **made_by(__file__, "--seeds", *options.seeds),
        "samples": ROWS,
        "rows": rows,
    }
    save(options.out, "calibration", result)


def row_of(bank: ia.Bank, data: str, how: str, seeds: list[int]) -> dict[str, Any]:
    result: dict[str, Any] = {"operator": how, "n": len(seeds)}
    for key, join in {
        "without": ia.compose,
        "with": partial(ia.compose, samples=loaded(data), calibrate=True),
    }.items():
        # By logits, which territories and inlays equal: many small networks, not a wide one.
        wholes = [join(bank.seed(s), "logits") for s in seeds]
        result[key] = spread_of_all([accuracy(merged, loaded(data).test) for merged in wholes])
    return result


if __name__ == "__main__":
    main()
