"""What inference says of networks that it cannot read, and the fine print of those it can."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.errors import WiringError
from intarsia.models import Axis, build, infer_wiring, wiring_of
from intarsia.models.axes import Parts, axis_sizes, hidden_axes


class Net(nn.Module):
    """Named layers and a forward given as a function of the network and x."""

    def __init__(self, run: Callable[["Net", Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.inner(x)], dim=1)


def pooled(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(3))


def ready(network: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    network(torch.zeros(2, *shape))
    return network


def branching(net: Net, x: Tensor) -> Tensor:
    return net.a(x) if x.sum() > 0 else net.a(-x)


def constant(net: Net, x: Tensor) -> Tensor:
    return net.b(net.a(x) * torch.arange(5.0))


def halves(net: Net, x: Tensor) -> Tensor:
    one, other = net.a(x).chunk(2, dim=1)
    return net.b(one * other)


def channels_last(net: Net, x: Tensor) -> Tensor:
    return net.b(net.a(x).permute(0, 2, 3, 1).flatten(1))


def two_ways(net: Net, x: Tensor) -> Tensor:
    return net.a(x).mean((2, 3)) + net.b(x.flatten(1))


def linear(reads: int, gives: int) -> nn.Linear:
    return nn.Linear(reads, gives)


def two_layers(run: Callable[[Net, Tensor], Tensor]) -> Net:
    return Net(run, a=linear(6, 4), b=linear(4, 3))


def at_zero(net: Net, x: Tensor) -> Tensor:
    h = torch.relu(net.a(x))
    return net.b(h) * (1 + (h.argmax(1, keepdim=True) == 0).to(h.dtype))


def largest_at_zero(net: Net, x: Tensor) -> Tensor:
    h = net.a(x)
    return net.b(h) * (1 + (h.max(1)[1] == 0).to(h.dtype)[:, None])


def rarely(net: Net, x: Tensor) -> Tensor:
    h = net.a(x)
    return net.b(h.cumsum(1)) if (x > 50).any() else net.b(h)


def outside(net: Net, x: Tensor) -> Tensor:
    return net.b(torch.from_numpy(net.a(x).numpy().cumsum(1)))


def first_cleared(net: Net, x: Tensor) -> Tensor:
    h = net.a(x)
    h[:, 0] = 0
    return net.b(h)


def swapped(net: Net, x: Tensor) -> Tensor:
    one, other = net.a(x).chunk(2, dim=1)
    return net.b(torch.cat([other, one], dim=1))


def beside_a_constant(net: Net, x: Tensor) -> Tensor:
    return net.b(torch.cat([net.a(x), net.c(x)], dim=1) * torch.arange(5.0))


class Scores(nn.Module):
    """Attention of two heads, with what is added to its scores as a parameter."""

    def __init__(self, *shape: int, index: Tensor | None = None) -> None:
        super().__init__()
        self.qkv, self.head = nn.Linear(6, 12), nn.Linear(4, 3)
        self.bias = nn.Parameter(torch.randn(*shape))
        self.register_buffer("index", index)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            own.unflatten(-1, (2, 2)).transpose(1, 2) for own in self.qkv(x).chunk(3, dim=-1)
        )
        bias = self.bias
        if self.index is not None:  # a row for each distance, as Swin has it
            bias = bias[self.index.view(-1)].view(3, 3, 2).permute(2, 0, 1)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.head(seen.transpose(1, 2).flatten(2).mean(1))


class Placed(nn.Module):
    """Positions of a table that is longer than its inputs, by number or by a slice."""

    def __init__(self, by: Any) -> None:
        super().__init__()
        self.by, self.a, self.b = by, linear(6, 4), linear(4, 3)
        self.table = nn.Parameter(torch.randn(5, 4))
        self.token = nn.Parameter(torch.randn(1, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([self.token.repeat(len(x), 1, 1), self.a(x) + self.table[self.by]], dim=1)
        return self.b(torch.relu(h).mean(1))


class Powers(nn.Module):
    """An exponent of each unit, and a cosine of what is left with each class."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.power = linear(6, 4), nn.Parameter(torch.rand(4) + 1)
        self.classes = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        h = F.normalize(self.a(x).sigmoid() ** self.power, dim=1)
        return F.linear(h, F.normalize(self.classes, dim=1))


def from_the_first(net: Net, x: Tensor) -> Tensor:
    state = torch.tanh(net.a(x[:, 0]))[None]
    return net.b(net.cells(x, (state, torch.zeros_like(state)))[0][:, -1])


