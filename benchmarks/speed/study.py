"""Time the whole of Table 4 for one model and data set, against training module by module.

    python benchmarks/speed/study.py --data mnist --model shallow --store FOLDER

The study `pairs` runs on an empty store: every module trained, every pair joined and measured. In
the same call, on the same device, training one module after another is timed in other ways:
  expert  resident tensors, fused Adam, step by step (expert.py): a pruning run, two epochs a round
  graph   the same with the step as a CUDA graph, on a GPU
  usual   DataLoader over per-sample transforms, 4 workers, unfused Adam: training alone, one epoch
and their seconds per module-epoch are multiplied by the module-epochs of the table (an epoch of a
module that sees only its own classes counts by its samples): their totals are extrapolated, ours is
measured. Results go to docs/results/study_speed.json.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import RESULTS, made_by, save
from benchmarks.speed.expert import expert_on_device
from benchmarks.speed.training import apart, usual
from intarsia.studies import Store, StudyContext, find_study, run
from intarsia.studies.archive import make_archive
from intarsia.studies.runners.bank_training import samples_of

SAMPLES = 3  # how often each way is timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="shallow")
    parser.add_argument("--scale", default="paper")
    parser.add_argument("--seeds", type=int, help="how many; the scale's own without it")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    words: list[object] = ["--data", options.data, "--model", options.model, "--store", "FOLDER"]
    words += ["--seeds", options.seeds] if options.seeds else []
    result = made_by(__file__, *words)
    save(options.out, "study_speed", result | timed(options))


def timed(options: argparse.Namespace) -> dict[str, Any]:
    """Our seconds for the table, the others' for a module-epoch, and the ratios."""
    if options.store.exists():
        raise SystemExit(f"{options.store} is there already: give a new folder")
    began = time.perf_counter()
    store, study = Store(options.store), find_study("pairs")
    context = StudyContext(store, options.device)
    seeds = {"seeds": options.seeds} if options.seeds else {}
    chosen = study.options(options.scale, data=[options.data], models=[options.model], **seeds)
    measured = run(study, chosen, store, context=context, say=print)
    seconds = time.perf_counter() - began
    cells = study.plan(chosen, context)
    plans = {plan.key: plan for cell in cells for plan in cell.banks.values()}.values()
    data = context.data(options.data, chosen["preset"])
    module_epochs = sum(samples_of(plan, data) for plan in plans) / len(data.train)
    ways = others(options.data, next(iter(plans)).recipe.model, str(context.device))
    totals = {name: way["seconds_per_module_epoch"] * module_epochs for name, way in ways.items()}
    return {
        "study": {
            "data": options.data,
            "model": options.model,
            "cells": len(measured),
            "modules": sum(plan.modules for plan in plans),
            "module_epochs": round(module_epochs),
            "epochs_of_modules": sum(plan.modules * plan.epochs for plan in plans),
            "seconds": round(seconds, 1),
            **{
                k: v
                for k, v in make_archive(study, chosen, cells, store).runs.items()
                if "seconds" in k
            },
        },
        "ways": ways,
        "extrapolated_seconds": {name: round(total, 1) for name, total in totals.items()},
        "ratios": {name: round(total / seconds, 1) for name, total in totals.items()},
    }


def others(data: str, model: Any, device: str) -> dict[str, dict[str, Any]]:
    """Seconds per module-epoch of the other ways: the fastest of a few, which favours them."""
    ways = {"expert": apart(fastest, expert_on_device, data, model, 2, device)}
    if torch.device(device).type == "cuda":
        ways["graph"] = apart(fastest, expert_on_device, data, model, 2, device, True)
    return ways | {"usual": apart(fastest, usual, data, model, device)}


def fastest(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """The row of the fastest of a few calls, with the times of all."""
    key = "seconds_per_module_epoch"
    rows = [function(*arguments) for _ in range(SAMPLES)]
    return min(rows, key=lambda row: row[key]) | {f"all_{key}": [row[key] for row in rows]}


if __name__ == "__main__":
    main()
