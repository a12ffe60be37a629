"""A factory's probe: what its network answers to fixed inputs with fixed weights."""

import torch
from torch import Tensor

from intarsia.models.custom.trial import AMPLITUDES, noise, trial_of
from intarsia.models.factory import Model, build

Probe = tuple[float, ...]
"""Equally many numbers for each fixed input, of six digits each."""

TOLERANCE = 1e-5  # of a row's size: far above float64's rounding, below any other function
MOST = 4  # outputs kept as they are; of all of them a weighted sum


def probe_of(model: Model, shape: tuple[int, ...], outputs: int) -> Probe | None:
    """The numbers that distinguish a network from others with the same tensors.

    None for a network that answers by chance even in evaluation, or not in float64.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(0)
        network = build(model, shape, outputs)
    trial = trial_of(network, shape, rows=len(AMPLITUDES))
    if trial is None or not trial.repeats():
        return None
    answers = trial.answers(trial.fixed)
    kept = torch.cat([answers[:, :MOST], answers @ noise(outputs, 3)[:, None]], dim=1)
    return tuple(float(f"{value:.6g}") for value in kept.flatten().tolist())


def probe_difference(one: Probe, other: Probe) -> float:
    """How far two probes are apart, relative to their size: above TOLERANCE two functions."""
    if len(one) != len(other) or len(one) % len(AMPLITUDES):
        return float("inf")
    first, second = _rows(one), _rows(other)
    size = first.abs().amax(1).clamp_min(torch.finfo(torch.float64).tiny)
    return float(((first - second).abs().amax(1) / size).max())


def _rows(probe: Probe) -> Tensor:
    return torch.tensor(probe, dtype=torch.float64).reshape(len(AMPLITUDES), -1)
