"""Seeded stratified cuts, the same rows on every machine."""

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


def random_keys(count: int, seed: int, stream: int) -> np.ndarray:
    """Random 64-bit integers to sort by.

    Drawn raw from the bit generator, the one stream numpy promises never to change.
    """
    bits = np.random.PCG64(np.random.SeedSequence([check_seed(seed), stream]))
    return bits.random_raw(count)


def check_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise DataError(f"seed must be a whole number of at least 0, got {seed!r}")
    return int(seed)


def check_fraction(name: str, fraction: float) -> float:
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction < 1:
        raise DataError(f"{name} is a fraction of the rows, from 0 to below 1; got {fraction!r}")
    return float(fraction)


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
