"""Modules as changes of a base: what is stored, shared, counted and refused."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from damage import flip
from intarsia.errors import FileError, IntarsiaError, ModelError
from intarsia.limits import limited
from intarsia.models import build, copies_of, initialise
from intarsia.modules import BASES, Architecture, Bank, Base, Module, compact, file, grown
from intarsia.modules.bases.base_weights import (
    BASE,
    fit_base,
    output_names,
    read_base,
    stated_digest,
)
from small_modules import small_module

CATALOGUE = ("a", "b", "c", "d")
NORMED = "resnet18"


def base_of(model: Any = "mlp(8)", shape: tuple[int, ...] = (6,), seed: int = 0) -> Base:
    return Base(initialise(model, shape, len(CATALOGUE), seed).state_dict(), "start")


def change(
    base: Base,
    name: str = "a",
    model: Any = "mlp(8)",
    shape: tuple[int, ...] = (6,),
    density: float = 0.3,
    only: tuple[str, ...] = (),
    **others: Any,
) -> Module:
    """The base with some entries of each parameter moved, or of those named `only`."""
    learned = {n for n, _ in build(model, shape, len(CATALOGUE)).named_parameters()}
    draw = torch.Generator().manual_seed(len(name) + ord(name[0]))
    state, mask = dict(base.state), {}
    for key in learned:
        tensor = base.state[key]
        kept = torch.rand(tensor.shape, generator=draw) < density
        mask[key] = kept & (not only or key in only)
        moved = tensor + torch.randn(tensor.shape, generator=draw)
        state[key] = torch.where(mask[key], moved, tensor)
    return small_module(
        name, state, mask, CATALOGUE, model, shape, origin=base.digest, base=base, **others
    )


def equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """To the last bit."""
    return one.keys() == other.keys() and all(
        t.dtype == other[k].dtype and t.numpy().tobytes() == other[k].numpy().tobytes()
        for k, t in one.items()
    )


def test_a_file_holds_what_changed_bit_for_bit(tmp_path: Path) -> None:
    base = base_of()
    odd = {**base.state, "layers.0.bias": -torch.zeros(8)}
    base = Base(odd)
    module = change(base)
    module.save(tmp_path / "a.safetensors")
    loaded = Module.load(tmp_path / "a.safetensors", quiet=True)
    assert equal(loaded.state, module.state)
    assert equal(loaded.mask, module.mask)
    assert loaded.digest == module.digest
    assert loaded.base is not None
    assert equal(loaded.base.state, base.state)
    assert loaded.origin == base.digest
    kept = module.mask["layers.0.weight"]
    assert torch.equal(module.state["layers.0.weight"][~kept], odd["layers.0.weight"][~kept])
    assert module.nonzero == sum(int(mask.sum()) for mask in module.mask.values())


def test_what_did_not_change_is_shared_and_not_stored(tmp_path: Path) -> None:
    base = base_of()
    module = change(base, density=1.0, only=("layers.1.weight",))
    assert module.state["layers.0.weight"] is base.state["layers.0.weight"]
    assert set(module.packed()[0]["tensors"]) == {"layers.1.weight"}
    assert module.mask["layers.0.weight"].untyped_storage().nbytes() == 1
    module.save(tmp_path / "a.safetensors")
    loaded = Module.load(tmp_path / "a.safetensors", quiet=True)
    assert loaded.base is not None
    assert loaded.state["layers.0.weight"] is loaded.base.state["layers.0.weight"]
    assert loaded.nonzero == module.state["layers.1.weight"].numel()
    other = Module.load(tmp_path / "a.safetensors", quiet=True)
    assert other.base is loaded.base  # in memory once


def test_files_of_the_same_weights_keep_their_own_names(tmp_path: Path) -> None:
    base = base_of()
    for name in ("one", "other"):
        Base(base.state, name).save(tmp_path / f"{name}.safetensors")
    one, other = (Base.load(tmp_path / f"{name}.safetensors") for name in ("one", "other"))
    assert (one.name, other.name) == ("one", "other")
    assert one.digest == other.digest
    places = [{n: t.data_ptr() for n, t in base.state.items()} for base in (one, other)]
    assert places[0] == places[1]  # in memory once


def test_buffers_are_stored_where_they_differ() -> None:
    base = base_of(NORMED, (3, 8, 8))
    names = [n for n in base.state if n.endswith("running_mean")]
    module = change(base, model=NORMED, shape=(3, 8, 8), density=0.0)
    assert not module.packed()[1]
    assert module.nonzero == 0
    moved = {**module.state, names[0]: module.state[names[0]] + 1}
    other = small_module(
        "a", moved, dict(module.mask), CATALOGUE, NORMED, (3, 8, 8), origin=base.digest, base=base
    )
    assert set(other.packed()[1]) == {names[0]}


def test_files_without_a_base_have_nothing_of_it(module: Module) -> None:
    fields, stored = module.packed()
    assert "base" not in fields
    assert not any(name.endswith("/steps") for name in stored)


def three_layers(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.Conv2d(32, 128, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.Conv2d(128, 144, 3, padding=1, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(144, outputs),
    )


@pytest.mark.parametrize(("density", "fraction"), [(0.05, 15), (0.01, 50)])
def test_sparse_changes_are_small(tmp_path: Path, density: float, fraction: int) -> None:
    """Also where a layer has wide gaps: all survivors take about five bytes."""
    settings: dict[str, Any] = {"model": three_layers, "shape": (1, 8, 8)}
    base = base_of(**settings)
    change(base, density=1.0, **settings).save(tmp_path / "dense.safetensors")
    change(base, density=density, **settings).save(tmp_path / "sparse.safetensors")
    dense, small = (os.path.getsize(tmp_path / f"{n}.safetensors") for n in ("dense", "sparse"))
    assert 190_000 < sum(t.numel() for t in base.state.values()) < 210_000
    assert small * fraction <= dense, f"{dense / small:.1f}"


@pytest.mark.parametrize("gaps", [[0], [254], [255], [256, 0, 510], [1000, 3], []])
def test_steps_lead_to_every_survivor(gaps: list[int]) -> None:
    flat = np.concatenate([np.append(np.zeros(gap, bool), True) for gap in gaps] or [[]])
    mask = torch.from_numpy(np.append(flat, np.zeros(5000)).astype(bool))
    tensor = torch.where(mask, torch.arange(1.0, len(mask) + 1), 0)
    entry, stored = file.encode("w", tensor, mask, steps=True)
    spec = file.TensorSpec(tuple(tensor.shape), tensor.dtype, True)
    assert entry["encoding"] == "steps"
    assert stored["w/steps"].dtype == torch.uint8
    decoded, kept = file.decode("w", "steps", spec, stored, torch.full_like(tensor, 7.0))
    assert kept is not None
    assert torch.equal(kept, mask)
    assert torch.equal(decoded, torch.where(mask, tensor, 7.0))


@pytest.mark.parametrize(
    ("steps", "values", "message"),
    [
        ([3, 255], 1, "steps to 1"),
        ([3], 2, "steps to 1"),
        ([255, 255, 9], 1, "lead to entry"),
        ([[3]], 1, "shape"),
    ],
)
def test_steps_that_lead_astray(steps: list[Any], values: int, message: str) -> None:
    stored = {"w/values": torch.ones(values), "w/steps": torch.tensor(steps, dtype=torch.uint8)}
    spec = file.TensorSpec((100,), torch.float32, True)
    with pytest.raises(FileError, match=message):
        file.decode("w", "steps", spec, stored)


def test_a_missing_or_another_base_is_refused_by_name(tmp_path: Path) -> None:
    base = base_of()
    path = tmp_path / "a.safetensors"
    change(base).save(path)
    (tmp_path / BASE).rename(tmp_path / "elsewhere.safetensors")
    with pytest.raises(FileError, match=rf"{base.digest}.*no {BASE} is beside it.*base="):
        Module.load(path)
    elsewhere = tmp_path / "elsewhere.safetensors"
    assert equal(Module.load(path, base=elsewhere, quiet=True).state, change(base).state)
    assert Module.load(path, base=base, quiet=True).base is base
    state = dict(base.state)
    assert Module.load(path, base=state, quiet=True).digest == change(base).digest
    with pytest.raises(FileError, match=rf"{base.digest}.*'base'.*give the one"):
        Module.load(path, base=dict(base_of(seed=1).state))
    with pytest.raises(FileError, match="needs shape"):
        Module.load(path, base={**state, "layers.0.bias": torch.zeros(9)})
    base_of(seed=1).save(tmp_path / BASE)
    with pytest.raises(FileError, match="beside it is another one"):
        Module.load(path)


def test_two_bases_in_one_folder(tmp_path: Path) -> None:
    bases = [base_of(), base_of(seed=1)]
    for name, base in zip("ab", bases, strict=True):
        change(base, name).save(tmp_path / f"{name}.safetensors")
    for name, base in zip("ab", bases, strict=True):
        loaded = Module.load(tmp_path / f"{name}.safetensors", quiet=True)
        assert loaded.base is not None
        assert loaded.base.digest == base.digest


def test_a_bank_has_its_base_once(tmp_path: Path) -> None:
    base = base_of()
    bank = Bank([change(base, name) for name in "ab"])
    bank.save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "a.safetensors", "b.safetensors", "bank.json", BASE,
    ]  # fmt: skip
    loaded = Bank.load(tmp_path, quiet=True)
    assert loaded[0].base is loaded[1].base
    assert [m.digest for m in loaded] == [m.digest for m in bank]
    (tmp_path / BASE).unlink()
    with pytest.raises(FileError, match="is a change of the base"):
        Bank.load(tmp_path)
    assert len(Bank.load(tmp_path, base=base, quiet=True)) == 2


def test_a_module_called_base_does_not_take_its_file(tmp_path: Path) -> None:
    base = base_of()
    module = change(base, "a")
    catalogue = ("base", "b", "c", "d")
    named = small_module(
        "base", dict(module.state), dict(module.mask), catalogue, "mlp(8)", (6,),
        origin=base.digest, base=base,
    )  # fmt: skip
    bank = Bank([named])
    assert bank.file_names != [BASE]
    bank.save(tmp_path)
    assert Bank.load(tmp_path, quiet=True)["base"].digest == named.digest


def crafted(
    tmp_path: Path, base: Base, edit: Callable[[dict[str, Any], dict[str, Tensor]], None]
) -> Path:
    """A file of a change with a sound digest, and whatever `edit` made of it."""
    fields, stored = change(base).packed()
    edit(fields, stored)
    path = tmp_path / "crafted.safetensors"
    file.write(path, "intarsia-module", fields, stored)
    base.save(tmp_path / BASE)
    return path


def other_base(tmp_path: Path, state: dict[str, Tensor]) -> Callable[..., None]:
    """Name a base of these tensors, which then lies where it is looked for."""

    def edit(fields: dict[str, Any], stored: dict[str, Tensor]) -> None:
        base = Base(state)
        fields["base"] = fields["origin"] = base.digest
        base.save(tmp_path / f"base-{base.digest[:16]}.safetensors")

    return edit


def test_crafted_files_end_in_our_error(tmp_path: Path) -> None:
    base = base_of()
    state = dict(base.state)
    wide = {**state, "layers.0.weight": torch.zeros(8, 7)}
    huge = {**state, "layers.0.weight": torch.zeros(8, 6, dtype=torch.float64)}
    less = {k: t for k, t in state.items() if k != "layers.1.weight"}
    more = {**state, "another": torch.zeros(3)}
    edits: dict[str, Callable[[dict[str, Any], dict[str, Tensor]], Any]] = {
        "needs": other_base(tmp_path, wide),
        "float64": other_base(tmp_path, huge),
        "lacks the tensor 'layers.1.weight'": other_base(tmp_path, less),
        "has the tensor 'another'": other_base(tmp_path, more),
        "expected text": lambda fields, stored: fields.update(base=3),
        "is a change of the base": lambda fields, stored: fields.update(base="0" * 64),
        "the base of a module is its origin": lambda f, s: f.update(origin="1" * 64),
        "of its network": lambda f, s: [f.pop("base"), f["tensors"].pop("layers.0.bias")],
        "unknown to its network": lambda f, s: f["tensors"].update(
            x={"encoding": "dense", "shape": []}
        ),
    }
    for message, edit in edits.items():
        with pytest.raises(FileError, match=message):
            Module.load(crafted(tmp_path, base, edit), quiet=True)


def test_a_damaged_base_is_refused(tmp_path: Path) -> None:
    base = base_of()
    change(base).save(tmp_path / "a.safetensors")
    content = flip(tmp_path / BASE, -1)
    with pytest.raises(FileError, match=rf"{BASE}: was altered"):
        Module.load(tmp_path / "a.safetensors")
    (tmp_path / BASE).write_bytes(content[:-9])
    with pytest.raises(FileError, match="beside it is another one"):
        Module.load(tmp_path / "a.safetensors")
    file.write(tmp_path / BASE, "intarsia-base", {"name": "x", "base": base.digest}, {})
    with pytest.raises(FileError, match="holds no tensors"):
        Module.load(tmp_path / "a.safetensors")
    other = dict(base_of(seed=1).state)
    file.write(tmp_path / BASE, "intarsia-base", {"name": "x", "base": base.digest}, other)
    with pytest.raises(FileError, match="not those of the base it names"):
        Module.load(tmp_path / "a.safetensors")


def test_a_base_counts_before_it_is_taken(tmp_path: Path) -> None:
    base = base_of("mlp(2000)")
    change(base, model="mlp(2000)", only=("layers.1.weight",)).save(tmp_path / "a.safetensors")
    size = base.nbytes
    with limited(memory=size, per_byte=1), pytest.raises(FileError, match="limit 'memory'"):
        Module.load(tmp_path / "a.safetensors")
    with limited(memory=40 * size):
        Module.load(tmp_path / "a.safetensors", quiet=True)


def test_values_off_the_base_need_a_mask() -> None:
    base = base_of()
    state = {k: t + 1 for k, t in base.state.items()}
    mask = {"layers.0.weight": torch.zeros(8, 6, dtype=torch.bool)}
    with pytest.raises(ModelError, match="other values than its base"):
        small_module("a", state, mask, CATALOGUE, "mlp(8)", (6,), origin=base.digest, base=base)
    with pytest.raises(ModelError, match="is its origin"):
        small_module("a", state, {}, CATALOGUE, "mlp(8)", (6,), base=base)
    for wrong in ({}, {"x": 3}, {"x": torch.tensor(torch.nan)}):
        with pytest.raises(ModelError, match="base 'base'"):
            Base(wrong)  # type: ignore[arg-type]


def test_an_unmasked_parameter_counts_though_it_equals_the_base(tmp_path: Path) -> None:
    base = base_of()
    module = small_module(
        "a", dict(base.state), {}, CATALOGUE, "mlp(8)", (6,), origin=base.digest, base=base
    )
    assert module.density == 1.0
    module.save(tmp_path / "a.safetensors")
    assert Module.load(tmp_path / "a.safetensors", quiet=True).digest == module.digest


def test_a_change_grows_with_its_base() -> None:
    base = base_of()
    one, other = (grown(change(base, name), (*CATALOGUE, "e")) for name in "ab")
    assert one.base is not None
    assert other.base is not None
    assert one.base.digest == other.base.digest == one.origin
    two_steps = grown(grown(change(base), (*CATALOGUE, "e")), (*CATALOGUE, "e", "f"))
    assert two_steps.digest == grown(change(base), (*CATALOGUE, "e", "f")).digest
    bare = grown(change(base).without_base(), (*CATALOGUE, "e"))
    assert equal(one.state, bare.state)
    ia.compose([one, other], "sum")


def test_the_mask_of_a_change_kills_no_unit() -> None:
    base = base_of()
    module = change(base, density=0.0)
    assert module.health.ok
    assert module.density == 0.0
    assert compact(module) is module
    assert module.without_base().density == 1.0
    assert equal(module.without_base().state, base.state)


def test_what_a_base_can_be_given_as(tmp_path: Path) -> None:
    network = initialise("mlp(8)", (6,), 4, 0)
    base = Base(network.state_dict())
    module = change(base)
    Bank([module]).save(tmp_path / "bank")
    base.save(tmp_path / "b.safetensors")

    @BASES.register("toy")
    def toy(width: int = 8) -> tuple[Any, dict[str, Tensor]]:
        return f"mlp({width})", dict(base.state)

    try:
        for source in (base, network, dict(base.state), tmp_path / "b.safetensors",
                       str(tmp_path / "bank"), "toy", "toy(8)"):  # fmt: skip
            assert read_base(source)[0].digest == base.digest
        assert read_base("toy(9)")[1] == "mlp(9)"
        with pytest.raises(IntarsiaError, match="toy"):
            read_base("tay")
    finally:
        del BASES["toy"]
    tuned, model = read_base(tmp_path / "bank" / "a.safetensors")
    assert equal(tuned.state, module.state)
    assert str(model).startswith("mlp(hidden=[8]")
    assert callable(read_base(network)[1])
    with pytest.raises(ModelError, match="not a base"):
        read_base(3)  # type: ignore[arg-type]
    assert stated_digest(tmp_path / "none") is None


def test_a_head_of_another_size_starts_at_zero() -> None:
    architecture = Architecture.of("mlp(8)", (6,), 4)
    wide = Base(initialise("mlp(8)", (6,), 9, 0).state_dict())
    fitted = fit_base(wide, architecture)
    assert fitted.state["layers.1.weight"].shape == (4, 8)
    assert not fitted.state["layers.1.weight"].any()
    assert torch.equal(fitted.state["layers.0.weight"], wide.state["layers.0.weight"])
    without = Base({k: t for k, t in wide.state.items() if k != "layers.1.weight"})
    assert fit_base(without, architecture).digest == fitted.digest
    same = base_of()
    assert fit_base(same, architecture) is same
    half = Base({k: t.half() for k, t in same.state.items()})
    assert fit_base(half, architecture).state["layers.0.weight"].dtype == torch.float32
    for state, name in (
        ({**same.state, "more": torch.zeros(1)}, "more"),
        ({k: t for k, t in same.state.items() if k != "layers.0.bias"}, "layers.0.bias"),
        ({**same.state, "layers.0.bias": torch.zeros(3)}, "layers.0.bias"),
        ({**same.state, "layers.0.bias": torch.zeros(8, dtype=torch.int64)}, "layers.0.bias"),
    ):
        with pytest.raises(ModelError, match=name):
            fit_base(Base(state), architecture)


class Untraceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(8, 4), nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x) if bool(x.sum() > -1e9) else self.body(-x))


def test_the_head_without_wiring_is_the_last_linear_layer() -> None:
    """By the order in which layers are registered, for want of anything better."""
    factory = copies_of(Untraceable())
    architecture = Architecture.of(factory, (6,), 4)
    assert output_names(architecture, factory) == ("body.weight", "body.bias")
    assert output_names(Architecture.of("mlp(8)", (6,), 4)) == ("layers.1.weight",)


def test_copies_have_as_many_outputs_as_are_asked_for() -> None:
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    factory = copies_of(network)
    same, other = factory((6,), 4), factory((6,), 7)
    assert equal(same.state_dict(), network.state_dict())
    assert same is not network
    assert other(torch.zeros(2, 6)).shape == (2, 7)
    with torch.device("meta"):
        assert factory((6,), 4)[0].weight.is_meta  # type: ignore[index]
    with pytest.raises(ModelError, match="no Linear layer"):
        copies_of(nn.Sequential(nn.Conv1d(1, 2, 1), nn.Flatten()))((1, 1), 5)


def test_a_base_has_a_shared_tensor_once() -> None:
    network = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 4))
    network[2].weight = network[0].weight
    base, model = read_base(network)
    assert "2.weight" not in base.state
    fitted = fit_base(base, Architecture.of(model, (6,), 4), model)
    assert torch.equal(fitted.state["0.weight"], network[0].weight)
