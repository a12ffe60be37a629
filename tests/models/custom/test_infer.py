"""What inference says of networks that it cannot read, and the fine print of those it can."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from intarsia.errors import WiringError
from intarsia.models import Axis, build, infer_wiring, wiring_of


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


UNREADABLE = {
    "cat": (
        nn.Sequential(linear(6, 4), Dense(), linear(8, 3)),
        (6,),
        r"'cat' in layer '1' \(Dense\): it puts units of several axes side by side",
    ),
    "attention": (
        Net(
            lambda n, x: n.b(n.a(x, x, x)[0].mean(1)), a=nn.MultiheadAttention(4, 2), b=linear(4, 3)
        ),
        (5, 4),
        r"layer 'a' \(MultiheadAttention\)",
    ),
    "transposed": (
        pooled(nn.ConvTranspose2d(3, 4, 2)),
        (3, 4, 4),
        r"layer '0' \(ConvTranspose2d\): there is no rule",
    ),
    "grouped": (
        pooled(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1, groups=2)),
        (3, 4, 4),
        r"layer '1' \(Conv2d\): groups=2",
    ),
    "group norm": (
        pooled(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4)),
        (3, 4, 4),
        r"layer '1' \(GroupNorm\): num_groups=2",
    ),
    "pool over units": (
        nn.Sequential(linear(6, 5), nn.MaxPool1d(3, stride=1, padding=1), linear(5, 3)),
        (6,),
        r"layer '1' \(MaxPool1d\): its window moves over units",
    ),
    "constant": (Net(constant, a=linear(6, 5), b=linear(5, 3)), (6,), "'mul'.*not units"),
    "chunk": (Net(halves, a=linear(6, 8), b=linear(4, 3)), (6,), "'chunk'.*several tensors"),
    "channels last": (
        Net(channels_last, a=nn.Conv2d(3, 4, 1), b=linear(16, 3)),
        (3, 2, 2),
        "'flatten'.*interleaves units",
    ),
    "two ways": (
        Net(two_ways, a=nn.Conv2d(3, 3, 1), b=linear(12, 3)),
        (3, 2, 2),
        "reads its input in two ways",
    ),
    "branch": (Net(branching, a=linear(6, 3)), (6,), "cannot trace Net.*TraceError"),
    "unused": (
        Net(lambda n, x: n.a(x), a=linear(6, 3), spare=linear(2, 2)),
        (6,),
        "'spare.weight'",
    ),
    "parametrised": (
        nn.Sequential(nn.utils.parametrizations.weight_norm(linear(6, 3))),
        (6,),
        r"layer '0' \(ParametrizedLinear\): its weights are parametrised",
    ),
    "shape": (nn.Sequential(linear(6, 3)), (7,), "cannot trace Sequential on inputs of shape"),
    "images out": (nn.Conv2d(3, 3, 1), (3, 2, 2), "one tensor N x outputs"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_it_says_what_it_cannot_read_and_what_to_do(name: str) -> None:
    network, shape, says = UNREADABLE[name]
    if name in ("transposed", "grouped", "group norm"):
        network = ready(network, shape)
    with pytest.raises(WiringError, match=says) as caught:
        infer_wiring(network, shape)
    assert "`wiring`" in str(caught.value)


def test_a_wiring_given_by_hand_is_taken() -> None:
    """A product by @ is not traced, so this one needs it."""
    network = Net(lambda n, x: n.b(x @ n.a.weight.T + n.a.bias), a=linear(6, 4), b=linear(4, 3))
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


def test_input_that_is_read_by_no_weight_alone_is_joint() -> None:
    """Inputs beside the layer that names them: none of them may be taken for dead."""

    def beside(net: Net, x: Tensor) -> Tensor:
        return net.b(torch.relu(net.a(x))) + net.c(torch.cat([x, x * 2], dim=1))

    wiring = infer_wiring(Net(beside, a=linear(4, 5), b=linear(5, 3), c=linear(8, 3)), (4,))
    assert wiring["a.weight"] == (Axis("a"), Axis("input", joint=True))
    assert wiring["c.weight"] == (Axis("output"), None)


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
