"""Module files: small, exact, the same bytes each time, and an explanation for every fault."""

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from damage import flip
from intarsia.errors import DamagedError, FileError, RecipeError
from intarsia.files import canonical, digest_of
from intarsia.limits import limited
from intarsia.modules import Module
from intarsia.modules.file import read, reading, write

Make = Callable[..., Module]
Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "2.safetensors"


def test_sparse_file_is_a_fortieth_and_exact(make_module: Make, tmp_path: Path) -> None:
    sparse = make_module(
        model="mlp(512)", shape=(1, 28, 28), density=0.01, catalogue=tuple("0123456789")
    )
    dense = replace(sparse, mask={})
    sizes = []
    for name, module in (("sparse", sparse), ("dense", dense)):
        module.save(tmp_path / name)
        sizes.append((tmp_path / name).stat().st_size)
        loaded = Module.load(tmp_path / name)
        x = torch.randint(0, 256, (32, 28, 28), dtype=torch.uint8)
        with torch.no_grad():
            assert torch.equal(loaded.to_module()(x), module.to_module()(x))
        _assert_same(loaded, module)
    assert sizes[0] <= sizes[1] / 40, sizes


@pytest.mark.parametrize(
    "model", ["mlp(8)", "resnet18(width=2)", "vgg11(width=2)", "fastnet(width=2)"]
)
def test_round_trip(make_module: Make, path: Path, model: str) -> None:
    shape = (6,) if model == "mlp(8)" else (3, 32, 32)
    module = make_module(model=model, shape=shape, catalogue=("a/b", "ü x", "2", "3"))
    module.save(path)
    _assert_same(Module.load(path), module)


def test_same_module_same_bytes(make_module: Make, path: Path) -> None:
    make_module().save(path)
    first = path.read_bytes()
    Module.load(path).save(path)
    assert path.read_bytes() == first


def test_negative_and_surviving_zeros_stay(module: Module, path: Path) -> None:
    mask = module.mask["layers.1.weight"]
    weight = torch.where(mask, torch.tensor(-0.0), torch.tensor(0.0))
    weight.view(-1)[mask.view(-1).nonzero()[0]] = 0.0
    replace(module, state={**module.state, "layers.1.weight": weight}).save(path)
    loaded = Module.load(path)
    assert torch.equal(torch.signbit(loaded.state["layers.1.weight"]), torch.signbit(weight))
    assert torch.equal(loaded.mask["layers.1.weight"], mask)


def test_provenance_becomes_what_json_gives_back(make_module: Make, path: Path) -> None:
    module = make_module(provenance={"seed": 1, "score": float("nan"), "sizes": (1, 2)})
    assert module.provenance == {"seed": 1, "score": None, "sizes": [1, 2]}
    module.save(path)
    assert Module.load(path).provenance == module.provenance


def test_header_is_one_canonical_json(module: Module, path: Path) -> None:
    module.save(path)
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert list(metadata) == ["intarsia"]
    header = json.loads(metadata["intarsia"])
    assert metadata["intarsia"] == canonical(header)
    digest = header.pop("digest")
    assert digest == digest_of(header, safetensors.torch.load_file(path))


def test_header_too_large_to_be_read_is_not_written(make_module: Make, path: Path) -> None:
    with pytest.raises(FileError, match="keep less in the provenance"):
        make_module(provenance={"notes": "x" * 2**23}).save(path)
    assert not path.exists()


def test_a_header_at_the_limit_is_written_and_read(module: Module, path: Path) -> None:
    module.save(path)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    path.unlink()
    with limited(header=length - 1), pytest.raises(FileError, match=f"takes {length} bytes"):
        module.save(path)
    with limited(header=length):
        module.save(path)
        assert Module.load(path).digest == module.digest


def test_reading_is_counted_twice_over(module: Module, path: Path) -> None:
    """The bytes of the file, and the tensors made of them."""
    module.save(path)
    size = path.stat().st_size
    shown = f"{2 * size} bytes" if size < 512 else f"{size / 512:.1f} KiB"
    words = f"reading it takes {shown} of memory, and the limit 'memory' is"
    with limited(memory=1, per_byte=1), pytest.raises(FileError, match=words):
        Module.load(path)
    with limited(memory=1, per_byte=2):
        assert Module.load(path).digest == module.digest


