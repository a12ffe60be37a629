"""What a class that comes late learns from: rows of others, made-up negatives, or both.

    python benchmarks/experiments/late_class.py

Fits a classifier to all classes but one and keeps no row of them; then adds that one with so many
rows of others as background, with and without the mixture of negatives that stands in for them.
Accuracy on validation rows, which are cut from the training rows; no test row is looked at.
"""

import argparse
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.estimator import fitting

SETS: dict[str, tuple[Any, tuple[int, ...] | None, list[float]]] = {
    "digits": (load_digits, (1, 8, 8), [0, 0.1, 0.5, 1.0, 3.0]),
    "wine": (load_wine, None, [0, 0.2, 0.5, 1.0, 2.0]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    usual = fitting.ENOUGH
    rows = [row for name in SETS for row in measure(name, options.seeds)]
    result = {**made_by(__file__, "--seeds", *options.seeds), "rows": rows}
    save(options.out, "late_class", {**result, "enough": usual})


def measure(name: str, seeds: list[int]) -> list[dict[str, Any]]:
    """By how many rows of others there are for each of the new class, both ways."""
    load, shape, amounts = SETS[name]
    data = load()
    scores: dict[tuple[float, bool], list[float]] = {}
    for seed in seeds:
        x, _, y, _ = train_test_split(
            data.data, data.target, test_size=0.3, random_state=seed, stratify=data.target
        )
        x, held, y, held_y = train_test_split(x, y, test_size=0.3, random_state=seed, stratify=y)
        for new in np.unique(y)[:: 3 if name == "digits" else 1]:
            rest = ia.ModularClassifier(background=0, shape=shape, random_state=seed)
            rest.fit(x[y != new], y[y != new])
            own = x[y == new]
            others = np.random.default_rng(seed).permutation(np.flatnonzero(y != new))
            for amount in amounts:
                given = x[others[: round(amount * len(own))]]
                for mixture in (False, True) if amount else (True,):
                    fitting.ENOUGH = np.inf if mixture else 0
                    late = deepcopy(rest)
                    late.add_class(own, new, background=given if amount else None)
                    key = (amount, mixture)
                    scores.setdefault(key, []).append(late.score(held, held_y))
    return [
        {"data": name, "amount": amount, "mixture": mixture, "n": len(own)} | spread(own)
        for (amount, mixture), own in scores.items()
    ]


if __name__ == "__main__":
    main()
