"""Tensors that are looked at piece by piece, for operators that need a little of the whole.

Sums, products of two parts, and which entries are the largest are found in passes over pieces, so
that a tensor need never be in memory. All is exact: no entry is chosen by an estimate.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor

# Changes, which it may write to, and their first entry -> the joined one.
PieceJoin = Callable[[list[Tensor], int], Tensor]
ROOM = 2**20  # entries that are collected whatever the size of the tensor
SAMPLED = 16  # pieces from which the first guess is made
STRIDE = 61  # every so many entries of each piece are kept for the next guess
MARGIN = 1 / 64  # of all entries, to both sides of a guess


class TensorPieces(Protocol):
    """One tensor of all parts, as changes in float64: flat pieces, or whole rows of a matrix."""

    name: str
    entries: int
    first: int  # how many learned entries come before the tensor

    def each(
        self, look: Callable[[list[Tensor], int], Any], every: int = 1
    ) -> Iterator[tuple[int, Any]]:
        """What `look` makes of the changes, with the first entry of each piece, in order.

        Pieces may be looked at side by side; with `every` only every so many of them.
        """
        ...

    @property
    def count(self) -> int:
        """How many pieces there are."""
        ...


def sums(tensor: TensorPieces, of: Callable[[list[Tensor], int], Sequence[Tensor]]) -> list[float]:
    """The sums of several series that are made of the pieces."""

    def look(changes: list[Tensor], start: int) -> list[float]:
        return [float(series.sum()) for series in of(changes, start)]

    found = [part for _, part in tensor.each(look)]
    return [sum(each) for each in zip(*found, strict=True)]


def gram_of(tensor: TensorPieces) -> Tensor:
    """Inner products of every two parts, K x K, in float64."""
    found = [part for _, part in tensor.each(lambda changes, start: _products(changes))]
    return torch.tensor(found, dtype=torch.float64).sum(dim=0)


def gram(changes: Sequence[Tensor]) -> Tensor:
    """Inner products of every two tensors, K x K, in float64."""
    return torch.tensor(_products(changes), dtype=torch.float64)


def _products(changes: Sequence[Tensor]) -> list[list[float]]:
    """As plain numbers: a small tensor that stays behind a piece keeps its memory in use."""
    flat = [change.flatten() for change in changes]
    lower = [[float(torch.dot(one, o)) for o in flat[: i + 1]] for i, one in enumerate(flat)]
    places = range(len(flat))
    return [[lower[max(i, j)][min(i, j)] for j in places] for i in places]


@dataclass(frozen=True)
class Largest:
    """The largest entries of a series: those above the last, and of its equals the earlier."""

    last: float
    before: dict[int, int] | None = None  # equals before each piece, where not all of them stay
    equals: int = 0  # how many of them stay

    def of(self, sizes: Tensor, start: int) -> Tensor:
        """True for those that are among them, of the piece that begins there."""
        if self.before is None:
            return sizes >= self.last
        level = sizes == self.last
        room = self.equals - self.before[start]
        return (sizes > self.last) | (level & (level.cumsum(0) <= room))


def largest(
    tensor: TensorPieces,
    sizes: Callable[[list[Tensor]], Sequence[Tensor]],
    counts: Sequence[int],
    equals: bool = False,
) -> list[Largest]:
    """Of several series, flat and not negative, so many of the largest entries of each.

    Of equals at the edge the earlier ones, or with `equals` all. The last entry is found between
    two numbers that are guessed from a sample; what lies below, between and above is counted, and
    what lies between collected. Where the guess was wrong, the search goes on in what is left.
    """
    searches = [_Search(tensor.entries, tensor.entries - count) for count in counts]
    every = max(1, tensor.count // SAMPLED)
    stride = max(1, STRIDE // every)
    sampled = [p for _, p in tensor.each(lambda c, _: _strided(sizes(c), stride), every)]
    for search, own in zip(searches, zip(*sampled, strict=True), strict=True):
        search.guess(torch.cat(own))

    def look(changes: list[Tensor], start: int) -> list[Any]:
        series = zip(searches, sizes(changes), strict=True)
        return [None if search.found else search.look(own) for search, own in series]

    while not all(search.found for search in searches):
        for _, piece in tensor.each(look):
            for search, seen in zip(searches, piece, strict=True):
                if seen is not None:
                    search.add(*seen)
        for search in searches:
            if not search.found:
                search.conclude()
    return _with_equals(tensor, sizes, searches, equals)


def _strided(series: Sequence[Tensor], stride: int) -> list[Tensor]:
    return [each[::stride].clone() for each in series]


def _with_equals(
    tensor: TensorPieces,
    sizes: Callable[[list[Tensor]], Sequence[Tensor]],
    searches: "Sequence[_Search]",
    equals: bool,
) -> list[Largest]:
    """The answers; where only some of equals stay, with how many there are before each piece."""
    some = [search.stay < search.equals and not equals for search in searches]
    before: list[dict[int, int]] = [{} for _ in searches]
    if any(some):

        def look(changes: list[Tensor], start: int) -> list[int]:
            series = zip(searches, sizes(changes), strict=True)
            return [int((own == search.last).count_nonzero()) for search, own in series]

        seen = [0] * len(searches)
        for start, counts in tensor.each(look):
            for own, so_far in zip(before, seen, strict=True):
                own[start] = so_far
            seen = [one + other for one, other in zip(seen, counts, strict=True)]
    return [
        Largest(search.last, own if part else None, search.stay)
        for search, own, part in zip(searches, before, some, strict=True)
    ]


class _Search:
    """For the entry of a rank, from 0 the smallest, among those within two bounds."""

    def __init__(self, entries: int, rank: int) -> None:
        self.found = rank >= entries
        self.last = math.inf
        self.equals = self.stay = 0  # of the last: how many there are, and are among the largest
        self.low, self.high = -math.inf, math.inf  # both excluded
        self.entries, self.inside, self.rank = entries, entries, rank
        self.room = max(ROOM, entries // 16)

    def guess(self, sample: Tensor) -> None:
        """Between which numbers the entry lies, from some of the series."""
        self.floor, self.top = self.low, self.high
        inside = sample[(sample > self.low) & (sample < self.high)].sort().values
        if not len(inside):
            self.room = self.inside  # nothing to guess from: all are collected
        elif self.inside > self.room:
            place, margin = self.rank / self.inside, MARGIN
            low, high = (math.floor((place + side * margin) * len(inside)) for side in (-1, 1))
            self.floor = float(inside[low]) if low >= 0 else self.low
            self.top = float(inside[high]) if high < len(inside) else self.high
        self.counts = [0, 0, 0, 0]  # below the floor, at it, between, at the top
        self.held, self.sample = _Held(min(self.room, self.inside)), _Held(self.entries // STRIDE)

    def look(self, sizes: Tensor) -> tuple[list[int], Tensor, Tensor]:
        """What a piece has in each of these places, what lies between, and a sample."""
        between = sizes[(sizes > self.floor) & (sizes < self.top)]
        below = at_floor = at_top = 0
        if self.floor > self.low:
            inside = sizes < self.floor
            if self.low > -math.inf:
                inside &= sizes > self.low
            below = int(inside.count_nonzero())
            at_floor = int((sizes == self.floor).count_nonzero())
        if self.floor < self.top < self.high:
            at_top = int((sizes == self.top).count_nonzero())
        return [below, at_floor, len(between), at_top], between, sizes[::STRIDE]

    def add(self, counts: list[int], between: Tensor, sample: Tensor) -> None:
        self.counts = [one + other for one, other in zip(self.counts, counts, strict=True)]
        self.sample.add(sample)
        self.held.add(between)

    def conclude(self) -> None:
        """The entry, or narrower bounds."""
        below, to_floor, to_between, to_top = accumulate(self.counts)
        if self.rank < below:
            self._narrow(self.low, self.floor, below, 0)
        elif self.rank < to_floor:
            self._settle(self.floor, self.counts[1], self.rank - below)
        elif self.rank < to_between and self.counts[2] <= self.room:
            held, rank = self.held.entries, self.rank - to_floor
            last = float(held.kthvalue(rank + 1).values)
            rank -= int((held < last).count_nonzero())
            self._settle(last, int((held == last).count_nonzero()), rank)
        elif self.rank < to_between:  # too many: a narrower guess is made next
            self._narrow(self.floor, self.top, self.counts[2], to_floor)
        elif self.rank < to_top:
            self._settle(self.top, self.counts[3], self.rank - to_between)
        elif self.top == math.inf:  # the others are infinite
            self._settle(self.top, self.inside - to_top, self.rank - to_top)
        else:
            self._narrow(self.top, self.high, self.inside - to_top, to_top)

    def _settle(self, last: float, equals: int, rank: int) -> None:
        self.found, self.last = True, last
        self.equals, self.stay = equals, equals - rank
        self.held = self.sample = _Held(0)

    def _narrow(self, low: float, high: float, inside: int, before: int) -> None:
        self.low, self.high = low, high
        self.inside, self.rank = inside, self.rank - before
        self.guess(self.sample.entries)


class _Held:
    """Entries copied from pieces into one block, so that what pieces were made of is free again."""

    def __init__(self, room: int) -> None:
        self.block, self.count = torch.empty(room, dtype=torch.float64), 0

    def add(self, some: Tensor) -> None:
        """As many as there is room for."""
        some = some[: len(self.block) - self.count]
        self.block[self.count : self.count + len(some)] = some
        self.count += len(some)

    @property
    def entries(self) -> Tensor:
        return self.block[: self.count]
