"""Blocks of nodes with labels, for tests of graphs."""

import numpy as np


def planted(classes: int = 3, each: int = 20, seed: int = 0) -> dict[str, np.ndarray]:
    """The arrays of such blocks; classes alternate, so that a split by index has all of them."""
    draw = np.random.default_rng(seed)
    size = classes * each
    labels = np.arange(size) % classes
    same = labels[:, None] == labels
    linked = np.triu(draw.random((size, size)) < np.where(same, 0.35, 0.02), 1)
    x = (draw.random((size, 12)) < 0.1).astype(np.float32)
    x[np.arange(size), labels] = 1
    return {"edges": np.argwhere(linked), "labels": labels, "x": x}