def test_memory_that_runs_out_while_reading_is_no_fault_of_the_file(
    module: Module, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(content: bytes) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    module.save(path)
    monkeypatch.setattr(safetensors.torch, "load", fail)
    with pytest.raises(FileError, match="reading it needs more memory than this machine"):
        Module.load(path)


def test_own_network_needs_its_factory(make_module: Make, path: Path) -> None:
    def factory(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 5), nn.BatchNorm1d(5), nn.Linear(5, outputs))

    module = make_module(model=factory)
    module.save(path)
    with pytest.raises(FileError, match="model=factory"):
        Module.load(path)
    loaded = Module.load(path, model=factory)
    _assert_same(loaded, module)
    assert loaded.to_module().predict(torch.ones(2, 6)).shape == (2,)
    with pytest.raises(FileError, match=r"'2\.bias' unknown to its network"):
        Module.load(
            path,
            model=lambda s, o: nn.Sequential(
                nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, o, bias=False)
            ),
        )


def test_expectations_are_checked(module: Module, path: Path) -> None:
    module.save(path)
    Module.load(path, catalogue=module.catalogue, origin=module.origin)
    with pytest.raises(FileError, match=r"catalogue \('0', .* where \('a',\) was expected"):
        Module.load(path, catalogue=("a",))
    with pytest.raises(FileError, match=r"origin '0000.* where 'ffff' was expected"):
        Module.load(path, origin="ffff")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a safetensors file, or truncated: .* the file has 0 bytes"),
        (b"PK\x03\x04 not at all a safetensors file", "is not a safetensors file, or truncated"),
        (b"accuracy: 0.98\n", "is not a safetensors file, or truncated"),
        (struct.pack("<Q", 9 * 2**20) + b"{}" * 5 * 2**20, "the limit 'header' is"),
        (struct.pack("<Q", 90) + b"{}", "or truncated: its header would end at byte 98"),
        (struct.pack("<Q", 4) + b"what", "not a JSON object"),
        (struct.pack("<Q", 4) + b"[[]]", "not a JSON object"),
        (struct.pack("<Q", 9) + b'{"a":NaN}', "NaN is not JSON"),
        (struct.pack("<Q", 14) + b'{"a":1,"a": 2}', "given twice"),
        (struct.pack("<Q", 9) + b'{"a":"\xff"}', "not a JSON object"),
        (struct.pack("<Q", 60000) + b"[" * 30000 + b"]" * 30000, "nested too deeply"),
        (safetensors.torch.save({"w": torch.ones(2)}), "intarsia did not write it"),
        (safetensors.torch.save({}, {"intarsia": "7"}), "header 'intarsia' is not a JSON object"),
    ],
)
def test_other_files_are_explained(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(FileError, match=message) as error:
        Module.load(path)
    assert str(path) in str(error.value)


def _container(**entry: Any) -> bytes:
    """A safetensors file with one tensor of four bytes, described in this way."""
    text = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | entry})
    return struct.pack("<Q", len(text)) + text.encode() + bytes(4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_container(data_offsets=[0]), "no place given for tensor 'w'"),
        (_container(data_offsets=[0, 4, 4]), "no place given for tensor 'w'"),
        (_container(data_offsets=[0, "4"]), "no place given for tensor 'w'"),
        (_container(data_offsets=[True, 4]), "no place given for tensor 'w'"),
        (_container(data_offsets={"0": 4}), "no place given for tensor 'w'"),
        (_container(data_offsets=None), "no place given for tensor 'w'"),
        (_container(dtype=32), "unknown type 32"),
        (_container(dtype=["F32"]), "unknown type"),
        (_container(dtype="F33"), "unknown type 'F33'"),
        (_container(data_offsets=[0, 5]), "was cut off"),
        (_container(data_offsets=[0, 3]), "beyond its end"),
        (_container(data_offsets=[4, 0]), "intarsia did not write it"),
        (_container(), "intarsia did not write it"),
    ],
)
def test_containers_are_checked_before_they_are_read(
    path: Path, content: bytes, message: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(FileError, match=message):
        Module.load(path)


def test_a_header_needs_a_digest(module: Module, path: Path) -> None:
    fields, tensors = module.packed()
    for digest in (None, 7):
        header = {"format": "intarsia-module", "version": 1, "digest": digest, **fields}
        if digest is None:
            del header["digest"]
        path.write_bytes(safetensors.torch.save(tensors, {"intarsia": canonical(header)}))
        with pytest.raises(FileError, match="has no digest"):
            Module.load(path)


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
     torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool],
)  # fmt: skip
def test_tensors_of_every_type_are_read(path: Path, dtype: torch.dtype) -> None:
    tensor = torch.tensor([0, 1, 1]).to(dtype)
    write(path, "intarsia-module", {"note": 1}, {"w": tensor})
    fields, tensors = read(path, "intarsia-module")
    assert fields == {"note": 1}
    assert tensors["w"].dtype == dtype
    assert tensors["w"].tolist() == tensor.tolist()


