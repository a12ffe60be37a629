"""Entropy through the layers of class modules, read through tuned lenses.

    python benchmarks/experiments/lens_modules.py digits
    INTARSIA_DATA=... python benchmarks/experiments/lens_modules.py mnist lenet vit --device cuda
    INTARSIA_DATA=... python benchmarks/experiments/lens_modules.py cifar --device cuda
    INTARSIA_DATA=... python benchmarks/experiments/lens_modules.py vit --seeds 1 --epochs 1 \\
        --train-rows 400 --test-rows 200 --rows 200 --out small

digits: ten modules mlp(512, 256), 95% pruned, five seeds. mnist: the same modules of 10,000
training pictures, three seeds; lenet: LeNet modules, vit: small vision transformers, of the same
pictures. cifar: modules resnet18(16) for ten classes of CIFAR-100, three seeds. Each lens is fitted
on training samples and measured on test samples. Results go to docs/results/lens_modules_NAME.json.
"""

import argparse
import time
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.data import Data, subsample
from intarsia.lens import TunedProfiles, tuned

CIFAR_CLASSES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
)  # fmt: skip
PARTS: dict[str, dict[str, Any]] = {
    "digits": {
        "data": "digits", "load": {}, "seeds": 5, "rows": 10_000,
        "train": {"model": "mlp(512, 256)", "sparsity": 0.95},
    },
    "mnist": {
        "data": "mnist", "load": {}, "train_rows": 10_000, "seeds": 3, "rows": 4_000,
        "train": {"model": "mlp(512, 256)", "sparsity": 0.95, "rounds": 2, "epochs": 8,
                  "pruning_epochs": 4},
    },
    "lenet": {
        "data": "mnist", "load": {}, "train_rows": 10_000, "seeds": 3, "rows": 4_000,
        "train": {"model": "lenet", "sparsity": 0.9, "rounds": 1, "epochs": 8, "pruning_epochs": 4},
    },
    "vit": {
        "data": "mnist", "load": {}, "train_rows": 10_000, "seeds": 3, "rows": 4_000,
        "train": {"model": "vit(7, 64, 6, 4)", "sparsity": 0.5, "rounds": 1, "epochs": 10,
                  "pruning_epochs": 5},
    },
    "cifar": {
        "data": "cifar100", "load": {"classes": list(CIFAR_CLASSES)}, "seeds": 3, "rows": 4_000,
        "train": {"model": "resnet18(16)", "sparsity": 0.9, "rounds": 1, "epochs": 20,
                  "pruning_epochs": 10},
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
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--train-rows", type=int)
    parser.add_argument("--test-rows", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--workers", type=int, default=1, help="seeds at a time")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    for name in options.parts:
        save(
            options.out, f"lens_modules_{name}", measure(name, asked(PARTS[name], options), options)
        )


def asked(part: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The settings of a part, smaller where that is asked for."""
    keys = ("seeds", "train_rows", "test_rows", "rows")
    given = {key: getattr(options, key) for key in keys}
    part = part | {key: value for key, value in given.items() if value}
    if not options.epochs:
        return part
    few = [key for key in ("epochs", "pruning_epochs") if key in part["train"]] or ["epochs"]
    return part | {"train": part["train"] | dict.fromkeys(few, options.epochs)}


def measure(name: str, part: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Train the modules of every seed and look through their layers."""
    data = loaded(part)
    one = partial(of_seed, name=name, part=part, device=options.device)
    if options.workers == 1:
        runs = [one(seed) for seed in range(part["seeds"])]
    else:
        with get_context("spawn").Pool(options.workers) as pool:
            runs = pool.map(one, range(part["seeds"]), chunksize=1)
    words = [name]
    for key in ("device", "seeds", "train_rows", "test_rows", "epochs", "rows", "workers"):
        if (value := getattr(options, key)) not in (None, "cpu", 1):
            words += [f"--{key.replace('_', '-')}", value]
    result = made_by(__file__, *words, machine="CPU" if options.device == "cpu" else None)
    about = {"data": data.name, "train": part["train"], "classes": data.classes}
    about |= {"seeds": part["seeds"], "rows": part["rows"]}
    about["samples"] = {key: len(getattr(data, key)) for key in ("train", "test")}
    noted = {"noted": NOTED} if name == "digits" else {}
    return result | about | {"runs": runs, "layers": by_layer(runs)} | noted


def of_seed(seed: int, name: str, part: dict[str, Any], device: str) -> dict[str, Any]:
    """Ten modules of one seed and what their lenses see."""
    data = loaded(part)
    began = time.perf_counter()
    bank = ia.train(data, seeds=[seed], device=device, progress=False, **part["train"])
    trained = time.perf_counter()
    profiles = tuned(bank, data, rows=part["rows"], device=device)
    seconds = {"training": trained - began, "lenses": time.perf_counter() - trained}
    print(name, seed, seconds, flush=True)
    return measured(seed, bank, profiles, seconds)


def loaded(part: dict[str, Any]) -> Data:
    """The data, or a part of it that a few minutes of a CPU are enough for."""
    data = ia.load_data(part["data"], **part["load"])
    train, test = (part.get(f"{key}_rows", len(getattr(data, key))) for key in ("train", "test"))
    return replace(data, train=subsample(data.train, train), test=subsample(data.test, test))


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
