"""TIES step by step, and each preset against the library that it is named after.

The presets are also compared with plain loops, which need no library: entry by entry, in the words
of the paper and of the libraries' own code (peft 0.21, mergekit 0.1.5, fusion_bench 0.2.33).
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from intarsia.composition.operators.changes.ties import PRESETS, elect, join, reduce, trim

pytestmark = pytest.mark.usefixtures("one_thread")

Library = Callable[[str], ModuleType]

SIZES = (12, 1, 40, 7)
WEIGHTS = [(1.0, 1.0, 1.0), (0.5, 2.0, 1.25), (1.0, -0.7, 0.3), (-1.0, -2.0, 0.5), (1.0, -1.0, 0.0)]
DENSITIES = [0.0, 0.05, 0.2, 0.5, 0.99, 1.0]


def vectors(seed: int = 0, integers: bool = False) -> list[Tensor]:
    """Three flat task vectors; whole numbers make sums of 0 and magnitudes that are equal."""
    draw = torch.Generator().manual_seed(seed)
    size = (3, sum(SIZES))
    if integers:
        return list(torch.randint(-3, 4, size, generator=draw).float())
    return list(torch.randn(size, generator=draw))


def by_tensor(each: Sequence[Tensor], function: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """A library's function on the task vectors of one tensor after another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft warns of a density of 1
        pieces = zip(*(torch.split(v, SIZES) for v in each), strict=True)
        return torch.cat([function(list(piece)) for piece in pieces])


@pytest.mark.parametrize("elected", ["total", "frequency"])
def test_peft_equals_peft(elected: str, library: Library) -> None:
    peft = library("peft.utils.merge_utils")
    each = vectors()
    start = replace(PRESETS["peft"], elect="frequency" if elected == "frequency" else "mass")
    for density, weights in product(DENSITIES, WEIGHTS):
        given = torch.tensor(weights), density
        expected = by_tensor(each, lambda t, given=given: peft.ties(t, *given, elected))
        seen = join(each, weights, SIZES, replace(start, density=density))
        torch.testing.assert_close(seen, expected)


def test_without_an_election_it_is_peft_magnitude_prune(library: Library) -> None:
    peft = library("peft.utils.merge_utils")
    each = vectors()
    start = replace(PRESETS["peft"], elect="none", reduce="sum")
    for density, weights in product(DENSITIES, WEIGHTS):
        given = torch.tensor(weights), density
        expected = by_tensor(each, lambda t, given=given: peft.magnitude_prune(t, *given))
        seen = join(each, weights, SIZES, replace(start, density=density))
        torch.testing.assert_close(seen, expected)


