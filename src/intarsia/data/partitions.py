"""Which classes each module is rewarded for: each alone, named sets, blocks, disjoint pairs."""

import re
from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np

from intarsia.data.splits import random_keys
from intarsia.errors import DataError, RecipeError, nearest

Classes = tuple[str, ...]
_IN_QUOTES = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\])+)\1\s*(?=[+,]|$)""", re.S)
_BARE = re.compile(r"""[^+,"'][^+,]*""", re.S)


def partition(
    catalogue: Sequence[str], how: str | Sequence[Sequence[str]] = "each", seed: int = 0
) -> list[Classes]:
    """The rewarded classes of every module.

    `how` is "each" (one module per class), "blocks(n)" (the catalogue shuffled by `seed` and cut
    into blocks of n; the last one may be smaller), or lists of names, which may overlap.
    """
    names = _check_catalogue(catalogue)
    if how == "each":
        return [(name,) for name in names]
    if isinstance(how, str):
        match = re.fullmatch(r"blocks\(\s*(\d+)\s*\)", how.strip())
        if not match:
            raise DataError(
                f"unknown partition {how!r}: {nearest(how, ('each', 'blocks(2)'))} "
                "or give lists of class names"
            )
        return _blocks(names, int(match[1]), seed)
    if not isinstance(how, list | tuple):
        raise RecipeError(
            f"the partition is {how!r}: expected 'each', 'blocks(2)' or lists of class names"
        )
    sets = [_named_set(group, names) for group in how]
    if not sets:
        raise DataError("a partition needs at least one set of classes")
    return sets


def disjoint_pairs(
    catalogue: Sequence[str], size: int, count: int = 10, seed: int = 0
) -> list[tuple[Classes, Classes]]:
    """`count` distinct pairs of disjoint class sets of `size` each, or all where there are fewer.

    A pair and its mirror image are the same pair. Sets keep the catalogue's order.
    """
    names = _check_catalogue(catalogue)
    if not 1 <= size <= len(names) // 2:
        raise DataError(
            f"two disjoint sets of {size} do not fit in {len(names)} classes; "
            f"size must be from 1 to {len(names) // 2}"
        )
    if count < 1:
        raise DataError(f"the number of pairs must be at least 1, got {count}")
    possible = comb(len(names), 2 * size) * comb(2 * size, size) // 2
    count = min(count, possible)
    pairs: dict[tuple[Classes, Classes], None] = {}
    stream = 0
    # Rejection: `count` equal to `possible` costs about log(possible) draws per pair.
    while len(pairs) < count:
        order = np.argsort(random_keys(len(names), seed, stream), kind="stable")[: 2 * size]
        halves = sorted((sorted(order[:size].tolist()), sorted(order[size:].tolist())))
        first, second = (tuple(names[i] for i in half) for half in halves)
        pairs[first, second] = None
        stream += 1
    return list(pairs)


def read_names(text: str, flag: str) -> list[str]:
    """Class names as a command has them: parted by commas, in quotes if they have one or a +."""
    return [name for group in read_sets(text, flag) for name in group]


def read_sets(text: str, flag: str) -> list[list[str]]:
    """Sets of classes as a command has them: `0+1,2+3` are two sets of two.

    A name that has a comma or a + is in quotes, single or double: `"C++"+Java,'a, b'`. In
    quotes a backslash goes before a quote or a backslash that is part of the name.
    """
    sets = _parse(text)
    if sets is None:
        raise RecipeError(
            f"{flag} {text!r}: a class has no name, or a quote no end; parted by commas and +, "
            """names that have one of these are quoted, as in '"C++",Java'"""
        )
    return sets


def set_name(classes: Sequence[str], catalogue: Sequence[str]) -> str:
    """What a module for these classes is called, and no other: `3`, `0+1`, `"C++"+Java`.

    One class is called by its name, unless that reads like a set of other classes: where there
    are classes a and b, the class a+b is called "a+b" with its quotes.
    """
    if len(classes) > 1:
        return "+".join(map(_quoted, classes))
    (name,) = classes
    sets = _parse(name)
    if sets is None or sets == [[name]]:
        return name
    return _quote(name) if all(c in catalogue for own in sets for c in own) else name


def named_set(name: str, catalogue: Sequence[str]) -> list[str]:
    """The classes of a set by its name; one that is in the catalogue as it is, is that class."""
    sets = _parse(name)
    if sets is not None and len(sets) == 1 and all(c in catalogue for c in sets[0]):
        return sets[0]
    return [name] if name in catalogue else []


def _quoted(name: str) -> str:
    return name if _parse(name) == [[name]] else _quote(name)


def _quote(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _parse(text: str) -> list[list[str]] | None:
    """Lists of names, or None where a name is empty or a quote is left open."""
    sets: list[list[str]] = [[]]
    rest = text.strip()
    while True:
        if match := _IN_QUOTES.match(rest):
            sets[-1].append(re.sub(r"\\([\\\"'])", r"\1", match[2]))
        elif match := _BARE.match(rest):
            sets[-1].append(match[0].strip())
        else:
            return None
        rest = rest[match.end() :].lstrip()
        if not rest:
            return sets
        if rest[0] not in "+,":
            return None
        if rest[0] == ",":
            sets.append([])
        rest = rest[1:].lstrip()


def _blocks(names: Classes, size: int, seed: int) -> list[Classes]:
    if not 1 <= size <= len(names):
        raise DataError(f"blocks of {size} cannot be cut from {len(names)} classes")
    order = np.argsort(random_keys(len(names), seed, 0), kind="stable").tolist()
    cuts = [sorted(order[i : i + size]) for i in range(0, len(order), size)]
    return [tuple(names[i] for i in cut) for cut in cuts]


def _named_set(group: Any, names: Classes) -> Classes:
    """A list of names, or one name alone; numbers are the names they are written as."""
    if not isinstance(group, list | tuple | str | int):
        raise RecipeError(
            f"{group!r} in a partition is not a set of classes: expected a list of names"
        )
    chosen = tuple(map(str, group)) if isinstance(group, list | tuple) else (str(group),)
    for name in chosen:
        if name not in names:
            raise DataError(f"class {name!r} is not in the catalogue: {nearest(name, names)}")
    if not chosen or len(set(chosen)) != len(chosen):
        raise DataError(f"a set of classes must be distinct names, got {list(chosen)}")
    return chosen


def _check_catalogue(catalogue: Sequence[str]) -> Classes:
    names = tuple(catalogue)
    if not names or len(set(names)) != len(names):
        raise DataError(f"a catalogue is distinct class names, got {list(names)}")
    return names
