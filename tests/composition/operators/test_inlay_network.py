"""An inlay that runs in blocks: the block-diagonal network's numbers, in as many as its parts."""

import copy
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

import intarsia as ia
from intarsia.cli.describe import describe
from intarsia.composition import Composition, MergeContext, compose
from intarsia.composition.operators.inlay import inlay_blocks
from intarsia.composition.operators.inlay_network import BlockConvolution
from intarsia.errors import LimitError
from intarsia.exports import export, to_network
from intarsia.limits import limited
from intarsia.models import initialise
from intarsia.modules import Module, compact
from small_modules import small_module

pytestmark = pytest.mark.usefixtures("one_thread")
CATALOGUE = ("0", "1", "2", "3")
SHAPES = {"resnet18(3)": (1, 8, 8), "vgg11(2)": (1, 16, 16), "fastnet(3)": (3, 9, 9)}
EQUAL, RAGGED = 1.1, 0.1  # densities: all units live, or some of each part


@cache
def parts_of(model: str, density: float, count: int = 3, seed: int = 0) -> tuple[Module, ...]:
    """Modules whose weights are masked at random, with statistics that are not zeros and ones."""
    parts = []
    for k in range(count):
        network = initialise(model, SHAPES[model], len(CATALOGUE), seed + k)
        draw = torch.Generator().manual_seed(seed + k)
        state, mask = dict(network.state_dict()), {}
        for name, tensor in state.items():
            if tensor.ndim > 1:
                mask[name] = torch.rand(tensor.shape, generator=draw) < density
                state[name] = tensor * mask[name]
            elif tensor.is_floating_point():
                state[name] = torch.rand(tensor.shape, generator=draw) + 0.3
        fields = {"origin": f"{k:064}"}
        parts.append(small_module(str(k), state, mask, CATALOGUE, model, SHAPES[model], **fields))
    return tuple(parts)


def pictures(model: str, rows: int = 6) -> Tensor:
    draw = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (rows, *SHAPES[model]), dtype=torch.uint8, generator=draw)


def layers(merged: nn.Module) -> list[BlockConvolution]:
    return [layer for layer in merged.modules() if isinstance(layer, BlockConvolution)]


def answers(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x)


@pytest.mark.parametrize("density", [EQUAL, RAGGED])
@pytest.mark.parametrize("model", SHAPES)
def test_it_answers_as_the_block_diagonal_network(model: str, density: float) -> None:
    parts, x = parts_of(model, density), pictures(model)
    merged = compose(parts, "inlay")
    assert merged.in_blocks
    joined = merged.joined
    assert joined is not None
    expected = answers(joined.to_module(), x)
    assert float(expected.std()) > 1e-3
    torch.testing.assert_close(answers(merged, x), expected, rtol=1e-4, atol=1e-5)
    one_by_one = inlay_blocks(MergeContext(parts), grouped=False)
    assert one_by_one is not None
    apart = answers(one_by_one.network, parts[0].scaling(x))
    torch.testing.assert_close(apart, expected, rtol=1e-4, atol=1e-5)
    groups = {layer.groups for layer in layers(merged)}
    assert groups == {3} if density == EQUAL else 1 in groups


@pytest.mark.parametrize("density", [EQUAL, RAGGED])
@pytest.mark.parametrize("model", SHAPES)
def test_it_holds_the_numbers_of_its_parts_and_counts_as_the_whole(
    model: str, density: float
) -> None:
    parts = parts_of(model, density)
    merged = compose(parts, "inlay")
    held = sum(prod(p.shape) for p in merged.parameters())
    assert held <= sum(compact(part).parameters for part in parts)
    joined = merged.joined
    assert joined is not None
    assert merged.nonzero == joined.nonzero
    assert merged.density == joined.density
    assert held < joined.parameters


@pytest.mark.parametrize("model", SHAPES)
def test_its_state_is_that_of_the_whole(model: str) -> None:
    for density in (EQUAL, RAGGED):
        merged = compose(parts_of(model, density), "inlay")
        [network] = (classifier.network for classifier in merged.networks)
        assert merged.joined is not None
        state = network.state_dict()
        assert state.keys() == merged.joined.state.keys()
        assert all(torch.equal(state[k], v) for k, v in merged.joined.state.items())
        other = copy.deepcopy(network)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        other.load_state_dict(state)
        x = torch.rand(2, *SHAPES[model])
        assert torch.equal(answers(other, x), answers(network, x))
        with pytest.raises(RuntimeError, match="Missing key"):
            other.load_state_dict({k: v for k, v in state.items() if v.ndim != 4})


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(density=st.floats(0.0, 0.3), seed=st.integers(0, 1000))
def test_any_masks(density: float, seed: int) -> None:
    """Also where a part has no unit at all on an axis, or one that reads nothing."""
    parts = parts_of("resnet18(3)", density, seed=seed)
    merged, x = Composition(parts, "inlay"), pictures("resnet18(3)")
    expected = answers(Composition(parts, "logits"), x)
    torch.testing.assert_close(answers(merged, x), expected, rtol=1e-4, atol=1e-5)
    assert merged.joined is not None
    assert merged.nonzero == merged.joined.nonzero


