"""A small vision transformer: patches of a picture, layers of attention, one linear layer."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.errors import ModelError, shortened
from intarsia.models.factory import MODELS

SPREAD = 0.02  # of the places' initial values
WIDER = 4  # the wide layer of a block, in widths


class Vit(nn.Module):
    """Each patch is a vector; blocks mix them; their mean gives the logits."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        outputs: int,
        patch: int,
        width: int,
        depth: int,
        heads: int,
    ) -> None:
        super().__init__()
        channels, height, breadth = shape
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.places = nn.Parameter(
            SPREAD * torch.randn((height // patch) * (breadth // patch), width)
        )
        self.blocks = nn.ModuleList(AttentionBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.fc(self.norm(x).mean(1))


class AttentionBlock(nn.Module):
    """Attention and a wide layer, each of normalised inputs and added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.reads = nn.Linear(width, 3 * width)  # queries, keys and values
        self.gives = nn.Linear(width, width)
        self.wide = nn.Linear(width, WIDER * width)
        self.narrow = nn.Linear(WIDER * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.gives(self._attention(self.norm1(x)))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))

    def _attention(self, x: Tensor) -> Tensor:
        # N, L, 3, heads, width of each; then each of the three as N, heads, L, width of each
        parts = self.reads(x).unflatten(2, (3, -1, self.head_width))
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        seen = F.scaled_dot_product_attention(query, key, value)
        return seen.transpose(1, 2).flatten(2)


@MODELS.register("vit", convolutional=True)
def vit(
    shape: tuple[int, ...],
    outputs: int,
    patch: int = 4,
    width: int = 192,
    depth: int = 6,
    heads: int = 3,
) -> Vit:
    """A vision transformer for small images, without a class token.

    `patch` pixels square make a token of `width` numbers; `depth` blocks have `heads` each.
    """
    given = {"patch": patch, "width": width, "depth": depth, "heads": heads}
    for key, value in given.items():
        if type(value) is not int or value < 1:
            raise ModelError(f"vit: {key} is {shortened(value)}: expected a whole number from 1")
    if len(shape) != 3 or shape[1] % patch or shape[2] % patch:
        raise ModelError(
            f"vit reads images that patches of {patch} x {patch} fill: got the shape {shape}; "
            "take another patch, or mlp for tables"
        )
    if width % heads:
        raise ModelError(f"vit: {heads} heads do not divide a width of {width}")
    return Vit((shape[0], shape[1], shape[2]), outputs, patch, width, depth, heads)
