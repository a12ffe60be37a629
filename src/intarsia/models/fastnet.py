"""A small network for pictures that learns in a few epochs: whitened patches, wide convolutions.

After the CIFAR speed runs (Jordan, https://arxiv.org/abs/2404.00498), with a first layer that needs
no data: patches of 2 x 2 pixels are whitened in a basis that is known beforehand. The cosine basis
over colours, rows and columns decorrelates patches of photographs almost as their own eigenvectors
do, and its coefficients spread by much the same amounts in CIFAR-10 as in CIFAR-100. So modules
share that layer whatever they see, and none holds anything about another's data.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.errors import ModelError, shortened
from intarsia.models.axes import (
    OUTPUT,
    Wiring,
    chain_wiring,
    linear_wiring,
)
from intarsia.models.convolutional import check_width, image_shape
from intarsia.models.factory import MODELS
from intarsia.specs import is_number

SIDE = 2  # pixels of a patch
# Of pixels from 0 to 1: their mean; how far the sum of a patch spreads in brightness, for one
# channel, and in the first difference of colours, which falls with the number of changes; and what
# is left of it along one side of a patch, and along both. Rounded from the training pictures of
# CIFAR-100; benchmarks/experiments/patches.py measures them, and how white patches become.
MEAN = 0.48
BRIGHTNESS, COLOUR = 0.48, 0.29
CHANGES = (1.0, 0.15, 0.055)
MULTIPLES = (1, 4, 4)  # channels of the three stages, in units of the width
MOMENTUM = 0.3  # of BatchNorm: there are few steps to follow


class Whitening(nn.Module):
    """Patches of 2 x 2 pixels, from 0 to 1, as coefficients of about unit variance; then negated.

    C channels give 8 C. It has no parameters and is not in the state: all follows from C.
    """

    filters: Tensor
    offsets: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        filters = whitening_filters(channels)
        offsets = -MEAN * filters.sum((1, 2, 3))
        for name, values in (("filters", filters), ("offsets", offsets)):
            both = torch.cat([values, -values]).float().to(_place())
            self.register_buffer(name, both, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.filters, self.offsets)


def whitening_filters(channels: int) -> Tensor:
    """4 C x C x 2 x 2, float64: the cosine basis of patches, each divided by its usual spread."""
    colours, sides = cosine_basis(channels), cosine_basis(SIDE)
    filters = [
        torch.einsum("c,i,j->cij", colours[c], sides[i], sides[j]) / spread(c, i, j, channels)
        for c in range(channels)
        for i in range(SIDE)
        for j in range(SIDE)
    ]
    return torch.stack(filters)


def cosine_basis(size: int) -> Tensor:
    """Orthonormal rows, of which row k changes its sign k times."""
    rows = [[math.cos(math.pi * (i + 0.5) * k / size) for i in range(size)] for k in range(size)]
    basis = torch.tensor(rows, dtype=torch.float64, device="cpu")
    return basis / basis.norm(dim=1, keepdim=True)


def spread(colour: int, row: int, column: int, channels: int) -> float:
    """How far a coefficient of natural pictures spreads: its standard deviation, roughly."""
    whole = COLOUR / colour if colour else BRIGHTNESS * math.sqrt(channels)
    return whole * CHANGES[row + column]


class Fastnet(nn.Module):
    """Whitened patches, three stages of two 3 x 3 convolutions, each channel's largest, logits.

    A stage is convolution, max-pool, BatchNorm, GELU, and the same without the pool; a pool that a
    side of one pixel would not fit is left out. The first channels of a convolution begin by
    passing on what they read, beside weights that are drawn: a unit lives on where others go.
    """

    def __init__(
        self, shape: tuple[int, int, int], outputs: int, width: int = 64, scale: float = 2.0
    ) -> None:
        super().__init__()
        self.white = Whitening(shape[0])
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        self.pools: list[bool] = []
        reads, side = len(self.white.filters), min(shape[1:]) - SIDE + 1
        for multiple in MULTIPLES:
            self.pools += [side >= 2, False]
            side = side // 2
            for _ in range(2):
                self.convs.append(_passing(reads, multiple * width))
                self.norms.append(nn.BatchNorm2d(multiple * width, momentum=MOMENTUM))
                reads = multiple * width
        self.fc = nn.Linear(reads, outputs, bias=False)
        self.scale = scale / math.sqrt(reads)  # of the width asked for: compact ones answer alike

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.white(x))
        for conv, norm, pool in zip(self.convs, self.norms, self.pools, strict=True):
            x = conv(x)
            x = F.max_pool2d(x, 2) if pool else x
            x = F.gelu(norm(x))
        return self.fc(x.amax((2, 3))) * self.scale

    def wiring(self, shape: tuple[int, ...]) -> Wiring:
        """Every convolution's channels are an axis; the whitened ones are its inputs."""
        entries, reads = chain_wiring(len(self.convs))
        return entries | linear_wiring("fc", OUTPUT, reads, bias=False)


@MODELS.register("fastnet", convolutional=True)
def fastnet(shape: tuple[int, ...], outputs: int, width: int = 64, scale: float = 2.0) -> Fastnet:
    """A small network that learns in a few epochs, for pictures of 8 x 8 or more, from 0 to 1.

    `width` is the number of channels of the first stage; logits are multiplied by `scale` over the
    root of the number of features that they are made of, 4 `width`.
    """
    check_width("fastnet", width)
    if not is_number(scale) or not 0 < scale < math.inf:
        raise ModelError(f"fastnet: scale is {shortened(scale)}: expected a number above 0")
    return Fastnet(image_shape("fastnet", shape, least=8), outputs, width, scale)


def _place() -> torch.device:
    """Where tensors are made; the CPU where they would have no values, which no state brings."""
    default = torch.empty(0).device
    return torch.device("cpu") if default.type == "meta" else default


def _passing(reads: int, gives: int) -> nn.Conv2d:
    """A 3 x 3 convolution whose first channels begin as what they read, and as something drawn."""
    conv = nn.Conv2d(reads, gives, 3, padding=1, bias=False)
    passed = torch.arange(min(reads, gives))
    with torch.no_grad():
        conv.weight[passed, passed, 1, 1] += 1
    return conv
