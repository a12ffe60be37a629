"""The paper's convolutional network: 1.31 M parameters for 28 x 28 grey images."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.models.axes import INPUT, OUTPUT, Wiring, conv_wiring, linear_wiring
from intarsia.models.images import image_shape
from intarsia.models.registry import MODELS


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


@MODELS.register("lenet")
def lenet(shape: tuple[int, ...], outputs: int) -> Lenet:
    """The paper's CNN, for any image of at least 4 x 4."""
    return Lenet(image_shape("lenet", shape, least=4), outputs)
