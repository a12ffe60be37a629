"""Alignment: what was permuted is found again, and nobody's function changes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.experiments.alignment import plant, recover
from intarsia.composition.alignment import matching
from intarsia.composition.alignment.align import align, disjoint_units, unit_orders
from intarsia.composition.alignment.matching import assign, match_weights
from intarsia.data import Scaling
from intarsia.errors import CompositionError, WiringError
from intarsia.models import initialise, wiring_of
from intarsia.models.wiring import Wiring, axis_sizes, hidden_axes, take_units, unit_mask
from intarsia.modules import Architecture, Module

CATALOGUE = ("0", "1", "2", "3")
SMALL = {
    "mlp(40, 24)": (20,),
    "lenet": (1, 8, 8),
    "resnet18(4)": (3, 8, 8),
    "fastnet(4)": (3, 8, 8),
}
HOWS = ("weights", "activations")
State = Mapping[str, Tensor]

pytestmark = pytest.mark.usefixtures("one_thread")


def make(
    model: Any, shape: tuple[int, ...], seed: int = 0, density: float = 1.0, name: str = "0"
) -> tuple[Module, Wiring]:
    """A module with random values everywhere, also where fresh networks are all ones or zeros."""
    generator = torch.Generator().manual_seed(seed)
    network = initialise(model, shape, len(CATALOGUE), seed)
    state, mask = dict(network.state_dict()), {}
    for key, tensor in state.items():
        if tensor.is_floating_point():
            noise = 0.2 * torch.randn(tensor.shape, generator=generator)
            state[key] = tensor + (noise.abs() if key.endswith("running_var") else noise)
    for key, _ in network.named_parameters():
        mask[key] = torch.rand(state[key].shape, generator=generator) < density
        state[key] = state[key].masked_fill(~mask[key], 0)
    module = Module(
        name=name,
        state=state,
        mask=mask,
        rewarded=(name,),
        catalogue=CATALOGUE,
        architecture=Architecture.of(model, shape, len(CATALOGUE)),
        scaling=Scaling("unit", torch.tensor(0.0), torch.tensor(1.0)),
        temperature=2.0,
        origin="0" * 64,
        provenance={"seed": seed},
        factory=model if callable(model) else None,
    )
    return module, wiring_of(network, shape)


def shuffled(module: Module, wiring: Wiring, seed: int) -> Module:
    generator = torch.Generator().manual_seed(seed)
    sizes = axis_sizes(wiring, module.state)
    orders = {a: torch.randperm(sizes[a], generator=generator) for a in hidden_axes(wiring)}
    state, mask = (take_units(tensors, wiring, orders) for tensors in (module.state, module.mask))
    return replace(module, name="3", rewarded=("3",), state=state, mask=mask)


def inputs(shape: tuple[int, ...], count: int = 32) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(9))


def logits(module: Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return module.architecture.network(module.state, module.factory).double()(x.double())


def equal(one: Module, other: Module) -> bool:
    return all(torch.equal(one.state[key], other.state[key]) for key in one.state) and (
        one.mask.keys() == other.mask.keys()
        and all(torch.equal(one.mask[key], other.mask[key]) for key in one.mask)
    )


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("model", SMALL)
def test_planted_permutations_are_recovered(model: str, how: str, noise: float) -> None:
    for seed in range(10 if noise == 0 else 3):
        original, copy, undo = plant(model, SMALL[model], noise, seed)
        result = recover(original, copy, how, seed)
        assert result.keys() == undo.keys()
        assert all(torch.equal(result[axis], undo[axis]) for axis in undo), seed


def test_permutations_in_noise_as_large_as_the_weights() -> None:
    for seed in range(5):
        original, copy, undo = plant("resnet18(4)", (3, 8, 8), 1.0, seed)
        result = match_weights(original.state, copy.state, wiring(original), seed)
        assert all(torch.equal(result[axis], undo[axis]) for axis in undo), seed


def wiring(module: Module) -> Wiring:
    return wiring_of(module.architecture.skeleton(), module.architecture.shape)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("model", SMALL)
def test_function_and_everything_else_stay(model: str, how: str) -> None:
    shape = SMALL[model]
    modules = [make(model, shape, seed, density=0.7, name=str(seed))[0] for seed in range(3)]
    aligned = align(modules, how, inputs(shape))
    assert aligned[0] is modules[0]
    for before, after in zip(modules[1:], aligned[1:], strict=True):
        assert not equal(before, after)
        torch.testing.assert_close(logits(after, inputs(shape)), logits(before, inputs(shape)))
        assert (after.name, after.provenance) == (before.name, before.provenance)
        assert after.nonzero == before.nonzero


@pytest.mark.parametrize("model", SMALL)
def test_aligning_again_changes_nothing(model: str) -> None:
    (one, axes), (other, _) = (make(model, SMALL[model], seed) for seed in (0, 1))
    aligned = align([one, other])[1]
    before, after = (agreement(one.state, m.state, axes) for m in (other, aligned))
    assert after > before
    assert equal(align([one, aligned])[1], aligned)
    assert equal(align([one, replace(one, name="1")])[1], one)


def agreement(one: State, other: State, axes: Wiring) -> float:
    """What weight matching raises: products of weights, every tensor in units of its spread."""
    total = 0.0
    for key, entry in axes.items():
        if entry and one[key].is_floating_point():
            a, b = one[key].double(), other[key].double()
            spread = max(a.std(correction=0), b.std(correction=0))
            total += float((a * b).sum() / spread**2)
    return total


@pytest.mark.parametrize("model", SMALL)
def test_no_axis_alone_would_agree_more(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An axis is left out once its neighbours stay, and nothing is missed by it."""
    calls: list[int] = []
    monkeypatch.setattr(matching, "assign", lambda table: calls.append(0) or assign(table))
    (one, axes), (other, _) = (make(model, SMALL[model], seed) for seed in (0, 1))
    match_weights(one.state, one.state, axes)
    assert len(calls) <= 3 * len(hidden_axes(axes))  # outward, and each start once
    orders = match_weights(one.state, other.state, axes)
    best = agreement(one.state, take_units(other.state, axes, orders), axes)
    generator = torch.Generator().manual_seed(0)
    for axis, order in orders.items():
        for _ in range(5):
            swapped = order.clone()
            first, second = torch.randperm(len(order), generator=generator)[:2].tolist()
            swapped[[first, second]] = order[[second, first]]
            moved = take_units(other.state, axes, orders | {axis: swapped})
            assert agreement(one.state, moved, axes) <= best * (1 + 1e-9)


