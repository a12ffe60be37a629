"""What units answer, read where the next layer takes it in."""

import pytest
import torch
from torch import nn

from intarsia.errors import WiringError
from intarsia.models import initialise, wiring_of
from intarsia.models.unit_activations import COLUMNS, unit_activations


def test_answers_of_an_mlp_are_those_after_its_activation() -> None:
    network = initialise("mlp(12, 8)", (6,), 4, 0)
    network.train()  # with dropout
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    seen = unit_activations(network, network.state_dict(), inputs, wiring_of(network, (6,)))
    state = network.state_dict()
    first = torch.relu(inputs @ state["layers.0.weight"].T + state["layers.0.bias"])
    second = torch.relu(first @ state["layers.1.weight"].T + state["layers.1.bias"])
    assert [tuple(answers.shape) for answers in seen.values()] == [(12, 5), (8, 5)]
    for answers, expected in zip(seen.values(), (first, second), strict=True):
        assert torch.allclose(answers, expected.T, atol=1e-6)
    assert all(module.training for module in network.modules())


def test_other_weights_than_the_networks_own_may_answer() -> None:
    network = initialise("mlp(6)", (4,), 3, 0)
    state = {name: torch.zeros_like(t) for name, t in network.state_dict().items()}
    inputs, wiring = torch.ones(2, 4), wiring_of(network, (4,))
    (answers,) = unit_activations(network, state, inputs, wiring).values()
    assert not answers.any()
    assert network.state_dict()["layers.0.weight"].any()


def test_channels_answer_at_every_position_and_blocks_belong_to_their_channel() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Conv2d(5, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    )
    inputs, wiring = torch.randn(3, 1, 6, 6), wiring_of(network, (1, 6, 6))
    first, second = unit_activations(network, network.state_dict(), inputs, wiring).values()
    channels = network[:2](inputs)
    assert torch.allclose(first, channels.movedim(1, 0).flatten(1), atol=1e-6)
    channels = network[:4](inputs)
    assert torch.allclose(second, channels.movedim(1, 0).flatten(1), atol=1e-6)


def test_of_many_answers_some_are_kept_evenly_spaced() -> None:
    network = initialise("mlp(6)", (1,), 3, 0)
    inputs = torch.linspace(0, 1, 3 * COLUMNS)[:, None]
    state, wiring = network.state_dict(), wiring_of(network, (1,))
    (answers,) = unit_activations(network, state, inputs, wiring).values()
    assert answers.shape == (6, COLUMNS)
    (every,) = unit_activations(network, state, inputs[::3], wiring).values()
    assert torch.allclose(answers, every, atol=1e-6)


def test_units_that_no_known_layer_reads_are_an_error() -> None:
    class Own(nn.Module):
        """Its second weight is no layer's."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 5, bias=False)
            self.second = nn.Parameter(torch.ones(3, 5))
            self.wiring = {"first.weight": ("hidden", "input"), "second": ("output", "hidden")}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.first(x)) @ self.second.T

    network = Own()
    wiring = wiring_of(network, (4,))
    with pytest.raises(WiringError, match="'hidden' one by one"):
        unit_activations(network, network.state_dict(), torch.ones(2, 4), wiring)
