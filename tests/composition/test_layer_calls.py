"""Calls of layers: do they explain the gradients of the layers' weights?"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intarsia.composition import layer_calls
from intarsia.composition.layer_calls import LayerCall, read_elsewhere


class Reused(nn.Module):
    """Reads the weight of its first layer a second time, outside the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)) @ self.first.weight)


def test_a_weight_that_is_read_a_second_time_is_named() -> None:
    torch.manual_seed(0)
    assert read_elsewhere(Reused(), torch.randn(8, 4)) == {"first"}


def test_a_bias_that_a_norm_takes_off_again_has_no_second_reader() -> None:
    """Its gradient is rounding alone, of terms that cancel out."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.InstanceNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(180, 4)
    )
    assert read_elsewhere(network, torch.randn(8, 3, 8, 8)) == set()


def test_patches_are_read_on_the_device_of_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the device `meta`, since a machine may have no other than the CPU."""
    devices: list[torch.device] = []

    def call(layer: nn.Module, tensors: dict[str, Tensor], given: Any) -> Tensor:
        devices.extend(tensor.device for tensor in (*tensors.values(), *given))
        return torch.zeros(1, 18, 3, 3, device="meta")

    monkeypatch.setattr(layer_calls, "functional_call", call)
    layer, x = nn.Conv2d(2, 3, 3, device="meta"), torch.zeros(1, 2, 5, 5, device="meta")
    assert LayerCall("", layer, x, layer(x)).reads().shape == (1, 9, 1, 18)
    assert {device.type for device in devices} == {"meta"}