@pytest.mark.parametrize("model", SMALL)
def test_a_sparse_module_is_laid_on_itself_bit_for_bit(model: str) -> None:
    """Most units are dead at this density: which of them goes where must not matter."""
    module, wiring = make(model, SMALL[model], density=0.05)
    aligned = align([module, shuffled(module, wiring, seed=4)])[1]
    assert equal(aligned, module)
    doubled = {k: module.state[k] + aligned.state[k] for k in module.state if k in module.mask}
    assert all(torch.equal(doubled[k], 2 * module.state[k]) for k in doubled)


@pytest.mark.parametrize("how", HOWS)
def test_dead_units_stay(how: str) -> None:
    module, wiring = make("mlp(12)", (6,))
    alive = torch.arange(12) % 3 > 0
    mask = {k: unit_mask(wiring[k], v.shape, {"layers.0": alive}) for k, v in module.state.items()}
    pruned = replace(module, state={k: v * mask[k] for k, v in module.state.items()}, mask=mask)
    moved = torch.arange(12)
    moved[alive] = moved[alive].roll(3)
    other = replace(pruned, state=take_units(pruned.state, wiring, {"layers.0": moved}))
    order = unit_orders([pruned, other], how, inputs((6,)))[1]["layers.0"]
    assert torch.equal(order, moved.argsort())


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_one_axis_is_matched_as_well_as_by_brute_force(seed: int) -> None:
    one, other = (make("mlp(5)", (3,), seed + add)[0] for add in (0, 1))
    axes = wiring(one)
    result = match_weights(one.state, other.state, axes)
    moved = [
        take_units(other.state, axes, {"layers.0": torch.tensor(order)})
        for order in permutations(range(5))
    ]
    assert agreement(one.state, take_units(other.state, axes, result), axes) == pytest.approx(
        max(agreement(one.state, state, axes) for state in moved)
    )


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(-9, 9), min_size=5, max_size=5), min_size=5, max_size=5))
def test_assignment_is_the_best_of_all(table: list[list[int]]) -> None:
    similarity = torch.tensor(table, dtype=torch.float64)
    rows = torch.arange(5)
    result = assign(similarity)
    every = torch.tensor(list(permutations(range(5))))
    sums = similarity[rows, every].sum(1)
    assert similarity[rows, result].sum() == sums.max()
    staying = (every[sums == sums.max()] == rows).sum(1).max()
    assert (result == rows).sum() == staying


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_activations_are_matched_by_their_correlation(seed: int) -> None:
    """Against numpy's correlation of the hidden layer, and scipy's assignment."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    modules = [make("mlp(7)", (4,), seed + add)[0] for add in (0, 1)]
    x = inputs((4,), count=150)
    hidden = [
        F.linear(x, m.state["layers.0.weight"], m.state["layers.0.bias"]).numpy() for m in modules
    ]
    table = np.corrcoef(*hidden, rowvar=False)[:7, 7:]
    result = unit_orders(modules, "activations", x)[1]["layers.0"].numpy()
    assert table[range(7), result].sum() == pytest.approx(
        table[linear_sum_assignment(table, maximize=True)].sum(), abs=1e-5
    )


class Tokens(nn.Module):
    """Units in the last dimension and in the second, a layer used twice, in-place sums, a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 8)
        self.place = nn.Parameter(torch.randn(8, 8))
        self.twice = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Conv1d(8, 8, 3, padding=1)
        self.batch = nn.BatchNorm1d(8)
        self.head = nn.Linear(8 * 8, len(CATALOGUE))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x += self.place
        x = self.norm(self.twice(F.relu(self.twice(x))))
        return self.head(F.relu(self.batch(self.mix(x.transpose(1, 2)))).flatten(1))


