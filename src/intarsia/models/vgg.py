"""VGG-11 in its CIFAR form: eight 3 x 3 convolutions with BatchNorm, and one linear layer."""

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

# channels in units of the width, and whether a max-pool follows
LAYERS = [(1, True), (2, True), (4, False), (4, True), (8, False), (8, True), (8, False), (8, True)]


class Vgg11(nn.Module):
    """A pool that a side of one pixel would not fit is left out: the fifth one for 28 x 28."""

    def __init__(self, shape: tuple[int, int, int], outputs: int, width: int = 64) -> None:
        super().__init__()
        reads, height, breadth = shape
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        self.pools: list[bool] = []
        for multiple, pool in LAYERS:
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
            x = F.relu(norm(conv(x)))
            x = F.max_pool2d(x, 2) if pool else x
        return self.fc(x.flatten(1))

    def wiring(self, shape: tuple[int, ...]) -> Wiring:
        """Every convolution's channels are an axis, named after it."""
        entries: dict[str, Entry] = {}
        reads = INPUT
        for layer in range(len(self.convs)):
            gives = f"convs.{layer}"
            entries |= conv_wiring(gives, gives, reads) | norm_wiring(f"norms.{layer}", gives)
            reads = gives
        return entries | linear_wiring("fc", OUTPUT, reads, block=self.pixels)


@MODELS.register("vgg11")
def vgg11(shape: tuple[int, ...], outputs: int, width: int = 64) -> Vgg11:
    """VGG-11 for small images; `vgg11(16)` is the same with a quarter of the channels."""
    check_width("vgg11", width)
    return Vgg11(image_shape("vgg11", shape, least=8), outputs, width)