def test_errors_inside_name_the_file() -> None:
    for error, message in (
        (RecipeError("odd"), "^x: odd$"),
        (RecursionError(), "^x: .*nested too deeply"),
        (MemoryError(), "^x: .*memory"),
    ):
        with pytest.raises(FileError, match=message), reading("x"):
            raise error
    with pytest.raises(KeyError), reading("x"):
        raise KeyError("a mistake of ours")


def test_a_file_that_cannot_be_read(
    module: Module, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    module.save(path)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FileError, match="cannot be read: Permission denied"):
        Module.load(path)


def test_no_file_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        Module.load(tmp_path / "none")
    with pytest.raises(FileError, match="is not a file"):
        Module.load(tmp_path)


def test_cut_and_longer_files(module: Module, path: Path) -> None:
    module.save(path)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(FileError, match="was cut off"):
        Module.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(FileError, match="beyond its end"):
        Module.load(path)


def test_altered_value_is_noticed(module: Module, path: Path) -> None:
    module.save(path)
    flip(path, -1)
    with pytest.raises(DamagedError, match="altered or damaged"):
        Module.load(path)


def _set(*keys: str, value: Any) -> Change:
    def change(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        for key in keys[:-1]:
            header = header[key]
        header[keys[-1]] = value

    return change


WEIGHT = "layers.0.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("format", value="intarsia-composition"), "read it with Composition.load$"),
        (_set("format", value="intarsia-modul"), "did you mean 'intarsia-module'"),
        (_set("version", value=2), "newer intarsia .* upgrade"),
        (_set("version", value=True), "unknown format version True"),
        (_set("version", value=0), "unknown format version 0"),
        (_set("version", value=1.0), "unknown format version 1.0"),
        (_set("version", value=None), "unknown format version None"),
        (_set("surprise", value=1), "unknown surprise"),
        (_set("tensors", WEIGHT, "more", value=1), "has the unknown .*more"),
        (lambda h, t: h["tensors"][WEIGHT].pop("encoding"), "lacks encoding"),
        (_set("tensors", WEIGHT, value=[]), "expected a mapping"),
        (lambda h, t: h.pop("origin"), "lacks origin"),
        (lambda h, t: t.pop(f"{WEIGHT}/values"), f"lacks the tensor '{WEIGHT}/values'"),
        (lambda h, t: t.update(more=torch.ones(1)), "holds the tensor 'more'"),
        (lambda h, t: h["tensors"].pop(WEIGHT), f"lacks the tensor '{WEIGHT}' of its network"),
        (_set("tensors", "x", value={}), "'x' unknown to its network"),
        (_set("tensors", WEIGHT, "shape", value=[6, 8]), r"its network needs \[8, 6\]"),
        (_set("tensors", WEIGHT, "encoding", value="zip"), "unknown encoding 'zip'"),
        (_set("tensors", WEIGHT, "encoding", value=[]), "expected text"),
        (lambda h, t: t.update({f"{WEIGHT}/values": torch.ones(2)}), "2 values but"),
        (lambda h, t: t[f"{WEIGHT}/values"].fill_(float("nan")), "not finite"),
        (
            lambda h, t: t.update({f"{WEIGHT}/values": t[f"{WEIGHT}/values"].double()}),
            "holds torch.float64",
        ),
        (_set("rewarded", value=["7"]), "'7', which is not in its catalogue"),
        (_set("rewarded", value="2"), "expected a list of text"),
        (_set("catalogue", value=["0", "2"]), "4 outputs for a catalogue of 2"),
        (_set("temperature", value="5"), "expected a number"),
        (_set("temperature", value=10**400), "a number of 401 digits"),
        (_set("temperature", value=-1), "expected a number above 0"),
        (_set("scaling", value=3), "expected a mapping"),
        (_set("scaling", "kind", value="unti"), "did you mean 'unit'"),
        (_set("scaling", "shift", value=[[1]]), "expected a number"),
        (_set("scaling", "shift", value=[1, 2]), "shift and scale"),
        (_set("architecture", "shape", value=[2**20, 2**20]), "at most"),
        (_set("architecture", "shape", value=[6.0]), "whole number"),
        (_set("architecture", "model", "name", value="mpl"), "did you mean 'mlp'"),
        (_set("architecture", "model", "arguments", value={"hiden": 3}), "'hidden'"),
        (_set("architecture", "model", "arguments", "hidden", value=[8] * 257), "at most 256"),
        (_set("architecture", "model", "arguments", "hidden", value={}), "a setting"),
        (_set("architecture", "model", "arguments", "hidden", value="x"), "cannot be built"),
        (_set("architecture", "model", "arguments", "hidden", value=[2**31] * 9), "cannot be"),
        (_set("architecture", "model", value=None), "model=factory"),
    ],
)
def test_every_fault_has_its_message(
    module: Module, path: Path, change: Change, message: str
) -> None:
    """The digest is made right again, so that the fault itself must be found."""
    rewrite(module, path, change)
    with pytest.raises(FileError, match=message) as error:
        Module.load(path)
    assert str(path) in str(error.value)


