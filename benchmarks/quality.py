"""Must the modules be sure of their own class and uncertain about the rest? Measured on test data.

    python benchmarks/quality.py --data mnist --models mlp "mlp(512, 256)" lenet --seeds 5

Trains one module per class and seed with the preset `paper` and reports rewarded accuracy and
non-rewarded entropy on the test samples, mean and standard deviation over all modules. The
modules of round one are the rows without pruning. Nothing is chosen on test data.
"""

import argparse
import json
import platform
import statistics
import time
from datetime import UTC, datetime
from math import log
from pathlib import Path
from typing import Any

import torch

import intarsia as ia

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--models", nargs="+", default=["mlp", "mlp(512, 256)"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--select", help="how a round's checkpoint is chosen, if not by the preset")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--split", default="test", choices=["validation", "test"])
    parser.add_argument("--save", type=Path, help="also write the modules of seed 0 here")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", help="name of the result, if not quality_DATA")
    options = parser.parse_args()
    data = ia.load_data(options.data)
    rows: list[dict[str, Any]] = []
    for model in options.models:
        rows += rows_of(data, model, options)
        print(json.dumps(rows[-2:], indent=1), flush=True)
    result = {
        "command": command(options),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
        "split": options.split,
        "entropy_ceiling": round(log(data.classes), 4),
        "rows": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.name or f'quality_{options.data}'}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


def command(options: argparse.Namespace) -> str:
    models = " ".join(f'"{m}"' for m in options.models)
    extra = f" --select {options.select}" if options.select else ""
    extra += f" --preset {options.preset}" if options.preset != "paper" else ""
    extra += f" --epochs {options.epochs}" if options.epochs else ""
    extra += f" --split {options.split}" if options.split != "test" else ""
    return (
        f"python benchmarks/quality.py --data {options.data} --models {models} "
        f"--seeds {options.seeds}{extra}"
    )


def rows_of(data: ia.Data, model: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for the unpruned modules of round one, one for the pruned ones."""
    given = {"epochs": options.epochs, "select": options.select}
    settings = {k: v for k, v in given.items() if v is not None}
    started = time.perf_counter()
    bank = ia.train(
        data,
        model=model,
        preset=options.preset,
        seeds=list(range(options.seeds)),
        keep_rounds=True,
        device=options.device,
        **settings,
    )
    seconds = time.perf_counter() - started
    if options.save:
        bank.seed(0).save(options.save / model)
    rows = []
    for pruned, modules in ((False, bank.rounds[0]), (True, bank)):
        scores = [scores_of(m, data, options.split) for m in modules]
        rows.append(
            {
                "model": model,
                "pruned": pruned,
                "n": len(modules),
                "density": round(statistics.mean(m.density for m in modules), 5),
                "rewarded_accuracy": spread([s[0] for s in scores]),
                "nonrewarded_entropy": spread([s[1] for s in scores]),
                "lowest_accuracy": round(min(s[0] for s in scores), 4),
                "lowest_entropy": round(min(s[1] for s in scores), 4),
                "engine": bank.report["engine"],
                "diverged": list(bank.diverged),
                "training_seconds_of_all_rounds": round(seconds, 1),
            }
        )
    return rows


def scores_of(module: ia.Module, data: ia.Data, split: str) -> tuple[float, float]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    result = ia.evaluate(module.to_module().to(device), getattr(data, split), module.rewarded)
    return float(result.accuracy), float(result.entropy)


def spread(values: list[float]) -> dict[str, float]:
    return {
        "mean": round(statistics.mean(values), 5),
        "sd": round(statistics.stdev(values), 5) if len(values) > 1 else 0.0,
    }


if __name__ == "__main__":
    main()
