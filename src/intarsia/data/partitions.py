"""Which classes each module is rewarded for: each alone, named sets, tasks, disjoint pairs."""

import re
from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.data.dataset import Data
from intarsia.data.splits import random_keys
from intarsia.encoders import Encoder
from intarsia.encoders.encoder import EncoderLike
from intarsia.errors import DataError, RecipeError, nearest, shortened
from intarsia.files import stream

Classes = tuple[str, ...]
WAYS = ("each", "blocks(2)", "random(5)", "randperm(5, 100)")  # as examples
MOST_DIGITS = 30
_IN_QUOTES = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\])+)\1\s*(?=[+,]|$)""", re.S)
_BARE = re.compile(r"""[^+,"'][^+,]*""", re.S)


def partition(
    catalogue: Sequence[str], how: str | Sequence[Sequence[str]] = "each", seed: int = 0
) -> list[Classes]:
    """The rewarded classes of every module.

    `how` is one of

    - "each": one module per class;
    - "blocks(n)": the catalogue shuffled by `seed` and cut into blocks of n; the last one may be
      smaller;
    - "random(k)": k tasks drawn by `seed`, as equal in size as they can be;
    - "randperm(k, s)": torch.randperm of all classes under a generator of seed s, cut into k blocks
      one after another, as papers on merging draw their tasks;
    - lists of names, which may overlap, as `ward_partition` makes them.

    Sets that are drawn keep the catalogue's order.
    """
    names = _check_catalogue(catalogue)
    if how == "each":
        return [(name,) for name in names]
    if isinstance(how, str):
        return _drawn(names, how, seed)
    if not isinstance(how, list | tuple):
        raise RecipeError(
            f"the partition is {how!r}: expected {', '.join(map(repr, WAYS))} or lists of class "
            "names"
        )
    sets = [_named_set(group, names) for group in how]
    if not sets:
        raise DataError("a partition needs at least one set of classes")
    return sets


def ward_partition(
    data: Data,
    tasks: int,
    features: EncoderLike | None = None,
    device: torch.device | str = "cpu",
) -> list[Classes]:
    """Tasks of classes that are near each other, by Ward's linkage of their mean features.

    `features` says what is compared: the name of an encoder, a network, or a function of a batch of
    raw inputs; without it the inputs as modules read them. Training samples alone are looked at.
    """
    if features is None:
        read = data.scaling(data.train.x).flatten(1)
    elif data.encoder is not None:
        raise DataError(
            f"{data.name!r} holds features of {data.encoder} already, which other features cannot "
            "be computed from: leave features out, or load the raw inputs"
        )
    else:
        read = Encoder.of(features, data.shape)(data.train.x, device)
    return ward_tasks(data.catalogue, class_means(read, data.train.y, data.classes), tasks)


def ward_tasks(catalogue: Sequence[str], means: Tensor, tasks: int) -> list[Classes]:
    """Tasks of classes whose means, C x D, are near each other, by Ward's linkage."""
    from scipy.cluster.hierarchy import fcluster, linkage  # slow to import

    names = _check_catalogue(catalogue)
    _check_tasks(names, tasks)
    if tasks == 1 or len(names) == 1:
        return [names]
    if not bool(means.isfinite().all()):
        bad = names[int((~means.isfinite()).any(1).nonzero()[0])]
        raise DataError(
            f"the mean features of class {bad!r} are not finite numbers: look for nan and infinity "
            "in its samples, or give other features"
        )
    groups = fcluster(linkage(means.double().numpy(), "ward"), tasks, criterion="maxclust")
    found = [tuple(names[int(i)] for i in np.flatnonzero(groups == g)) for g in np.unique(groups)]
    if len(found) != tasks:
        raise DataError(
            f"Ward's linkage makes {len(found)} groups of these classes, not {tasks}: several have "
            "the same mean features; ask for fewer tasks, or give other features"
        )
    return found


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean features of every class, C x D on the CPU; of a class without samples they are 0."""
    sums = torch.zeros(classes, features.shape[1], dtype=torch.float64)
    sums.index_add_(0, labels.cpu(), features.double().cpu())
    return sums / torch.bincount(labels.cpu(), minlength=classes).clamp_min(1)[:, None]


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


def _drawn(names: Classes, how: str, seed: int) -> list[Classes]:
    """Sets by the name of a way to draw them, with its numbers."""
    match = re.fullmatch(r"(\w+)\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", how.strip())
    way = (match[1], match[3] is not None) if match else ("", False)
    if match and way == ("blocks", False):
        return _blocks(names, _whole(match[2]), seed)
    if match and way == ("random", False):
        order = _shuffled(len(names), stream("tasks", seed))
        tasks = _check_tasks(names, _whole(match[2]))
        return _sets(names, [order[start::tasks] for start in range(tasks)])
    if match and way == ("randperm", True):
        order = _shuffled(len(names), _whole(match[3]))
        tasks = _check_tasks(names, _whole(match[2]))
        return _sets(names, [block.tolist() for block in np.array_split(order, tasks)])
    raise DataError(
        f"unknown partition {shortened(how)}: {nearest(how, WAYS)} or give lists of class names"
    )


def _whole(digits: str) -> int:
    """A number of a partition; one that is too long for any is an error."""
    if len(digits) > MOST_DIGITS:
        raise DataError(
            f"a partition has a number of {len(digits)} digits: expected at most {MOST_DIGITS}"
        )
    return int(digits)


def _shuffled(count: int, seed: int) -> list[int]:
    if seed >= 2**63:
        raise DataError(f"the seed {seed} of a partition is too large: expected less than 2**63")
    order: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return order


def _sets(names: Classes, groups: Sequence[Sequence[int]]) -> list[Classes]:
    return [tuple(names[i] for i in sorted(group)) for group in groups]


def _check_tasks(names: Classes, tasks: int) -> int:
    if not 1 <= tasks <= len(names):
        raise DataError(
            f"{tasks} tasks cannot be made of {len(names)} classes: expected 1 to {len(names)}"
        )
    return tasks


def _blocks(names: Classes, size: int, seed: int) -> list[Classes]:
    if not 1 <= size <= len(names):
        raise DataError(f"blocks of {size} cannot be cut from {len(names)} classes")
    order = np.argsort(random_keys(len(names), seed, 0), kind="stable").tolist()
    return _sets(names, [order[i : i + size] for i in range(0, len(order), size)])


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
