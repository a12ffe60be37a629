"""The proof of a wiring: relabelling the units of any hidden axis changes nothing."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.models import Wiring, build, infer_wiring, wiring_of
from intarsia.models.wiring import axis_sizes, hidden_axes, take_units

OURS = {
    "mlp(7, 6)": ((1, 4, 3), 2),
    "lenet": ((2, 8, 9), 3),
    "resnet18(2)": ((3, 8, 8), 12),  # 4 streams, 8 inside the blocks
    "vgg11(2)": ((3, 64, 33), 8),  # 2 x 1 pixels per channel at the end
}
CARRIED = OURS | {"fastnet(2)": ((3, 9, 12), 6)}  # whitens by a function that no rule reads


def scatter(network: nn.Module, seed: int) -> dict[str, Tensor]:
    """Random values everywhere, BatchNorm included: fresh ones and zeros would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}
    tied: dict[int, Tensor] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        values = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        values = values.abs() + 0.5 if name.endswith("running_var") else values
        values = values if tensor.is_floating_point() else tensor.clone()
        state[name] = tied.setdefault(id(tensor), values)
    return state


def logits(network: nn.Module, state: dict[str, Tensor], x: Tensor) -> Tensor:
    network.eval().double().load_state_dict(state)
    with torch.no_grad():
        return network(x)


def check_permutations(network: nn.Module, wiring: Wiring, shape: tuple[int, ...]) -> None:
    state = scatter(network, seed=0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, *shape, generator=generator, dtype=torch.float64)
    expected = logits(network, state, x)
    assert expected.std(0).max() > 1e-6
    sizes = axis_sizes(wiring, state)
    assert hidden_axes(wiring)
    for axis in hidden_axes(wiring):
        order = torch.arange(sizes[axis]).roll(1)
        permuted = take_units(state, wiring, {axis: order})
        seen = logits(network, permuted, x)
        torch.testing.assert_close(
            seen, expected, rtol=1e-8, atol=1e-8 * float(expected.abs().max())
        )
        if sizes[axis] > 1:
            # permuting only one of the tensors that carry the axis must show
            name = next(n for n, e in wiring.items() if any(a and a.name == axis for a in e))
            torn = state | {name: permuted[name]}
            assert not torch.allclose(logits(network, torn, x), expected, rtol=1e-6), axis


@pytest.mark.parametrize("model", CARRIED)
def test_ours_by_the_carried_wiring(model: str) -> None:
    shape, hidden = CARRIED[model]
    network = build(model, shape, 4)
    wiring = wiring_of(network, shape)
    assert len(hidden_axes(wiring)) == hidden
    check_permutations(network, wiring, shape)


def renamed(wiring: Wiring) -> dict[str, tuple[tuple[int, int, bool] | None, ...]]:
    """The wiring with axes numbered by first appearance in sorted order."""
    numbers = {"input": -2, "output": -1}
    return {
        name: tuple(
            a and (numbers.setdefault(a.name, len(numbers)), a.block, a.joint) for a in wiring[name]
        )
        for name in sorted(wiring)
    }


@pytest.mark.parametrize("model", OURS)
def test_the_inferred_wiring_of_ours_is_the_carried_one(model: str) -> None:
    shape, _ = OURS[model]
    network = build(model, shape, 4)
    assert renamed(infer_wiring(network, shape)) == renamed(wiring_of(network, shape))


class ResidualMlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Linear(6, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 5), nn.GELU(), nn.Linear(5, 8))
            for _ in "ab"
        )
        self.output = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.input(x)
        for block in self.blocks:
            x = x + block(x)
        return self.output(x)


class Gated(nn.Module):
    """Squeeze and excite, a single-channel gate, in-place sums, view by size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.body = nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.squeeze = nn.Linear(6, 4)
        self.excite = nn.Linear(4, 6)
        self.gate = nn.Conv2d(6, 1, 1)
        self.pool = nn.AdaptiveAvgPool2d((2, 1))
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.leaky_relu(self.norm(self.stem(x)))
        weight = torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean(dim=(-1, -2))))))
        y = self.body(x) * weight.unsqueeze(-1).unsqueeze(-1)
        y += x
        y = y * torch.sigmoid(self.gate(y))
        y = self.pool(y)
        return self.head(y.view(y.size(0), -1))


class Decoder(nn.Module):
    """A linear layer whose outputs become channels, two routes that meet flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(7, 3 * 4 * 4)
        self.conv = nn.Conv2d(3, 5, 3, padding=1)
        self.aside = nn.Linear(7, 5 * 16)
        self.head = nn.Linear(5 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        maps = torch.tanh(self.conv(torch.tanh(self.up(x)).reshape(-1, 3, 4, 4)))
        return self.head(torch.flatten(maps, 1) + torch.sigmoid(self.aside(x)))


class Tokens(nn.Module):
    """Bare parameters, LayerNorm and a mean over positions; one layer is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 6)
        self.place = nn.Parameter(torch.zeros(4, 6))
        self.scale = nn.Parameter(torch.ones(6))
        self.twice = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.mix = nn.Conv1d(6, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.place
        x = self.twice(F.relu(self.twice(x))) * self.scale
        return self.head(F.gelu(self.mix(self.norm(x).transpose(1, 2))).mean(2))


def sequential() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Dropout(0.3),
        nn.Linear(7, 5, bias=False), nn.Sigmoid(), nn.Identity(), nn.Linear(5, 3),
    )  # fmt: skip


def convolutional() -> nn.Module:
    """Depthwise with a multiplier of two, PReLU per channel, GroupNorm over all."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding=1, groups=4), nn.PReLU(8), nn.Conv2d(8, 6, 1),
        nn.GroupNorm(1, 6), nn.ELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(24, 3),
    )  # fmt: skip


def tied() -> nn.Module:
    network = nn.Sequential(
        nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Linear(5, 3)
    )
    network[4].weight = network[2].weight
    return network


# name -> factory, input shape, hidden axes expected
STRANGERS = {
    "residual": (ResidualMlp, (6,), ["input.units", "blocks.0.1", "blocks.1.1"]),
    "gated": (Gated, (3, 6, 5), ["stem", "squeeze", "gate"]),
    "decoder": (Decoder, (7,), ["up", "conv"]),
    "tokens": (Tokens, (4, 5), ["embed", "mix"]),
    "sequential": (sequential, (3, 2, 2), ["1", "5"]),
    "convolutional": (convolutional, (3, 8, 8), ["0", "6"]),
    "tied": (tied, (6,), ["0"]),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_custom_networks_by_the_inferred_wiring(name: str) -> None:
    factory: Callable[[], nn.Module]
    factory, shape, hidden = STRANGERS[name]
    network = factory()
    wiring = wiring_of(network, shape)
    assert sorted(hidden_axes(wiring)) == sorted(hidden)
    check_permutations(network, wiring, shape)
