"""Compaction drops what nothing depends on, and files remember the widths."""

import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from intarsia.errors import FileError, ModelError
from intarsia.files import canonical, digest_of
from intarsia.modules import Architecture, Module
from intarsia.modules.compact import compact

pytestmark = pytest.mark.usefixtures("one_thread")
Make = Callable[..., Module]

SMALL = {
    "mlp(20, 16)": ((6,), 0.1),
    "lenet": ((1, 8, 8), 0.02),
    "resnet18(3)": ((1, 8, 8), 0.03),
    "vgg11(2)": ((1, 16, 16), 0.03),
    "fastnet(2)": ((1, 9, 9), 0.05),
}


def logits(module: Module, rows: int = 16) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(rows, *module.architecture.shape, generator=generator)
    with torch.no_grad():
        return module.architecture.network(module.state, module.factory)(x)


def entries(module: Module) -> int:
    return sum(prod(entry.shape) for entry in module.plan.values())


@pytest.mark.parametrize("model", SMALL)
def test_compaction_is_smaller_says_the_same_and_is_done_once(
    make_module: Make, model: str, tmp_path: Path
) -> None:
    shape, density = SMALL[model]
    module = with_statistics(make_module(model=model, shape=shape, density=density))
    small = compact(module)
    assert entries(small) < entries(module)
    assert small.nonzero <= module.nonzero
    assert small.architecture.widths
    torch.testing.assert_close(logits(small), logits(module), rtol=1e-5, atol=1e-5)
    assert compact(small).digest == small.digest
    small.save(tmp_path / "small")
    loaded = Module.load(tmp_path / "small")
    assert loaded.digest == small.digest
    assert loaded.architecture == small.architecture
    assert torch.equal(logits(loaded), logits(small))
    kept = ("name", "rewarded", "catalogue", "provenance", "temperature")
    assert all(getattr(small, key) == getattr(module, key) for key in kept)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(density=st.floats(0.0, 0.6), seed=st.integers(0, 1000))
def test_any_mask(make_module: Make, density: float, seed: int) -> None:
    module = make_module(model="mlp(9, 8)", density=density, seed=seed)
    small = compact(module)
    torch.testing.assert_close(logits(small), logits(module), rtol=1e-5, atol=1e-6)
    assert compact(small).digest == small.digest


def test_by_hand(make_module: Make) -> None:
    """Units 1 and 2 are read by nobody, unit 3 reads nothing but is read: it stays."""
    module = make_module(model="mlp(4)", shape=(2,), density=1.0)
    weight, bias = torch.tensor([[1.0, 2], [3, 4], [0, 6], [0, 0]]), torch.arange(1.0, 5)
    head = torch.tensor([[1.0, 0, 0, 2]] * 4)
    state = {"layers.0.weight": weight, "layers.0.bias": bias, "layers.1.weight": head}
    mask = {"layers.0.weight": weight != 0, "layers.1.weight": head != 0}
    small = compact(rebuilt(module, state=state, mask=mask))
    assert small.architecture.widths == {"layers.0": 2}
    assert small.state["layers.0.weight"].tolist() == [[1, 2], [0, 0]]
    assert small.state["layers.0.bias"].tolist() == [1, 4]
    assert small.state["layers.1.weight"].tolist() == [[1, 2]] * 4
    assert small.mask["layers.0.weight"].tolist() == [[True, True], [False, False]]
    assert "layers.1.weight" not in small.mask


def test_other_units_are_another_origin(make_module: Make) -> None:
    """Two compact modules of one width may have kept different units: they do not add up."""
    merged = make_module(model="mlp(4)", density=1.1)

    def without(unit: int) -> Module:
        mask = {"layers.1.weight": torch.ones(4, 4, dtype=torch.bool)}
        mask["layers.1.weight"][:, unit] = False
        last = merged.state["layers.1.weight"] * mask["layers.1.weight"]
        return compact(rebuilt(merged, state={**merged.state, "layers.1.weight": last}, mask=mask))

    one, again, other = without(0), without(0), without(3)
    assert one.architecture == other.architecture
    assert one.origin == again.origin
    assert len({merged.origin, one.origin, other.origin}) == 3


def test_a_network_that_is_all_dead_keeps_one_unit_an_axis(make_module: Make) -> None:
    small = compact(make_module(model="mlp(9, 8)", density=0.0))
    assert small.architecture.widths == {"layers.0": 1, "layers.1": 1}
    assert not logits(small).any()


def test_a_compact_module_is_returned_as_it_is(make_module: Make) -> None:
    module = make_module(density=1.0)
    assert compact(module) is module