UNREADABLE = {
    "transposed": (
        pooled(nn.ConvTranspose2d(3, 4, 2)),
        (3, 4, 4),
        r"layer '0' \(ConvTranspose2d\): there is no rule",
    ),
    "pool over units": (
        nn.Sequential(linear(6, 5), nn.MaxPool1d(3, stride=1, padding=1), linear(5, 3)),
        (6,),
        r"layer '1' \(MaxPool1d\): its window moves over units",
    ),
    "constant": (Net(constant, a=linear(6, 5), b=linear(5, 3)), (6,), "'mul'.*not units"),
    "two ways": (
        Net(two_ways, a=nn.Conv2d(3, 3, 1), b=linear(12, 3)),
        (3, 2, 2),
        "reads its input in two ways",
    ),
    "branch": (Net(branching, a=linear(6, 3)), (6,), "'bool'.*depends on values"),
    "complex": (
        Net(lambda n, x: n.b(torch.fft.fft(n.a(x)).real), a=linear(6, 4), b=linear(4, 3)),
        (6,),
        "'fft_fft'.*there is no rule",
    ),
    "single units": (
        Net(lambda n, x: n.b(n.a(x)) * n.a(x)[:, 0, None], a=linear(6, 4), b=linear(4, 3)),
        (6,),
        "'getitem'.*takes single units",
    ),
    "a unit by its place": (two_layers(at_zero), (6,), "'eq'.*places of units"),
    "the largest by its place": (two_layers(largest_at_zero), (6,), "'eq'.*places of units"),
    "branch by any": (two_layers(rarely), (6,), "'bool'.*depends on values"),
    "numpy": (two_layers(outside), (6,), "'numpy'.*depends on values"),
    "in place": (two_layers(first_cleared), (6,), "'setitem'.*in place"),
    "halves swapped": (two_layers(swapped), (6,), "cannot name the axes of Net"),
    "side by side": (
        Net(beside_a_constant, a=linear(6, 2), c=linear(6, 3), b=linear(5, 3)),
        (6,),
        "'mul'.*not units",
    ),
    "states of layers": (
        Net(lambda n, x: n.b(n.a(x)[1][-1]), a=nn.GRU(6, 4, 2, batch_first=True), b=linear(4, 3)),
        (3, 6),
        "lie in one tensor: read its outputs",
    ),
    "unused": (
        Net(lambda n, x: n.a(x), a=linear(6, 3), spare=linear(2, 2)),
        (6,),
        "'spare.weight'",
    ),
    "shape": (nn.Sequential(linear(6, 3)), (7,), "cannot trace Sequential on inputs of shape"),
    "images out": (nn.Conv2d(3, 3, 1), (3, 2, 2), "one tensor N x outputs"),
}

# network, shape, and the units of each hidden axis
READABLE = {
    "cat": (nn.Sequential(linear(6, 4), Dense(), linear(8, 3)), (6,), [4, 4]),
    "attention": (
        Net(
            lambda n, x: n.b(n.a(x, x, x)[0].mean(1)),
            a=nn.MultiheadAttention(4, 2, batch_first=True),
            b=linear(4, 3),
        ),
        (5, 4),
        [2, 4],
    ),
    "grouped": (pooled(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1, groups=2)), (3, 4, 4), [2]),
    "group norm": (pooled(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4)), (3, 4, 4), [2]),
    "chunk": (Net(halves, a=linear(6, 8), b=linear(4, 3)), (6,), [4]),
    "channels last": (Net(channels_last, a=nn.Conv2d(3, 4, 1), b=linear(16, 3)), (3, 2, 2), [4]),
    "weight norm": (
        nn.Sequential(nn.utils.parametrizations.weight_norm(linear(6, 5)), nn.ReLU(), linear(5, 3)),
        (6,),
        [5],
    ),
    "one norm": (
        Net(
            lambda n, x: n.b(n.a(x)),
            a=nn.utils.parametrizations.weight_norm(linear(6, 4), dim=None),
            b=linear(4, 3),
        ),
        (6,),
        [4],
    ),
    "scores of heads": (Scores(2, 3, 3), (3, 6), [2]),
    "scores by distance": (
        Scores(5, 2, index=torch.arange(3)[:, None] - torch.arange(3) + 2),
        (3, 6),
        [2],
    ),
    "positions by number": (Placed(torch.arange(3)), (3, 6), [4]),
    "positions by slice": (Placed(slice(3)), (3, 6), [4]),
    "powers and cosines": (Powers(), (6,), [4]),
    "outputs side by side": (
        Net(
            lambda n, x: torch.cat([n.b(n.a(x)), n.c(n.a(x))], dim=1),
            a=linear(6, 4),
            b=linear(4, 2),
            c=linear(4, 1),
        ),
        (6,),
        [4],
    ),
    "flipped in time": (
        Net(lambda n, x: n.b((n.a(x) * n.a(x).flip(1)).mean(1)), a=linear(6, 4), b=linear(4, 3)),
        (3, 6),
        [4],
    ),
    "a first state": (
        Net(from_the_first, a=linear(6, 4), cells=nn.LSTM(6, 4, batch_first=True), b=linear(4, 3)),
        (3, 6),
        [4],
    ),
}