def test_channels_that_read_nothing_give_zeros() -> None:
    layer = nn.Conv2d(3, 4, 3, padding=1, stride=2, bias=False)
    blocks = [torch.rand(2, 0, 3, 3), torch.rand(0, 1, 3, 3), torch.rand(2, 2, 3, 3)]
    made = BlockConvolution(layer, blocks)
    x = torch.rand(2, 3, 6, 6)
    expected = nn.functional.conv2d(x[:, 1:], blocks[2], stride=2, padding=1)
    assert torch.equal(answers(made, x)[:, 2:], expected)
    assert not answers(made, x)[:, :2].any()
    whole = made.state_dict()["weight"]
    assert whole.shape == (4, 3, 3, 3)
    torch.testing.assert_close(
        nn.functional.conv2d(x, whole, stride=2, padding=1), answers(made, x)
    )


def test_a_plain_network_may_have_channels_that_read_nothing() -> None:
    """One part has pruned all that a residual is added to."""
    first, *others = parts_of("resnet18(3)", RAGGED)
    name = "stages.0.0.conv2.weight"
    mask = {**first.mask, name: torch.zeros_like(first.mask[name])}
    state = {**first.state, name: torch.zeros_like(first.state[name])}
    parts = [replace(first, state=state, mask=mask), *others]
    merged, x = compose(parts, "inlay"), pictures("resnet18(3)")
    assert any(gives and not reads for layer in layers(merged) for gives, reads in layer.sizes)
    torch.testing.assert_close(answers(merged, x), answers(compose(parts, "logits"), x))
    assert torch.equal(answers(to_network(merged), x), answers(merged, x))


def test_one_part_and_networks_without_such_convolutions_run_as_they_are() -> None:
    [part, *_] = parts_of("vgg11(2)", RAGGED)
    assert not compose([part], "inlay").in_blocks
    for model, shape in (("mlp(7, 5)", (6,)), ("lenet", (1, 8, 8))):
        parts = []
        for k in range(2):
            network = initialise(model, shape, 4, k)
            parts.append(small_module(str(k), network.state_dict(), {}, CATALOGUE, model, shape))
        assert not compose(parts, "inlay").in_blocks


@pytest.mark.parametrize("density", [EQUAL, RAGGED])
@pytest.mark.parametrize("model", SHAPES)
def test_files_and_plain_networks(model: str, density: float, tmp_path: Path) -> None:
    merged, x = compose(parts_of(model, density), "inlay"), pictures(model)
    merged.save(tmp_path / "whole.safetensors")
    loaded = Composition.load(tmp_path / "whole.safetensors")
    assert torch.equal(answers(loaded, x), answers(merged, x))
    plain = to_network(merged)
    assert torch.equal(answers(plain, x), answers(merged, x))
    assert {type(m).__module__.partition(".")[0] for m in plain.modules()} == {"torch"}
    export(merged, tmp_path / "tensors.safetensors")
    assert merged.joined is not None
    tensors = load_file(tmp_path / "tensors.safetensors")
    assert all(torch.equal(tensors[k], v) for k, v in merged.joined.state.items())


@pytest.mark.slow
def test_exported_computations_are_in_blocks_too(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model = "fastnet(3)"
    merged, x = compose(parts_of(model, RAGGED), "inlay"), pictures(model)
    assert {layer.groups for layer in layers(merged)} == {1, 3}
    export(merged, tmp_path / "model.onnx", inputs="uint8")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    seen = torch.from_numpy(session.run(None, {"inputs": x.numpy()})[0])
    torch.testing.assert_close(seen, answers(merged, x), rtol=1e-3, atol=1e-4)


def test_the_state_of_the_whole_is_made_when_asked_for_and_counted_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("intarsia.composition.merge_memory.ROOM", 4)
    with limited(memory=1):  # four times the bytes of the parts, and no more
        merged = compose(parts_of("vgg11(2)", EQUAL, count=4), "inlay")
        assert (merged - "1").nonzero < merged.nonzero
        with pytest.raises(LimitError, match="joining 4 modules takes"):
            _ = merged.joined
    assert merged.joined is merged.joined


def test_it_is_saved_described_and_taken_apart_without_the_state_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("intarsia.composition.build._joined", lambda *_: pytest.fail("made"))
    parts, path = parts_of("fastnet(3)", RAGGED), tmp_path / "whole.safetensors"
    merged = compose(parts, "inlay")
    merged.save(path)
    facts = describe(merged, path)
    assert facts["nonzero"] == merged.nonzero
    assert facts["architecture"] == str(parts[0].architecture)
    assert [row["tensor"] for row in facts["tensors"]] == list(parts[0].plan)
    assert not ((merged - "1") + parts[1]).apart


def test_calibrated_parts_run_in_blocks() -> None:
    model = "fastnet(3)"
    parts, x = parts_of(model, EQUAL), pictures(model, 40)
    samples = ia.data.Split(x, torch.arange(40) % 3)
    ours, apart = (
        compose(parts, how, samples=samples, calibrate=True) for how in ("inlay", "logits")
    )
    assert ours.in_blocks
    torch.testing.assert_close(answers(ours, x), answers(apart, x), rtol=1e-3, atol=1e-4)


def test_it_moves_and_trains_as_any_network() -> None:
    merged = compose(parts_of("fastnet(3)", RAGGED), "inlay").double()
    x = pictures("fastnet(3)")
    loss = merged.train()(x).square().sum()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in merged.parameters())
    assert (merged - "1")(x).dtype == torch.float64
