"""Side by side, the parts give exactly the sum of their logits in one sparse network."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from intarsia.composition import Composition, compose
from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.inlay import inlay, inlay_mask, inlay_size
from intarsia.errors import CompositionError, WiringError
from intarsia.models import initialise
from intarsia.models.axes import axis_sizes, hidden_axes
from intarsia.models.units import live_units
from intarsia.modules import Module
from intarsia.modules.compact import compact
from small_modules import masked, small_module

pytestmark = pytest.mark.usefixtures("one_thread")
CATALOGUE = ("0", "1", "2", "3")


class Custom(nn.Module):
    """A residual sum of depthwise and full convolutions, read without a wiring of its own."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(shape[0], 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.each = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.curve = nn.PReLU(6)
        self.fc = nn.Linear(6 * 16, 5)
        self.head = nn.Linear(5, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        x = x + self.curve(self.each(x))
        return self.head(torch.tanh(self.fc(x.flatten(1))))


MODELS: dict[str, tuple[Any, tuple[int, ...], float]] = {
    "mlp": ("mlp(12, 9)", (6,), 0.25),
    "linear": ({"name": "mlp", "hidden": []}, (6,), 0.5),
    "lenet": ("lenet", (1, 8, 8), 0.03),
    "resnet18": ("resnet18(3)", (1, 8, 8), 0.1),
    "vgg11": ("vgg11(2)", (1, 16, 16), 0.1),
    "custom": (Custom, (1, 4, 4), 0.1),
}


def part(name: str, model: Any, shape: tuple[int, ...], density: float, **changes: Any) -> Module:
    """A module of an origin of its own, with biases and statistics that are not zero."""
    outputs = changes.pop("outputs", len(CATALOGUE))
    seed = changes.pop("seed", int(name))
    network = initialise(model, shape, outputs, seed)
    generator = torch.Generator().manual_seed(seed)
    state = dict(network.state_dict())
    for key, tensor in state.items():
        if tensor.is_floating_point() and tensor.ndim < 2:
            state[key] = torch.rand(tensor.shape, generator=generator) + 0.1
        elif tensor.ndim == 0:
            state[key] = torch.tensor(seed)
    state, mask = masked(network, density, generator, state)
    changes = {"origin": f"{seed:064}"} | changes
    return small_module(name, state, mask, CATALOGUE, model, shape, outputs, **changes)


def parts_of(model: str, count: int = 3, **changes: Any) -> tuple[Module, ...]:
    given = dict(zip(("model", "shape", "density"), MODELS[model], strict=True))
    return tuple(part(str(i), **given | changes) for i in range(count))


def built(parts: tuple[Module, ...]) -> Module:
    """The module that a composition would hold, made by hand."""
    context = MergeContext(parts)
    state = inlay([module.state for module in parts], context)
    first = parts[0]
    return Module(
        name="inlay",
        state=state,
        mask=inlay_mask(context),
        rewarded=first.rewarded,
        catalogue=CATALOGUE,
        architecture=first.architecture.fitted(state, first.factory),
        scaling=first.scaling,
        temperature=first.temperature,
        origin=first.origin,
        factory=first.factory,
    )


def inputs(shape: tuple[int, ...]) -> Tensor:
    return torch.randint(0, 256, (16, *shape), generator=torch.Generator().manual_seed(1))


def logits(module: Module | Composition) -> Tensor:
    shape = (module if isinstance(module, Module) else module.parts[0]).architecture.shape
    classifier = module.to_module() if isinstance(module, Module) else module
    with torch.no_grad():
        return classifier(inputs(shape))


def sum_of_logits(parts: tuple[Module, ...]) -> Tensor:
    return reduce(torch.add, [logits(module) for module in parts])


@pytest.mark.parametrize("model", MODELS)
def test_the_output_is_the_sum_of_logits(model: str, tmp_path: Path) -> None:
    parts = parts_of(model)
    merged = built(parts)
    torch.testing.assert_close(logits(merged), sum_of_logits(parts), rtol=1e-5, atol=1e-5)
    merged.save(tmp_path / "whole")
    loaded = Module.load(tmp_path / "whole", parts[0].factory)
    assert loaded.digest == merged.digest
    assert torch.equal(logits(loaded), logits(merged))


@pytest.mark.parametrize("model", MODELS)
def test_it_holds_the_live_units_of_all_parts_and_no_more(model: str) -> None:
    parts = parts_of(model)
    context = MergeContext(parts)
    wiring = context.wiring
    live = [live_units(wiring, module.state, module.mask) for module in parts]
    sizes = axis_sizes(wiring, inlay([module.state for module in parts], context))
    for axis in hidden_axes(wiring):
        assert sizes[axis] == max(1, sum(int(units[axis].sum()) for units in live))


def test_zeros_between_the_parts_are_pruned() -> None:
    parts = parts_of("mlp", density=1.1)
    merged = built(parts)
    block = merged.mask["layers.1.weight"]
    assert block.shape == (27, 36)
    assert torch.equal(block, torch.block_diag(*[torch.ones(9, 12)] * 3).bool())
    assert merged.mask.keys() == {"layers.1.weight"}
    assert merged.nonzero == sum(module.nonzero for module in parts)


def test_survivors_are_counted_once_per_part() -> None:
    parts = tuple(compact(module) for module in parts_of("vgg11"))
    merged = built(parts)
    shared = sum(module.nonzero for module in parts) - merged.nonzero
    biases = torch.stack([m.mask.get("fc.bias", torch.ones(4).bool()) for m in parts])
    assert shared == int(biases.sum()) - int(biases.any(0).sum())  # one output bias for all


def test_by_hand() -> None:
    """Two parts of two hidden units each; of the second only one lives."""
    one, other = (part(name, "mlp(2)", (2,), 1.1) for name in "01")
    head = other.state["layers.1.weight"].clone()
    head[:, 0] = 0
    mask = {"layers.1.weight": head != 0}
    fields = {k: getattr(other, k) for k in other.__dataclass_fields__}
    other = Module(**fields | {"state": {**other.state, "layers.1.weight": head}, "mask": mask})
    state = inlay([one.state, other.state], MergeContext((one, other)))
    for name in ("layers.0.weight", "layers.0.bias"):
        assert torch.equal(state[name], torch.cat([one.state[name], other.state[name][1:]]))
    name = "layers.1.weight"
    assert torch.equal(state[name], torch.cat([one.state[name], other.state[name][:, 1:]], dim=1))


def test_counts_are_the_largest_and_output_biases_add_up() -> None:
    parts = parts_of("resnet18")
    state = inlay([module.state for module in parts], MergeContext(parts))
    assert int(state["norm.num_batches_tracked"]) == 2
    assert torch.equal(state["fc.bias"], reduce(torch.add, [m.state["fc.bias"] for m in parts]))


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    densities=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    model=st.sampled_from(["mlp(7, 5)", "resnet18(1)"]),
)
def test_any_masks(densities: list[float], seed: int, model: str) -> None:
    """Also where a part has no live unit at all on some axis, or no part has any."""
    shape = (6,) if model.startswith("mlp") else (1, 8, 8)
    parts = tuple(
        part(str(i), model, shape, density, seed=seed + i) for i, density in enumerate(densities)
    )
    merged = built(parts)
    torch.testing.assert_close(logits(merged), sum_of_logits(parts), rtol=1e-4, atol=1e-5)
    assert compact(merged).digest == merged.digest


