"""Owning, finding, taking out and putting back units."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from intarsia.errors import WiringError
from intarsia.models import Axis, build, infer_wiring, initialise, wiring_of
from intarsia.models.wiring import (
    axis_sizes,
    check_wiring,
    hidden_axes,
    live_units,
    put_units,
    take_units,
    unit_mask,
)
from small_modules import SHAPES


def random_mask(network: nn.Module, density: float, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(parameter.shape, generator=generator) < density
        for name, parameter in network.named_parameters()
        if parameter.ndim > 1
    }


def masked(network: nn.Module, mask: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n: t * mask[n] if n in mask else t.clone() for n, t in network.state_dict().items()}


@settings(max_examples=25, deadline=None)
@given(density=st.floats(0.02, 0.5), seed=st.integers(0, 10_000))
def test_a_small_mlp_of_live_units_gives_the_same_logits(density: float, seed: int) -> None:
    network = initialise("mlp(30, 20, dropout=0)", (25,), 4, seed)
    wiring = wiring_of(network, (25,))
    mask = random_mask(network, density, seed)
    state = masked(network, mask)
    live = live_units(wiring, state, mask)
    small = take_units(state, wiring, live)
    counts = [int(live[axis].sum()) for axis in ("input", "layers.0", "layers.1")]
    if 0 in counts:
        return
    compact = build({"name": "mlp", "hidden": counts[1:], "dropout": 0}, (counts[0],), 4)
    compact.load_state_dict(small)
    network.load_state_dict(state)
    x = torch.randn(16, 25, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(compact(x[:, live["input"]]), network(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "density"), [*zip(SHAPES, [0.1, 0.02, 0.03, 0.02, 0.08], strict=True)]
)
def test_dead_units_do_not_matter_in_any_network(model: str, density: float) -> None:
    shape = SHAPES[model]
    network = initialise(model, shape, 4, seed=1).double().eval()
    wiring = wiring_of(network, shape)
    mask = random_mask(network, density, seed=2)
    state = masked(network, mask)
    live = live_units(wiring, state, mask)
    assert set(live) == {"input", *hidden_axes(wiring)}
    keep = {axis: live[axis] for axis in hidden_axes(wiring) if live[axis].any()}
    assert any(not units.all() for units in keep.values())
    x = torch.rand(5, *shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = functional_call(network, state, (x,))
    small = take_units(state, wiring, keep)
    torch.testing.assert_close(functional_call(network, small, (x,)), expected)
    noise = {name: torch.randn_like(t) if t.ndim else t for name, t in state.items()}
    # statistics need not make sense in dead units, but must be numbers
    noise = {n: t.abs() + 1 if n.endswith("running_var") else t for n, t in noise.items()}
    kept = {n: mask.get(n, torch.tensor(True)) for n in state}
    filled = put_units(small, {n: noise[n] * kept[n] for n in state}, wiring, keep)
    torch.testing.assert_close(functional_call(network, filled, (x,)), expected)


def brute_force_live(weights: list[Tensor]) -> list[Tensor]:
    """Live units of a chain of matrices: a path of nonzero weights leads to some output."""
    paths = torch.ones(1, len(weights[-1]))
    live = []
    for weight in reversed(weights):
        paths = paths @ weight.abs()
        live.append(paths[0] > 0)
    return live[::-1]


@settings(max_examples=25, deadline=None)
@given(density=st.floats(0.05, 0.4), seed=st.integers(0, 10_000))
def test_live_units_are_those_with_a_path_to_the_output(density: float, seed: int) -> None:
    network = build("mlp(9, 8)", (7,), 3)
    mask = random_mask(network, density, seed)
    live = live_units(wiring_of(network, (7,)), network.state_dict(), mask)
    expected = brute_force_live([mask[f"layers.{layer}.weight"].float() for layer in range(3)])
    for axis, units in zip(("input", "layers.0", "layers.1"), expected, strict=True):
        assert torch.equal(live[axis], units)


def test_everything_lives_without_a_mask() -> None:
    network = build("resnet18(2)", (3, 8, 8), 4)
    live = live_units(wiring_of(network, (3, 8, 8)), network.state_dict(), {})
    assert all(units.all() for units in live.values())


def test_a_shared_unit_lives_while_anyone_reads_it() -> None:
    network = build("resnet18(2)", (3, 8, 8), 4)
    wiring = wiring_of(network, (3, 8, 8))
    state = network.state_dict()
    readers = [n for n, e in wiring.items() if len(e) > 1 and e[1] and e[1].name == "conv"]
    assert len(readers) == 4  # two blocks of stage 0; convolution and shortcut of stage 1
    mask = {name: torch.ones_like(state[name], dtype=torch.bool) for name in readers}
    for name in readers:
        assert live_units(wiring, state, mask)["conv"].tolist() == [True, True]
        mask[name][:, 1] = False
    assert live_units(wiring, state, mask)["conv"].tolist() == [True, False]


def test_units_that_only_read_each_other_are_dead() -> None:
    wiring = {"loop": (Axis("h"), Axis("h")), "head": (Axis("output"), Axis("h"))}
    state = {"loop": torch.ones(3, 3), "head": torch.ones(2, 3)}
    mask = {
        "loop": torch.tensor([[1, 0, 0], [0, 1, 1], [0, 1, 1]]).bool(),
        "head": torch.tensor([[1, 0, 0], [1, 0, 0]]).bool(),
    }
    assert live_units(wiring, state, mask)["h"].tolist() == [True, False, False]


def test_a_unit_lives_while_a_product_reads_it() -> None:
    """Two layers' units are read in pairs, as by a bilinear layer."""
    wiring = {"pairs": (Axis("output"), Axis("one"), Axis("two"))}
    state, mask = {"pairs": torch.ones(2, 3, 3)}, torch.zeros(2, 3, 3, dtype=torch.bool)
    mask[0, 1, 2] = mask[1, 1, 0] = True
    live = live_units(wiring, state, {"pairs": mask})
    assert live["one"].tolist() == [False, True, False]
    assert live["two"].tolist() == [True, False, True]


