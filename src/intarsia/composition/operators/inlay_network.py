"""An inlay of convolutional parts as it runs: every part's channels in convolutions of their own.

Between hidden axes an inlay is block diagonal. As one state it holds, and multiplies by, as many
numbers as the square of the parts; here it holds the blocks alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.composition.merge_context import MergeContext
from intarsia.models.axes import INPUT, OUTPUT, Axis, TensorAxes, Wiring
from intarsia.modules.architecture import Architecture

State = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class BlockNetwork:
    """A network of blocks, the architecture of the one that they stand for, and its survivors."""

    network: nn.Module
    architecture: Architecture
    nonzero: int

    @property
    def parameters(self) -> int:
        """How many parameters the one network would have, with the zeros between the blocks."""
        plan = self.architecture.plan().values()
        return sum(torch.Size(entry.shape).numel() for entry in plan if entry.learned)


class BlockConvolution(nn.Module):
    """A convolution whose channels come in blocks that read only channels of the same block.

    One convolution in groups where all blocks are of one size and `grouped`, else one after
    another. Its state is the weight of the whole, block diagonal.
    """

    block0: Tensor

    def __init__(self, layer: nn.Conv2d, blocks: Sequence[Tensor], grouped: bool = True) -> None:
        super().__init__()
        self.stride, self.padding, self.dilation = layer.stride, layer.padding, layer.dilation
        self.sizes = [(block.shape[0], block.shape[1]) for block in blocks]  # gives, reads
        self.kernel_size = tuple(blocks[0].shape[2:])
        self.out_channels = sum(gives for gives, _ in self.sizes)
        self.in_channels = sum(reads for _, reads in self.sizes)
        self.groups = len(blocks) if grouped and len(set(self.sizes)) == 1 else 1
        held = [torch.cat(list(blocks))] if self.groups > 1 else [b.clone() for b in blocks]
        self.names = [f"block{k}" for k in range(len(held))]
        for name, block in zip(self.names, held, strict=True):
            self.register_parameter(name, nn.Parameter(block))

    def forward(self, x: Tensor) -> Tensor:
        how: dict[str, Any] = {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
        }
        if self.groups > 1:
            return F.conv2d(x, self.block0, groups=self.groups, **how)
        pieces, start = [], 0
        for name, (gives, reads) in zip(self.names, self.sizes, strict=True):
            if gives and reads:
                pieces.append(F.conv2d(x.narrow(1, start, reads), getattr(self, name), **how))
            elif gives:  # channels that read nothing give 0
                nothing = x.new_zeros(gives, 1, *self.kernel_size)
                pieces.append(F.conv2d(x.narrow(1, 0, 1), nothing, **how))
            start += reads
        return torch.cat(pieces, dim=1)

    def blocks(self) -> list[Tensor]:
        """The weights of the blocks, which they share."""
        if self.groups > 1:
            return list(self.block0.chunk(self.groups))
        return [getattr(self, name) for name in self.names]

    def corners(self, weight: Tensor) -> list[Tensor]:
        """Where the blocks lie in the weight of the whole."""
        views, row, column = [], 0, 0
        for gives, reads in self.sizes:
            views.append(weight[row : row + gives, column : column + reads])
            row, column = row + gives, column + reads
        return views

    def extra_repr(self) -> str:
        how = f"{self.groups} groups" if self.groups > 1 else f"{len(self.names)} blocks"
        return f"{self.in_channels}, {self.out_channels}, {how}, stride={self.stride}"

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        blocks = self.blocks()
        shape = (self.out_channels, self.in_channels, *self.kernel_size)
        whole = blocks[0].new_zeros(shape)
        for corner, block in zip(self.corners(whole), blocks, strict=True):
            corner.copy_(block.detach())
        destination[f"{prefix}weight"] = whole

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: list[str], *_: Any
    ) -> None:
        key = f"{prefix}weight"
        if key not in state_dict:
            missing.append(key)
            return
        with torch.no_grad():
            for block, corner in zip(self.blocks(), self.corners(state_dict[key]), strict=True):
                block.copy_(corner)


def runs_in_blocks(context: MergeContext) -> bool:
    """Whether convolutions lie between hidden axes of the parts, several networks of ours."""
    first = context.parts[0]
    if len(context.parts) < 2 or first.architecture.is_foreign or not context.has_wiring:
        return False
    return bool(block_layers(first.architecture.skeleton(first.factory), context.wiring))


def block_layers(network: nn.Module, wiring: Wiring) -> dict[str, nn.Conv2d]:
    """The convolutions that are block diagonal in an inlay."""
    return {
        path: layer
        for path, layer in network.named_modules()
        if type(layer) is nn.Conv2d
        and layer.groups == 1
        and layer.bias is None
        and layer.padding_mode == "zeros"
        and _both_hidden(wiring[f"{path}.weight"])
    }


def build_blocks(
    architecture: Architecture,
    wiring: Wiring,
    live: Sequence[State],
    rest: State,
    grouped: bool = True,
) -> nn.Module:
    """The network that runs, of the states of the parts' live units.

    The architecture is that of the whole, and `rest` its tensors but for those of block layers.
    """
    network = architecture.skeleton()
    for path, layer in block_layers(network, wiring).items():
        blocks = [state[f"{path}.weight"] for state in live]
        network.set_submodule(path, BlockConvolution(layer, blocks, grouped))
    network.load_state_dict(dict(rest), strict=False, assign=True)
    return network.eval()


def _both_hidden(entry: TensorAxes) -> bool:
    return all(
        isinstance(axis, Axis) and axis.block == 1 and axis.name not in (INPUT, OUTPUT)
        for axis in entry[:2]
    )
