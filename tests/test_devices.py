"""The pretended GPU does what a real one does."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap

from devices import CPU, GPU, PretendedGpu


def test_labels_follow() -> None:
    with PretendedGpu():
        x = torch.rand(3, 4).to("cuda")
        made = [x + 1, x[0], x[:, None], x.T, x.detach(), x.topk(2)[1], x.to(torch.float64)]
        made += [x.new_zeros(2), torch.zeros_like(x), torch.zeros(2, device=x.device), x.clone()]
        assert all(tensor.device == GPU and tensor.is_cuda for tensor in made)
        assert torch.zeros_like(x, device="cpu").device == CPU
        assert (x.cpu().device, x.device) == (CPU, GPU)
        assert torch.zeros(2).to(x).device == GPU
    assert x.device == CPU


def test_a_network_moves() -> None:
    with PretendedGpu():
        network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
        network.to("cuda")
        x = torch.rand(8, 4)
        with pytest.raises(RuntimeError, match="same device"):
            network(x)
        loss = nn.functional.cross_entropy(network(x.to("cuda")), torch.ones(8).long().to("cuda"))
        loss.backward()
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        optimiser.step()
        assert all(p.grad is not None and p.grad.is_cuda for p in network.parameters())
        network.load_state_dict({name: t.cpu() for name, t in network.state_dict().items()})
        assert all(tensor.is_cuda for tensor in network.state_dict().values())
        assert not network.cpu()(x).is_cuda


def test_functions_are_mapped() -> None:
    with PretendedGpu():
        layer, x = nn.Linear(4, 2).to("cuda"), torch.rand(3, 4).to("cuda")

        def answer(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = functional_call(layer, weights, (row,))
            return made

        weights = dict(layer.named_parameters())
        slopes = vmap(jacrev(answer), in_dims=(None, 0))(weights, x)
        assert slopes["weight"].shape == (3, 2, 2, 4)
        assert slopes["weight"].is_cuda
        with pytest.raises(RuntimeError, match="same device"):
            vmap(answer, in_dims=(None, 0))(weights, x.cpu())


@pytest.mark.parametrize("mixes", [
    lambda x, y: x + y,
    lambda x, y: x @ y,
    lambda x, y: torch.cat([x, y]),
    lambda x, y: torch.stack([x[0, 0], y[0, 0]]),
    lambda x, y: torch.where(x > 0, x, y),
    lambda x, y: torch.isin(x, y),
    lambda x, y: x.index_select(0, y.long()[0]),
    lambda x, y: x.mul_(y),
    lambda x, y: x.__setitem__(y > 2, y[0]),
    lambda x, y: y[x > 2],
    lambda x, y: y[0] * x[0, 0],
    lambda x, y: torch.equal(x, y),
    lambda x, y: torch.rand(2, generator=torch.Generator(), device=x.device),
    lambda x, y: x.normal_(generator=torch.Generator()),
])  # fmt: skip
def test_what_fails(mixes: object) -> None:
    assert callable(mixes)
    with PretendedGpu():
        x, y = torch.ones(3, 3).to("cuda"), torch.ones(3, 3)
        with pytest.raises(RuntimeError, match="device"):
            mixes(x, y)


def test_numpy_reads_the_cpu_alone() -> None:
    with PretendedGpu():
        x = torch.ones(3).to("cuda")
        for reads in (np.asarray, lambda x: x.numpy()):
            with pytest.raises(TypeError, match="numpy"):
                reads(x)
        assert x.cpu().numpy().sum() == 3 == x.sum().item() == len(x.tolist())


def test_what_may_mix() -> None:
    with PretendedGpu():
        x, y = torch.ones(3, 3).to("cuda"), torch.ones(3, 3)
        assert (x * torch.tensor(2.0)).is_cuda
        assert torch.where(x > 0, x, torch.tensor(0.0)).is_cuda
        assert x[y > 0].is_cuda
        assert x[torch.arange(2)].is_cuda
        x[0] = y[0]
        x.copy_(y)
        assert x.is_cuda
        assert not y.copy_(x).is_cuda
