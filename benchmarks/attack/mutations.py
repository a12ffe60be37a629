"""Mutations: from what is right to what is wrong, in bytes, JSON, YAML, names and paths.

Every function takes the chance that decides, so that a seed gives the same inputs again.
"""

import copy
import json
import os
import re
import socket
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import yaml

DIGITS = "@5000 digits@"  # stands for a number that no writer of JSON or YAML would write
ESCAPES = "\x1b[31mred\x1b[0m\x1b]0;title\x07"
NAMES = (
    "",
    " ",
    ".",
    "..",
    "-",
    "--help",
    "~",
    "*",
    "CON",
    "nan",
    "None",
    "__class__",
    "0" * 300,
    "a" * 5000,
    "../../escape",
    "/proc/version",
    "a/b",
    "a\\b",
    "a\x00b",
    "\n",
    "\r\n\t",
    ESCAPES,
    "\u202egpj.exe",
    "\ufeff",
    "\ud800",
    "é" * 90,
    "\U0001f600",
    "<script>alert(1)</script>",
    "[red]x[/red]",
    "%s%n",
    "{0.__class__}",
    "$(id)",
    "1e999",
    "0x10",
    "1_000",
    "true",
    "state",
    "digest",
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    255,
    256,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    10**400,
    0.5,
    -0.0,
    1e-300,
    5e-324,
    1e30,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    True,
    False,
)


def odd_value(chance: Random) -> Any:
    """A value of any type that a careless reader would not expect."""
    kind = chance.randrange(9)
    if kind <= 2:
        return chance.choice(NUMBERS)
    if kind <= 4:
        return chance.choice(NAMES)
    if kind == 5:
        return chance.choice([None, [], {}, [[]], [None], {"": None}, [{}], {"name": "x"}])
    if kind == 6:
        return [chance.choice(NUMBERS) for _ in range(chance.randrange(1, 40))]
    if kind == 7:
        return {chance.choice(NAMES): chance.choice(NUMBERS) for _ in range(chance.randrange(4))}
    return chance.choice([DIGITS, nested(chance.choice([3, 30, 400])), ["x"] * 2000])


def nested(depth: int) -> Any:
    """Lists or mappings in one another."""
    value: Any = 0
    for level in range(depth):
        value = [value] if level % 3 else {"a": value}
    return value


# bytes


def flip(chance: Random, data: bytes, most: int = 3) -> bytes:
    """A few bits, anywhere."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, most)):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def damage(chance: Random, data: bytes) -> bytes:
    """Cut off, lengthened, a piece overwritten, left out, doubled, or moved."""
    a, b = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    b = min(b, a + chance.choice([1, 8, 64, 4096]))
    kind = chance.randrange(8)
    if kind == 0:
        return data[:a]
    if kind == 1:
        return data + chance.randbytes(chance.choice([1, 8, 500]))
    if kind == 2:
        return data[:a] + chance.randbytes(b - a) + data[b:]
    if kind == 3:
        return data[:a] + chance.choice([b"\0", b"\xff"]) * (b - a) + data[b:]
    if kind == 4:
        return data[:a] + data[b:]
    if kind == 5:
        return data[:b] + data[a:]
    if kind == 6:
        return data[b:] + data[a:b] + data[:a]
    return data[:a] + (b - a).to_bytes(8, "little") + data[a + 8 :]


def raw(chance: Random, starts: Iterable[bytes] = (b"",)) -> bytes:
    """Bytes of no format, some with the first bytes of one."""
    size = chance.choice([0, 1, 7, 8, 9, 100, 3000])
    filling = (
        chance.randbytes(size) if chance.random() < 0.7 else bytes([chance.randrange(256)]) * size
    )
    return chance.choice(list(starts)) + filling


# trees of plain values


def mutated(chance: Random, value: Any, most: int = 3) -> Any:
    """A copy of a tree of plain values with a few of its places changed."""
    holder = [copy.deepcopy(value)]
    for _ in range(chance.randint(1, most)):
        place, key = chance.choice(list(_places(holder)))
        _change(chance, place, key)
        if not holder:
            holder = [None]
    return holder[0]


def _places(tree: Any) -> Iterable[tuple[Any, Any]]:
    """Every container with each of its keys, three levels of long lists left out."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree[:50])
    for key, value in list(pairs):
        yield tree, key
        if isinstance(value, dict | list) and value:
            yield from _places(value)


def _change(chance: Random, place: Any, key: Any) -> None:
    kind = chance.randrange(10)
    value = place[key]
    if kind <= 4:
        place[key] = odd_value(chance)
    elif kind == 5:
        del place[key]
    elif kind == 6 and isinstance(place, dict):
        place[chance.choice(NAMES)] = place.pop(key)
    elif kind == 7 and isinstance(value, int | float) and not isinstance(value, bool):
        place[key] = value + chance.choice([-1, 1, 0.5, 2**31, -value, value])
    elif kind == 8:
        place[key] = chance.choice([[value], {"a": value}, str(value), [value] * 3])
    elif isinstance(place, list):
        place.insert(key, copy.deepcopy(value))
    else:
        place[f"{key}_"] = copy.deepcopy(value)


