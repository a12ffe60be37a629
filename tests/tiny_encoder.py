"""A small encoder of one's own, and pictures whose class it can tell."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import intarsia as ia

SHAPE = (3, 6, 5)
FEATURES = 7


class TinyEncoder(nn.Module):
    """Raw pictures to seven features, with weights that follow from a number."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(3 * 6 * 5, FEATURES, generator=draw) / 10)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(torch.tanh((x / 128 - 1).flatten(1) @ self.weight))


def pictures(rows: int = 60, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """N x 3 x 6 x 5 pixels of 8 bits, brighter in the colour of their class."""
    draw = np.random.default_rng(0)
    y = np.arange(rows) % classes
    x = draw.integers(0, 128, (rows, *SHAPE), dtype=np.uint8)
    x[np.arange(rows), y % 3] += 100
    return x, y


def feature_bank(encoder: Any = None) -> tuple[ia.Bank, ia.Data]:
    """A module for each of three classes, trained on an encoder's features, and the data."""
    data = ia.load_data(*pictures(90), features=encoder or TinyEncoder())
    settings: Any = {"epochs": 20, "rounds": 0, "learning_rate": 0.01, "progress": False}
    return ia.train(data, model="mlp(8)", **settings), data
