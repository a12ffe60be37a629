"""Whatever the network, its units may change places in any order, and are found again."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch
from foreign_networks import CATALOGUE, NETWORKS, SHAPES, VOCABULARY
from torch import Tensor, nn

import intarsia as ia
from intarsia.composition import align
from intarsia.errors import WiringError
from intarsia.models import Wiring, build, wiring_of
from intarsia.models.axes import axis_sizes, hidden_axes
from intarsia.models.custom.trial import trial_inputs
from intarsia.models.units import take_units
from intarsia.modules import logits_of

KEPT = 1e-5  # of the answers' size
ORDERS = 3  # random ones of each axis by itself, and as many of all of them together
WITHOUT = ("mixture of experts", "bilinear", "spectral norm")  # no rule reads these
NO_UNITS = ("tied weights", "a dict of outputs")  # nothing hidden in between that could move
MOVABLE = [n for n in NETWORKS if n not in (*WITHOUT, *NO_UNITS, "complex weights")]
UNSEEN = (
    # units that no layer's output shows one by one
    "attention", "transformer block", "LSTM", "GRU", "tokens through an LSTM",
    "einsum", "einsum, wired by hand", "weight norm",
)  # fmt: skip


@cache
def random_network(name: str) -> tuple[nn.Module, Wiring]:
    """Random values everywhere, BatchNorm included: fresh ones and zeros would hide mistakes."""
    shape = SHAPES[NETWORKS[name].reads]
    torch.manual_seed(0)
    network = build(NETWORKS[name].factory, shape, len(CATALOGUE)).eval()
    with torch.no_grad():
        for key, tensor in network.state_dict().items():
            if not tensor.is_floating_point():
                continue
            tensor.add_(torch.randn_like(tensor) * 0.3)
            if key.endswith(("running_var", "original0")):
                tensor.abs_().add_(0.5)
    return network, wiring_of(network, shape)


def random_orders(sizes: dict[str, int], axes: list[str], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {axis: torch.randperm(sizes[axis], generator=generator) for axis in axes}


def all_orders(sizes: dict[str, int], axes: list[str]) -> Iterator[dict[str, Tensor]]:
    for seed in range(ORDERS):
        yield random_orders(sizes, axes, seed)
        for axis in axes:
            yield random_orders(sizes, [axis], 100 + seed)


def inputs_for(name: str, rows: int = 8) -> Tensor:
    reads = NETWORKS[name].reads
    if reads == "tokens":
        generator = torch.Generator().manual_seed(0)
        return torch.randint(0, VOCABULARY, (rows, *SHAPES[reads]), generator=generator)
    return trial_inputs(random_network(name)[0], SHAPES[reads], rows)


def answers(network: nn.Module, state: dict[str, Tensor], x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.func.functional_call(network, state, (x,))


def asked(name: str) -> tuple[nn.Module, Wiring, dict[str, Tensor], Tensor, Tensor]:
    """A random network, its wiring and its state, inputs, and what it answers to them."""
    network, wiring = random_network(name)
    state, x = network.state_dict(), inputs_for(name)
    return network, wiring, state, x, answers(network, state, x)


def test_there_are_more_than_ten_kinds() -> None:
    assert len(MOVABLE) >= 35


@pytest.mark.parametrize("name", MOVABLE)
def test_any_order_of_any_axis_keeps_the_function(name: str) -> None:
    network, wiring, state, x, expected = asked(name)
    size = expected.abs().max()
    assert (expected - expected[0]).abs().max() > 1e-3 * size  # it does answer to its inputs
    axes, sizes = hidden_axes(wiring), axis_sizes(wiring, state)
    assert any(sizes[axis] > 1 for axis in axes)
    for orders in all_orders(sizes, axes):
        moved = take_units(state, wiring, orders)
        off = (answers(network, moved, x) - expected).abs().max() / size
        assert off < KEPT, (list(orders), float(off))


@pytest.mark.parametrize("name", MOVABLE)
def test_moving_one_tensor_alone_shows(name: str) -> None:
    """Else the test above could pass for axes that do not matter."""
    network, wiring, state, x, expected = asked(name)
    sizes = axis_sizes(wiring, state)
    for axis in (axis for axis in hidden_axes(wiring) if sizes[axis] > 1):
        moved = take_units(state, wiring, {axis: torch.arange(sizes[axis]).roll(1)})
        torn = [k for k in state if not torch.equal(moved[k], state[k])]
        seen = [answers(network, state | {k: moved[k]}, x) for k in torn]
        assert any((s - expected).abs().max() > KEPT * expected.abs().max() for s in seen), axis


@pytest.mark.parametrize("name", MOVABLE)
def test_activations_find_units_again(name: str) -> None:
    network, wiring = random_network(name)
    shape, x = SHAPES[NETWORKS[name].reads], inputs_for(name, rows=48)
    module = ia.Module.of(network, rewarded="a", catalogue=CATALOGUE, shape=shape)
    sizes = axis_sizes(wiring, module.state)
    orders = random_orders(sizes, hidden_axes(wiring), 7)
    other = replace(module, name="other", state=take_units(module.state, wiring, orders))
    if name in UNSEEN:
        with pytest.raises(WiringError, match="align by weights"):
            align([module, other], "activations", x)
        return
    aligned = align([module, other], "activations", x)[1]
    torch.testing.assert_close(
        logits_of(aligned.to_module(), x), logits_of(module.to_module(), x), rtol=1e-4, atol=1e-4
    )
    apart = {k for k, t in module.state.items() if not torch.allclose(aligned.state[k], t)}
    assert not apart, f"units of {apart} lie elsewhere"
