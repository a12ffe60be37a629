"""Auto: settings for data that nobody has tuned, from its rows, features and classes.

The numbers were chosen on validation rows cut from the training rows of
docs/results/defaults.md's data sets; no test row was looked at. The guide explains each of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intarsia.data.negatives import read_negatives


@dataclass(frozen=True)
class DataSize:
    """What the settings follow from."""

    rows: int  # to train on
    features: int
    classes: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.features:,} features, {self.classes:,} classes"


# What does not depend on the data.
AUTO: dict[str, Any] = {
    "pruning": "magnitude(scope='layer')",  # no layer is cut through by another's large weights
    "schedule": "cosine",
    "balance": 0.5,
    "silent": True,
    "temperature": 1.0,
    "keep_moments": False,
    "select": "loss",
    "learning_rate": 6e-3,
}
STEPS = 30.0  # steps of the last round: this times the square root of the rows
FEWEST, MOST = 200, 15_000
MANY = 30  # classes beyond which each module takes fewer steps, so that their sum stays the same
BATCHES = (8, 64)
# By rows: hidden units, dropout, sparsity. Small networks have little to give up.
NETWORKS = ((500, 64, 0.0, 0.0), (20_000, 128, 0.0, 0.5), (math.inf, 256, 0.1, 0.8))
FEW_ROWS = 50  # of a class, on average: below, the smallest network
NEGATIVES = "noise(0.25) + mixed(0.25)"
FEW_FEATURES = 20  # up to so many, made-up rows are too often like real ones


def by_size(size: DataSize, given: Mapping[str, Any], bare: bool) -> dict[str, Any]:
    """The settings that follow from the size of the data and from those that are given.

    `bare` is whether the model is named without settings, so that its width is free.
    """
    rows = 0 if size.rows < FEW_ROWS * size.classes else size.rows
    _, hidden, dropout, sparsity = next(row for row in NETWORKS if rows < row[0])
    batch = min(BATCHES[1], max(BATCHES[0], 2 ** round(math.log2(max(1.0, size.rows / 10)))))
    steps = STEPS * math.sqrt(size.rows)
    steps = min(MOST, max(FEWEST, steps)) * min(1.0, MANY / size.classes)
    negatives = NEGATIVES if size.features > FEW_FEATURES else "none"
    asked = given.get("negatives")
    made = read_negatives(negatives if asked is None else asked)
    per_epoch = size.rows * (1.5 if made else 1.0)  # with those made up
    epochs = max(2, round(steps * (given.get("batch") or batch) / per_epoch))
    chosen: dict[str, Any] = {
        "batch": batch,
        "epochs": epochs,
        "sparsity": sparsity,
        "rounds": 1 if given.get("sparsity") or sparsity else 0,
        "negatives": negatives,
    }
    if given.get("rounds") and not sparsity:  # asked for
        chosen["sparsity"] = 0.5
    chosen["pruning_epochs"] = max(1, round((given.get("epochs") or epochs) / 2))
    if bare:
        chosen["model"] = {"name": "mlp", "hidden": [hidden], "dropout": dropout}
    return chosen
