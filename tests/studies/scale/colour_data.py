"""Two hundred small pictures in colour, of four classes under two coarse labels."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from intarsia.data import DATASETS

NAME, CLASSES, COARSE = "colours", ["red", "green", "blue", "grey"], ["warm", "cold"]
ABOVE = [0, 1, 1, 0]  # red and grey are warm: not neighbours in the catalogue
ROWS = {"train": 140, "test": 60}


def register_colours() -> None:
    """Make them known by their name; whoever does so takes it back."""
    DATASETS.register(NAME, shape=(3, 8, 8), classes=4, coarse_classes=2, validation=0.3)(arrays)


@contextmanager
def colours_known() -> Iterator[None]:
    """For fixtures that outlive a test."""
    register_colours()
    try:
        yield
    finally:
        DATASETS.pop(NAME)


def arrays() -> dict[str, np.ndarray]:
    """Pictures of one colour with noise; no two splits have a picture in common."""
    draw = np.random.default_rng(0)
    made: dict[str, np.ndarray] = {"classes": np.array(CLASSES), "coarse_classes": np.array(COARSE)}
    for part, rows in ROWS.items():
        labels = np.arange(rows) % 4
        base = np.full((4, 3), 60.0)
        base[[0, 1, 2], [0, 1, 2]] = 160
        pixels = base[labels][:, :, None, None] + draw.normal(0, 45, (rows, 3, 8, 8))
        made[f"x_{part}"] = pixels.clip(0, 255).astype(np.uint8)
        made[f"y_{part}"] = labels
        made[f"y_{part}_coarse"] = np.array(ABOVE)[labels]
    return made
