"""Module files, compositions and banks: damaged, sealed anew by someone who knows the format, huge.

What was read from a file that was sealed anew is compared with an independent reading of its bytes.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.attack import mutations
from benchmarks.attack.surface import Input, Maker, Surface
from intarsia.artifacts import modules_of, open_artifact
from intarsia.composition import Composition
from intarsia.composition.module_paths import load_path
from intarsia.data import Scaling, Split
from intarsia.files import digest_of
from intarsia.models import build
from intarsia.modules import Architecture, Bank, Module

CATALOGUE = ("cat", "dog", "eel")
SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
STARTS = (
    b"",
    b"\x08\0\0\0\0\0\0\0{}      ",
    b"\xff" * 8,
    (2**20).to_bytes(8, "little"),
    b"PK\x03\x04",
)
ZERO = {"ties": "ties(base='zero')", "dare": "dare(base='zero')"}  # theirs has no origin
OPERATORS = ("sum", "logits", "inlay", "mean", "weighted", "probabilities", "own", *ZERO)


def surfaces(folder: Path) -> list[Surface]:
    """The three, made from valid artifacts in `folder`."""
    made = originals(folder)
    files = [folder / f"{name}.safetensors" for name in ("dense", "pruned", "wide", "picture")]
    merged = [folder / f"{name}.safetensors" for name in OPERATORS]
    return [
        Surface("module files", _file_kinds(files, _module_appetite(made)), weight=4),
        Surface("compositions", _file_kinds(merged, _composition_appetite(made)), weight=3),
        Surface("banks", _bank_kinds(folder / "bank"), weight=2),
    ]


def originals(folder: Path) -> list[Module]:
    """Small modules without training, compositions of them, and a bank; all saved."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    dense = _module("dense", "mlp(5)", (4,), 1.0, generator)
    pruned = _module("pruned", "mlp(5)", (4,), 0.4, generator)
    wide = _module("wide", "mlp(40, 3)", (30,), 0.02, generator)
    picture = _module("picture", "lenet", (1, 28, 28), 0.01, generator)
    for module in (dense, pruned, wide, picture):
        module.save(folder / f"{module.name}.safetensors")
    samples = Split(torch.randn(6, 4, generator=generator), torch.tensor([0, 1, 2, 0, 1, 2]))
    for name in OPERATORS:
        given = samples if name == "sum" else None
        merged = Composition([dense, pruned], ZERO.get(name, name), samples=given)
        merged.save(folder / f"{name}.safetensors")
    Bank([dense, pruned], ["lost"], {"engine": "none", "seconds": [1, 2.5]}).save(folder / "bank")
    return [dense, pruned, wide, picture]


def _module(
    name: str, model: str, shape: tuple[int, ...], density: float, generator: torch.Generator
) -> Module:
    network = build(model, shape, len(CATALOGUE))
    state = {
        key: torch.randn(value.shape, generator=generator)
        for key, value in network.state_dict().items()
    }
    mask = {
        key: torch.rand(value.shape, generator=generator) < density for key, value in state.items()
    }
    return Module(
        name=name,
        state={key: value * mask[key] for key, value in state.items()},
        mask=mask,
        rewarded=(CATALOGUE[len(name) % 3],),
        catalogue=CATALOGUE,
        architecture=Architecture.of(model, shape, len(CATALOGUE)),
        scaling=Scaling("unit", torch.tensor(0.0), torch.tensor(1 / 255)),
        temperature=5.0,
        origin="0" * 64,
        provenance={"seed": 0, "recipe": {"data": "digits", "epochs": 3}},
    )


# one file