@pytest.mark.parametrize("name", READABLE)
def test_units_side_by_side_are_read_and_proven(name: str) -> None:
    network, shape, units = READABLE[name]
    if name.startswith("group"):
        network = ready(network, shape)
    wiring = wiring_of(network, shape)
    sizes = axis_sizes(wiring, network.state_dict())
    assert [sizes[axis] for axis in hidden_axes(wiring)] == units


@pytest.mark.parametrize("name", UNREADABLE)
def test_it_says_what_it_cannot_read_and_what_to_do(name: str) -> None:
    network, shape, says = UNREADABLE[name]
    if name == "transposed":
        network = ready(network, shape)
    with pytest.raises(WiringError, match=says) as caught:
        infer_wiring(network, shape)
    assert "`wiring`" in str(caught.value)


def test_a_wiring_given_by_hand_is_taken() -> None:
    """There is no rule for this way to write a product, so it is needed."""
    network = Net(
        lambda n, x: n.b(torch.tensordot(x, n.a.weight, ([1], [1])) + n.a.bias),
        a=linear(6, 4),
        b=linear(4, 3),
    )
    by_hand = {
        "a.weight": [Axis("a"), "input"],
        "a.bias": ("a",),
        "b.weight": ("output", "a"),
        "b.bias": ("output",),
    }
    with pytest.raises(WiringError, match="cannot"):
        infer_wiring(network, (6,))
    network.wiring = by_hand
    assert wiring_of(network, (6,))["a.weight"] == (Axis("a"), Axis("input"))
    network.wiring = lambda shape: by_hand | {"a.bias": ("b", None)}
    with pytest.raises(WiringError, match=r"'a.bias' names 2 dimensions, the tensor has 1"):
        wiring_of(network, (6,))
    network.wiring = by_hand | {"a.bias": (3,)}
    with pytest.raises(WiringError, match=r"'a.bias' is \(3,\)"):
        wiring_of(network, (6,))
    network.wiring = "a, b"
    with pytest.raises(WiringError, match="expected a mapping"):
        wiring_of(network, (6,))


def test_flattened_channels_are_blocks_and_flattened_input_is_not() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), linear(4 * 6, 3))
    assert infer_wiring(network, (3, 2, 3))["2.weight"] == (Axis("output"), Axis("0", block=6))
    network = nn.Sequential(nn.Flatten(), linear(18, 3))
    assert infer_wiring(network, (3, 2, 3))["1.weight"] == (Axis("output"), Axis("input"))
    network = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), linear(12, 3))
    assert infer_wiring(network, (3, 4, 4))["2.weight"][1] == Axis("input", block=4)


def test_a_single_layer_is_a_network() -> None:
    wiring = infer_wiring(linear(4, 3), (4,))
    assert wiring == {"weight": (Axis("output"), Axis("input")), "bias": (Axis("output"),)}


def test_units_that_meet_in_a_normalisation_are_joint() -> None:
    for norm in (nn.LayerNorm(5), nn.LayerNorm(5, elementwise_affine=False), nn.Softmax(1)):
        wiring = infer_wiring(nn.Sequential(linear(6, 5), norm, linear(5, 3)), (6,))
        assert wiring["2.weight"] == (Axis("output"), Axis("0", joint=True))
    wiring = infer_wiring(nn.Sequential(linear(6, 5), nn.BatchNorm1d(5), linear(5, 3)), (6,))
    assert wiring["2.weight"] == (Axis("output"), Axis("0"))
    assert wiring["1.num_batches_tracked"] == ()


def test_an_input_beside_itself_has_its_axis_twice() -> None:
    """Inputs beside the layer that names them: none of them may be taken for dead."""

    def beside(net: Net, x: Tensor) -> Tensor:
        return net.b(torch.relu(net.a(x))) + net.c(torch.cat([x, x * 2], dim=1))

    wiring = infer_wiring(Net(beside, a=linear(4, 5), b=linear(5, 3), c=linear(8, 3)), (4,))
    assert wiring["a.weight"] == (Axis("a"), Axis("input"))
    assert wiring["c.weight"] == (Axis("output"), Parts((Axis("input"), Axis("input"))))


def test_a_sum_with_the_input_gives_its_axis() -> None:
    network = Net(lambda n, x: n.b(x + n.a(x)), a=linear(4, 4), b=linear(4, 3))
    wiring = infer_wiring(network, (4,))
    assert wiring["a.weight"] == (Axis("input"), Axis("input"))
    assert wiring["b.weight"] == (Axis("output"), Axis("input"))


def test_inference_leaves_the_network_alone() -> None:
    network = build("resnet18(2)", (3, 8, 8), 4)
    network.stages[0].eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    random = torch.get_rng_state()
    infer_wiring(network, (3, 8, 8))
    assert network.training
    assert not network.stages[0].training
    assert network.stages[1].training
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