def test_tiny_file_cannot_ask_for_much_memory(module: Module, path: Path) -> None:
    def change(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        header["architecture"]["model"]["arguments"]["hidden"] = [2**30]
        tensors.clear()
        for name, shape in (
            ("0.weight", [2**30, 6]),
            ("0.bias", [2**30]),
            ("1.weight", [4, 2**30]),
        ):
            header["tensors"][f"layers.{name}"] = {"shape": shape, "encoding": "gaps"}
            tensors[f"layers.{name}/values"] = torch.ones(0)
            tensors[f"layers.{name}/gaps"] = torch.ones(0, dtype=torch.uint8)

    rewrite(module, path, change)
    with pytest.raises(FileError, match=r"take 13\d\.\d GiB of memory, and the limit 'memory'"):
        Module.load(path)


def rewrite(module: Module, path: Path, change: Change) -> None:
    """The module's file after a change of header and tensors, with a digest that fits."""
    fields, tensors = module.packed()
    header = json.loads(canonical({"format": "intarsia-module", "version": 1, **fields}))
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    change(header, tensors)
    header["digest"] = digest_of(header, tensors)
    path.write_bytes(safetensors.torch.save(tensors, {"intarsia": canonical(header)}))


def _assert_same(one: Module, other: Module) -> None:
    assert one.digest == other.digest
    assert list(one.state) == list(other.state)
    for name, tensor in one.state.items():
        assert torch.equal(tensor, other.state[name])
    assert one.mask.keys() == other.mask.keys()
    assert all(torch.equal(mask, other.mask[name]) for name, mask in one.mask.items())
    for field in ("name", "rewarded", "catalogue", "architecture", "temperature", "origin"):
        assert getattr(one, field) == getattr(other, field)
    assert (one.provenance, one.density) == (other.provenance, other.density)


def test_a_container_whose_shapes_do_not_fit_its_bytes(path: Path) -> None:
    header = {"format": "intarsia-module", "version": 1, "digest": ""}
    entries = {
        "__metadata__": {"intarsia": canonical(header)},
        "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
    }
    text = json.dumps(entries)
    path.write_bytes(struct.pack("<Q", len(text)) + text.encode() + bytes(4))
    with pytest.raises(FileError, match="is not a sound safetensors file"):
        Module.load(path)


def test_damage_inside_stays_damage() -> None:
    with pytest.raises(DamagedError, match=r"^x: bits flipped$"), reading("x"):
        raise DamagedError("bits flipped")
    with pytest.raises(FileError) as error, reading("x"):
        raise FileError("odd")
    assert not isinstance(error.value, DamagedError)
