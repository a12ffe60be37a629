"""Seeded stratified cuts, the same rows on every machine; groups of rows stay whole if asked."""

from collections.abc import Sequence

import numpy as np

from intarsia.errors import DataError


def stratified(
    y: np.ndarray, fraction: float, seed: int, *, stream: int = 0, keep: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Cut `fraction` of the rows out, class by class; return (rows left, rows cut), both ascending.

    The cut has round(fraction * N) rows. Every class gives at least one row and keeps at least
    `keep`, so a cut from many tiny classes can be larger. `stream` makes cuts with one seed
    independent of each other.
    """
    if fraction == 0:
        return np.arange(len(y)), np.arange(0)
    _, y, sizes = np.unique(y, return_inverse=True, return_counts=True)
    counts = _counts(sizes, fraction, keep)
    keys = random_keys(len(y), seed, stream)
    cut = np.zeros(len(y), dtype=bool)
    for index, count in enumerate(counts):
        rows = np.flatnonzero(y == index)
        cut[rows[np.argsort(keys[rows], kind="stable")[:count]]] = True
    return np.flatnonzero(~cut), np.flatnonzero(cut)


def stratified_groups(
    y: np.ndarray,
    groups: np.ndarray,
    names: Sequence[str],
    fraction: float,
    seed: int,
    *,
    stream: int = 0,
    keep: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """As `stratified`, but rows of one group go to one side; `names` are those of the classes in y.

    Groups are tried in random order, and one is cut out if that brings the fractions of all classes
    nearer to what is asked; how near depends on the groups. Every class is in at least one group of
    the cut and in `keep` of those left, or it is an error.
    """
    if fraction == 0:
        return np.arange(len(y)), np.arange(0)
    codes, groups = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(codes), len(names)), dtype=np.int64)  # groups x classes
    np.add.at(counts, (groups, y), 1)
    order = np.argsort(random_keys(len(codes), seed, stream), kind="stable")
    cut = _cut_groups(counts, names, fraction, order, keep)
    return np.flatnonzero(~cut[groups]), np.flatnonzero(cut[groups])


def equal_rows(*arrays: np.ndarray) -> np.ndarray:
    """A number for each row, the same for rows that are equal in all of these arrays."""
    # Adding 0 makes -0 one with 0.
    parts = [np.ascontiguousarray(a.reshape(len(a), -1) + a.dtype.type(0)) for a in arrays]
    table = np.concatenate([part.view(np.uint8).reshape(len(part), -1) for part in parts], axis=1)
    rows = np.ascontiguousarray(table).view(np.dtype((np.void, table.shape[1])))
    _, codes = np.unique(rows.ravel(), return_inverse=True)
    return codes


def random_keys(count: int, seed: int, stream: int, start: int = 0) -> np.ndarray:
    """Random 64-bit integers to sort by; of the stream those from the place `start` on.

    Drawn raw from the bit generator, the one stream numpy promises never to change.
    """
    bits = np.random.PCG64(np.random.SeedSequence([check_seed(seed), stream]))
    return bits.advance(start).random_raw(count)


def check_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise DataError(f"seed must be a whole number of at least 0, got {seed!r}")
    return int(seed)


def check_fraction(name: str, fraction: float) -> float:
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction < 1:
        raise DataError(f"{name} is a fraction of the rows, from 0 to below 1; got {fraction!r}")
    return float(fraction)


def _cut_groups(
    counts: np.ndarray, names: Sequence[str], fraction: float, order: np.ndarray, keep: int
) -> np.ndarray:
    """Which groups are cut out, from their counts of each class."""
    sizes = counts.sum(axis=0)
    holding = (counts > 0).sum(axis=0)  # groups that have a class
    if (holding < keep + 1).any():
        short = int(np.argmin(holding))
        raise DataError(
            f"class {names[short]!r} has rows in {holding[short]} groups, but each of the "
            f"{keep + 1} splits needs one of its own: give smaller groups, or leave the class out "
            "with classes=[...]"
        )
    cut = np.zeros(len(counts), dtype=bool)
    taken, left = np.zeros_like(sizes), holding.copy()

    def distance(rows: np.ndarray) -> float:
        return float((((rows / sizes) - fraction) ** 2).sum())

    def take(group: int) -> None:
        cut[group] = True
        taken[:] += counts[group]
        left[:] -= counts[group] > 0

    def can_go(group: int) -> bool:
        return not cut[group] and bool((left - (counts[group] > 0) >= keep).all())

    for group in order:
        if can_go(group) and distance(taken + counts[group]) < distance(taken):
            take(group)
    while (lacking := np.flatnonzero(taken == 0)).size:
        able = [g for g in order if counts[g, lacking[0]] and can_go(g)]
        if not able:
            raise DataError(
                f"no cut along the groups has class {names[lacking[0]]!r} on both sides: give "
                "smaller groups, or another seed"
            )
        take(min(able, key=lambda g: distance(taken + counts[g])))
    return cut


def _counts(sizes: np.ndarray, fraction: float, keep: int) -> np.ndarray:
    """Rows to cut from each class: largest remainders, each within one row of exact."""
    exact = fraction * sizes
    most = sizes - keep
    counts = np.clip(np.floor(exact).astype(np.int64), 1, most)
    total = round(fraction * int(sizes.sum()))
    for index in np.argsort(counts - exact, kind="stable"):
        if counts.sum() >= total:
            break
        if counts[index] < most[index]:
            counts[index] += 1
    return counts
