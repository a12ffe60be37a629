"""A wiring is tried out on the network's answers before anything relies on it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intarsia.errors import WiringError
from intarsia.models import Axis, wiring_of

RIGHT: dict[str, Any] = {
    "a.weight": ("one", "input"),
    "a.bias": ("one",),
    "b.weight": ("two", "one"),
    "b.bias": ("two",),
    "c.weight": ("output", "two"),
    "c.bias": ("output",),
}


class Net(nn.Module):
    """Three layers of `width` units; `between` is what happens to the second's."""

    def __init__(
        self, wiring: Any, width: int = 5, between: Callable[[Tensor], Tensor] = torch.relu
    ) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, 3)
        self.wiring, self.between = wiring, between

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.between(self.b(torch.relu(self.a(x)))))


def test_a_true_wiring_passes() -> None:
    assert wiring_of(Net(RIGHT), (4,))["b.weight"] == (Axis("two"), Axis("one"))


@pytest.mark.parametrize(
    ("change", "axis"),
    [
        ({"b.bias": ("one",)}, "one"),  # of other units of the same number
        ({"a.bias": (None,)}, "one"),  # left out
        ({"b.weight": ("one", "two")}, "one"),  # the wrong way round
        ({"b.weight": ("two", None)}, "one"),
    ],
)
def test_a_wrong_wiring_is_refused_by_its_axis(change: dict[str, Any], axis: str) -> None:
    with pytest.raises(WiringError, match=rf"the wiring of Net is wrong.*axis '{axis}'"):
        wiring_of(Net(RIGHT | change), (4,))


@pytest.mark.parametrize("width", [2, 3])
def test_two_names_for_the_same_units_are_seen_even_if_they_move_together(width: int) -> None:
    """Of two units there is one other order, so that both halves would change places alike."""
    split = RIGHT | {"b.weight": ("two", "other"), "extra": ("other",)}

    class Extra(Net):
        def __init__(self) -> None:
            super().__init__(split, width)
            self.extra = nn.Parameter(torch.ones(width))

        def forward(self, x: Tensor) -> Tensor:
            return self.c(torch.relu(self.b(torch.relu(self.a(x)) * self.extra)))

    with pytest.raises(WiringError, match="axis 'one'"):
        wiring_of(Extra(), (4,))


def test_weights_that_lie_the_other_way_are_refused() -> None:
    """x @ W has its reading units first: permuting works, leaving out would not."""

    class Turned(nn.Module):
        wiring: Any = {"one": ("input", "hidden"), "two": ("hidden", "output")}  # noqa: RUF012

        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(5, 3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x @ self.one) @ self.two

    with pytest.raises(WiringError, match=r"no weight leads from axis 'hidden'.*dimension 1 reads"):
        wiring_of(Turned(), (4,))


def test_units_that_meet_must_be_called_joint() -> None:
    def meet(x: Tensor) -> Tensor:
        return torch.softmax(x, dim=1)

    with pytest.raises(WiringError, match=r"unit of axis 'two' that no weight reads.*joint=True"):
        wiring_of(Net(RIGHT, between=meet), (4,))
    two = Axis("two", joint=True)
    joint = RIGHT | {"b.weight": (two, "one"), "b.bias": (two,), "c.weight": ("output", two)}
    assert wiring_of(Net(joint, between=meet), (4,))["b.bias"] == (two,)


@pytest.mark.parametrize("width", [3, 4])
def test_units_in_a_ring_are_no_units(width: int) -> None:
    """To move all on by one changes nothing here: another order must be tried as well."""

    def ring(x: Tensor) -> Tensor:
        return x + torch.relu(x.roll(1, 1))

    two = Axis("two", joint=True)
    joint = RIGHT | {"b.weight": (two, "one"), "b.bias": (two,), "c.weight": ("output", two)}
    with pytest.raises(WiringError, match="units of axis 'two' change places"):
        wiring_of(Net(joint, width, ring), (4,))


def test_a_network_may_go_on_in_float32_by_itself() -> None:
    def in_float32(x: Tensor) -> Tensor:
        return x + torch.softmax(x.float(), dim=1).to(x.dtype)

    def in_half(x: Tensor) -> Tensor:
        return torch.relu(x.bfloat16()).to(x.dtype)

    def ring(x: Tensor) -> Tensor:
        return in_float32(x) + torch.relu(x.roll(1, 1))

    network = Net(None, 4, in_float32)
    assert wiring_of(network, (4,))["c.weight"] == (Axis("output"), Axis("b", joint=True))
    with pytest.raises(WiringError, match="cannot prove the axes of Net"):
        wiring_of(Net(None, 4, in_half), (4,))
    with pytest.raises(WiringError, match="axis 'two'"):
        wiring_of(Net(RIGHT, 4, ring), (4,))


def test_what_a_trace_cannot_show_makes_no_wiring() -> None:
    """A hook is read like any other code, and here it treats units by their place."""
    network = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    network[1].register_forward_hook(lambda layer, args, x: x * torch.arange(5.0, dtype=x.dtype))
    with pytest.raises(WiringError, match=r"units of an axis meet entries that are not units"):
        wiring_of(network, (4,))


def test_networks_that_answer_by_chance_cannot_be_tried() -> None:
    def chance(x: Tensor) -> Tensor:
        return x * torch.rand_like(x)

    with pytest.warns(UserWarning, match="the wiring of Net is taken as it is, unproven"):
        assert wiring_of(Net(RIGHT, between=chance), (4,))


def test_a_wiring_of_a_network_in_half_precision_is_unproven() -> None:
    def in_half(x: Tensor) -> Tensor:
        return torch.relu(x.bfloat16()).to(x.dtype)

    wrong = RIGHT | {"b.bias": ("one",)}
    with pytest.warns(UserWarning, match="the wiring of Net is taken as it is, unproven"):
        wiring_of(Net(wrong, between=in_half), (4,))


def test_the_trial_leaves_the_network_alone() -> None:
    network = Net(RIGHT).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    random = torch.get_rng_state()
    wiring_of(network, (4,))
    assert network.training
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(tensor, before[n]) for n, tensor in network.state_dict().items())
