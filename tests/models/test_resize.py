"""Networks of other widths: the sizes everywhere, and refusals where a width is written down."""

import pytest
import torch
from torch import Tensor, nn

from intarsia.errors import ModelError, WiringError
from intarsia.models import Axis, Wiring, build, infer_wiring, wiring_of
from intarsia.models.axes import axis_sizes, check_wiring, hidden_axes
from intarsia.models.resize import resize, try_resized
from small_modules import SHAPES


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("model", SHAPES)
def test_every_axis_can_have_another_width(model: str, device: str) -> None:
    shape = SHAPES[model]
    with torch.device(device):
        network = build(model, shape, 4)
    wiring = wiring_of(network, shape)
    widths = {axis: 3 + place for place, axis in enumerate(hidden_axes(wiring))}
    assert resize(network, wiring, widths) is network
    state = network.state_dict()
    own = axis_sizes(wiring, build(model, shape, 4).state_dict())
    assert axis_sizes(wiring, state) == {**own, **widths}
    assert all(tensor.device.type == device for tensor in state.values())
    assert wiring_of(network, shape) == wiring
    try_resized(network, shape, 4)


def test_layers_remember_their_sizes() -> None:
    network = build("vgg11(2)", (3, 32, 32), 4)
    resize(network, wiring_of(network, (3, 32, 32)), {"convs.0": 5, "convs.7": 3})
    assert (network.convs[0].in_channels, network.convs[0].out_channels) == (3, 5)
    assert (network.convs[1].in_channels, network.convs[1].out_channels) == (5, 4)
    assert (network.norms[0].num_features, network.norms[1].num_features) == (5, 4)
    assert (network.fc.in_features, network.fc.out_features) == (3, 4)
    assert str(network.convs[0]).startswith("Conv2d(3, 5,")


def test_what_keeps_its_size_keeps_its_values_and_its_gradient() -> None:
    network = build("mlp(6, 5)", (4,), 3)
    network.layers[0].weight.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    resize(network, wiring_of(network, (4,)), {"layers.0": 7})
    after = network.state_dict()
    changed = {name for name in before if before[name].shape != after[name].shape}
    assert changed == {"layers.0.weight", "layers.0.bias", "layers.1.weight"}
    assert all(torch.equal(before[name], after[name]) for name in before.keys() - changed)
    assert not network.layers[0].weight.requires_grad
    assert network.layers[1].weight.requires_grad


class Depthwise(nn.Module):
    """Two multiples of every channel, a gain of its own, one norm per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.each = nn.Conv2d(4, 8, 3, groups=4, padding=1)
        self.norm = nn.GroupNorm(8, 8)
        self.gain = nn.Parameter(torch.ones(8, 1, 1))
        self.curve = nn.PReLU(8)
        self.fc = nn.Linear(8 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.curve(self.norm(self.each(self.first(x))) * self.gain).flatten(1))


def test_depthwise_convolutions_and_bare_parameters() -> None:
    network = Depthwise()
    wiring = infer_wiring(network, (1, 4, 4))
    resize(network, wiring, {"first": 7})
    assert (network.each.groups, network.each.in_channels, network.each.out_channels) == (7, 7, 14)
    assert (network.norm.num_groups, network.norm.num_channels) == (14, 14)
    assert network.curve.num_parameters == 14
    assert network.gain.shape == (14, 1, 1)
    check_wiring(wiring, network.state_dict())
    try_resized(network, (1, 4, 4), 3)


GROUPED: Wiring = {
    "0.weight": (Axis("a"), Axis("input"), None, None),
    "0.bias": (Axis("a"),),
    "1.weight": (Axis("b"), None, None, None),
    "1.bias": (Axis("b"),),
}


def test_groups_that_would_break_are_refused() -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3, groups=2))
    with pytest.raises(WiringError, match=r"layer '1' cannot have another width: its groups=2"):
        resize(network, GROUPED, {"b": 10})


def test_joint_axes_are_refused() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    with pytest.raises(WiringError, match=r"axis '0' cannot have another width.*LayerNorm"):
        resize(network, infer_wiring(network, (4,)), {"0": 5})


def test_layers_without_a_rule_are_refused() -> None:
    network = nn.Sequential(nn.ConvTranspose2d(2, 4, 3))
    wiring = {"0.weight": (Axis("input"), Axis("a"), None, None), "0.bias": (Axis("a"),)}
    with pytest.raises(WiringError, match=r"layer '0' \(ConvTranspose2d\).*no rule"):
        resize(network, wiring, {"a": 5})


@pytest.mark.parametrize(
    ("axis", "width", "message"),
    [
        ("layer.0", 5, "not a hidden axis of this network: did you mean 'layers.0'"),
        ("input", 5, "'input', which is not a hidden axis"),
        ("output", 5, "'output', which is not a hidden axis"),
        ("layers.0", 0, "width 0: expected a whole number"),
        ("layers.0", True, "width True: expected a whole number"),
        ("layers.0", 2.0, r"width 2.0: expected a whole number"),
        ("layers.0", 2**62, "'weight' of a Linear cannot have the shape"),
    ],
)
def test_widths_that_make_no_sense(axis: str, width: int, message: str) -> None:
    network = build("mlp(6)", (4,), 3)
    with pytest.raises(WiringError, match=message):
        resize(network, wiring_of(network, (4,)), {axis: width})


class WrittenDown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.fc = nn.Linear(4 * 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(x).view(-1, 64))


@pytest.mark.parametrize("units", [3, 8])
def test_a_width_written_down_in_the_forward_is_refused(units: int) -> None:
    network = WrittenDown()
    try_resized(network, (1, 4, 4), 3)
    resize(network, infer_wiring(network, (1, 4, 4)), {"conv": units})
    with pytest.raises(ModelError, match=r"WrittenDown cannot have other widths.*view\(-1, 10816"):
        try_resized(network, (1, 4, 4), 3)


def test_a_wrong_number_of_rows_is_refused() -> None:
    network = nn.Sequential(nn.Linear(4, 2), nn.Unflatten(1, (1, 2)), nn.Flatten(0, 1))
    with pytest.raises(ModelError, match=r"gives \(2, 2\) where \(2, 3\) was expected"):
        try_resized(network, (4,), 3)
    assert network.training
