"""A bounded sample of the data that a classifier keeps, for modules that are trained later."""

from dataclasses import dataclass

import numpy as np
import torch

from intarsia.data import Split
from intarsia.data.splits import random_keys, stratified


@dataclass(frozen=True, eq=False)
class ReplayBuffer:
    """Training rows, and held-out rows that no module was trained on.

    `weight` has one number per training row, None where all weigh the same.
    """

    train: Split
    validation: Split
    weight: np.ndarray | None = None

    @classmethod
    def empty(cls, features: int) -> "ReplayBuffer":
        none = Split(torch.zeros(0, features), torch.zeros(0, dtype=torch.int64))
        return cls(none, none)

    @classmethod
    def split(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        held_out: float,
        seed: int,
        weight: np.ndarray | None = None,
    ) -> "ReplayBuffer":
        """Hold out a fraction of the rows, class by class; a class of one row is trained on."""
        left, held = stratified(y, held_out, seed, stream=1)
        rows, labels = torch.tensor(x), torch.tensor(y, dtype=torch.int64)
        train, validation = (Split(rows[part], labels[part]) for part in (left, held))
        return cls(train, validation, None if weight is None else weight[left])

    def __len__(self) -> int:
        return len(self.train) + len(self.validation)

    def joined(self, other: "ReplayBuffer") -> "ReplayBuffer":
        """The rows of both."""
        return ReplayBuffer(
            _joined(self.train, other.train), _joined(self.validation, other.validation)
        )

    def bounded(self, size: int, held_out: float, seed: int) -> "ReplayBuffer":
        """At most `size` rows, a fraction `held_out` of them held out; at least one per class."""
        held = round(size * held_out)
        return ReplayBuffer(
            _bounded(self.train, size - held, seed, stream=2),
            _bounded(self.validation, held, seed, stream=3),
        )


def _bounded(split: Split, size: int, seed: int, stream: int) -> Split:
    """Equally many rows of every class, as far as it has them, so that no class crowds another."""
    if len(split) <= size or size == 0:
        return _rows(split, torch.arange(len(split) if size else 0))
    y = split.y.numpy()
    keys = random_keys(len(y), seed, stream)
    rank = np.empty(len(y), dtype=np.int64)  # of a row among those of its class
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        rank[rows[np.argsort(keys[rows], kind="stable")]] = np.arange(len(rows))
    level = max(1, int(np.searchsorted(np.cumsum(np.bincount(rank)), size, side="right")))
    return _rows(split, torch.from_numpy(np.flatnonzero(rank < level)))


def _joined(one: Split, other: Split) -> Split:
    return Split(torch.cat([one.x, other.x]), torch.cat([one.y, other.y]))


def _rows(split: Split, rows: torch.Tensor) -> Split:
    return Split(split.x[rows], split.y[rows])
