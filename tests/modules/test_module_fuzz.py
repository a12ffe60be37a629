"""Damaged and hostile files: each loads to the same tensors or raises our error, nothing else."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from intarsia.errors import FileError
from intarsia.files import canonical, digest_of
from intarsia.modules import Module

ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**31, 2**63, 10**400, 1e308, -0.0, "", "x", "\x00", "\ud800",
    "é" * 500, [], [[]], {}, {"": None}, [None], ["x", "x"], [2**31] * 9, ["2"], "__proto__",
    {"name": "mlp"}, {"name": "os.system", "arguments": {"command": "true"}},
    {"name": "mlp", "arguments": {"hidden": [2**31] * 200}}, "../../x", [8] * 10_000,
]  # fmt: skip


def test_damaged_files(module: Module, tmp_path: Path) -> None:
    """Bit flips, byte runs, cuts, insertions and exchanged header lengths."""
    module.save(tmp_path / "sound")
    sound = (tmp_path / "sound").read_bytes()
    chance = random.Random(0)
    for case in range(1600):
        damaged = DAMAGES[case % len(DAMAGES)](bytearray(sound), chance)
        _check(module, tmp_path / "file", bytes(damaged), f"case {case}", sound)


def test_hostile_headers(module: Module, tmp_path: Path) -> None:
    """Any value of the header exchanged for an odd one, with a digest that fits."""
    fields, tensors = module.packed()
    header = {"format": "intarsia-module", "version": 1, **fields}
    chance = random.Random(1)
    places = list(_places(header))
    cases = [(place, odd) for place in places for odd in ODD]
    for place, odd in chance.sample(cases, 500):
        hostile = json.loads(canonical(header))
        _put(hostile, place, odd)
        _check(module, tmp_path / "file", _file(hostile, tensors), f"{place} = {odd!r}"[:200])


def test_hostile_tensors(module: Module, tmp_path: Path) -> None:
    """Stored tensors of another shape, type, length or name, with a digest that fits."""
    fields, tensors = module.packed()
    header = {"format": "intarsia-module", "version": 1, **fields}
    chance = random.Random(2)
    for case in range(400):
        name = chance.choice(sorted(tensors))
        what = chance.choice(sorted(WRONG))
        hostile = dict(tensors)
        hostile[name] = WRONG[what](hostile[name])
        if what == "renamed":
            hostile[chance.choice(["", "x", name + "/", f"0/{name}"])] = hostile.pop(name)
        content = _file(header, hostile)
        refused = _check(module, tmp_path / "file", content, f"case {case}: {name} {what}")
        assert refused, f"{name} {what} was taken for right"


def _check(module: Module, path: Path, content: bytes, case: str, sound: bytes = b"") -> bool:
    """True if refused by our error, False if loaded to the same tensors; anything else fails."""
    path.write_bytes(content)
    try:
        loaded = Module.load(path)
    except FileError as error:
        assert content != sound, f"{case}: a sound file was refused"
        str(error).encode()
        return True
    except BaseException as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    assert loaded.state.keys() == module.state.keys(), case
    for name, tensor in module.state.items():
        assert torch.equal(loaded.state[name].view(torch.int32), tensor.view(torch.int32)), case
    assert all(torch.equal(loaded.mask[name], mask) for name, mask in module.mask.items()), case
    return False


def _file(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> bytes:
    header = {k: v for k, v in header.items() if k != "digest"}
    header["digest"] = digest_of(header, tensors)
    return safetensors.torch.save(tensors, {"intarsia": canonical(header)})


def _places(value: Any, before: tuple[Any, ...] = ()) -> Any:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield (*before, key)
        if isinstance(inner, dict | list):
            yield from _places(inner, (*before, key))


def _put(value: Any, place: tuple[Any, ...], odd: Any) -> None:
    for key in place[:-1]:
        value = value[key]
    value[place[-1]] = odd


def _flip(data: bytearray, chance: random.Random) -> bytearray:
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def _run(data: bytearray, chance: random.Random) -> bytearray:
    start, length = chance.randrange(len(data)), chance.randrange(1, 64)
    for i in range(start, min(start + length, len(data))):
        data[i] = chance.choice([0, 255, chance.randrange(256)])
    return data


def _cut(data: bytearray, chance: random.Random) -> bytearray:
    return data[: chance.randrange(len(data))]


def _extend(data: bytearray, chance: random.Random) -> bytearray:
    return data + bytes(chance.randrange(1, 100))


def _insert(data: bytearray, chance: random.Random) -> bytearray:
    start = chance.randrange(len(data))
    return data[:start] + data[start : start + chance.randrange(1, 40)] + data[start:]


def _length(data: bytearray, chance: random.Random) -> bytearray:
    sizes = [0, 1, len(data), len(data) - 8, 2**23, 2**31, 2**63, chance.randrange(len(data))]
    return bytearray(struct.pack("<Q", chance.choice(sizes))) + data[8:]


def _text(data: bytearray, chance: random.Random) -> bytearray:
    """One character of the JSON headers exchanged for another that JSON knows."""
    size = struct.unpack("<Q", data[:8])[0]
    data[8 + chance.randrange(size)] = ord(chance.choice('{}[]",:0123456789eE-+.\\ntfu '))
    return data


Damage = Callable[[bytearray, random.Random], bytearray]
DAMAGES: tuple[Damage, ...] = (_flip, _flip, _run, _cut, _extend, _insert, _length, _text)

WRONG: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "shorter": lambda t: t[:-1].clone(),
    "longer": lambda t: torch.cat([t, t[-1:]]),
    "empty": lambda t: t[:0].clone(),
    "scalar": lambda t: t[0].clone(),
    "column": lambda t: t[:, None].clone(),
    "double": lambda t: t.to(torch.float64),
    "half": lambda t: t.to(torch.float16),
    "long": lambda t: t.to(torch.int64),
    "bool": lambda t: t.to(torch.bool),
    "renamed": lambda t: t,
    "nan": lambda t: t.to(torch.float32) * float("nan"),
}
