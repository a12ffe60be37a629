"""The convolutional networks of the papers: LeNet, VGG-11 and ResNet-18, for small images."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.errors import ModelError, shortened
from intarsia.models.axes import (
    INPUT,
    OUTPUT,
    TensorAxes,
    Wiring,
    chain_wiring,
    conv_wiring,
    linear_wiring,
    norm_wiring,
)
from intarsia.models.factory import MODELS


class Lenet(nn.Module):
    """One convolution (64 channels, 5 x 5, padding 1), max-pool 2, and three linear layers."""

    def __init__(self, shape: tuple[int, int, int], outputs: int) -> None:
        super().__init__()
        channels, height, width = shape
        # 5 x 5 with padding 1 takes 2 off each side, then the pool halves
        self.conv = nn.Conv2d(channels, 64, 5, padding=1)
        self.fc1 = nn.Linear(64 * ((height - 2) // 2) * ((width - 2) // 2), 120)
        self.fc2 = nn.Linear(120, 64)
        self.fc3 = nn.Linear(64, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))

    def wiring(self, shape: tuple[int, ...]) -> Wiring:
        """The linear layers read each channel as a block of its pixels."""
        pixels = self.fc1.in_features // self.conv.out_channels
        return {
            **conv_wiring("conv", "conv", INPUT, bias=True),
            **linear_wiring("fc1", "fc1", "conv", block=pixels),
            **linear_wiring("fc2", "fc2", "fc1"),
            **linear_wiring("fc3", OUTPUT, "fc2"),
        }


@MODELS.register("lenet", convolutional=True)
def lenet(shape: tuple[int, ...], outputs: int) -> Lenet:
    """The paper's CNN, for any image of at least 4 x 4."""
    return Lenet(image_shape("lenet", shape, least=4), outputs)


# of VGG-11: channels in units of the width, and whether a max-pool follows
VGG_LAYERS = [
    (1, True),
    (2, True),
    (4, False),
    (4, True),
    (8, False),
    (8, True),
    (8, False),
    (8, True),
]


class Vgg11(nn.Module):
    """Eight convolutions with BatchNorm, five max-pools and one linear layer.

    A pool that a side of one pixel would not fit is left out: the fifth one for 28 x 28.
    """

    def __init__(self, shape: tuple[int, int, int], outputs: int, width: int = 64) -> None:
        super().__init__()
        reads, height, breadth = shape
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        self.pools: list[bool] = []
        for multiple, pool in VGG_LAYERS:
            self.convs.append(nn.Conv2d(reads, multiple * width, 3, padding=1, bias=False))
            self.norms.append(nn.BatchNorm2d(multiple * width))
            self.pools.append(pool and min(height, breadth) >= 2)
            if self.pools[-1]:
                height, breadth = height // 2, breadth // 2
            reads = multiple * width
        self.pixels = height * breadth
        self.fc = nn.Linear(reads * self.pixels, outputs)

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm, pool in zip(self.convs, self.norms, self.pools, strict=True):
            x = norm_relu(norm, conv(x))
            x = F.max_pool2d(x, 2) if pool else x
        return self.fc(x.flatten(1))

    def wiring(self, shape: tuple[int, ...]) -> Wiring:
        """Every convolution's channels are an axis, named after it."""
        entries, reads = chain_wiring(len(self.convs))
        return entries | linear_wiring("fc", OUTPUT, reads, block=self.pixels)


