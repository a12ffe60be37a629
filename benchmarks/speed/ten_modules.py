"""Time the training of ten modules of the fast network on CIFAR-10, from a process that is new.

    python benchmarks/speed/ten_modules.py

The recipe is the study's, and one seed after another is trained, with no pruning: the first time
has all that a first call brings, such as kernels that are compiled and graphs that are captured.
Beside the seconds stands what the sum of the modules' logits reaches on test samples. Results go to
docs/results/ten_modules.json.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.studies.maxent.shared.baselines import UNPRUNED
from intarsia.studies.scale.bank_logits import SplitLogits
from intarsia.studies.scale.recipes import RECIPE
from intarsia.training.job import device_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--model", default="fastnet")
    parser.add_argument("--epochs", type=int, default=RECIPE["epochs"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    recipe = {**RECIPE, "epochs": options.epochs}
    began = time.perf_counter()
    data = ia.load_data(options.data, validation=0.05)
    result: dict[str, Any] = {
        **made_by(__file__, *(["--epochs", options.epochs] if recipe != RECIPE else [])),
        "data": options.data,
        "model": options.model,
        "recipe": recipe,
        "loading": round(time.perf_counter() - began, 1),
        "rows": [],
    }
    for seed in range(options.seeds):
        row = {"seed": seed, "first call": not seed, **timed(options, data, recipe, seed)}
        print(row, flush=True)
        result["rows"].append(row)
        save(options.out, "ten_modules", result)


def timed(
    options: argparse.Namespace, data: ia.Data, recipe: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Seconds of one call of `train`, and the accuracy of the sum of logits, mirror images too."""
    began = time.perf_counter()
    bank = ia.train(
        data,
        model=options.model,
        preset="paper",
        seeds=[seed],
        device=options.device,
        progress=False,
        **{**UNPRUNED, **recipe},
    )
    seconds = time.perf_counter() - began
    device = device_of(options.device)
    return {
        "modules": len(bank),
        "engine": str(bank.report.get("engine")),
        "seconds": round(seconds, 1),
        "accuracy": round(SplitLogits.of(bank, data.test, device, flips=True).added(), 4),
        "without mirror images": round(SplitLogits.of(bank, data.test, device).added(), 4),
    }


if __name__ == "__main__":
    main()