@pytest.mark.parametrize(("normalize", "scale"), [(True, 1.0), (False, 0.4)])
def test_mergekit_equals_mergekit(normalize: bool, scale: float, library: Library) -> None:
    merge = library("mergekit.merge_methods").merge_tensors
    each = vectors()
    start = replace(PRESETS["mergekit"], scale=scale)
    if not normalize:
        start = replace(start, reduce="sum")
    for density, weights in product(DENSITIES, WEIGHTS):
        given = {
            "weight": {i + 1: w for i, w in enumerate(weights)},
            "density": dict.fromkeys((1, 2, 3), density),
            "normalize": normalize,
            "lambda": scale,
        }

        def theirs(t: list[Tensor], given: dict[str, Any] = given) -> Tensor:
            base = torch.zeros_like(t[0])
            return merge([base, *t], "ties", parameters=given, base_index=0)

        seen = join(each, weights, SIZES, replace(start, density=density))
        torch.testing.assert_close(seen, by_tensor(each, theirs))


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("reduced", ["sum", "mean", "max"])
def test_fusion_bench_equals_fusion_bench(
    reduced: Any, integers: bool, library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    """It knows no weights: they are given with the task vectors. It scales outside, by 0.3."""
    fusion = library("fusion_bench.method.ties_merging.ties_merging_utils")
    each = vectors(integers=integers)
    start = replace(PRESETS["fusion_bench"], reduce=reduced)
    for density, weights in product(DENSITIES[:-1], WEIGHTS):  # it fails at a density of 1
        stacked = torch.stack([v * w for v, w in zip(each, weights, strict=True)])
        expected = 0.3 * fusion.ties_merging(stacked, density, reduced)
        seen = join(each, weights, SIZES, replace(start, density=density))
        torch.testing.assert_close(seen, expected)
    assert "Disjoint" in capsys.readouterr().out


# Plain loops ------------------------------------------------------------------------------------


def cut(values: list[float], count: int) -> list[float]:
    """The `count` largest by magnitude, the earlier of equals."""
    order = sorted(range(len(values)), key=lambda i: -abs(values[i]))
    return [v if i in order[:count] else 0.0 for i, v in enumerate(values)]


def cut_each(values: list[float], density: float, least: int) -> list[float]:
    kept, start = [], 0
    for size in SIZES:
        kept += cut(values[start : start + size], max(least, int(density * size)))
        start += size
    return kept


def cut_at(values: list[float], density: float) -> list[float]:
    place = len(values) - int(density * len(values))
    edge = sorted(map(abs, values))[place - 1] if place else 0.0
    return [v if abs(v) >= edge else 0.0 for v in values]


def loop(preset: str, each: list[list[float]], weights: Sequence[float], d: float) -> list[float]:
    n = len(each[0])
    if preset == "paper":
        trimmed = [cut(v, int(d * n)) for v in each]
    elif preset == "fusion_bench":
        trimmed = [cut_at(v, d) for v in each]
    else:
        trimmed = [cut_each(v, d, int(preset == "mergekit" and d > 0)) for v in each]
    columns = list(zip(*trimmed, strict=True))
    votes = [
        sum(column)
        if preset == "peft"
        else sum(w * v for w, v in zip(weights, column, strict=True))
        for column in columns
    ]
    majority = sum((vote > 0) - (vote < 0) for vote in votes)
    joined = []
    for column, vote in zip(columns, votes, strict=True):
        if preset == "paper" and vote == 0:
            joined.append(0.0)
            continue
        up = vote > 0 or (vote == 0 and (preset != "fusion_bench" or majority > 0))
        pairs = list(zip(weights, column, strict=True))
        if preset == "peft":
            agree = [(w, v) for w, v in pairs if (v > 0 if up else v < 0)]
        else:
            agree = [(w, v) for w, v in pairs if (w * v > 0 if up else w * v < 0)]
        value = sum(w * v for w, v in agree)
        if preset == "mergekit":
            value /= sum(w for w, _ in agree) or 1
        elif preset != "fusion_bench":
            value /= max(len(agree), 1)
        joined.append(value * (0.3 if preset == "fusion_bench" else 1))
    return joined


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_equal_plain_loops(preset: str, integers: bool) -> None:
    each = [v.double() for v in vectors(1, integers)]
    for density, weights in product(DENSITIES, WEIGHTS):
        if integers:  # exact in binary, so that sums are 0 where they should be
            weights = tuple(round(weight * 4) / 4 for weight in weights)
        seen = join(each, weights, SIZES, replace(PRESETS[preset], density=density))
        expected = loop(preset, [v.tolist() for v in each], weights, density)
        torch.testing.assert_close(seen, torch.tensor(expected, dtype=torch.float64))


# The steps --------------------------------------------------------------------------------------

PAPER = replace(PRESETS["paper"], density=0.5)


def test_trim_by_hand() -> None:
    vector = torch.tensor([1.0, -4.0, 2.0, 0.5, 0.1, -0.3])
    trimmed = trim(vector, (3, 3), PAPER)
    assert trimmed.tolist() == [1.0, -4.0, 2.0, 0.0, 0.0, 0.0]
    tensor = trim(vector, (3, 3), replace(PAPER, trim="tensor"))
    assert tensor.tolist() == [0.0, -4.0, 0.0, 0.5, 0.0, 0.0]
    edge = trim(vector, (3, 3), replace(PAPER, keep="threshold"))
    assert edge.tolist() == [1.0, -4.0, 2.0, 0.5, 0.0, 0.0]
    some = trim(vector, (3, 3), replace(PAPER, trim="tensor", keep="some", density=0.1))
    assert some.tolist() == [0.0, -4.0, 0.0, 0.5, 0.0, 0.0]


def test_equal_magnitudes_keep_the_earlier() -> None:
    assert trim(torch.tensor([1.0, -1.0, 1.0, 1.0]), (4,), PAPER).tolist() == [1.0, -1.0, 0.0, 0.0]


@given(values=st.lists(st.integers(-3, 3), min_size=1, max_size=30), density=st.floats(0, 1))
def test_what_is_kept_is_what_a_stable_sort_puts_first(values: list[int], density: float) -> None:
    vector = torch.tensor(values, dtype=torch.float32)
    how = replace(PRESETS["paper"], density=density, trim="whole", keep="exact")
    order = torch.sort(vector.abs(), descending=True, stable=True).indices
    expected = torch.zeros_like(vector)
    first = order[: int(density * len(values))]
    expected[first] = vector[first]
    assert torch.equal(trim(vector, [len(values)], how), expected)


def test_elect_by_hand() -> None:
    votes = [torch.tensor([3.0, -2.0, 1.0, -5.0]), torch.tensor([-1.0, -2.0, -1.0, 1.0])]
    votes.append(torch.tensor([-1.0, 0.0, 0.0, 1.0]))
    signs = {
        ("mass", "none"): [1.0, -1.0, 0.0, -1.0],
        ("mass", "positive"): [1.0, -1.0, 1.0, -1.0],
        ("mass", "majority"): [1.0, -1.0, -1.0, -1.0],
        ("frequency", "none"): [-1.0, -1.0, 0.0, 1.0],
    }
    for (by, zero), expected in signs.items():
        seen = elect(votes, replace(PAPER, elect=by, zero=zero))  # type: ignore[arg-type]
        assert seen is not None
        assert seen.tolist() == expected
    assert elect(votes, replace(PAPER, elect="none")) is None


def test_reduce_by_hand() -> None:
    each = [torch.tensor([2.0, 4.0]), torch.tensor([-6.0, 1.0])]
    agree = [torch.tensor([True, False]), torch.tensor([True, False])]
    for how, expected in {
        "sum": [-4.0, 0.0],
        "mean": [-2.0, 0.0],
        "weighted_mean": [-1.0, 0.0],
        "max": [-6.0, 0.0],
    }.items():
        assert reduce(each, agree, (1.0, 3.0), how).tolist() == expected  # type: ignore[arg-type]


def test_presets_begin_at_the_defaults_of_their_libraries() -> None:
    begin = {name: (preset.density, preset.scale) for name, preset in PRESETS.items()}
    assert begin == {
        "paper": (0.2, 1.0),
        "peft": (0.2, 1.0),
        "mergekit": (1.0, 1.0),
        "fusion_bench": (0.2, 0.3),
    }


def test_of_equal_magnitudes_the_first_is_the_largest() -> None:
    each = [torch.tensor([2.0, -3.0]), torch.tensor([-2.0, 3.0]), torch.tensor([2.0, -1.0])]
    agree = [torch.ones(2, dtype=torch.bool)] * 3
    assert reduce(each, agree, (1.0, 1.0, 1.0), "max").tolist() == [2.0, -3.0]


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=25)
@given(seed=st.integers(0, 50), density=st.sampled_from(DENSITIES))
def test_presets_have_no_favourites(preset: str, seed: int, density: float) -> None:
    """Neither the vectors' order nor their common sign matters; a vector of 0 adds nothing."""
    how = replace(PRESETS[preset], density=density)
    each, weights = vectors(seed), (0.5, 2.0, 1.25)
    joined = join(each, weights, SIZES, how)
    turned = join(each[::-1], weights[::-1], SIZES, how)
    torch.testing.assert_close(turned, joined)
    torch.testing.assert_close(join([-v for v in each], weights, SIZES, how), -joined)
    still = join([*each, torch.zeros_like(each[0])], (*weights, 9.0), SIZES, how)
    torch.testing.assert_close(still, joined)


def test_weights_that_cancel_each_other_out_divide_nothing() -> None:
    """0.1 + 0.2 - 0.3 is 6e-17 in floating point, and no sum to divide by."""
    each = [torch.tensor([1.0, 1.0]), torch.tensor([2.0, 2.0]), torch.tensor([-3.0, 3.0])]
    each = [vector.double() for vector in each]
    weights = (0.1, 0.2, -0.3)
    seen = join(each, weights, (2,), PRESETS["mergekit"])
    # all agree on the first; of the second the last alone has the sign, which divides by -0.3
    torch.testing.assert_close(seen, torch.tensor([0.1 + 0.4 + 0.9, 3.0]).double())
    small = join(each, [1e-12 * weight for weight in (0.1, 0.2, 0.3)], (2,), PRESETS["mergekit"])
    torch.testing.assert_close(small, torch.tensor([-3.0, 14 / 6]).double())