def tokens(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Tokens()


@pytest.mark.parametrize("how", HOWS)
def test_a_stranger_whose_dimensions_all_have_one_size(how: str) -> None:
    module, wiring = make(tokens, (8, 5))
    assert len(hidden_axes(wiring)) == 2
    for seed in range(2):
        aligned = align([module, shuffled(module, wiring, seed)], how, inputs((8, 5)))[1]
        assert equal(aligned, module)


class Bare(nn.Module):
    """Its units are a product of bare weights: no layer's output shows them."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.randn(6, 4))
        self.head = nn.Linear(6, len(CATALOGUE))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(x @ self.one.T))

    def wiring(self, shape: tuple[int, ...]) -> dict[str, tuple[str, ...]]:
        return {
            "one": ("units", "input"),
            "head.weight": ("output", "units"),
            "head.bias": ("output",),
        }


def bare(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Bare()


def test_units_that_no_layer_shows() -> None:
    module, wiring = make(bare, (4,))
    copy = shuffled(module, wiring, seed=1)
    assert equal(align([module, copy])[1], module)
    with pytest.raises(WiringError, match=r"axis 'units'.*align by weights"):
        align([module, copy], "activations", inputs((4,)))


def test_same_input_same_result() -> None:
    modules = [make("resnet18(2)", (3, 8, 8), seed, 0.3)[0] for seed in (0, 1)]
    for how in HOWS:
        once, again = (align(modules, how, inputs((3, 8, 8)))[1] for _ in range(2))
        assert equal(once, again)


def test_one_module_and_none() -> None:
    module, _ = make("mlp(6)", (4,))
    assert align([]) == []
    assert align([module]) == [module]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a, b: align([a, a], "weight"), "cannot align by 'weight': did you mean 'weights'"),
        (lambda a, b: align([a, b]), r"'layers.0.bias' are \(7,\) and \(6,\); train both"),
        (lambda a, b: align([a, a], "activations"), r"at least two samples.*given: None"),
        (lambda a, b: align([a, a], "activations", inputs((5,))), r"shape \(4,\).*\(32, 5\)"),
        (lambda a, b: align([a, a], "activations", inputs((4,), 1)), r"given: \(1, 4\)"),
    ],
)
def test_what_cannot_be_aligned(call: Callable[..., Any], words: str) -> None:
    one, other = make("mlp(6)", (4,))[0], make("mlp(7)", (4,))[0]
    with pytest.raises(CompositionError, match=words):
        call(one, other)


def owning(module: Module, wiring: Wiring, share: int, name: str) -> Module:
    """The module with all weights pruned that touch units of another share of three."""
    sizes = axis_sizes(wiring, module.state)
    owned = {axis: torch.arange(sizes[axis]) % 3 == share for axis in hidden_axes(wiring)}
    mask = {
        key: unit_mask(wiring[key], value.shape, owned)
        for key, value in module.state.items()
        if module.plan[key].learned
    }
    state = {k: v * mask[k] if k in mask else v for k, v in module.state.items()}
    return replace(module, name=name, state=state, mask=mask)


@pytest.mark.parametrize("model", SMALL)
def test_disjoint_units(model: str) -> None:
    module, wiring = make(model, SMALL[model])
    parts = [owning(module, wiring, share, str(share)) for share in range(3)]
    assert disjoint_units(parts, wiring)
    assert not disjoint_units([*parts, replace(parts[1], name="3")], wiring)
    assert not disjoint_units([module, parts[0]], wiring)
    # the reason to ask: weights then add as logits do, with no statistics measured again
    state = {
        key: torch.stack([p.state[key] for p in parts]).sum(0)
        if module.plan[key].learned
        else value
        for key, value in module.state.items()
    }
    x = inputs(SMALL[model])
    merged = logits(replace(module, state=state, mask={}), x)
    torch.testing.assert_close(merged, torch.stack([logits(part, x) for part in parts]).sum(0))


def test_a_dead_unit_with_incoming_weights_is_not_disjoint() -> None:
    """Nothing reads it in its own module, but it would add to the unit that another has there."""
    module, wiring = make("mlp(6)", (4,))
    one, two = (owning(module, wiring, share, str(share)) for share in (0, 1))
    state, mask = dict(one.state), dict(one.mask)
    mask["layers.0.weight"] = mask["layers.0.weight"].clone()
    mask["layers.0.weight"][4] = True
    state["layers.0.weight"] = module.state["layers.0.weight"] * mask["layers.0.weight"]
    stray = replace(one, state=state, mask=mask)
    assert disjoint_units([one, two], wiring)
    assert not disjoint_units([stray, two], wiring)
    assert not disjoint_units([two, stray], wiring)
    mask["layers.0.weight"][4], mask["layers.0.weight"][5] = False, True
    state["layers.0.weight"] = module.state["layers.0.weight"] * mask["layers.0.weight"]
    assert disjoint_units([replace(one, state=state, mask=mask), two], wiring)