def test_joint_units_all_live() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    wiring = infer_wiring(network, (4,))
    mask = {"2.weight": torch.tensor([[True, False, False]] * 2)}
    assert live_units(wiring, network.state_dict(), mask)["0"].all()


@pytest.mark.parametrize("model", SHAPES)
def test_put_undoes_take(model: str) -> None:
    shape = SHAPES[model]
    network = initialise(model, shape, 4, seed=0)
    wiring, state = wiring_of(network, shape), network.state_dict()
    generator = torch.Generator().manual_seed(0)
    sizes = axis_sizes(wiring, state)
    keep = {
        axis: torch.randperm(size, generator=generator)[: (size + 1) // 2]
        for axis, size in sizes.items()
    }
    small = take_units(state, wiring, keep)
    assert axis_sizes(wiring, small) == {axis: (size + 1) // 2 for axis, size in sizes.items()}
    back = put_units(small, state, wiring, keep)
    assert all(torch.equal(back[name], state[name]) for name in state)
    blank = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    placed = put_units(small, blank, wiring, keep)
    again = take_units(placed, wiring, keep)
    assert all(torch.equal(again[name], small[name]) for name in state)
    entries = sum(int((t != 0).sum()) for t in small.values())
    assert sum(int((t != 0).sum()) for t in placed.values()) == entries


def test_take_and_put_give_new_tensors() -> None:
    network = build("mlp(3)", (4,), 2)
    wiring, state = wiring_of(network, (4,)), network.state_dict()
    taken = take_units(state, wiring, {})
    put = put_units(taken, state, wiring, {})
    taken["layers.0.weight"].zero_()
    put["layers.0.bias"].zero_()
    assert network.layers[0].weight.abs().sum() > 0
    assert network.layers[0].bias.abs().sum() > 0


def test_unit_mask_by_hand() -> None:
    owned = {"h": torch.tensor([True, False]), "g": torch.tensor([False, True, True])}
    assert unit_mask((Axis("h"), Axis("input")), (2, 3), owned).tolist() == [
        [True] * 3,
        [False] * 3,
    ]
    entry = (Axis("g"), Axis("h", block=2))
    assert unit_mask(entry, (3, 4), owned).int().tolist() == [[0] * 4, [1, 1, 0, 0], [1, 1, 0, 0]]
    assert unit_mask((Axis("h"), None, None), (2, 1, 2), owned).int().tolist() == [
        [[1, 1]],
        [[0, 0]],
    ]
    assert unit_mask((Axis("h"),), (2,), owned).tolist() == [True, False]
    assert unit_mask((), (), owned).tolist() is True
    with pytest.raises(WiringError, match="axis 'h': 2 units in blocks of 1"):
        unit_mask((Axis("h"),), (3,), owned)


def test_territories_add_up() -> None:
    """Two networks that own different units: the sum of weights gives the sum of logits."""
    shape, x = (2, 8, 8), torch.rand(5, 2, 8, 8, dtype=torch.float64)
    network = build("lenet", shape, 3).double()
    wiring = wiring_of(network, shape)
    sizes = axis_sizes(wiring, network.state_dict())
    parts = []
    for part in range(2):
        owned = {axis: torch.arange(sizes[axis]) % 2 == part for axis in hidden_axes(wiring)}
        state = initialise("lenet", shape, 3, seed=part).double().state_dict()
        parts.append({n: t * unit_mask(wiring[n], t.shape, owned) for n, t in state.items()})
    total = {name: parts[0][name] + parts[1][name] for name in parts[0]}
    logits = [functional_call(network, state, (x,)) for state in (*parts, total)]
    torch.testing.assert_close(logits[2], logits[0] + logits[1])


def test_disagreeing_sizes_name_the_axis() -> None:
    network = build("mlp(5)", (4,), 3)
    wiring, state = dict(wiring_of(network, (4,))), network.state_dict()
    check_wiring(wiring, state)
    with pytest.raises(
        WiringError, match=r"axis 'layers.0' has 5 units in 'layers.0.weight' but 6"
    ):
        check_wiring(wiring, state | {"layers.0.bias": torch.zeros(6)})
    with pytest.raises(
        WiringError, match=r"axis 'input'.*4 entries, not a multiple of the block 3"
    ):
        check_wiring(wiring | {"layers.0.weight": (Axis("layers.0"), Axis("input", 3))}, state)
    with pytest.raises(WiringError, match="no entry for 'extra'"):
        check_wiring(wiring, state | {"extra": torch.zeros(2)})
    with pytest.raises(
        WiringError, match=r"names 'layers.1.weigth', not in the state: did you mean"
    ):
        check_wiring(wiring | {"layers.1.weigth": ()}, state)
    with pytest.raises(WiringError, match=r"axis 'layers.0' has units 0 to 4"):
        take_units(state, wiring, {"layers.0": torch.tensor([5])})
    with pytest.raises(WiringError, match=r"axis 'layers.0' has 5 units, keep names 2"):
        take_units(state, wiring, {"layers.0": torch.tensor([True, False])})
    with pytest.raises(WiringError, match="no entry for 'extra'"):
        take_units({"extra": torch.zeros(2)}, wiring, {})