class Stranger(nn.Module):
    """A residual sum, a norm, and a buffer that is no part of the state."""

    def __init__(self, shape: tuple[int, ...], outputs: int, *, fixed: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(shape[0], 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.again = nn.Conv2d(6, 6, 1)
        self.fc = nn.Linear(6 * 16, outputs)
        self.fixed = fixed
        self.register_buffer("factor", torch.tensor(0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        x = x + self.factor * torch.relu(self.again(x))
        return self.fc(x.view(-1, 96) if self.fixed else x.flatten(1))


def test_a_custom_network(make_module: Make, tmp_path: Path) -> None:
    module = with_statistics(make_module(model=Stranger, shape=(1, 4, 4), density=0.01, seed=4))
    small = compact(module)
    assert 0 < small.architecture.widths["conv"] < 6
    torch.testing.assert_close(logits(small), logits(module))
    small.save(tmp_path / "small")
    assert Module.load(tmp_path / "small", Stranger).digest == small.digest
    assert logits(make_module(model=Stranger, shape=(1, 4, 4))).shape == (16, 4)


def test_a_width_written_down_is_refused(make_module: Make) -> None:
    def factory(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return Stranger(shape, outputs, fixed=True)

    module = make_module(model=factory, shape=(1, 4, 4), density=0.01, seed=4)
    with pytest.raises(ModelError, match="Stranger cannot have other widths than its own"):
        compact(module)


def test_units_that_meet_stay(make_module: Make) -> None:
    def factory(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(*shape, 5), nn.LayerNorm(5), nn.Linear(5, outputs))

    module = make_module(model=factory, density=0.1)
    assert compact(module) is module


def test_widths_are_told_and_only_where_there_are_any(make_module: Make) -> None:
    own = Architecture.of("mlp(8)", (6,), 4)
    wide = Architecture(own.model, (6,), 4, {"layers.0": 11})
    assert own.to_json().keys() == {"model", "shape", "outputs"}
    assert wide.to_json() == own.to_json() | {"widths": {"layers.0": 11}}
    assert str(wide) == f"{own}, widths layers.0=11"
    assert wide.plan()["layers.0.weight"].shape == (11, 6)
    assert wide.wiring() == own.wiring()
    assert own.fitted(make_module(model="mlp(11)").state) == wide
    assert wide.fitted(make_module(model="mlp(8)").state) == own


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ({}, "one to 4096 axes"),
        ({str(axis): 1 for axis in range(5000)}, "one to 4096 axes"),
        ([], "expected a mapping"),
        ("layers.0", "expected a mapping"),
        ({"layers.0": 0}, "whole number from 1"),
        ({"layers.0": -3}, "whole number from 1"),
        ({"layers.0": True}, "whole number from 1"),
        ({"layers.0": 2.0}, "whole number from 1"),
        ({"layers.0": None}, "whole number from 1"),
        ({"layers.0": 2**31 + 1}, "whole number from 1"),
        ({"layers.0": 2**31}, "tensor 'layers.0.bias' has shape|'memory'"),
        ({"layers.9": 3}, "not a hidden axis"),
        ({"input": 3}, "not a hidden axis"),
        ({"output": 3}, "not a hidden axis"),
        ({"layers.0": 2**31, "layers.1": 2**31}, "has shape|'memory'|cannot be built"),
    ],
)
def test_hostile_widths(make_module: Make, widths: Any, message: str, tmp_path: Path) -> None:
    """Also with a table that agrees with them: no file makes us ask for its petabytes."""
    module = make_module(model="mlp(8, 7)")
    for agree in (False, True):
        write(tmp_path / "file", module, widths, agree)
        with pytest.raises(FileError, match=message):
            Module.load(tmp_path / "file")


def write(path: Path, module: Module, widths: Any, agree: bool) -> None:
    fields, tensors = module.packed()
    header = json.loads(canonical({"format": "intarsia-module", "version": 1, **fields}))
    header["architecture"]["widths"] = widths
    if agree and isinstance(widths, dict):
        first, second = (widths.get(f"layers.{layer}", 1) for layer in (0, 1))
        shapes = [[first, 6], [first], [second, first], [second], [4, second]]
        for name, shape in zip(header["tensors"], shapes, strict=True):
            header["tensors"][name] = {"encoding": "gaps", "shape": shape}
        tensors = {
            f"{name}/{kind}": torch.zeros(0, dtype=dtype)
            for name in header["tensors"]
            for kind, dtype in (("values", torch.float32), ("gaps", torch.uint8))
        }
    header["digest"] = digest_of(header, tensors)
    path.write_bytes(safetensors.torch.save(tensors, {"intarsia": canonical(header)}))


def rebuilt(module: Module, **changes: Any) -> Module:
    fields = {key: getattr(module, key) for key in module.__dataclass_fields__}
    return Module(**(fields | changes))


def with_statistics(module: Module) -> Module:
    """Running means and variances as training leaves them, and not zeros and ones."""
    generator = torch.Generator().manual_seed(9)
    state = {
        name: torch.rand(tensor.shape, generator=generator) + 0.5
        if name.endswith(("running_mean", "running_var"))
        else tensor
        for name, tensor in module.state.items()
    }
    return rebuilt(module, state=state)