def _file_kinds(files: Sequence[Path], appetite: Maker) -> dict[str, Maker]:
    contents = {path: path.read_bytes() for path in files}

    def pick(chance: Random) -> tuple[Path, bytes]:
        path = chance.choice(list(contents))
        return path, contents[path]

    def bytes_of(change: Callable[[Random, bytes], bytes]) -> Maker:
        def make(chance: Random, place: Path) -> Input:
            path, content = pick(chance)
            return _opening(_put(place, change(chance, content)), path, sealed=True)

        return make

    def header_kept_seal(chance: Random, place: Path) -> Input:
        path, content = pick(chance)
        entries, data = read_container(content)
        header = json.loads(entries["__metadata__"]["intarsia"])
        changed = mutations.mutated(chance, header)
        entries["__metadata__"]["intarsia"] = mutations.json_text(chance, changed)
        return _opening(_put(place, container(entries, data)), path, sealed=True)

    def header_sealed(chance: Random, place: Path) -> Input:
        path, content = pick(chance)
        entries, data = read_container(content)
        header = json.loads(entries["__metadata__"]["intarsia"])
        changed = mutations.mutated(chance, header, most=2)
        return _opening(_put(place, sealed(chance, changed, entries, data)), path)

    def tensors_sealed(chance: Random, place: Path) -> Input:
        path, content = pick(chance)
        entries, data = read_container(content)
        header = json.loads(entries["__metadata__"]["intarsia"])
        tensors = {
            name: bytes(data[slice(*e["data_offsets"])])
            for name, e in entries.items()
            if name[:2] != "__"
        }
        for _ in range(chance.randint(1, 2)):
            _change_tensor(chance, entries, tensors)
        data = _pack(entries, tensors)
        return _opening(_put(place, sealed(chance, header, entries, data)), path)

    def entries_changed(chance: Random, place: Path) -> Input:
        path, content = pick(chance)
        entries, data = read_container(content)
        changed = mutations.mutated(chance, entries)
        if isinstance(changed, dict) and "__metadata__" not in changed and chance.random() < 0.7:
            changed["__metadata__"] = entries["__metadata__"]
        return _opening(_put(place, container(changed, data, chance)), path, sealed=True)

    def odd_path(chance: Random, place: Path) -> Input:
        path, content = pick(chance)
        given = mutations.odd_path(chance, place, "m.safetensors", content)
        return _opening(given, path, sealed=True)

    return {
        "bits flipped": bytes_of(mutations.flip),
        "bytes cut, added, moved": bytes_of(mutations.damage),
        "raw bytes": bytes_of(lambda chance, content: mutations.raw(chance, STARTS)),
        "header changed": header_kept_seal,
        "header changed, sealed anew": header_sealed,
        "tensors changed, sealed anew": tensors_sealed,
        "container changed": entries_changed,
        "not an ordinary file": odd_path,
        "small file, big appetite": appetite,
    }


def _put(place: Path, content: bytes) -> Path:
    path = place / "m.safetensors"
    path.write_bytes(content)
    return path


def _opening(path: Path, original: Path | None, *, sealed: bool = False) -> Input:
    return Input(
        lambda: opened(path),
        same=lambda artifact: _same(artifact, original),
        right=lambda artifact: is_what_is_stored(artifact, path),
        sealed=sealed,
    )


def opened(path: Path) -> Any:
    """Read it, look at it, and ask it something, as every verb would."""
    artifact = open_artifact(path)
    assert artifact.health is not None
    network = artifact.to_module() if isinstance(artifact, Module) else artifact
    shape = modules_of(artifact)[0].architecture.shape
    if not isinstance(artifact, Bank) and np.prod(shape, dtype=float) < 2**20:
        with torch.no_grad():
            network(torch.zeros(1, *shape))
    return artifact


def _same(artifact: Any, original: Path | None) -> bool:
    if original is None:
        return False
    known = load_path(original)
    return type(known) is type(artifact) and _digests(artifact) == _digests(known)


def _digests(artifact: Any) -> Any:
    parts = [module.digest for module in modules_of(artifact)]
    return parts, str(getattr(artifact, "operator", ""))


