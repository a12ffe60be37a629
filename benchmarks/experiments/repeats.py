"""Are convolutional modules the same bytes when another process trains them again?

    python benchmarks/experiments/repeats.py --device cuda

Each run is a process of its own, one after another, that trains one module per class by the recipe
of study `cifar10`, for fewer epochs. Where not all runs end with the same bytes, their spread is
given: how far weights lie from those of the first run, and what the sum of logits reaches on test
samples. Results go to docs/results/repeats.json.
"""

import argparse
import multiprocessing
import shlex
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.studies.maxent.shared.baselines import UNPRUNED
from intarsia.studies.scale.bank_logits import SplitLogits
from intarsia.studies.scale.recipes import RECIPE
from intarsia.training.job import device_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--models", nargs="+", default=["fastnet", "resnet18(16)"])
    parser.add_argument("--precisions", nargs="+", default=["bf16", "float32"])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    words = ["--models", *map(shlex.quote, options.models), "--precisions", *options.precisions]
    words += ["--epochs", options.epochs, "--runs", options.runs, "--device", options.device]
    result: dict[str, Any] = {**made_by(__file__, *words), "data": options.data, "rows": []}
    for model in options.models:
        for precision in options.precisions:
            result["rows"].append(repeated(options, model, precision))
            print(result["rows"][-1], flush=True)
            save(options.out, "repeats", result)


def repeated(options: argparse.Namespace, model: str, precision: str) -> dict[str, Any]:
    """What so many runs of one network and precision have in common, and in what they differ."""
    asked = (options.data, model, precision, options.epochs, options.device)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as pool:
        runs = [pool.submit(trained, *asked).result() for _ in range(options.runs)]
    first, *others = runs
    accuracies = [run["accuracy"] for run in runs]
    return {
        "model": model,
        "precision": precision,
        "engine": first["engine"],
        "epochs": options.epochs,
        "modules": first["modules"],
        "runs": len(runs),
        "distinct": len({run["digests"] for run in runs}),
        "distance": max((distance(first["weights"], run["weights"]) for run in others), default=0),
        "accuracy": statistics.mean(accuracies),
        "sd": statistics.stdev(accuracies) if others else 0.0,
    }


def trained(data: str, model: str, precision: str, epochs: int, device: str) -> dict[str, Any]:
    """A bank's digests, its weights in one row, and the accuracy of its logits, added."""
    loaded = ia.load_data(data, validation=0.05)
    recipe = {**UNPRUNED, **RECIPE, "epochs": epochs, "precision": precision}
    bank = ia.train(loaded, model=model, preset="paper", device=device, progress=False, **recipe)
    return {
        "engine": str(bank.report["engine"]),
        "modules": len(bank),
        "digests": tuple(module.digest for module in bank),
        "weights": torch.cat([t.flatten().float() for m in bank for t in m.state.values()]).numpy(),
        "accuracy": SplitLogits.of(bank, loaded.test, device_of(device)).added(),
    }


def distance(one: Any, other: Any) -> float:
    """How far apart weights lie, relative to the size of the first."""
    first: Tensor = torch.from_numpy(one).double()
    return float((torch.from_numpy(other).double() - first).norm() / first.norm())


if __name__ == "__main__":
    main()
