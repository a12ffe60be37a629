"""Pairing: disjoint pairs of class sets, made of as few sets as can be, so of few modules."""

from collections.abc import Sequence
from itertools import combinations
from math import comb

from intarsia.data import disjoint_pairs, partition

Classes = tuple[str, ...]
MOST_SHUFFLES = 1000  # small catalogues run out of pairs long before


def pairs_of(
    catalogue: Sequence[str], size: int, count: int = 10, seed: int = 0
) -> list[tuple[Classes, Classes]]:
    """`count` distinct pairs of disjoint sets of `size` classes, or all where there are fewer.

    The catalogue is shuffled and cut into blocks, and all pairs of blocks are taken, shuffle after
    shuffle: ten pairs of two classes out of ten need five modules, not twenty. Where one shuffle
    has more pairs than are wanted, as with single classes, they are drawn from all pairs.
    """
    blocks = len(catalogue) // size
    if comb(blocks, 2) > count or blocks < 2:
        return disjoint_pairs(catalogue, size, count, seed)
    possible = comb(len(catalogue), 2 * size) * comb(2 * size, size) // 2
    found: dict[frozenset[Classes], tuple[Classes, Classes]] = {}
    for shuffle in range(MOST_SHUFFLES):
        cut = partition(catalogue, f"blocks({size})", seed=seed * MOST_SHUFFLES + shuffle)
        for pair in combinations([block for block in cut if len(block) == size], 2):
            found.setdefault(frozenset(pair), pair)
            if len(found) == min(count, possible):
                return list(found.values())
    return list(found.values())


def sets_of(pairs: Sequence[tuple[Classes, Classes]]) -> list[Classes]:
    """Every set of the pairs, once, in order."""
    return list(dict.fromkeys(classes for pair in pairs for classes in pair))
