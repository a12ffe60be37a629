"""Auto: settings for data that nobody has tuned, from its rows, features and classes.

The numbers were chosen on validation rows cut from the training rows of
docs/results/defaults.md's data sets; no test row was looked at. The guide explains each of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    "rounds": 1,
    "schedule": "cosine",
    "negatives": "noise(0.5) + mixed(0.5)",
    "balance": 0.5,
    "silent": True,
    "temperature": 1.0,
    "keep_moments": False,
    "select": "loss",
    "learning_rate": 3e-3,
}
STEPS = 30.0  # steps of a round: this times the square root of the rows
FEWEST, MOST = 200, 8000  # steps of a round
BATCHES = (16, 64)
# By rows: hidden units, dropout, sparsity. Small networks have little to give up.
NETWORKS = ((2_000, 64, 0.0, 0.5), (20_000, 128, 0.0, 0.8), (math.inf, 256, 0.1, 0.9))


def by_size(size: DataSize, given: Mapping[str, Any], bare: bool) -> dict[str, Any]:
    """The settings that follow from the size of the data and from those that are given.

    `bare` is whether the model is named without settings, so that its width is free.
    """
    _, hidden, dropout, sparsity = next(row for row in NETWORKS if size.rows < row[0])
    batch = min(BATCHES[1], max(BATCHES[0], 2 ** round(math.log2(max(1.0, size.rows / 20)))))
    steps = min(MOST, max(FEWEST, STEPS * math.sqrt(size.rows)))
    passes = 2.0  # rows of an epoch for each row of the data, with the made-up ones
    epochs = max(2, round(steps * (given.get("batch") or batch) / (passes * size.rows)))
    chosen: dict[str, Any] = {"batch": batch, "epochs": epochs, "sparsity": sparsity}
    chosen["pruning_epochs"] = max(1, round((given.get("epochs") or epochs) / 2))
    if bare:
        chosen["model"] = {"name": "mlp", "hidden": [hidden], "dropout": dropout}
    return chosen
