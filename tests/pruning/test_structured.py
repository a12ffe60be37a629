"""Whole units go: exactly the smallest, no more weights left than were asked for."""

from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import intarsia as ia
from intarsia.composition.operators.inlay_network import BlockConvolution
from intarsia.errors import RecipeError, WiringError
from intarsia.models import initialise, wiring_of
from intarsia.models.wiring import axis_sizes, hidden_axes
from intarsia.modules import compact
from intarsia.pruning import PRUNINGS, Group, normalisations

SHAPES = {
    "mlp(12, 8)": (6,),
    "resnet18(3)": (3, 8, 8),
    "vgg11(3)": (3, 16, 16),
    "fastnet(3)": (3, 8, 8),
}


def group_of(model: str, fraction: float, shape=None, count: int = 2) -> Group:
    shape = shape or SHAPES[model]
    network = initialise(model, shape, 4, 0)
    names = [name for name, _ in network.named_parameters()]
    wiring = wiring_of(network, shape)
    states = []
    for k in range(count):
        draw = torch.Generator().manual_seed(k)
        states.append(
            {
                n: network.state_dict()[n]
                + 0.1 * torch.randn(network.state_dict()[n].shape, generator=draw)
                for n in names
            }
        )
    return Group(
        states, [{} for _ in states], {n: wiring[n] for n in names}, fraction, [0] * count,
        range(count), normalisations(network),
    )  # fmt: skip


def prune(group: Group, text: str = "units") -> list[dict[str, Tensor]]:
    return PRUNINGS.call(PRUNINGS.spec(text), group=group)


def left(mask: dict[str, Tensor], group: Group) -> dict[str, Tensor]:
    """Axis -> the units that have a weight left; they have all that lie between such units."""
    assert group.wiring is not None
    sizes = axis_sizes(group.wiring, group.states[0])
    units = {axis: torch.zeros(sizes[axis], dtype=torch.bool) for axis in hidden_axes(group.wiring)}
    for name, entry in group.wiring.items():
        for d, axis in enumerate(entry):
            if axis is not None and axis.name in units:
                kept = mask[name].movedim(d, 0).reshape(sizes[axis.name], -1).any(1)
                units[axis.name] |= kept
    return units


def count(mask: dict[str, Tensor], group: Group) -> int:
    """All parameters that are left."""
    state = group.states[0]
    return sum(int(mask[n].sum()) if n in mask else t.numel() for n, t in state.items())


@pytest.mark.parametrize("rule", ["units", "units(by='scale')"])
@pytest.mark.parametrize("fraction", [0.5, 0.9])
@pytest.mark.parametrize("model", SHAPES)
def test_as_many_go_as_were_asked_for_and_whole(model: str, fraction: float, rule: str) -> None:
    if model.startswith("mlp") and "scale" in rule:
        return
    group = group_of(model, fraction)
    for mask in prune(group, rule):
        assert count(mask, group) <= (1 - fraction) * count({}, group)
        units = left(mask, group)
        assert all(bool(kept.any()) for kept in units.values())
        for name, kept in mask.items():  # nothing goes but what touches a unit that went
            expected = torch.ones_like(kept)
            for d, axis in enumerate(group.wiring[name]):
                if axis is not None and axis.name in units:
                    own = units[axis.name].repeat_interleave(axis.block)
                    expected &= own.reshape([-1 if i == d else 1 for i in range(kept.ndim)])
            assert torch.equal(kept, expected)


def test_by_hand() -> None:
    """Four hidden units of two inputs, a bias and four outputs: half leaves two of them."""
    group = group_of("mlp(4)", 0.5, shape=(2,), count=1)
    state = group.states[0]
    sizes = torch.tensor([3.0, 1.0, 2.0, 0.5])
    state["layers.0.weight"] = sizes[:, None].expand(4, 2).clone()
    state["layers.1.weight"] = sizes.expand(4, 4).clone()
    [mask] = prune(group)
    assert mask["layers.0.bias"].tolist() == [True, False, True, False]
    assert torch.equal(mask["layers.0.weight"], mask["layers.0.bias"][:, None].expand(4, 2))
    assert torch.equal(mask["layers.1.weight"], mask["layers.0.bias"].expand(4, 4))


