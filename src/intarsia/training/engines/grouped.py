"""Grouped engine: K networks as one network, whose every layer holds theirs side by side.

The channels of all networks lie on one axis, network after network, so that K convolutions are one
grouped convolution and K normalisations one normalisation. The forward of the network itself runs
unchanged between these layers. A layer that reads the samples, which all networks share, is an
ordinary one with K times the outputs. A network whose forward mixes channels in another way does
not fit, and a trial tells. In bf16 on a GPU with Triton, narrow convolutions and normalisations
that train run by kernels of our own (`cuda/grouped_convolution.py`, `cuda/grouped_norm.py`).
"""

import copy
import math
from collections.abc import Hashable
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from intarsia.models.custom.trial import evaluating
from intarsia.training.engines.stack import Stack, StackEngine, Values
from intarsia.training.job import Job
from intarsia.training.tasks import Task

KERNELS = True  # of our own, where they fit; benchmarks turn them off to compare
NARROW = 128  # channels up to which a layer is better done for all networks at once (H200)
TRIED = 2  # networks in a trial
SAMPLES = 8  # of each
TOLERANCE = 1e-3  # of its logits, relative to how they differ from sample to sample


class GroupedConvolution(nn.Module):
    """K convolutions; `weight` and `bias` have a leading axis K."""

    def __init__(self, layer: nn.Conv2d, count: int) -> None:
        super().__init__()
        self.layer, self.count = [layer], count  # in a list: its tensors are not ours
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        (layer,) = self.layer
        bias = None if self.bias is None else self.bias.flatten()
        shared = self.count > 1 and x.shape[1] == layer.in_channels
        if shared and layer.groups > 1:
            x, shared = x.repeat(1, self.count, 1, 1), False
        if self.count > 1 and not shared and has_kernels(x) and self.fits():
            from intarsia.training.engines.cuda.grouped_convolution import convolve

            return convolve(x, self.weight, layer.stride[0], int(layer.padding[0]))
        return F.conv2d(
            x,
            self.weight.flatten(0, 1),
            bias,
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.groups if shared else layer.groups * self.count,
        )

    def fits(self) -> bool:
        """Whether it is a convolution of those that our kernels are for."""
        from intarsia.training.engines.cuda.grouped_convolution import fits

        (layer,) = self.layer
        plain = self.bias is None and layer.groups == 1 and layer.dilation == (1, 1)
        even = isinstance(layer.padding, tuple) and layer.padding[0] == layer.padding[1]
        sizes = (layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride)
        return plain and even and fits(*sizes)


class GroupedNorm(nn.Module):
    """K batch normalisations; all tensors have a leading axis K, or none where K is 1.

    A residual and ReLU that follow are made with it, where a forward hands them over.
    """

    fuses_relu = True
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(self, layer: _BatchNorm, count: int) -> None:
        super().__init__()
        self.layer, self.count = [layer], count
        self.weight, self.bias = layer.weight, layer.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(layer, name))

    def forward(self, x: Tensor, residual: Tensor | None = None, relu: bool = False) -> Tensor:
        (layer,) = self.layer
        if self.count > 1 and x.shape[1] == layer.num_features:
            x = x.repeat(1, self.count, *(1,) * (x.dim() - 2))
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        mean, variance, weight, bias = (
            None if tensor is None else tensor.flatten()
            for tensor in (self.running_mean, self.running_var, self.weight, self.bias)
        )
        measured = self.training or mean is None
        momentum = layer.momentum or 0.0
        if measured and weight is not None and bias is not None and has_kernels(x):
            from intarsia.training.engines.cuda.grouped_norm import normalise

            running = None if mean is None or variance is None else (mean, variance)
            return normalise(x, weight, bias, running, momentum, layer.eps, relu, residual)
        made = F.batch_norm(x, mean, variance, weight, bias, measured, momentum, layer.eps)
        made = made if residual is None else made + residual
        return F.relu(made) if relu else made


def has_kernels(x: Tensor) -> bool:
    """Whether our kernels take these pictures: of bf16 on a GPU, and torch compiles none itself."""
    return (
        KERNELS
        and not torch.compiler.is_compiling()
        and x.is_cuda
        and x.dim() == 4
        and x.dtype == torch.bfloat16
        and x.numel() > x.shape[1]
        and torch.is_autocast_enabled("cuda")
        and _has_triton()
    )


