"""Small language models of transformers, with random weights."""

from typing import Any

import torch


def less_even(network: Any) -> Any:
    """With weights three times as large, so that entropies are well below log V."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(3)
    return network.eval()
