"""What the hidden units of a network answer to samples, as the layers that read them see it."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.conv import _ConvNd

from intarsia.errors import WiringError
from intarsia.models.axes import UnitRun, Wiring, axis_sizes, hidden_axes, runs
from intarsia.models.custom.trial import evaluation_mode

COLUMNS = 4096  # answers of a unit that are kept, evenly spaced: a picture has many positions


def unit_activations(
    network: nn.Module, state: Mapping[str, Tensor], inputs: Tensor, wiring: Wiring
) -> dict[str, Tensor]:
    """Hidden axis -> units x answers: those of all samples, and of all positions in a picture.

    They are read where a linear layer or a convolution takes them in, so after activation and
    normalisation; a residual stream is read by several layers, and each adds its answers. The
    network answers as it is used, not as it trains.
    """
    seen: dict[str, list[Tensor]] = {axis: [] for axis in hidden_axes(wiring)}

    def keep(run: UnitRun, layer: nn.Module, read: tuple[Any, ...]) -> None:
        along = read[0].detach().movedim(1 if isinstance(layer, _ConvNd) else -1, -1)
        along = along.narrow(-1, run.start, run.length)
        blocks = along.reshape(-1, run.units, run.axis.block)
        seen[run.axis.name].append(_subsample(blocks.movedim(1, 0).flatten(1)).clone())

    with evaluation_mode(network), ExitStack() as hooks, torch.no_grad():
        for path, run in _readers(network, state, wiring):
            module = network.get_submodule(path)
            hooks.enter_context(module.register_forward_pre_hook(partial(keep, run)))
        functional_call(network, dict(state), (inputs,))
    for name, answers in seen.items():
        if not answers:
            raise WiringError(
                f"no linear layer or convolution reads the units of axis {name!r} one by one, so "
                "what they answer cannot be compared: prune by another rule, such as 'units'"
            )
    return {name: torch.cat(answers, 1) for name, answers in seen.items()}


def _readers(
    network: nn.Module, state: Mapping[str, Tensor], wiring: Wiring
) -> list[tuple[str, UnitRun]]:
    """The paths of the layers that read a hidden axis, and where they have it."""
    hidden, sizes = set(hidden_axes(wiring)), axis_sizes(wiring, state)
    return [
        (path, run)
        for name, entry in wiring.items()
        if isinstance(network.get_submodule(path := name.rpartition(".")[0]), nn.Linear | _ConvNd)
        for run in runs(entry, state[name].shape, sizes)
        if run.dimension == 1 and run.axis.name in hidden
    ]


def _subsample(answers: Tensor) -> Tensor:
    count = answers.shape[1]
    if count <= COLUMNS:
        return answers
    return answers[:, torch.arange(COLUMNS, device=answers.device) * count // COLUMNS]