def kernels_train(job: Job) -> bool:
    """Whether a job is one whose pictures reach our kernels."""
    return KERNELS and job.device.type == "cuda" and job.precision == "bf16" and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


class GroupedLinear(nn.Module):
    """K linear layers of samples N, K * features, or of features that all share."""

    def __init__(self, layer: nn.Linear, count: int) -> None:
        super().__init__()
        self.layer, self.count = [layer], count
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        (layer,) = self.layer
        if x.dim() != 2:
            raise ValueError(f"a linear layer reads {x.dim()} axes")
        if x.shape[1] == layer.in_features:
            bias = None if self.bias is None else self.bias.flatten()
            return F.linear(x, self.weight.flatten(0, 1), bias)
        parts = x.view(len(x), self.count, layer.in_features).transpose(0, 1)  # K, N, F
        made = torch.bmm(parts, self.weight.transpose(1, 2))
        if self.bias is not None:
            made = made + self.bias[:, None]
        return made.transpose(0, 1).flatten(1)


class GroupedConstant(nn.Module):
    """A layer of pictures that has no state, the same for all: it runs once where all share x.

    It must read as many channels as samples have: of others it could not be told whether they are
    shared, or fewer of each network.
    """

    def __init__(self, layer: nn.Module, count: int, channels: int) -> None:
        super().__init__()
        self.layer, self.count, self.channels = layer, count, channels

    def forward(self, x: Tensor) -> Tensor:
        if self.count == 1 and x.shape[1] != self.channels:
            name = type(self.layer).__name__
            raise ValueError(
                f"{name} reads {x.shape[1]} channels, and samples have {self.channels}"
            )
        if x.shape[1] == self.channels:
            made: Tensor = self.layer(x)
            return made
        each = self.layer(x.unflatten(1, (self.count, -1)).flatten(0, 1))
        return each.unflatten(0, (len(x), self.count)).flatten(1, 2)


def grouped(network: nn.Module, modules: int, channels: int) -> nn.Module:
    """A network with the same forward whose layers take K states at once, stacked.

    It reads samples of so many channels that all share, or K times as many. A ValueError where it
    holds parameters that no layer of ours stands for.
    """
    return _replaced(copy.deepcopy(network), modules, channels)


def _replaced(layer: nn.Module, modules: int, channels: int) -> nn.Module:
    if type(layer) is nn.Conv2d and layer.padding_mode == "zeros":
        return GroupedConvolution(layer, modules)
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.momentum is not None:
        if type(layer) not in (nn.BatchNorm1d, nn.BatchNorm2d):
            raise ValueError(f"{type(layer).__name__} may normalise in a way of its own")
        return GroupedNorm(layer, modules)
    if type(layer) is nn.Linear:
        return GroupedLinear(layer, modules)
    constant = not layer.state_dict() and list(layer.buffers())
    if constant or getattr(layer, "reads_pictures", False):
        return GroupedConstant(layer, modules, channels)
    own = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]
    if own:
        raise ValueError(f"{type(layer).__name__} holds tensors of its own")
    for name, child in layer.named_children():
        setattr(layer, name, _replaced(child, modules, channels))
    return layer


def with_fused_norms(network: nn.Module) -> nn.Module:
    """The same network, whose normalisations take the ReLU and the residual behind them along."""
    return _fused(copy.deepcopy(network))


def _fused(layer: nn.Module) -> nn.Module:
    if type(layer) is nn.BatchNorm2d and layer.momentum is not None:
        return GroupedNorm(layer, 1)
    for name, child in layer.named_children():
        setattr(layer, name, _fused(child))
    return layer


def is_narrow(network: nn.Module) -> bool:
    """Whether its convolutions are so small that one of them leaves a GPU idle."""
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    return all(max(c.in_channels, c.out_channels) <= NARROW for c in convolutions)


