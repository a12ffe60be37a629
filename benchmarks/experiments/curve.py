"""How does a composition fare while it grows from one module to ten, by six ways of joining?

    python benchmarks/experiments/curve.py --data mnist fashion_mnist --seeds 0 1 2 3 4 --orders 2

Shallow modules of one class each, from the banks of banks.py, are joined in random orders of the
classes, the same for all ways. After each, two things are measured: the rewarded accuracy, over the
test samples of the classes joined so far, where any of the ten classes may be answered; and the
non-rewarded entropy, over all others. Where two orders come to the same classes, as all do in the
end, the whole counts once.

An inlay and a sum of territories are sums of logits to rounding. So these two, like the logits, are
taken from the logits of each module, computed once; COMPOSED points of every seed are composed as
well, and the run stops if they differ by more than ROUNDING. Modules are aligned in pairs, each to
the first by name as `compose` does, and each pair once; the same points are checked to the bit.

TIES trims by a fraction of all entries, the pruned ones included, of which a module of 99% keeps
1.1%. Density and scale are therefore chosen on validation samples, for the complete merge of the
first two seeds; the rest is the preset `paper`. Results go to docs/results/curve.json.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import intarsia as ia
from benchmarks.experiments.banks import DATA, FOLDER, bank_of
from benchmarks.experiments.merge import accuracy
from benchmarks.record import RESULTS, made_by, save, spread_of_all
from intarsia.composition import align
from intarsia.measure import nonrewarded_entropy, rewarded_accuracy
from intarsia.modules import logits_of
from intarsia.modules.statistics import total

DENSITIES = (1.0, 0.01, 0.005, 0.002)
SCALES = (1.0, 1.5, 2.0)
COMPOSED = (2, 10)  # how many modules are joined at the points that are checked
ROUNDING = 1e-4  # of logits that are about ten
Join = Callable[[tuple[str, ...]], Tensor]  # the classes that are joined -> logits, N x C


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--orders", type=int, default=2)
    parser.add_argument("--banks", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    result: dict[str, Any] = {
        **made_by(
            __file__, "--data", *options.data, "--seeds", *options.seeds, "--orders", options.orders
        ),
        "seeds": options.seeds,
        "orders": options.orders,
        "data": {name: curves_of(name, options) for name in options.data},
    }
    save(options.out, "curve", result)


def curves_of(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All curves on one data set, what TIES was given, and the joint network for comparison."""
    data = ia.load_data(name)
    kinds = ("paper", "territory", "sparse", "joint")
    banks = {kind: bank_of(name, "shallow", kind, options.seeds, options.banks) for kind in kinds}
    choice = ties_choice(banks["paper"], data, options.seeds[:2])
    best = max(choice, key=lambda row: row["validation"])
    ties = f"ties(density={best['density']}, scale={best['scale']})"
    points: dict[str, dict[tuple[Any, ...], tuple[float, float]]] = {}
    for seed in options.seeds:
        parts = {kind: by_class(bank.seed(seed)) for kind, bank in banks.items() if kind != "joint"}
        for way, join in ways(parts, ties, data.test.x).items():
            result = points.setdefault(way, {})
            for classes in prefixes(data.catalogue, seed, options.orders):
                key = (seed, *sorted(classes))
                if key not in result:
                    logits = join(tuple(sorted(classes)))
                    result[key] = measured(logits, classes, data, banks["paper"][0].temperature)
        print(name, seed, flush=True)
    joint = [accuracy(module.to_module(), data.test) for module in banks["joint"]]
    return {
        "ties": {"operator": ties, "choice": choice, "n": len(options.seeds[:2])},
        "joint": {"n": len(joint), **spread_of_all(joint)},
        "curves": {way: curve(result) for way, result in points.items()},
    }


def ties_choice(bank: ia.Bank, data: ia.Data, seeds: list[int]) -> list[dict[str, Any]]:
    """Accuracy of the complete merge on validation samples, for each density and scale."""
    rows = []
    for density, scale in product(DENSITIES, SCALES):
        operator = f"ties(density={density}, scale={scale})"
        result = [
            accuracy(ia.compose(bank.seed(seed), operator), data.validation) for seed in seeds
        ]
        rows.append({"density": density, "scale": scale, "validation": statistics.mean(result)})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def ways(parts: dict[str, dict[str, ia.Module]], ties: str, x: Tensor) -> dict[str, Join]:
    """The six ways of joining, each as a function from classes to logits of the samples."""

    def merged(kind: str, operator: str, classes: tuple[str, ...]) -> Tensor:
        return logits_of(ia.compose([parts[kind][c] for c in classes], operator), x)

    @cache
    def single(kind: str, name: str) -> Tensor:
        return logits_of(parts[kind][name].to_module(), x)

    def summed(kind: str, operator: str, classes: tuple[str, ...]) -> Tensor:
        logits = total([single(kind, c) for c in classes])
        if len(classes) in COMPOSED:
            gap = float((merged(kind, operator, classes) - logits).abs().max())
            if gap > ROUNDING:
                raise SystemExit(f"{operator} of {kind}: {gap:.2g} from the sum of logits")
        return logits

    @cache
    def aligned_to(first: str, name: str) -> ia.Module:
        pair = [parts["paper"][first], parts["paper"][name]]
        return pair[0] if first == name else align(pair, "weights")[1]

    def aligned(classes: tuple[str, ...]) -> Tensor:
        modules = [parts["paper"][c] for c in classes]
        first = min(modules, key=lambda module: module.name).rewarded[0]
        logits = logits_of(ia.compose([aligned_to(first, c) for c in classes], "sum"), x)
        if len(classes) in COMPOSED:
            other = logits_of(ia.compose(modules, "sum", align="weights"), x)
            if not torch.equal(logits, other):
                raise SystemExit("modules aligned in pairs are not what compose aligns")
        return logits

    return {
        "sum": partial(merged, "paper", "sum"),
        "aligned sum": aligned,
        "TIES": partial(merged, "paper", ties),
        "logits": partial(summed, "paper", "logits"),
        "territory sum": partial(summed, "territory", "sum"),
        "inlay": partial(summed, "sparse", "inlay"),
    }


def by_class(bank: ia.Bank) -> dict[str, ia.Module]:
    return {module.rewarded[0]: module for module in bank}


def prefixes(catalogue: Iterable[str], seed: int, orders: int) -> list[list[str]]:
    """The classes joined after each step of each order."""
    names = list(catalogue)
    drawn = [np.random.default_rng([seed, k]).permutation(len(names)) for k in range(orders)]
    return [[names[i] for i in order[:k]] for order in drawn for k in range(1, len(names) + 1)]


def measured(
    logits: Tensor, classes: list[str], data: ia.Data, temperature: float
) -> tuple[float, float]:
    rewarded = [data.catalogue.index(name) for name in classes]
    return (
        rewarded_accuracy(logits, data.test.y, rewarded),
        nonrewarded_entropy(logits, data.test.y, rewarded, temperature),
    )


def curve(result: dict[tuple[Any, ...], tuple[float, float]]) -> dict[str, Any]:
    """Both measures by the number of modules; the key is a seed and the classes."""
    steps = sorted({len(key) - 1 for key in result})
    measures = {}
    for place, measure in enumerate(("rewarded_accuracy", "nonrewarded_entropy")):
        values = {k: [v[place] for key, v in result.items() if len(key) - 1 == k] for k in steps}
        measures[measure] = {
            str(k): {"n": len(v), **spread_of_all(v)}
            for k, v in values.items()
            if not math.isnan(v[0])
        }
    return measures


if __name__ == "__main__":
    main()