def test_parts_of_several_widths() -> None:
    parts = parts_of("lenet")
    mixed = (replace(compact(parts[0]), origin=parts[0].origin), *parts[1:])
    assert mixed[0].architecture.widths
    assert built(mixed).digest == built(parts).digest


def test_one_part_is_its_compaction() -> None:
    [module] = parts_of("resnet18", 1)
    merged, small = built((module,)), compact(module)
    assert merged.architecture == small.architecture
    assert all(torch.equal(merged.state[k], v) for k, v in small.state.items())
    assert all(torch.equal(merged.mask[k], v) for k, v in small.mask.items())


def test_an_explicit_other_is_refused() -> None:
    parts = parts_of("mlp", outputs=5)
    with pytest.raises(CompositionError, match=r'5 outputs for 4 classes.*join them by "logits"'):
        built(parts)


def layer_norm(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(*shape, 5), nn.LayerNorm(5), nn.Linear(5, outputs))


def sigmoid(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(*shape, 5), nn.ReLU(), nn.Linear(5, outputs), nn.Sigmoid())


def softmax(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(*shape, 5), nn.ReLU(), nn.Linear(5, outputs), nn.LogSoftmax(1))


def clamped(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(*shape, 5), nn.Linear(5, outputs), nn.Hardtanh(-500, 500))


def output_norm(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(*shape, 5), nn.Linear(5, outputs), nn.BatchNorm1d(outputs))


def one_slope(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(*shape, 5), nn.PReLU(), nn.Linear(5, outputs))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (layer_norm, "cannot join axis '0' side by side: its units meet"),
        (softmax, "cannot join axis 'output' side by side"),
        (sigmoid, "off the sum of logits, so its forward does more to its outputs"),
        (clamped, "off the sum of logits, so its forward does more to its outputs"),
        (output_norm, "cannot join '2.running_mean'"),
        (one_slope, "cannot join '1.weight': one network has it once for all units"),
    ],
)
def test_what_is_not_additive_is_refused(model: Any, message: str) -> None:
    parts = tuple(part(name, model, (6,), 0.8) for name in "01")
    with pytest.raises(CompositionError, match=f'{message}.*join them by "logits"'):
        built(parts)


