"""BatchNorm statistics of a merged network: neither parent's fit it, so they are measured again."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.errors import CompositionError
from intarsia.modules.statistics import is_half

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def has_batchnorm(network: nn.Module) -> bool:
    """Whether a layer of the network normalises by running statistics, which a merge upsets."""
    return bool(_layers(network))


def recalibrate(network: nn.Module, inputs: Tensor, batch: int = 128) -> None:
    """Measure the running statistics of every BatchNorm layer on inputs as the network reads them.

    One pass in which only these layers are in training mode (dropout stays off), so that each reads
    what the layers before it give once they normalise well. A layer's mean and variance are those
    of all its inputs together, by counts and sums in float64, and not averages over batches; the
    variance is unbiased, as torch keeps it. Batches hold every k-th sample, so that sorted samples
    do no harm, and `batch` of them or more, so that none is left with one. In place; the network is
    left in evaluation mode, `num_batches_tracked` is the number of batches.
    """
    sums = {layer: _Sums() for layer in _layers(network)}
    if inputs.ndim < 2 or len(inputs) < 2:
        raise CompositionError(
            f"BatchNorm statistics need at least 2 samples, given inputs of shape "
            f"{tuple(inputs.shape)}: give more samples, or compose with recalibrate=False"
        )
    if batch < 2:
        raise CompositionError(f"BatchNorm statistics need batches of at least 2, not {batch}")
    network.eval()
    pieces = max(1, len(inputs) // batch)
    try:
        with ExitStack() as hooks, torch.no_grad():
            for layer, own in sums.items():
                layer.train()
                hooks.enter_context(
                    layer.register_forward_pre_hook(lambda _, args, own=own: own.add(args[0]))
                )
            for piece in range(pieces):
                network(inputs[piece::pieces])
    finally:
        network.eval()
    for layer, own in sums.items():
        _set(layer, own, pieces)


def _layers(network: nn.Module) -> list[Any]:
    return [m for m in network.modules() if isinstance(m, KINDS) and m.track_running_stats]


class _Sums:
    """Count, sum and sum of squares per channel, around a point near the mean."""

    def __init__(self) -> None:
        self.count = 0
        self.centre = self.total = self.squares = torch.zeros(())

    def add(self, x: Tensor) -> None:
        """Sums within a sample keep the type of its numbers, those over samples are of float64."""
        rows = x.detach().flatten(2) if x.ndim > 2 else x.detach()[..., None]  # N, C, L
        rows = rows.float() if is_half(rows) else rows
        if not self.count:
            self.centre = rows.mean(2).mean(0)  # squares far from it would lose digits
        apart = rows - self.centre[:, None]
        self.count += rows.shape[0] * rows.shape[2]
        self.total = self.total + apart.sum(2).double().sum(0)
        self.squares = self.squares + apart.square_().sum(2).double().sum(0)


def _set(layer: Any, sums: _Sums, batches: int) -> None:
    if not sums.count:  # the network does not use it
        return
    mean = sums.total / sums.count
    variance = (sums.squares - sums.total * mean) / (sums.count - 1)
    layer.running_mean.copy_(sums.centre + mean)
    layer.running_var.copy_(variance.clamp_min(0))
    layer.num_batches_tracked.fill_(batches)
