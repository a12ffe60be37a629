"""Which classes each module is rewarded for: each alone, named sets, blocks, disjoint pairs."""

import re
from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np

from intarsia.data.splits import random_keys
from intarsia.errors import DataError, RecipeError, nearest

Classes = tuple[str, ...]


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
    found: dict[tuple[Classes, Classes], None] = {}
    stream = 0
    # Rejection: `count` equal to `possible` costs about log(possible) draws per pair.
    while len(found) < count:
        order = np.argsort(random_keys(len(names), seed, stream), kind="stable")[: 2 * size]
        halves = sorted((sorted(order[:size].tolist()), sorted(order[size:].tolist())))
        first, second = (tuple(names[i] for i in half) for half in halves)
        found[first, second] = None
        stream += 1
    return list(found)


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
            f"{group!r} in a partition is no set of classes: expected a list of names"
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
