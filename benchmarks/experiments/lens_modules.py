"""Entropy through the layers of class modules, read through tuned lenses.

    python benchmarks/experiments/lens_modules.py digits
    INTARSIA_DATA=... python benchmarks/experiments/lens_modules.py mnist
    INTARSIA_DATA=... python benchmarks/experiments/lens_modules.py cifar --device cuda

digits: ten modules mlp(512, 256), 95% pruned, five seeds. mnist: ten LeNet modules of 4,000
training pictures, 90% pruned, one seed. cifar: modules resnet18(16) for ten classes of CIFAR-100,
three seeds. Each lens is fitted on training samples and measured on test samples. Results go to
docs/results/lens_modules_NAME.json.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.data import Data, subsample
from intarsia.lens import TunedProfiles, tuned

CIFAR_CLASSES = 10
PARTS: dict[str, dict[str, Any]] = {
    "digits": {
        "data": "digits", "load": {}, "seeds": 5, "rows": 10_000,
        "train": {"model": "mlp(512, 256)", "sparsity": 0.95},
    },
    "mnist": {
        "data": "mnist", "load": {}, "train_rows": 4_000, "seeds": 1, "rows": 2_000,
        "train": {"model": "lenet", "sparsity": 0.9, "rounds": 1, "epochs": 4, "pruning_epochs": 2},
    },
    "cifar": {
        "data": "cifar100", "load": {"classes": CIFAR_CLASSES}, "seeds": 3, "rows": 5_000,
        "train": {"model": "resnet18(16)", "sparsity": 0.9, "epochs": 30},
    },
}  # fmt: skip
# An earlier measurement on digits, by one seed: input, first and second hidden layer, head.
NOTED = {
    "auc_other": [0.989, 0.996, 0.996, 0.995],
    "rewarded": [0.61, 0.41, 0.40, 0.40],
    "other": [2.22, 2.29, 2.29, 2.29],
    "right": 0.33,
    "wrong": 1.60,
    "wrong_samples": 14,
    "samples": 359,
    "noise": 0.998,
    "shuffled": 0.931,
}
MEANS = ("rewarded", "other", "auc_other", "auc_wrong", "noise", "shuffled", "explained")
JOINT = ("right", "wrong", "auc_wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    part = PARTS[options.part]
    seeds = options.seeds or part["seeds"]
    data = loaded(part)
    runs = []
    for seed in range(seeds):
        began = time.perf_counter()
        bank = ia.train(data, seeds=[seed], device=options.device, progress=False, **part["train"])
        trained = time.perf_counter()
        profiles = tuned(bank, data, rows=part["rows"], device=options.device)
        seconds = {"training": trained - began, "lenses": time.perf_counter() - trained}
        runs.append(measured(seed, bank, profiles, seconds))
        print(seed, seconds, profiles, flush=True)
    words = [options.part, *(["--device", options.device] if options.device != "cpu" else [])]
    result = made_by(__file__, *words, machine="CPU" if options.device == "cpu" else None)
    about = {"data": data.name, "train": part["train"], "classes": data.classes, "seeds": seeds}
    about["samples"] = {name: len(getattr(data, name)) for name in ("train", "test")}
    about["rows"] = part["rows"]
    noted = {"noted": NOTED} if options.part == "digits" else {}
    name = f"lens_modules_{options.part}"
    save(options.out, name, result | about | {"runs": runs, "layers": by_layer(runs)} | noted)


def loaded(part: dict[str, Any]) -> Data:
    """The data, or a part of it that a few minutes of a CPU are enough for."""
    how = dict(part["load"])
    if isinstance(how.get("classes"), int):
        names = ia.load_data(part["data"]).catalogue
        how["classes"] = list(names[: how["classes"]])
    data = ia.load_data(part["data"], **how)
    rows = part.get("train_rows", len(data.train))
    return replace(data, train=subsample(data.train, rows))


def measured(
    seed: int, bank: ia.Bank, profiles: TunedProfiles, seconds: dict[str, float]
) -> dict[str, Any]:
    """One seed: means over modules by layer, signs of changes, and all modules together."""
    kinds = profiles.together[0].strangers if profiles.together else {}
    layers = []
    for place, name in enumerate(profiles.layers):
        row: dict[str, Any] = {key: _number(profiles.mean(key, name)) for key in MEANS}
        row["change"] = {group: profiles.signs(name, group) for group in ("rewarded", "other")}
        if profiles.together:
            joint = profiles.together[place]
            row["joint"] = {key: _number(getattr(joint, key)) for key in JOINT}
            row["joint"] |= {kind: _number(joint.strangers[kind]) for kind in kinds}
        layers.append({"name": name, **row})
    density = float(np.mean([module.density for module in bank]))
    about = {"seed": seed, "modules": len(profiles.modules), "density": density}
    counts = {"samples": profiles.samples, "wrong": profiles.wrong}
    return {**about, **counts, "seconds": seconds, "layers": layers}


def by_layer(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds."""
    rows = []
    for place, first in enumerate(runs[0]["layers"]):
        own = [run["layers"][place] for run in runs]
        row: dict[str, Any] = {"name": first["name"]}
        for key in MEANS:
            values = [layer[key] for layer in own if layer[key] is not None]
            row[key] = spread(values) if values else None
        joint: dict[str, Any] = {}
        for key in first.get("joint", {}):
            values = [layer["joint"][key] for layer in own if layer["joint"][key] is not None]
            joint[key] = spread(values) if values else None
        rows.append({**row, "joint": joint})
    return rows


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


if __name__ == "__main__":
    main()
