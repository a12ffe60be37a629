"""A silent start: the layer that makes the logits begins at 0, where there is a plain one."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from intarsia.composition import MergeContext
from intarsia.data import Data
from intarsia.errors import CompositionError
from intarsia.files import digest_of
from intarsia.models import initialise, silence, wiring_of

Factory = Callable[[tuple[int, ...], int], nn.Module]
STILL = {"learning_rate": 0.0, "epochs": 1, "sparsity": 0}


def with_bias(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, outputs))


def as_convolution(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Conv2d(5, outputs, 6), nn.Flatten())


def weight_normed(shape: tuple[int, ...], outputs: int) -> nn.Module:
    head = nn.utils.parametrizations.weight_norm(nn.Linear(6, outputs))
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), head)


def normalised(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, outputs), nn.BatchNorm1d(outputs))


class Doubled(nn.Linear):
    """Not what its class says: at 0 it may learn otherwise, or not at all."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def own_head(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), Doubled(6, outputs))


class Unreadable(nn.Module):
    """Its units are mixed in a way that tracing cannot name, so that it has no wiring."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 8), nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.fft.fft(self.first(x.flatten(1))).real)


def without_wiring(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Unreadable(outputs)


PLAIN = {
    "mlp(8)": ["layers.1.weight"],
    "mlp([])": ["layers.0.weight"],
    "lenet": ["fc3.weight", "fc3.bias"],
    "resnet18(width=4)": ["fc.weight", "fc.bias"],
    with_bias: ["3.weight", "3.bias"],
}
OTHER = [as_convolution, weight_normed, normalised, own_head, without_wiring]


def still(data: Data, model: str | Factory, **settings: object) -> ia.Bank:
    """Modules that training has not moved."""
    return ia.train(data, model=model, **STILL, **settings)


def drawn(model: str | Factory, seed: int = 0) -> dict[str, Tensor]:
    return dict(initialise(model, (1, 8, 8), 4, seed).state_dict())


def named(model: object) -> str:
    """The same in every process, as the address of a function is not."""
    return getattr(model, "__name__", str(model))


@pytest.mark.parametrize("model", list(PLAIN), ids=named)
def test_the_output_layer_of_an_origin_is_0_and_the_rest_as_drawn(
    small_data: Data, model: str | Factory
) -> None:
    for seed in (0, 3):
        module = still(small_data, model, seeds=[seed], partition=[["a"]])[0]
        origin, silent = drawn(model, seed), []
        for name, _ in initialise(model, (1, 8, 8), 4, seed).named_parameters():
            if torch.equal(module.state[name], origin[name]):
                continue
            assert not module.state[name].any()
            silent.append(name)
        assert silent == PLAIN[model]


@pytest.mark.parametrize("model", OTHER)
def test_a_network_without_a_plain_linear_head_stays_as_drawn(
    small_data: Data, model: Factory
) -> None:
    module = still(small_data, model, partition=[["a"]])[0]
    assert module.origin == digest_of("origin", drawn(model))
    for name, _ in initialise(model, (1, 8, 8), 4, 0).named_parameters():
        assert torch.equal(module.state[name], drawn(model)[name])


@pytest.mark.parametrize("settings", [{"preset": "paper"}, {"silent": False}], ids=str)
def test_it_can_be_left_out(small_data: Data, settings: dict) -> None:
    module = still(small_data, "mlp(8)", **settings)[0]
    assert torch.equal(module.state["layers.1.weight"], drawn("mlp(8)")["layers.1.weight"])
    assert module.provenance["recipe"]["silent"] is False


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("model", ["mlp(8)", with_bias, as_convolution, without_wiring], ids=named)
def test_the_origin_can_be_made_again_from_the_seed(
    small_data: Data, model: str | Factory, silent: bool
) -> None:
    settings = {"learning_rate": 0.01, "epochs": 1, "sparsity": 0.5, "seeds": [2]}
    bank = ia.train(small_data, model=model, silent=silent, **settings)
    origin = MergeContext(tuple(bank)).origin()
    expected = still(small_data, model, silent=silent, seeds=[2])[0]
    assert digest_of("origin", origin) == bank[0].origin == expected.origin
    for name, _ in initialise(model, (1, 8, 8), 4, 0).named_parameters():
        assert torch.equal(origin[name], expected.state[name])


def test_task_vectors_are_measured_from_the_silent_origin(small_data: Data) -> None:
    settings = {"model": "mlp(8)", "learning_rate": 0.01, "epochs": 2, "sparsity": 0}
    bank = ia.train(small_data, **settings)
    joined = ia.compose(bank, "task_arithmetic(0.5, base='origin')").joined
    assert joined is not None
    origin = still(small_data, "mlp(8)")[0].state
    for name, base in origin.items():
        expected = base + 0.5 * sum(module.state[name] - base for module in bank)
        torch.testing.assert_close(joined.state[name], expected, rtol=1e-5, atol=1e-6)


def test_a_network_without_wiring_that_changed_is_refused_by_its_origin(small_data: Data) -> None:
    """And not for want of a wiring, which a silent start would need."""
    bank = still(small_data, without_wiring)

    def changed(shape: tuple[int, ...], outputs: int) -> nn.Module:
        network = Unreadable(outputs)
        nn.init.ones_(network.first.bias)
        return network

    parts = tuple(replace(module, factory=changed) for module in bank)
    with pytest.raises(CompositionError, match="cannot be made anew from its seed"):
        MergeContext(parts).origin()


def test_silence_says_whether_there_is_a_layer_to_silence() -> None:
    for factory, expected in ((with_bias, True), (as_convolution, False), (normalised, False)):
        network = initialise(factory, (1, 8, 8), 4, 0)
        assert silence(network, wiring_of(network, (1, 8, 8))) is expected


def test_a_silent_bank_says_nothing_before_it_learns(small_data: Data) -> None:
    for module in still(small_data, "mlp(8)"):
        assert not module.to_module()(small_data.test.x).any()