@MODELS.register("vgg11", convolutional=True)
def vgg11(shape: tuple[int, ...], outputs: int, width: int = 64) -> Vgg11:
    """VGG-11 for small images; `vgg11(16)` is the same with a quarter of the channels."""
    check_width("vgg11", width)
    return Vgg11(image_shape("vgg11", shape, least=8), outputs, width)


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut, which is a 1 x 1 convolution where sizes change."""

    def __init__(self, reads: int, gives: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(reads, gives, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(gives)
        self.conv2 = nn.Conv2d(gives, gives, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(gives)
        self.shortcut = nn.Sequential()
        if stride != 1 or reads != gives:
            self.shortcut = nn.Sequential(
                nn.Conv2d(reads, gives, 1, stride, bias=False), nn.BatchNorm2d(gives)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = norm_relu(self.norm1, self.conv1(x))
        return norm_relu(self.norm2, self.conv2(inner), self.shortcut(x))

    def wiring(self, name: str, gives: str, reads: str) -> dict[str, TensorAxes]:
        """Without a shortcut convolution the sum makes `gives` and `reads` one axis."""
        inner = f"{name}.conv1"
        entries = {
            **conv_wiring(f"{name}.conv1", inner, reads),
            **norm_wiring(f"{name}.norm1", inner),
            **conv_wiring(f"{name}.conv2", gives, inner),
            **norm_wiring(f"{name}.norm2", gives),
        }
        if len(self.shortcut):
            entries |= conv_wiring(f"{name}.shortcut.0", gives, reads)
            entries |= norm_wiring(f"{name}.shortcut.1", gives)
        return entries


class Resnet18(nn.Module):
    """Widths w, 2w, 4w, 8w; then the mean over the image and one linear layer."""

    def __init__(self, shape: tuple[int, int, int], outputs: int, width: int = 64) -> None:
        super().__init__()
        self.conv = nn.Conv2d(shape[0], width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.ModuleList(
            nn.Sequential(
                ResidualBlock(widths[stage], widths[stage + 1], stride=1 if stage == 0 else 2),
                ResidualBlock(widths[stage + 1], widths[stage + 1], stride=1),
            )
            for stage in range(4)
        )
        self.fc = nn.Linear(8 * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = norm_relu(self.norm, self.conv(x))
        for stage in self.stages:
            x = stage(x)
        return self.fc(x.mean((2, 3)))

    def wiring(self, shape: tuple[int, ...]) -> Wiring:
        """One axis per stage, shared through its sums, and one inside every block."""
        entries = {**conv_wiring("conv", "conv", INPUT), **norm_wiring("norm", "conv")}
        stream = "conv"
        for s, stage in enumerate(self.stages):
            for b, block in enumerate(stage.children()):
                assert isinstance(block, ResidualBlock)
                gives = f"stages.{s}" if len(block.shortcut) else stream
                entries |= block.wiring(f"stages.{s}.{b}", gives, stream)
                stream = gives
        return entries | linear_wiring("fc", OUTPUT, stream)


@MODELS.register("resnet18", convolutional=True)
def resnet18(shape: tuple[int, ...], outputs: int, width: int = 64) -> Resnet18:
    """ResNet-18 for small images; `resnet18(16)` is the same with a quarter of the channels."""
    check_width("resnet18", width)
    return Resnet18(image_shape("resnet18", shape, least=8), outputs, width)


def norm_relu(norm: nn.Module, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """ReLU of what a layer normalises, and of a residual with it.

    A layer that says `fuses_relu` is handed all three, to make them at once.
    """
    if getattr(norm, "fuses_relu", False):
        fused: Tensor = norm(x, residual, relu=True)
        return fused
    made = norm(x)
    return F.relu(made if residual is None else made + residual)


def image_shape(model: str, shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """Channels, height and width, or our error where there is no image or a too small one."""
    if len(shape) != 3:
        raise ModelError(
            f"{model} reads images: expected a shape (channels, height, width), got {shape}; "
            "use mlp for tables"
        )
    channels, height, width = shape
    if min(height, width) < least:
        raise ModelError(
            f"{model} needs images of at least {least} x {least}, got {height} x {width}: "
            "use mlp, or enlarge the images"
        )
    return channels, height, width


def check_width(model: str, width: int) -> None:
    """Our error unless a width is a whole number of channels."""
    if not isinstance(width, int) or width < 1:
        raise ModelError(
            f"{model}: width is {shortened(width)}: expected a whole number of at least 1"
        )
