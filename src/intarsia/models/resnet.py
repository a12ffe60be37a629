"""ResNet-18 in its CIFAR form: a 3 x 3 stem, no max-pool, four stages of two blocks."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.models.axes import (
    INPUT,
    OUTPUT,
    Entry,
    Wiring,
    conv_wiring,
    linear_wiring,
    norm_wiring,
)
from intarsia.models.images import check_width, image_shape
from intarsia.models.registry import MODELS


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 convolution where sizes change."""

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
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))

    def wiring(self, name: str, gives: str, reads: str) -> dict[str, Entry]:
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
                Block(widths[stage], widths[stage + 1], stride=1 if stage == 0 else 2),
                Block(widths[stage + 1], widths[stage + 1], stride=1),
            )
            for stage in range(4)
        )
        self.fc = nn.Linear(8 * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        for stage in self.stages:
            x = stage(x)
        return self.fc(x.mean((2, 3)))

    def wiring(self, shape: tuple[int, ...]) -> Wiring:
        """One axis per stage, shared through its sums, and one inside every block."""
        entries = {**conv_wiring("conv", "conv", INPUT), **norm_wiring("norm", "conv")}
        stream = "conv"
        for s, stage in enumerate(self.stages):
            for b, block in enumerate(stage.children()):
                assert isinstance(block, Block)
                gives = f"stages.{s}" if len(block.shortcut) else stream
                entries |= block.wiring(f"stages.{s}.{b}", gives, stream)
                stream = gives
        return entries | linear_wiring("fc", OUTPUT, stream)


@MODELS.register("resnet18")
def resnet18(shape: tuple[int, ...], outputs: int, width: int = 64) -> Resnet18:
    """ResNet-18 for small images; `resnet18(16)` is the same with a quarter of the channels."""
    check_width("resnet18", width)
    return Resnet18(image_shape("resnet18", shape, least=8), outputs, width)