def test_by_scale_the_least_scaled_channels_go_through_all_norms_of_a_stream() -> None:
    group = group_of("resnet18(4)", 0.6, shape=(3, 8, 8), count=1)
    state = group.states[0]
    for name in group.spared:
        if name.endswith("weight"):
            state[name] = torch.ones_like(state[name])
    for name in ("norm.weight", "stages.0.0.norm2.weight", "stages.0.1.norm2.weight"):
        state[name] = torch.tensor([0.1, 1.0, 2.0, 0.2])  # one stream
    [mask] = prune(group, "units(by='scale')")
    kept = mask["norm.weight"]
    assert kept.tolist() == [False, True, True, False]
    for name in ("norm.bias", "stages.0.0.norm2.weight", "stages.0.1.norm2.bias"):
        assert torch.equal(mask[name], kept)


@given(fraction=st.floats(0, 0.999), width=st.integers(1, 9))
def test_one_unit_of_every_axis_stays(fraction: float, width: int) -> None:
    group = group_of(f"mlp({width}, {width})", fraction, shape=(3,), count=1)
    [mask] = prune(group)
    full = {n: torch.ones_like(t, dtype=torch.bool) for n, t in group.states[0].items()}
    assert all(bool(units.any()) for units in left(full | mask, group).values())


def test_rounds_go_on_where_the_last_one_was() -> None:
    group = group_of("fastnet(3)", 0.5)
    once = prune(group)
    again = Group(group.states, once, group.wiring, 0.5, [0, 0], range(2), group.spared)
    for before, after in zip(once, prune(again), strict=True):
        assert all(bool((after[n] <= before[n]).all()) for n in before)
        assert 0.15 < count(after, group) / count({}, group) <= 0.25
    kept = Group(group.states, once, group.wiring, 0.0, [0, 0], range(2), group.spared)
    for before, after in zip(once, prune(kept), strict=True):
        assert all(torch.equal(after[n], before[n]) for n in before)


def test_what_cannot_be_pruned_by_units_says_why() -> None:
    group = group_of("mlp(4)", 0.5, shape=(2,))
    with pytest.raises(RecipeError, match=r"axis 'layers.0' have no normalisation.*by 'weights'"):
        prune(group, "units(by='scale')")
    with pytest.raises(RecipeError, match="unknown rule 'luck'"):
        prune(group, "units(by='luck')")
    with pytest.raises(WiringError, match="they have no names"):
        prune(Group(group.states, group.masks, None, 0.5, [0, 0], [0, 1]))

    def layered(shape, outputs):
        return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, outputs))

    with pytest.raises(RecipeError, match="meet in a normalisation"):
        prune(group_of(layered, 0.5, shape=(6,)))


def test_trained_modules_are_small_and_their_inlay_no_larger_than_one_network() -> None:
    draw = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = draw.integers(0, 100, (120, 8, 8), dtype=np.uint8)
    x[np.arange(120), :, 2 * y] += 120
    data = ia.load_data((x, y), test=0.2, validation=0.2)
    bank = ia.train(
        data, model="fastnet(6)", pruning="units", sparsity=0.7, rounds=2, epochs=2, batch=32,
        pruning_epochs=1, learning_rate=0.01, negatives="none",
    )  # fmt: skip
    joint = bank[0].parameters
    for module in bank:
        assert module.nonzero <= 0.3 * joint
        small = compact(module)
        assert small.parameters <= 1.01 * small.nonzero + 1
        logits = [m.to_module()(data.test.x).detach() for m in (module, small)]
        torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)
    merged = ia.compose(bank, "inlay")
    assert merged.nonzero <= joint
    layers = [m for m in merged.modules() if isinstance(m, BlockConvolution)]
    assert [layer.groups for layer in layers] == [3] * 5
    held = sum(prod(p.shape) for p in merged.parameters())
    assert held == merged.nonzero
    by_logits = ia.compose(bank, "logits")(data.test.x)
    torch.testing.assert_close(merged(data.test.x), by_logits, rtol=1e-4, atol=1e-4)
