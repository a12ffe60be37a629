"""Networks side by side as one: which fit, and what their layers do with what all share."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from intarsia.models import build
from intarsia.models.convolutional import norm_relu
from intarsia.training.engines.grouped import GroupedNorm, grouped, ungroupable
from intarsia.training.job import Job

Make = Callable[..., tuple[Job, list[dict[str, Tensor]]]]


class Mixing(nn.Module):
    """A softmax over channels, whose sum would run over those of other networks too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.softmax(self.conv(x), 1).mean((2, 3)))


class Scaled(nn.Module):
    """Holds a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.scale * self.conv(x).mean((2, 3)))


class Gated(nn.Module):
    """Deep, with a gate that reads all channels at its end: it must not be lost on the way."""

    def __init__(self, gate: bool = True) -> None:
        super().__init__()
        self.gate = gate
        layers = [nn.Conv2d(1, 16, 3, padding=1)]
        for _ in range(30):
            layers += [nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False)]
        self.body, self.fc = nn.Sequential(*layers), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        x = x * torch.sigmoid(x.mean(1, keepdim=True)) if self.gate else x
        return self.fc(x.mean((2, 3)))


class Viewing(nn.Module):
    """Counts on its number of features, so that those of several networks become samples."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(144, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(x).reshape(-1, 144))


class Halving(nn.BatchNorm2d):
    """Answers as the layer that it is made of, but trains otherwise."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[: len(x) // 2] if self.training else x)


class Centred(nn.Module):
    """Channels without their mean: not in the state, and nothing tells how many it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("share", torch.tensor(1.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x - self.share * x.mean(1, keepdim=True)


@pytest.mark.parametrize(
    "network",
    [
        build("resnet18(width=2)", (1, 8, 8), 4),
        build("vgg11(width=2)", (1, 8, 8), 4),
        build("fastnet(width=2)", (1, 8, 8), 4),
        build("lenet", (1, 8, 8), 4),
        build("mlp(8)", (1, 8, 8), 4),
        nn.Sequential(
            nn.BatchNorm2d(1), nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=4), nn.ReLU(),
            nn.Flatten(), nn.BatchNorm1d(64, affine=False), nn.Linear(64, 4, bias=False),
        ),
        nn.Sequential(nn.Conv2d(1, 3, 3, groups=1), nn.Flatten(), nn.Linear(108, 4)),
        Gated(gate=False),
    ],
    ids=["resnet", "vgg", "fastnet", "lenet", "mlp", "depthwise", "small", "deep"],
)  # fmt: skip
def test_networks_that_fit(make_job: Make, network: nn.Module) -> None:
    job, _ = make_job("lenet")
    assert ungroupable(replace(job, network=network)) is None


def test_pretrained_bodies_fit_with_what_they_do_to_pictures(make_job: Make) -> None:
    """Resized and normalised once where modules share pictures, and for each where they do not."""
    job, _ = make_job("lenet")
    network = build("mobilenet_v2(32)", (1, 8, 8), 4)
    assert ungroupable(replace(job, network=network)) is None


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (Mixing(), "logits come out"),
        (Gated(), "logits come out"),
        (Viewing(), "logits come out as (2, 32, 4), not (2, 16, 4)"),
        (
            nn.Sequential(nn.Conv2d(1, 4, 3), Halving(4), nn.Flatten()),
            "Halving may normalise",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), Centred(), nn.Conv2d(2, 4, 6), nn.Flatten()),
            "Centred reads 2 channels, and samples have 1",
        ),
        (Scaled(), "tensors of its own"),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()), "GroupNorm holds"),
        (nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular")), "holds tensors"),
    ],
)
def test_networks_that_do_not_fit_say_why(make_job: Make, network: nn.Module, reason: str) -> None:
    job, _ = make_job("lenet")
    found = ungroupable(replace(job, network=network))
    assert found is not None
    assert reason in found


def test_a_normalisation_keeps_the_statistics_of_each_network_apart() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.BatchNorm2d(2))
    both = grouped(network, 2, 1).train()
    values = {n: torch.stack([t, 3 * t]) for n, t in network.state_dict().items()}
    x = torch.rand(8, 1, 4, 4)
    functional_call(both, values, (x,))
    for k in range(2):
        alone = {n: torch.stack([t, 3 * t])[k] for n, t in network.state_dict().items()}
        alone = {n: t.clone() for n, t in alone.items()}
        functional_call(network.train(), alone, (x,))
        for name, tensor in alone.items():
            torch.testing.assert_close(values[name][k], tensor)


@pytest.mark.parametrize("added", [False, True])
def test_a_normalisation_takes_residual_and_relu_over_to_the_same_bits(added: bool) -> None:
    x, residual = torch.randn(2, 8, 4, 5, 5).unbind()
    layer = nn.BatchNorm2d(4)
    expected = torch.relu(layer(x) + residual if added else layer(x))
    given = residual if added else None
    assert torch.equal(norm_relu(nn.BatchNorm2d(4), x, given), expected)
    fused = GroupedNorm(nn.BatchNorm2d(4), 1)
    assert torch.equal(norm_relu(fused, x, given), expected)
    calls: list[object] = []
    fused.register_forward_pre_hook(lambda layer, *handed: calls.append(handed), with_kwargs=True)
    norm_relu(fused, x, given)
    assert calls == [((x, given), {"relu": True})]