def json_text(chance: Random, value: Any) -> str:
    """JSON as a hostile writer has it: special numbers, lone surrogates, keys given twice."""
    text = json.dumps(value, ensure_ascii=chance.random() < 0.8)
    if chance.random() < 0.1:
        keys = list(re.finditer(r'"[^"\\]*": ', text))
        if keys:
            one = chance.choice(keys)
            text = f"{text[: one.start()]}{one[0]}null, {text[one.start() :]}"
    return text.replace(json.dumps(DIGITS), "9" * 5000)


def json_bytes(chance: Random, value: Any) -> bytes:
    return json_text(chance, value).encode("utf-8", "surrogatepass")


def yaml_bytes(chance: Random, value: Any) -> bytes:
    """YAML of a value."""
    text = yaml.safe_dump(
        value, sort_keys=False, default_flow_style=chance.choice([None, False, True])
    )
    return re.sub(f"'?{DIGITS}'?", "9" * 5000, text).encode("utf-8", "surrogatepass")


def yaml_tricks(chance: Random, key: str, value: str) -> str:
    """A line of YAML in which `key` has a value that only YAML can write."""
    depth = chance.choice([2, 9, 30])
    bomb = "".join(
        f"{key}{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'lol'}]\n" for i in range(depth)
    )
    return chance.choice(
        [
            bomb + f"{key}: *a{depth - 1}\n",
            f"{key}: &a [*a]\n",
            f"{key}: &a {{x: *a}}\n",
            f"{key}: *nothing\n",
            f"{key}: {{<<: [{{a: 1}}, {{b: 2}}]}}\n",
            f"<<: &m {{{key}: {value}}}\n",
            f"{key}: {value}\n{key}: {value}\n",
            f"{key}: " + "[" * chance.choice([50, 3000]) + "\n",
            f"{key}: " + "{a: " * chance.choice([50, 1200]) + "\n",
            f"{key}: !!python/object/apply:os.system ['true']\n",
            f"{key}: !!binary aGVsbG8=\n",
            f"{key}: !!set {{? a, ? b}}\n",
            f"{key}: !!omap [a: 1]\n",
            f"{key}: !!timestamp 2001-12-15T02:59:43.1Z\n",
            f"{key}: 2001-12-15\n",
            f"{key}: !!float nonsense\n",
            f"{key}: !!int 0b\n",
            f"{key}: " + "9" * 5000 + "\n",
            f"{key}: " + "1:" * 200 + "1\n",
            f"{key}: 0o17\n",
            f"{key}: .nan\n",
            f"{key}: -.inf\n",
            f"{key}: 1e999\n",
            f"? [{key}, {value}]\n: {value}\n",
            f"? {{{key}: {value}}}\n: 1\n",
            f"{key}: |\n\t{value}\n",
            f"{key}: '{value}\n",
            f"{key}:\n---\n{key}: {value}\n",
            f"%YAML 9.9\n---\n{key}: {value}\n",
            f"{key}: \x1b[31m\n",
            f'{key}: "\\x1b[31m\\0\\ud800"\n',
            f"- {key}\n",
            f"{value}\n",
            "",
            "\ufeff" + f"{key}: {value}\n",
            f"null: {value}\n1: 2\n",
        ]
    )


# paths


def odd_path(chance: Random, folder: Path, name: str, content: bytes | None = None) -> Path:
    """A path where a file called `name` was expected, and is not, or is not an ordinary one.

    With `content` some of them can be read, by a way that is not straight.
    """
    path = folder / name
    makers: list[Callable[[], Any]] = [
        lambda: os.mkfifo(path),
        path.mkdir,
        lambda: (path.mkdir(), (path / "bank.json").mkdir()),
        lambda: path.symlink_to(path),
        lambda: path.symlink_to(folder / "nowhere"),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to("/dev/null"),
        lambda: path.symlink_to("/dev/urandom"),
        lambda: path.symlink_to("/proc/self/mem"),
        lambda: _socket(path),
        lambda: None,
        lambda: (path.write_bytes(content or b"x"), path.chmod(0)),
        lambda: path.write_bytes(b""),
        lambda: ((folder / "real").write_bytes(content or b"x"), path.symlink_to("real")),
    ]
    strange = [
        folder / ("x" * 300 + name),
        folder / "/".join(["y" * 200] * 30) / name,
        folder / f"a\0b{name}",
        folder / f"{ESCAPES}{name}",
        folder / os.fsdecode(b"\xff\xfe" + name.encode()),
        path / name,
        Path("/dev/zero"),
        Path("/dev/null"),
        Path("/dev/tty"),
        Path("/proc/self/environ"),
        folder,
        Path(""),
    ]
    number = chance.randrange(len(makers) + len(strange))
    if number >= len(makers):
        return strange[number - len(makers)]
    makers[number]()
    return path


def odd_file_in(chance: Random, folder: Path) -> Path:
    """One of the files of a folder, replaced by something that is not an ordinary file."""
    files = sorted(path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode))
    path = chance.choice(files)
    content = path.read_bytes()
    path.unlink()
    makers: list[Callable[[], Any]] = [
        lambda: os.mkfifo(path),
        path.mkdir,
        lambda: path.symlink_to(path),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to("nowhere"),
        lambda: _socket(path),
        lambda: None,
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(content + b" "),
        lambda: path.write_bytes(content[: len(content) // 2]),
    ]
    chance.choice(makers)()
    return path


def _socket(path: Path) -> None:
    """A socket, by a short name, which is all that the system takes."""
    here = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}"[:100])
    finally:
        os.close(here)