def ungroupable(job: Job) -> str | None:
    """Why K networks like the job's cannot run as one: tried out, on a few samples."""
    draw = torch.Generator().manual_seed(0)
    stacked = {n: _unlike(t, draw) for n, t in job.network.state_dict().items()}
    states = [{n: t[k] for n, t in stacked.items()} for k in range(TRIED)]
    x = job.inputs(torch.arange(TRIED * SAMPLES, device=job.x.device) % len(job.y), None)
    own = x.unflatten(0, (TRIED, SAMPLES))
    try:
        network = grouped(job.network, TRIED, x.shape[1])
        with evaluating(job.network), _exact():
            alone = grouped(job.network, 1, x.shape[1]).eval()
            functional_call(alone, {n: t[:1] for n, t in stacked.items()}, (x,))
            for either in (network.eval(), job.network):
                _normalising(either)
            ours = [
                _logits(functional_call(network, stacked, (given,)), TRIED)
                for given in (x, _side_by_side(own))
            ]
            theirs = [
                torch.stack([functional_call(job.network, s, (given,)) for s, given in pairs])
                for pairs in (zip(states, [x] * TRIED), zip(states, own))  # noqa: B905
            ]
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
    for mine, other in zip(ours, theirs, strict=True):
        if mine.shape != other.shape:
            return f"its logits come out as {tuple(mine.shape)}, not {tuple(other.shape)}"
        off = _distance(mine, other)
        if not off < TOLERANCE:
            return f"its logits come out {off:.2g} apart"
    return None


def _normalising(network: nn.Module) -> None:
    """Normalise by the batch, so that numbers neither grow nor fade from layer to layer.

    What channels do to each other would not show there: a sigmoid of large numbers is 1.
    """
    for layer in network.modules():
        if isinstance(layer, _BatchNorm | GroupedNorm):
            layer.train()


def _distance(mine: Tensor, other: Tensor) -> float:
    """The largest difference, relative to how far logits G, N, O differ from sample to sample."""
    spread = (other - other.mean(1, keepdim=True)).abs().max()
    scale = torch.maximum(spread, 0.01 * other.abs().max()).clamp_min(1e-12)
    return float((mine - other).abs().max() / scale)


def _exact() -> AbstractContextManager[Any]:
    """Convolutions in full float32, so that two ways of making one number agree on it."""
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    )


def _side_by_side(x: Tensor) -> Tensor:
    """From K, N, C, ... to N, K * C, ...: the channels of network after network."""
    return x.transpose(0, 1).flatten(1, 2)


def _unlike(tensor: Tensor, draw: torch.Generator) -> Tensor:
    """Two versions of a tensor that differ in every entry, if it can, and are about as large."""
    if not tensor.is_floating_point():
        return torch.stack([tensor] * TRIED)
    factors = torch.rand(TRIED, *tensor.shape, generator=draw).to(tensor)
    small = 0.1 * factors
    if tensor.dim() > 1:
        small = (0.2 * factors - 0.1) / math.sqrt(max(1, tensor[0].numel()))
    return torch.where(tensor == 0, small, tensor * (0.5 + factors))


def _logits(made: Tensor, modules: int) -> Tensor:
    """From N, K * O to K, N, O."""
    return made.view(len(made), modules, -1).transpose(0, 1)


class GroupedEngine(StackEngine):
    """A stack that runs as one network with grouped layers; its convolutions lie channels last."""

    def __init__(self, job: Job, width: int, compiled: bool = False) -> None:
        """`compiled` lets torch.compile fuse what lies between convolutions."""
        super().__init__(job, width)
        self._call = torch.compile(self._run) if compiled else self._run
        self.networks: dict[int, nn.Module] = {}

    def _alike(self, task: Task) -> Hashable:
        """Batches of one size, equally many; a module's channels do not meet those of others."""
        return (self.job.size(task), self.job.steps(task))

    def _stacked(self, values: list[Values]) -> Values:
        return {n: channels_last(t) for n, t in super()._stacked(values).items()}

    def _forward(self, stack: Stack, x: Tensor, apart: bool = False) -> Tensor:
        modules = len(stack.total)
        if apart:
            x = _side_by_side(x)
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        network = self._network(modules)
        self.job.in_same_mode(network)
        values = {**stack.parameters, **stack.buffers}
        return _logits(self._call(network, values, x), modules)

    def _network(self, modules: int) -> nn.Module:
        if modules not in self.networks:
            self.networks[modules] = grouped(self.job.network, modules, self.job.x.shape[1])
        return self.networks[modules]

    def _run(self, network: nn.Module, values: Values, x: Tensor) -> Tensor:
        with self.job.autocast():
            logits: Tensor = functional_call(network, values, (x,))
        return logits.to(self.job.dtype)


def channels_last(stacked: Tensor) -> Tensor:
    """The same numbers, so that the weights of every module's convolution lie channels last."""
    if stacked.dim() != 5:
        return stacked
    return stacked.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