def test_what_all_parts_share_may_be_there_once() -> None:
    parts = []
    for name in "01":
        module = part(name, one_slope, (6,), 1.1)
        fields = {k: getattr(module, k) for k in module.__dataclass_fields__}
        parts.append(Module(**fields | {"state": module.state | {"1.weight": torch.tensor([0.2])}}))
    for own in (tuple(parts), tuple(parts[:1])):
        torch.testing.assert_close(logits(built(own)), sum_of_logits(own))


def input_norm(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(shape), nn.Linear(*shape, 5), nn.Linear(5, outputs))


def test_inputs_may_meet_outside_the_weights() -> None:
    """All parts read the same ones, so that a normalisation of them may be there once."""
    first = part("0", input_norm, (6,), 1.1)
    shared = {key: first.state[key] for key in ("0.weight", "0.bias")}
    other = part("1", input_norm, (6,), 1.1)
    parts = (first, replace(other, state={**other.state, **shared}))
    torch.testing.assert_close(logits(built(parts)), sum_of_logits(parts))


def bent(shape: tuple[int, ...], outputs: int) -> nn.Module:
    class Bent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(outputs, 2, 3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("oij,nij->no", self.weight.sin(), x.reshape(-1, 2, 3))

    return Bent()


def running_sums(shape: tuple[int, ...], outputs: int) -> nn.Module:
    class RunningSums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(*shape, 5), nn.Linear(5, outputs)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x).cumsum(1))

    return RunningSums()


def test_weights_that_are_bent_before_use_do_not_add_up() -> None:
    """The axes are read, and rightly: it is the sine that makes the sum another one."""
    parts = tuple(part(name, bent, (6,), 1.1) for name in "01")
    with pytest.raises(CompositionError, match="off the sum of logits"):
        built(parts)


def test_what_has_no_wiring_cannot_lie_side_by_side() -> None:
    parts = tuple(part(name, running_sums, (6,), 1.1) for name in "01")
    for make in (built, lambda parts: inlay_size(MergeContext(parts))):
        with pytest.raises(WiringError, match=r"^inlay works on units and needs the network's"):
            make(parts)


@pytest.mark.parametrize("model", ["mlp", "resnet18", "custom"])
def test_composed_saved_and_taken_apart(model: str, tmp_path: Path) -> None:
    parts = parts_of(model, 4)
    merged = compose(parts, "inlay")
    torch.testing.assert_close(logits(merged), sum_of_logits(parts), rtol=1e-5, atol=1e-5)
    assert merged.nonzero == built(parts).nonzero
    merged.save(tmp_path / "whole")
    assert torch.equal(
        logits(Composition.load(tmp_path / "whole", parts[0].factory)), logits(merged)
    )
    fewer = merged - "2"
    expected = compose([m for m in parts if m.name != "2"], "inlay")
    assert torch.equal(logits(fewer), logits(expected))
    assert torch.equal(logits(fewer + parts[2]), logits(merged))


def test_an_inlay_is_of_an_origin_of_its_own() -> None:
    """Its units lie where no other network has them, so weights cannot be added."""
    parts = [part(name, "mlp(5)", (6,), 1.1, seed=0) for name in "0123"]
    one, other = (compose(parts[i : i + 2], "inlay").joined for i in (0, 2))
    assert one is not None
    assert other is not None
    assert one.architecture == other.architecture
    with pytest.raises(CompositionError, match="its origin is"):
        compose([one, other], "sum")
    both = tuple(parts)
    torch.testing.assert_close(logits(compose([one, other], "inlay")), sum_of_logits(both))


def test_an_inlay_that_no_machine_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = "intarsia.composition.operators.inlay.LARGEST"
    parts = tuple(part(name, "mlp(12, 9)", (6,), 1.1) for name in "01")
    monkeypatch.setattr(largest, 432)
    assert built(parts).state["layers.1.weight"].numel() == 432
    monkeypatch.setattr(largest, 431)
    with pytest.raises(CompositionError, match=r"a tensor of 432 entries.*logits"):
        built(parts)


@pytest.mark.parametrize(("model", "shape"), [("mlp(7, 5)", (6,)), ("lenet", (1, 6, 6))])
def test_the_size_of_an_inlay_is_known_before_it_is_built(
    model: str, shape: tuple[int, ...], make_context: Callable[..., MergeContext]
) -> None:
    context = make_context(3, model, shape, density=0.2)
    built = inlay([part.state for part in context.parts], context)
    assert inlay_size(context) == sum(tensor.numel() for tensor in built.values())
