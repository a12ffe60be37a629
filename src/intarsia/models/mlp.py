"""The papers' fully connected network."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.errors import ModelError, shortened
from intarsia.models.axes import INPUT, OUTPUT, TensorAxes, Wiring, linear_wiring
from intarsia.models.factory import MODELS


class Mlp(nn.Module):
    """Linear layers with ReLU and dropout between them; the output layer has no bias."""

    def __init__(
        self,
        shape: tuple[int, ...],
        outputs: int,
        hidden: Sequence[int] = (512,),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        sizes = list(pairwise([prod(shape), *hidden, outputs]))
        self.layers = nn.ModuleList(
            nn.Linear(reads, gives, bias=layer < len(hidden))
            for layer, (reads, gives) in enumerate(sizes)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        *hidden, last = self.layers  # a slice would be a new ModuleList on every call
        for layer in hidden:
            x = F.dropout(F.relu(layer(x)), self.dropout, self.training)
        return last(x)

    def wiring(self, shape: tuple[int, ...]) -> Wiring:
        """Every layer's units are an axis, named after the layer."""
        last = len(self.layers) - 1
        axes = [INPUT, *(f"layers.{layer}" for layer in range(last)), OUTPUT]
        entries: dict[str, TensorAxes] = {}
        for layer, (reads, gives) in enumerate(pairwise(axes)):
            entries |= linear_wiring(f"layers.{layer}", gives, reads, bias=layer < last)
        return entries


@MODELS.register("mlp")
def mlp(
    shape: tuple[int, ...], outputs: int, hidden: Sequence[int] | int = (512,), dropout: float = 0.5
) -> Mlp:
    """The shallow MLP of the paper by default; `mlp(512, 256)` is the deep one."""
    hidden = [hidden] if isinstance(hidden, int) else hidden
    if not isinstance(hidden, list | tuple) or not all(
        isinstance(n, int) and n > 0 for n in hidden
    ):
        raise ModelError(
            f"mlp: hidden is {shortened(hidden)}: expected positive whole numbers, as in [512, 256]"
        )
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ModelError(
            f"mlp: dropout is {shortened(dropout)}: expected a number from 0 to below 1"
        )
    return Mlp(shape, outputs, tuple(hidden), float(dropout))
