"""Networks that come with pretrained weights: EfficientNet-Lite0 and MobileNetV2.

Both are inverted residual blocks between a stem and a head of 1280 channels; they differ in their
stages, in how borders are padded, and in how pictures are normalised. Encoders use their bodies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.errors import ModelError, shortened
from intarsia.models.axes import (
    INPUT,
    OUTPUT,
    Axis,
    TensorAxes,
    Wiring,
    conv_wiring,
    linear_wiring,
    norm_wiring,
)
from intarsia.models.factory import MODELS

FEATURES = 1280  # that a body gives for a picture
SMALLEST, LARGEST = 32, 1024  # pixels of a side: five strides of two, and a bound on memory

Pair = tuple[int, int]
Entries = dict[str, TensorAxes]


@dataclass(frozen=True)
class Stage:
    """Blocks of one width: the first strides, all expand their inputs by a factor."""

    expand: int
    kernel: int
    stride: int
    channels: int
    blocks: int


Stages = tuple[Stage, ...]


@dataclass(frozen=True)
class BackboneDesign:
    """What distinguishes one body from another."""

    stages: Stages
    mean: tuple[float, float, float]  # of red, green and blue, for pixels from 0 to 1
    deviation: tuple[float, float, float]
    uneven: bool  # of an odd number of border pixels, the one more lies right and below
    epsilon: float


def _stages(kernels: Sequence[int], channels: Sequence[int], blocks: Sequence[int]) -> Stages:
    """Seven stages that expand and stride as MobileNetV2 does, which both networks follow."""
    columns = ((1, 6, 6, 6, 6, 6, 6), kernels, (1, 2, 2, 2, 1, 2, 1), channels, blocks)
    return tuple(Stage(*row) for row in zip(*columns, strict=True))


LITE0 = BackboneDesign(
    _stages((3, 3, 5, 3, 5, 5, 3), (16, 24, 40, 80, 112, 192, 320), (1, 2, 2, 3, 3, 4, 1)),
    mean=(0.5, 0.5, 0.5),
    deviation=(0.5, 0.5, 0.5),
    uneven=True,
    epsilon=1e-3,
)
MOBILE2 = BackboneDesign(
    _stages((3,) * 7, (16, 24, 32, 64, 96, 160, 320), (1, 2, 3, 4, 3, 3, 1)),
    mean=(0.485, 0.456, 0.406),
    deviation=(0.229, 0.224, 0.225),
    uneven=False,
    epsilon=1e-5,
)


class ConvNorm(nn.Module):
    """A convolution, BatchNorm and, unless it is the last of a block, ReLU6."""

    def __init__(
        self,
        design: BackboneDesign,
        side: Pair,
        reads: int,
        gives: int,
        kernel: int = 1,
        stride: int = 1,
        depthwise: bool = False,
        rectified: bool = True,
    ) -> None:
        super().__init__()
        self.border = _border(design, side, kernel, stride)
        groups = reads if depthwise else 1
        self.conv = nn.Conv2d(reads, gives, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(gives, eps=design.epsilon)
        self.rectified = rectified

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, self.border) if any(self.border) else x
        x = self.norm(self.conv(x))
        return F.relu6(x) if self.rectified else x

    def wiring(self, name: str, gives: str, reads: str | None) -> Entries:
        """Without `reads` each channel is convolved by itself."""
        conv: Entries = conv_wiring(f"{name}.conv", gives, reads or gives)
        if reads is None:
            conv = {f"{name}.conv.weight": (Axis(gives), None, None, None)}
        return conv | norm_wiring(f"{name}.norm", gives)


class InvertedBlock(nn.Module):
    """Widen, convolve each channel by itself, narrow; with a shortcut where sizes allow."""

    def __init__(
        self, design: BackboneDesign, side: Pair, stage: Stage, reads: int, stride: int
    ) -> None:
        super().__init__()
        wide = reads * stage.expand
        self.expand = ConvNorm(design, side, reads, wide) if stage.expand > 1 else nn.Identity()
        self.depth = ConvNorm(design, side, wide, wide, stage.kernel, stride, depthwise=True)
        self.project = ConvNorm(design, side, wide, stage.channels, rectified=False)
        self.shortcut = stride == 1 and reads == stage.channels

    def forward(self, x: Tensor) -> Tensor:
        inner = self.project(self.depth(self.expand(x)))
        return x + inner if self.shortcut else inner

    def wiring(self, name: str, gives: str, reads: str) -> Entries:
        """With a shortcut `gives` is `reads`: the sum makes them one axis."""
        wide, entries = reads, {}
        if isinstance(self.expand, ConvNorm):
            wide = f"{name}.expand"
            entries = self.expand.wiring(wide, wide, reads)
        entries |= self.depth.wiring(f"{name}.depth", wide, None)
        return entries | self.project.wiring(f"{name}.project", gives, wide)


class Pixels(nn.Module):
    """Pictures as a body reads them: of its size, in three colours, normalised.

    With numbers instead of buffers: nothing of it is in the state.
    """

    reads_pictures = True  # of three channels, and not those of several networks side by side

    def __init__(self, design: BackboneDesign, size: int | None) -> None:
        super().__init__()
        self.design, self.size = design, size

    def forward(self, x: Tensor) -> Tensor:
        if self.size is not None:
            square = (self.size, self.size)
            x = F.interpolate(x, square, mode="bilinear", antialias=True, align_corners=False)
        x = x.expand(-1, 3, -1, -1)  # grey is all three colours
        pairs = zip(self.design.mean, self.design.deviation, strict=True)
        return torch.cat([(x[:, i : i + 1] - m) / d for i, (m, d) in enumerate(pairs)], dim=1)


class BackboneBody(nn.Module):
    """Pictures of pixels from 0 to 1, grey or in colour, to 1280 features each.

    With `size` they are brought to that many pixels square first.
    """

    def __init__(self, design: BackboneDesign, shape: tuple[int, ...], size: int | None) -> None:
        super().__init__()
        self.pixels = Pixels(design, size)
        side = (shape[1], shape[2]) if size is None else (size, size)
        self.stem = ConvNorm(design, side, 3, 32, kernel=3, stride=2)
        side, reads = _halved(side), 32
        blocks = []
        for stage in design.stages:
            for place in range(stage.blocks):
                stride = stage.stride if place == 0 else 1
                blocks.append(InvertedBlock(design, side, stage, reads, stride))
                side, reads = (_halved(side) if stride == 2 else side), stage.channels
        self.blocks = nn.Sequential(*blocks)
        self.head = ConvNorm(design, side, reads, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(self.pixels(x)))).mean((2, 3))

    def wiring(self, name: str, gives: str) -> Entries:
        """One axis inside every block, and one for each run of blocks that shortcuts join."""
        stream = f"{name}.stem"
        entries = self.stem.wiring(stream, stream, INPUT)
        for place, block in enumerate(self.blocks):
            assert isinstance(block, InvertedBlock)
            own = f"{name}.blocks.{place}"
            after = stream if block.shortcut else own
            entries |= block.wiring(own, after, stream)
            stream = after
        return entries | self.head.wiring(f"{name}.head", gives, stream)


class Backbone(nn.Module):
    """A body and one linear layer on its features."""

    def __init__(
        self, design: BackboneDesign, shape: tuple[int, ...], outputs: int, size: int | None
    ) -> None:
        super().__init__()
        self.body = BackboneBody(design, shape, size)
        self.fc = nn.Linear(FEATURES, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x))

    def wiring(self, shape: tuple[int, ...]) -> Wiring:
        """The axes of the body, and the features that the last layer reads."""
        return self.body.wiring("body", "features") | linear_wiring("fc", OUTPUT, "features")


@MODELS.register("efficientnet_lite0", convolutional=True)
def efficientnet_lite0(shape: tuple[int, ...], outputs: int, size: int | None = None) -> Backbone:
    """EfficientNet-Lite0 for pictures scaled to 0 to 1, brought to `size` pixels if it is given."""
    return Backbone(LITE0, _checked("efficientnet_lite0", shape, size), outputs, size)


@MODELS.register("mobilenet_v2", convolutional=True)
def mobilenet_v2(shape: tuple[int, ...], outputs: int, size: int | None = None) -> Backbone:
    """MobileNetV2 for pictures scaled to 0 to 1, brought to `size` pixels if it is given."""
    return Backbone(MOBILE2, _checked("mobilenet_v2", shape, size), outputs, size)


def check_size(name: str, size: object) -> int:
    """The side of the square that pictures are brought to, or our error."""
    if type(size) is not int or not SMALLEST <= size <= LARGEST:
        raise ModelError(
            f"{name}: size is {shortened(size)}: expected pixels from {SMALLEST} to {LARGEST}"
        )
    return size


def _checked(name: str, shape: tuple[int, ...], size: object) -> tuple[int, ...]:
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ModelError(
            f"{name} reads pictures: expected a shape (1 or 3, height, width), got {shape}"
        )
    if size is not None:
        check_size(name, size)
    elif min(shape[1:]) < SMALLEST:
        raise ModelError(
            f"{name} needs pictures of at least {SMALLEST} x {SMALLEST}, got {shape[1]} x "
            f"{shape[2]}: have them enlarged, as in {name}(size=96)"
        )
    return shape


def _halved(side: Pair) -> Pair:
    return (side[0] + 1) // 2, (side[1] + 1) // 2


def _border(design: BackboneDesign, side: Pair, kernel: int, stride: int) -> tuple[int, ...]:
    """Pixels left, right, above and below that make the outputs of a stride ceil(side / stride)."""
    if not design.uneven:
        return (kernel // 2,) * 4
    each = []
    for pixels in reversed(side):
        total = max(0, (-(-pixels // stride) - 1) * stride + kernel - pixels)
        each += [total // 2, total - total // 2]
    return tuple(each)
