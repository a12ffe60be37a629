"""Small networks with BatchNorm as bases to train from."""

import torch
from torch import nn

SHAPE = (1, 8, 8)


def normed(*layers: nn.Module) -> nn.Sequential:
    """A convolution and its norm, then the layers, which read 384 features of an 8 x 8 image."""
    convolution = nn.Conv2d(1, 6, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), *layers)


def with_statistics(network: nn.Sequential) -> nn.Sequential:
    """The network once it has seen 64 images: its norm has statistics of its own."""
    with torch.no_grad():
        network(torch.rand(64, *SHAPE))
    return network
