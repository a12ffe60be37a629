"""BatchNorm statistics after a merge: those of the samples, whatever they were before."""

import copy

import pytest
import torch
from torch import Tensor, nn

from intarsia.composition.batchnorm import has_batchnorm, recalibrate
from intarsia.errors import CompositionError
from intarsia.models import build, initialise

pytestmark = pytest.mark.usefixtures("one_thread")


def samples(count: int, *shape: int) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(3))


def merged() -> nn.Module:
    """The sum of two small residual networks, with the statistics of neither."""
    one, two = (initialise("resnet18(4)", (3, 16, 16), 5, seed) for seed in (0, 1))
    state = {
        key: value + two.state_dict()[key] if value.is_floating_point() else value
        for key, value in one.state_dict().items()
    }
    one.load_state_dict(state)
    return one


def norms(network: nn.Module) -> dict[str, nn.BatchNorm2d]:
    return {n: m for n, m in network.named_modules() if isinstance(m, nn.BatchNorm2d)}


def test_by_hand() -> None:
    network = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    x = torch.tensor([[1.0, -2.0], [3.0, -2.0], [5.0, 4.0], [7.0, 0.0]])
    for batch in (2, 3, 4, 100):  # the first layer's input does not depend on batches
        network[0].running_mean.fill_(9.0)
        recalibrate(network, x, batch)
        torch.testing.assert_close(network[0].running_mean, torch.tensor([4.0, 0.0]))
        torch.testing.assert_close(network[0].running_var, torch.tensor([20 / 3, 8.0]))
        assert network[0].num_batches_tracked == max(1, 4 // batch)


def test_statistics_are_those_that_hooks_see() -> None:
    """With all samples in one batch every layer's statistics are exact, seen in training mode."""
    network, x = merged(), samples(64, 3, 16, 16)
    seen: dict[nn.Module, Tensor] = {}
    oracle = copy.deepcopy(network).train()
    for layer in norms(oracle).values():
        layer.register_forward_pre_hook(lambda layer, args: seen.update({layer: args[0]}))
    with torch.no_grad():
        expected = oracle(x)
    recalibrate(network, x)
    assert not any(module.training for module in network.modules())
    for name, layer in norms(network).items():
        read = seen[norms(oracle)[name]].movedim(1, 0).flatten(1).double()
        torch.testing.assert_close(layer.running_mean.double(), read.mean(1), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(layer.running_var.double(), read.var(1), rtol=1e-5, atol=1e-7)
        assert layer.momentum == 0.1
    with torch.no_grad():
        result = network(x)
    # biased and unbiased variance differ by one sample in n, n = 256 in the last stage
    torch.testing.assert_close(result, expected, rtol=0.02, atol=0.02)


def test_batches_pool_their_samples() -> None:
    """Sorted samples in several batches: the spread between batches counts too."""
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2))
    x = samples(70, 1, 6, 6) + torch.arange(70.0).reshape(70, 1, 1, 1)
    recalibrate(network, x, batch=16)
    with torch.no_grad():
        read = network[0](x).movedim(1, 0).flatten(1).double()
    torch.testing.assert_close(network[1].running_mean.double(), read.mean(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(network[1].running_var.double(), read.var(1), rtol=1e-5, atol=1e-5)
    assert network[1].num_batches_tracked == 4


def test_several_batches_come_near_one() -> None:
    one, several, x = merged(), merged(), samples(256, 3, 16, 16)
    recalibrate(one, x, batch=256)
    recalibrate(several, x, batch=64)
    for first, second in zip(norms(one).values(), norms(several).values(), strict=True):
        deviation = first.running_var.sqrt()
        assert ((first.running_mean - second.running_mean).abs() / deviation).max() < 0.1
        assert (second.running_var.sqrt() / deviation - 1).abs().max() < 0.1


def test_dropout_stays_off_and_weights_and_generator_stay() -> None:
    network = nn.Sequential(
        nn.Linear(4, 6), nn.Dropout(0.9), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)
    ).train()
    x = samples(20, 4)
    weights = {k: v.clone() for k, v in network.named_parameters()}
    generator = torch.get_rng_state()
    recalibrate(network, x)
    with torch.no_grad():
        read = network[0](x)
    torch.testing.assert_close(network[2].running_mean, read.mean(0))
    torch.testing.assert_close(network[2].running_var, read.var(0))
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(v, weights[k]) for k, v in network.named_parameters())
    assert all(v.grad is None for v in network.parameters())
    assert not network[2]._forward_pre_hooks


def test_twice_is_the_same() -> None:
    network, x = merged(), samples(40, 3, 16, 16)
    recalibrate(network, x, batch=8)
    once = {k: v.clone() for k, v in network.state_dict().items()}
    recalibrate(network, x, batch=8)
    assert all(torch.equal(v, once[k]) for k, v in network.state_dict().items())


def test_far_from_zero_no_digits_are_lost() -> None:
    network = nn.Sequential(nn.BatchNorm1d(1))
    x = torch.tensor([[100000.0], [100001.0], [100002.0]])
    recalibrate(network, x)
    torch.testing.assert_close(network[0].running_var, torch.tensor([1.0]))


def test_layers_that_keep_no_statistics_or_are_not_used() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.BatchNorm1d(3)
            self.head = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x)

    network = Spare()
    recalibrate(network, samples(4, 3))
    assert torch.equal(network.spare.running_mean, torch.zeros(3))
    assert has_batchnorm(network)
    assert not has_batchnorm(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)))


def test_who_has_batchnorm() -> None:
    assert has_batchnorm(build("resnet18(2)", (3, 8, 8), 3))
    assert not has_batchnorm(build("mlp", (4,), 3))
    assert not has_batchnorm(nn.Sequential(nn.LayerNorm(3), nn.InstanceNorm1d(3)))


def test_too_few_samples() -> None:
    network = nn.Sequential(nn.BatchNorm1d(3))
    before = {k: v.clone() for k, v in network.state_dict().items()}
    with pytest.raises(CompositionError, match=r"at least 2 samples.*\(1, 3\)"):
        recalibrate(network, samples(1, 3))
    with pytest.raises(CompositionError, match="batches of at least 2, not 1"):
        recalibrate(network, samples(5, 3), batch=1)
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())