def read_container(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON of a safetensors file, and what follows it."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def container(entries: Any, data: bytes, chance: Random | None = None) -> bytes:
    text = mutations.json_bytes(chance, entries) if chance else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + data


def sealed(chance: Random, header: Any, entries: dict[str, Any], data: bytes) -> bytes:
    """The file with the digest that its writer would compute, where there can be one."""
    header = dict(header) if isinstance(header, dict) else {"header": header}
    header.pop("digest", None)
    try:
        header["digest"] = digest_of(header, _tensors(entries, data))
    except Exception:  # of what cannot be written as JSON, or is no container
        header["digest"] = "0" * 64
    entries["__metadata__"] = {"intarsia": mutations.json_text(chance, header)}
    return container(entries, data)


def _tensors(entries: Mapping[str, Any], data: bytes) -> dict[str, Tensor]:
    import safetensors.torch

    return safetensors.torch.load(
        container({k: v for k, v in entries.items() if k[:2] != "__"}, data)
    )


def _change_tensor(chance: Random, entries: dict[str, Any], tensors: dict[str, bytes]) -> None:
    """Other values, another type, another length, another name, or two of them exchanged."""
    name = chance.choice(list(tensors))
    size = SIZES.get(entries[name]["dtype"], 1)
    kind = chance.randrange(6)
    if kind == 0:
        tensors[name] = mutations.flip(chance, tensors[name])
    elif kind == 1:
        value = chance.choice([np.nan, np.inf, -np.inf, -0.0, 1e38, 1e-45])
        tensors[name] = np.full(len(tensors[name]) // 4, value, np.float32).tobytes()
        entries[name] = {"dtype": "F32", "shape": [len(tensors[name]) // 4]}
    elif kind == 2:
        keep = chance.randrange(len(tensors[name]) // size + 1)
        tensors[name] = tensors[name][: keep * size]
        entries[name]["shape"] = [keep]
    elif kind == 3:
        dtype = chance.choice(["F64", "F32", "F16", "I64", "I8", "U8", "BOOL", "BF16"])
        entries[name] = {"dtype": dtype, "shape": [len(tensors[name]) // SIZES.get(dtype, 1)]}
        tensors[name] = tensors[name][: entries[name]["shape"][0] * SIZES.get(dtype, 1)]
    elif kind == 4:
        other = chance.choice(mutations.NAMES[6:])
        entries[other], tensors[other] = dict(entries[name]), tensors[name]
        if chance.random() < 0.5 and other != name:
            del entries[name], tensors[name]
    else:
        other = chance.choice(list(tensors))
        tensors[name], tensors[other] = tensors[other], tensors[name]
        entries[name], entries[other] = entries[other], entries[name]


def _pack(entries: dict[str, Any], tensors: Mapping[str, bytes]) -> bytes:
    """The data of all tensors one after another, and their places written down."""
    end = 0
    for name, content in tensors.items():
        entries[name] = {**entries[name], "data_offsets": [end, end + len(content)]}
        end += len(content)
    return b"".join(tensors.values())


# what a file holds, read by other code


def is_what_is_stored(artifact: Any, path: Path) -> bool:
    """Whether every tensor of a module or of parts is what the bytes of the file say."""
    if isinstance(artifact, Bank):
        return False
    entries, data = read_container(path.read_bytes())
    header = json.loads(entries["__metadata__"]["intarsia"])
    if isinstance(artifact, Module):
        return _is_stored(artifact, header, entries, data, "")
    names = [part["name"] for part in header["parts"]]
    by_name = {part.name: part for part in artifact.parts}
    return sorted(names) == sorted(by_name) and all(
        _is_stored(by_name[part["name"]], part, entries, data, f"{i}/")
        for i, part in enumerate(header["parts"])
    )


def _is_stored(
    module: Module, header: dict[str, Any], entries: dict[str, Any], data: bytes, prefix: str
) -> bool:
    def array(name: str) -> np.ndarray:
        entry = entries[prefix + name]
        kind = f"V{SIZES.get(entry['dtype'], 1)}"
        return np.frombuffer(data[slice(*entry["data_offsets"])], kind)

    fields = {
        "name": module.name,
        "rewarded": list(module.rewarded),
        "catalogue": list(module.catalogue),
    }
    fields |= {"temperature": module.temperature, "origin": module.origin}
    if any(header[key] != value for key, value in fields.items()):
        return False
    for name, entry in header["tensors"].items():
        size = int(np.prod(entry["shape"]))
        if entry["encoding"] == "dense":
            stored = array(name)
        else:
            kept = _kept(entry["encoding"], array(f"{name}/{entry['encoding']}"), size)
            values = array(f"{name}/values")
            stored = np.zeros(size, values.dtype)
            stored[kept] = values
        tensor = module.state[name]
        if list(tensor.shape) != entry["shape"] or _bytes(tensor) != stored.tobytes():
            return False
    return True


def _kept(encoding: str, index: np.ndarray, size: int) -> np.ndarray:
    if encoding == "bits":
        return np.flatnonzero(np.unpackbits(index.view(np.uint8))[:size])
    kind = {1: np.uint8, 2: np.uint16, 4: np.int32}[index.dtype.itemsize]
    return np.cumsum(index.view(kind).astype(np.int64) + 1) - 1


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


# small files, big appetite


def _write_empty(
    path: Path, header: dict[str, Any], shapes: Mapping[str, Sequence[int]], encoding: str = "gaps"
) -> dict[str, Any]:
    """A module all of whose entries are pruned: its header and its empty tensors."""
    header["tensors"] = {n: {"encoding": encoding, "shape": list(s)} for n, s in shapes.items()}
    return {
        key: entry
        for name in shapes
        for key, entry in {
            f"{name}/values": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
            f"{name}/gaps": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]},
        }.items()
    }


def _head(module: Module) -> dict[str, Any]:
    return {"format": "intarsia-module", "version": 1, **json.loads(json.dumps(module.packed()[0]))}


def _mlp_shapes(inputs: int, hidden: int, outputs: int) -> dict[str, list[int]]:
    names = list(build("mlp(2)", (2,), 2).state_dict())
    sizes = [[hidden, inputs], [hidden], [outputs, hidden]]
    return dict(zip(names, sizes, strict=True))


def _module_appetite(made: Sequence[Module]) -> Maker:
    dense, pruned = made[0], made[1]

    def pruned_away(chance: Random) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """1,168 bytes that declare a million hidden units, all pruned; and others like it."""
        inputs, hidden = chance.choice(
            [(4, 10**6), (255, 10**6), (2**20, 255), (16000, 16000), (2, 2**27), (1, 2**31)]
        )
        head = _head(dense)
        head["architecture"] |= {"shape": [inputs], "outputs": 3}
        head["architecture"]["model"]["arguments"]["hidden"] = [hidden]
        entries = _write_empty(Path(), head, _mlp_shapes(inputs, hidden, 3))
        return head, entries, b""

    def many_layers(chance: Random) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        head = _head(dense)
        width = chance.choice([1, 1000, 5000])
        head["architecture"]["model"]["arguments"]["hidden"] = [width] * chance.choice(
            [100, 256, 257, 5000]
        )
        return head, {}, b""

    def many_names(chance: Random) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """100,000 class names."""
        count = chance.choice([1000, 20_000, 100_000])
        head = _head(dense)
        head["catalogue"] = [str(i) for i in range(count)]
        head["rewarded"] = head["catalogue"] if chance.random() < 0.5 else ["0"]
        head["architecture"]["outputs"] = count
        return head, _write_empty(Path(), head, _mlp_shapes(4, 5, count)), b""

    def eight_megabytes(chance: Random) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """8 MB of set bits, each byte of which lets the file ask for more."""
        head = _head(dense)
        inputs, hidden = chance.choice([(2000, 32_000), (60_000, 1000)])
        head["architecture"] |= {"shape": [inputs], "outputs": 3}
        head["architecture"]["model"]["arguments"]["hidden"] = [hidden]
        shapes = _mlp_shapes(inputs, hidden, 3)
        entries = _write_empty(Path(), head, shapes)
        first = next(iter(shapes))
        head["tensors"][first]["encoding"] = "bits"
        del entries[f"{first}/gaps"]
        size = (inputs * hidden + 7) // 8
        entries[f"{first}/bits"] = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
        return head, entries, bytes(size)

    def large_header(chance: Random) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        head = _head(pruned)
        head["provenance"] = chance.choice(
            [
                {str(i): i for i in range(200_000)},
                {"a": [0] * 1_500_000},
                {"a": "x" * 7_000_000},
                mutations.nested(900),
            ]
        )
        return head, {}, b""

    def wide_axes(chance: Random) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        head = _head(pruned)
        head["architecture"]["widths"] = {
            f"hidden{i}": chance.choice([1, 10**6, 2**31])
            for i in range(chance.choice([1, 2, 4096]))
        }
        return head, {}, b""

    def whole_network(chance: Random) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        head = _head(dense)
        name = chance.choice(["vgg11", "resnet18", "lenet"])
        side = chance.choice([32, 4096, 2**14])
        head["architecture"] |= {"shape": [3, side, side], "outputs": chance.choice([3, 10**6])}
        head["architecture"]["model"] = {"name": name, "arguments": {}}
        return head, {}, b""

    makers = (
        pruned_away,
        many_layers,
        many_names,
        eight_megabytes,
        large_header,
        wide_axes,
        whole_network,
    )

    def make(chance: Random, place: Path) -> Input:
        header, entries, data = chance.choice(makers)(chance)
        content = sealed(chance, header, entries, data)
        return _opening(_put(place, content), None)

    return make


def _composition_appetite(made: Sequence[Module]) -> Maker:
    dense = made[0]

    def copies(chance: Random, count: int, hidden: int, operator: str) -> bytes:
        """So many modules of this width, nearly all pruned."""
        head = {"format": "intarsia-composition", "version": 1}
        head["operator"] = {"name": operator, "arguments": {}}
        parts, entries, tensors = [], {}, {}
        shapes = _mlp_shapes(4, hidden, 3)
        for number in range(count):
            part = {k: v for k, v in _head(dense).items() if k not in ("format", "version")}
            part["name"] = f"m{number:05d}"
            part["architecture"]["model"]["arguments"]["hidden"] = [hidden]
            own = _write_empty(Path(), part, shapes)
            if hidden > 1000:  # one bit for each entry makes them hold something
                first = next(iter(shapes))
                part["tensors"][first]["encoding"] = "bits"
                del own[f"{first}/gaps"]
                own[f"{first}/bits"] = {"dtype": "U8", "shape": [(4 * hidden + 7) // 8]}
                tensors[f"{number}/{first}/bits"] = bytes((4 * hidden + 7) // 8)
            for key, entry in own.items():
                entries[f"{number}/{key}"] = entry
                tensors.setdefault(f"{number}/{key}", b"")
            parts.append(part)
        head["parts"] = parts
        return sealed(chance, head, entries, _pack(entries, tensors))

    def make(chance: Random, place: Path) -> Input:
        count, hidden, operator = chance.choice(
            [
                (32, 35_000, "inlay"),
                (32, 35_000, "sum"),
                (8, 300_000, "inlay"),
                (100, 2000, "inlay"),
                (3000, 2, "logits"),
                (3000, 2, "inlay"),
                (1000, 2, "ties"),
                (300, 5, "dare"),
                (2, 10**6, "weighted"),
            ]
        )
        return _opening(_put(place, copies(chance, count, hidden, operator)), None)

    return make


# banks


def _bank_kinds(bank: Path) -> dict[str, Maker]:
    known = Bank.load(bank, quiet=True)
    expected = _bank_content(known)
    listing = json.loads((bank / "bank.json").read_bytes())

    def using(folder: Path, sealed_: bool = True) -> Input:
        return Input(
            lambda: _bank_content(open_artifact(folder)),
            same=lambda c: c == expected,
            sealed=sealed_,
        )

    def changed(change: Callable[[Random, Path], None]) -> Maker:
        def make(chance: Random, place: Path) -> Input:
            folder = place / "bank"
            shutil.copytree(bank, folder)
            change(chance, folder)
            return using(folder)

        return make

    def listing_bytes(change: Callable[[Random, bytes], bytes]) -> Maker:
        def write(chance: Random, folder: Path) -> None:
            path = folder / "bank.json"
            path.write_bytes(change(chance, path.read_bytes()))

        return changed(write)

    def module_bytes(chance: Random, folder: Path) -> None:
        path = folder / chance.choice(listing["files"])["file"]
        how = chance.choice(
            [mutations.flip, mutations.damage, lambda c, b: mutations.raw(c, STARTS)]
        )
        path.write_bytes(how(chance, path.read_bytes()))

    def names(chance: Random, folder: Path) -> None:
        own = json.loads(json.dumps(listing))
        entry = chance.choice(own["files"])
        entry["file"] = chance.choice(
            [
                *mutations.NAMES,
                "../bank/dense.safetensors",
                "/dev/zero",
                "other.safetensors",
                "bank.json",
            ]
        )
        (folder / "bank.json").write_bytes(mutations.json_bytes(chance, own))

    def exchanged(chance: Random, folder: Path) -> None:
        one, other = (folder / entry["file"] for entry in listing["files"][:2])
        kind = chance.randrange(4)
        if kind == 0:
            content = one.read_bytes()
            one.write_bytes(other.read_bytes())
            other.write_bytes(content)
        elif kind == 1:
            one.unlink()
            one.symlink_to(other.name)
        elif kind == 2:
            one.write_bytes((folder / "../../none").name.encode())
        else:
            (folder / "bank.json").write_bytes(other.read_bytes())

    def many(chance: Random, folder: Path) -> None:
        own = json.loads(json.dumps(listing))
        kind = chance.randrange(4)
        if kind == 0:
            own["files"] = own["files"] * chance.choice([2, 3000])
        elif kind == 1:
            own["files"] = [{"file": f"{i}.safetensors", "digest": "0"} for i in range(100_000)]
        elif kind == 2:
            own["diverged"] = [str(i) for i in range(200_000)]
        else:
            own["report"] = chance.choice([mutations.nested(900), {"a": "x" * 8_000_000}])
        (folder / "bank.json").write_bytes(json.dumps(own).encode())

    return {
        "bits flipped": listing_bytes(mutations.flip),
        "bytes cut, added, moved": listing_bytes(mutations.damage),
        "raw bytes": listing_bytes(lambda chance, content: mutations.raw(chance)),
        "listing changed": listing_bytes(
            lambda chance, content: mutations.json_bytes(chance, mutations.mutated(chance, listing))
        ),
        "names of files": changed(names),
        "modules damaged": changed(module_bytes),
        "files exchanged": changed(exchanged),
        "not an ordinary file": changed(
            lambda chance, folder: mutations.odd_file_in(chance, folder)
        ),
        "small file, big appetite": changed(many),
    }


def _bank_content(bank: Any) -> Any:
    return [module.digest for module in bank], bank.diverged, bank.report
