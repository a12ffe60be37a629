"""The command line: words, and names of files and modules, that a terminal would obey."""

import json
from pathlib import Path
from random import Random
from typing import Any

from typer.testing import CliRunner

from benchmarks.attack import mutations
from benchmarks.attack.module_inputs import originals, read_container, sealed
from benchmarks.attack.surface import Input, Maker, RefusalError, Surface
from intarsia.cli.app import app

VERBS = (  # that write nothing where they are told to: one of the words may be a device
    ("inspect",),
    ("inspect", "--json"),
    ("data",),
    ("data", "--json"),
    ("compatibility",),
    ("evaluate",),
    ("path",),
    ("train", "--dry-run"),
    ("operators",),
    ("study", "status"),
    ("study", "table"),
    ("study", "table", "single", "--from"),
)
FLAGS = (
    "--set",
    "--seed",
    "--operator",
    "--data",
    "--target",
    "--seeds",
    "--partition",
    "--models",
    "--json",
    "--split",
    "--model",
)
OURS = (SystemExit,)


def surfaces(folder: Path) -> list[Surface]:
    originals(folder)
    content = (folder / "pruned.safetensors").read_bytes()
    kinds: dict[str, Maker] = {
        "words": _words(folder),
        "names in files": _names(content),
        "names of paths": _paths(content),
    }
    return [Surface("commands", kinds, weight=1)]


def _saying(words: list[str]) -> Input:
    return Input(lambda: _said(words), right=is_harmless)


def _said(words: list[str]) -> str:
    """What a command prints; it may end with an error of ours or of its usage, and no other."""
    result = CliRunner().invoke(app, words, catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, OURS):
        raise result.exception
    if result.exit_code and is_harmless(result.output):
        raise RefusalError(result.output[-200:])
    return result.output


def is_harmless(text: Any) -> bool:
    """Whether nothing in it is an order to a terminal."""
    return all(letter.isprintable() or letter in "\n\t" or letter > "\xa0" for letter in text)


def _words(folder: Path) -> Maker:
    paths = [
        str(folder / name) for name in ("dense.safetensors", "bank", "sum.safetensors", "none")
    ]

    def make(chance: Random, place: Path) -> Input:
        words = list(chance.choice(VERBS))
        for _ in range(chance.randint(1, 3)):
            word = chance.choice([*mutations.NAMES, *paths, *paths, "digits", "single", "3", "-1"])
            flag = [chance.choice(FLAGS)] if chance.random() < 0.4 else []
            words += [*flag, word.replace("\0", "").encode("utf-8", "replace").decode()]
        return _saying(words)

    return make


def _names(content: bytes) -> Maker:
    """A module whose names are orders to the terminal, inspected."""

    def make(chance: Random, place: Path) -> Input:
        entries, data = read_container(content)
        header = json.loads(entries["__metadata__"]["intarsia"])
        odd = chance.choice(
            [
                mutations.ESCAPES,
                "\x1b[2J",
                "\x9b31m",
                "a\rb",
                "\x08" * 9,
                "\u202eb",
                "\x07",
                "a\nerror: b",
                "\x00",
                "\x7f",
            ]
        )
        place_of = chance.randrange(5)
        if place_of == 0:
            header["name"] = odd
        elif place_of == 1:
            header["catalogue"] = [*header["catalogue"][:-1], odd]
            if header["rewarded"][0] not in header["catalogue"]:
                header["rewarded"] = [odd]
        elif place_of == 2:
            header["provenance"] = {odd: odd, "recipe": {"data": odd}}
        elif place_of == 3:
            header[odd] = odd
        else:
            header["origin"] = odd
        path = place / chance.choice(["m.safetensors", "\x1b[31mm.safetensors"])
        path.write_bytes(sealed(chance, header, entries, data))
        verb = chance.choice(
            [("inspect",), ("inspect", "--json"), ("evaluate",), ("compatibility",)]
        )
        return _saying([*verb, str(path), *([str(path)] if verb == ("compatibility",) else [])])

    return make


def _paths(content: bytes) -> Maker:
    def make(chance: Random, place: Path) -> Input:
        name = chance.choice(
            ["m.safetensors", "d.csv", "d.npz", "r.yaml", "bank", "a.json", "pictures"]
        )
        path = mutations.odd_path(chance, place, name, content)
        return _saying([*chance.choice(VERBS), str(path).replace("\0", "?")])

    return make
