"""Must the modules be sure of their own class and uncertain about the rest? Measured on test data.

    python benchmarks/experiments/quality.py --data mnist --models mlp "mlp(512, 256)" lenet

Trains one module per class and seed with the preset `paper` and reports rewarded accuracy and
non-rewarded entropy on validation samples (to choose by) and on test samples (to report): mean and
standard deviation over all modules. The modules of round one are the rows without pruning.
"""

import argparse
import json
import statistics
import time
from math import log
from pathlib import Path
from typing import Any

import torch
import yaml

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save, spread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--models", nargs="+", default=["mlp", "mlp(512, 256)"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--set", nargs="*", default=[], help="more settings, as key=value")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--save", type=Path, help="also write the modules of seed 0 here")
    parser.add_argument("--bank", type=Path, help="train into this folder, or take what it holds")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", help="name of the result, if not quality_DATA")
    options = parser.parse_args()
    data = ia.load_data(options.data)
    rows: list[dict[str, Any]] = []
    for model in options.models:
        rows += rows_of(data, model, options)
        print(json.dumps(rows[-2:], indent=1), flush=True)
    result = {
        **made_by(__file__, *words(options)),
        "entropy_ceiling": round(log(data.classes), 4),
        "rows": rows,
    }
    save(options.out, options.name or f"quality_{options.data}", result)


def words(options: argparse.Namespace) -> list[object]:
    """What the command was given."""
    given = ["--data", options.data, "--models", *(f'"{model}"' for model in options.models)]
    given += ["--seeds", *options.seeds]
    given += ["--set", *(f'"{setting}"' for setting in options.set)] if options.set else []
    given += ["--preset", options.preset] if options.preset != "paper" else []
    return given + (["--epochs", options.epochs] if options.epochs else [])


def rows_of(data: ia.Data, model: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for the unpruned modules of round one, one for the pruned ones."""
    pairs = [setting.partition("=") for setting in options.set]
    settings = {key: yaml.safe_load(value) for key, _, value in pairs}
    if options.epochs:
        settings["epochs"] = options.epochs
    started = time.perf_counter()
    bank = ia.train(
        options.data,  # by name, so that a preset can choose its scaling
        model=model,
        preset=options.preset,
        seeds=options.seeds,
        keep_rounds=True,
        out=options.bank,
        device=options.device,
        **settings,
    )
    seconds = time.perf_counter() - started
    if options.save:
        bank.seed(options.seeds[0]).save(options.save / model)
    rows = []
    for pruned, modules in ((False, bank.rounds[0]), (True, bank)):
        row: dict[str, Any] = {
            "model": model,
            "settings": settings,
            "pruned": pruned,
            "n": len(modules),
            "density": round(statistics.mean(m.density for m in modules), 5),
            "engine": bank.report["engine"],
            "diverged": list(bank.diverged),
            "training_seconds_of_all_rounds": None if options.bank else round(seconds, 1),
        }
        for split in ("validation", "test"):
            row[split] = summary([scores_of(m, data, split) for m in modules])
        rows.append(row)
    return rows


def scores_of(module: ia.Module, data: ia.Data, split: str) -> tuple[float, float]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    result = ia.evaluate(module.to_module().to(device), getattr(data, split), module.rewarded)
    return float(result.accuracy), float(result.entropy)


def summary(scores: list[tuple[float, float]]) -> dict[str, Any]:
    """Mean and spread, and the single values so that runs can be joined."""
    accuracies, entropies = ([round(s[i], 5) for s in scores] for i in (0, 1))
    return {
        "rewarded_accuracy": spread(accuracies),
        "nonrewarded_entropy": spread(entropies),
        "accuracies": " ".join(map(str, accuracies)),
        "entropies": " ".join(map(str, entropies)),
    }


if __name__ == "__main__":
    main()
