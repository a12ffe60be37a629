"""What should an old module's output for a new class hold? Measured after adding each class last.

    python benchmarks/experiments/growth.py --objectives me other

Fits all classes but one, adds that one, and joins the same modules with each rule for the new
output of the old ones. Accuracy on the old classes, on the new one and on all, on validation
samples (to choose by) and test samples (to report); compared with all classes fitted at once.
Entropy is that of the old modules alone on samples of the new class, as a fraction of the largest.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.estimator import ModularClassifier
from intarsia.models.wiring import OUTPUT
from intarsia.modules.classifier import logits_of, uncertainty

# From the rows of the outputs (C x ...), those not rewarded and the one rewarded to the new row.
Rule = Callable[[Tensor, Tensor, Tensor], Tensor]
RULES: dict[str, Rule] = {
    "zero": lambda rows, silent, rewarded: torch.zeros_like(rewarded),
    "mean of those not rewarded": lambda rows, silent, rewarded: silent.mean(dim=0),
    "mean of all": lambda rows, silent, rewarded: rows.mean(dim=0),
    "a quarter of the way to the rewarded": lambda rows, silent, rewarded: (
        0.75 * silent.mean(dim=0) + 0.25 * rewarded
    ),
    "copy of one not rewarded": lambda rows, silent, rewarded: silent[0],
    "minimum of those not rewarded": lambda rows, silent, rewarded: silent.amin(dim=0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--classes", type=int, help="how many classes to add last; default all")
    parser.add_argument("--rows", type=int, help="train on that many rows")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--objectives", nargs="+", default=["me"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = [
        row
        for objective in options.objectives
        for row in rows_of(ia.load_data(options.data), objective, options)
    ]
    result = {**made_by(__file__, *words(options)), "rows": rows}
    name = "growth" if options.data == "digits" else f"growth_{options.data}"
    save(options.out, name, result)
    print(json.dumps(rows, indent=1))


def words(options: argparse.Namespace) -> list[object]:
    """What the command was given."""
    given: list[object] = ["--data", options.data, "--seeds", *options.seeds]
    for key in ("classes", "rows"):
        given += [f"--{key}", getattr(options, key)] if getattr(options, key) else []
    return [*given, "--epochs", options.epochs, "--objectives", *options.objectives]


def rows_of(data: ia.Data, objective: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per rule, and one for all classes at once."""
    result: dict[str, list[dict[str, Any]]] = {}
    for seed in options.seeds:
        settings = {"random_state": seed, "epochs": options.epochs, "objective": objective}
        x, y = train_part(data, options.rows, seed)
        together = ModularClassifier(**settings).fit(x, y)
        for new in range(data.classes)[: options.classes]:
            for name, model in grown_models(x, y, new, settings):
                result.setdefault(name, []).append(accuracies(model, data, new))
            result.setdefault("all classes at once", []).append(accuracies(together, data, new))
            print(data.name, objective, "seed", seed, "class", new, flush=True)
    return [
        {"data": data.name, "objective": objective, "rule": name, "n": len(cells), **summary(cells)}
        for name, cells in result.items()
    ]


def train_part(data: ia.Data, rows: int | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = data.train.x.flatten(1).numpy(), data.train.y.numpy()
    order = np.random.default_rng(seed).permutation(len(y))[:rows]
    return x[order], y[order]


def grown_models(
    x: np.ndarray, y: np.ndarray, new: int, settings: dict[str, Any]
) -> list[tuple[str, ModularClassifier]]:
    """The classifier after adding `new`, once for each rule."""
    base = ModularClassifier(**settings).fit(x[y != new], y[y != new])
    base.add_class(x[y == new], new)
    models = []
    for name, rule in RULES.items():
        modules = [m if m.rewarded == (str(new),) else ruled(m, rule) for m in base.modules_]
        model = copy(base)
        model._rejoin(modules, base._labels, base.background_)
        models.append((name, model))
    return models


def ruled(module: ia.Module, rule: Rule) -> ia.Module:
    """A grown module with the row of its new output made by another rule."""
    network = module.to_module().network
    wiring = ia.wiring_of(network, module.architecture.shape)
    places = range(len(module.catalogue) - 1)
    silent = [i for i in places if module.catalogue[i] not in module.rewarded]
    mine = module.catalogue.index(module.rewarded[0])
    state = dict(module.state)
    for name, entry in wiring.items():
        if entry and entry[0] is not None and entry[0].name == OUTPUT:
            old, other = module.state[name][: len(places)], module.state[name][len(places) + 1 :]
            state[name] = torch.cat([old, rule(old, old[silent], old[mine])[None], other])
    return replace(module, state=state, mask={})


def accuracies(model: ModularClassifier, data: ia.Data, new: int) -> dict[str, Any]:
    return {part: on_part(model, getattr(data, part), new) for part in ("validation", "test")}


def on_part(model: ModularClassifier, split: ia.Split, new: int) -> dict[str, float]:
    y = split.y.numpy()
    x = split.x.flatten(1).numpy()
    right = model.predict(x) == y
    name = str(new)
    others = [m for m in model.modules_ if m.rewarded != (name,)]
    entropies = [
        uncertainty(logits_of(m.to_module(), x[y == new]), m.temperature).mean().item()
        for m in others
    ]
    return {
        "old": float(right[y != new].mean()),
        "new": float(right[y == new].mean()),
        "all": float(right.mean()),
        "entropy": statistics.mean(entropies),
    }


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation of everything measured."""
    return {
        part: {
            key: spread([cell[part][key] for cell in cells], 4)
            for key in ("old", "new", "all", "entropy")
        }
        for part in ("validation", "test")
    }


if __name__ == "__main__":
    main()
