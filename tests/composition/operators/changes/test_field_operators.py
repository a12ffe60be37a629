"""Operators of the field against the libraries that have them, and against cases done by hand.

mergekit 0.1.5: slerp, multislerp, karcher, model_stock, breadcrumbs, della, sce. fusion_bench
0.2.33: slerp, TSV-M, Iso-C, EMR. What both the libraries and a hand can compute is
compared with both, so that something is left where the libraries are not installed.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from intarsia.composition.operators.changes.dare import uniform
from intarsia.composition.operators.changes.model_stock import stocked
from intarsia.composition.operators.changes.sce import select_and_erase, variance_of
from intarsia.composition.operators.changes.singular_vectors import isotropic, without_interference
from intarsia.composition.operators.changes.sparsified import (
    BREADCRUMBS,
    DELLA,
    chances,
    joined,
    magnitude_drop,
    without_extremes,
)
from intarsia.composition.operators.changes.spherical import (
    karcher_mean,
    mean_direction,
    slerp_tensors,
)
from intarsia.composition.operators.logits.emr import agrees, elect, rescaling

pytestmark = pytest.mark.usefixtures("one_thread")

Library = Callable[[str], ModuleType]
SHAPES = [(8, 5), (4, 9), (7,), (1, 6)]
WEIGHTS = (0.5, 2.0, 1.25)
FLOAT = torch.float64


def changes(shape: tuple[int, ...], count: int = 3, seed: int = 0) -> list[Tensor]:
    """Changes that have something in common."""
    draw = torch.Generator().manual_seed(seed)
    common = torch.randn(shape, generator=draw, dtype=FLOAT)
    return [
        0.6 * common + torch.randn(shape, generator=draw, dtype=FLOAT) * (1 + i)
        for i in range(count)
    ]


@pytest.fixture
def mergekit(library: Library) -> Callable[..., Tensor]:
    """`mergekit(method, changes, **parameters)` gives the joined change of a base of ones."""
    merge = library("mergekit.merge_methods").merge_tensors

    def run(method: str, each: list[Tensor], base: bool = True, **parameters: Any) -> Tensor:
        tensors = [change.clone() for change in each]
        if base:
            start = torch.ones_like(each[0])
            tensors = [start, *(start + tensor for tensor in tensors)]
        place = 0 if base else None
        if method == "slerp":
            place = 0
        result = merge(tensors, method, parameters=parameters, base_index=place)
        return result - start if base else result

    return run


def by_model(values: tuple[float, ...]) -> dict[int, float]:
    return {i + 1: value for i, value in enumerate(values)}


def shapes(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.parametrize("shape", SHAPES)(test)


def tensor(*rows: Any) -> Tensor:
    return torch.tensor(rows, dtype=FLOAT)


# Against the libraries ----------------------------------------------------------------------------


@shapes
@pytest.mark.parametrize("t", [0.0, 0.3, 0.5, 1.0])
def test_slerp_equals_both_libraries(
    shape: tuple[int, ...], t: float, mergekit: Callable[..., Tensor], library: Library
) -> None:
    fusion = library("fusion_bench.method.slerp.slerp_utils")
    pairs = [changes(shape, 2), [changes(shape)[0], 1.001 * changes(shape)[0]]]
    pairs += [
        [changes(shape)[0], -changes(shape)[0]],
        [changes(shape)[0], torch.zeros(shape).double()],
    ]
    for each in pairs:
        seen = slerp_tensors(each, t)
        torch.testing.assert_close(seen, mergekit("slerp", each, base=False, t=t))
        torch.testing.assert_close(seen, fusion.slerp(t, *each))


@shapes
def test_multislerp_equals_mergekit(
    shape: tuple[int, ...], mergekit: Callable[..., Tensor]
) -> None:
    each = changes(shape)
    share = [weight / sum(WEIGHTS) for weight in WEIGHTS]
    expected = mergekit("multislerp", each, weight=by_model(WEIGHTS))
    torch.testing.assert_close(mean_direction(each, share), expected, atol=1e-6, rtol=1e-6)
    opposite = [each[0], -each[0]]
    expected = mergekit("multislerp", opposite, weight=by_model((1.0, 1.0)))
    torch.testing.assert_close(mean_direction(opposite, [0.5, 0.5]), expected, atol=1e-6, rtol=1e-6)


@shapes
@pytest.mark.parametrize("steps", [0, 1, 10])
def test_karcher_equals_mergekit(
    shape: tuple[int, ...], steps: int, mergekit: Callable[..., Tensor]
) -> None:
    for each in (
        changes(shape),
        changes(shape, 2),
        [*changes(shape, 2), torch.zeros(shape).double()],
    ):
        even = [1 / len(each)] * len(each)
        expected = mergekit("karcher", each, base=False, max_iter=steps)
        torch.testing.assert_close(karcher_mean(each, even, steps, 1e-5), expected)


@shapes
@pytest.mark.parametrize("by_unit", [False, True])
def test_model_stock_equals_mergekit(
    shape: tuple[int, ...], by_unit: bool, mergekit: Callable[..., Tensor]
) -> None:
    for each in (changes(shape), changes(shape, 2)):
        expected = mergekit("model_stock", each, filter_wise=by_unit)
        torch.testing.assert_close(stocked(each, by_unit), expected)


def test_model_stock_of_two_is_its_formula() -> None:
    """The ratio of two is 2 cos / (1 + cos)."""
    one, other = changes((8, 5), 2)
    cosine = float((one * other).sum() / (one.norm() * other.norm()))
    expected = (one + other) / 2 * (2 * cosine / (1 + cosine))
    torch.testing.assert_close(stocked([one, other]), expected)


@shapes
@pytest.mark.parametrize("consensus", ["sum", "ties"])
def test_breadcrumbs_equal_mergekit(
    shape: tuple[int, ...], consensus: Any, mergekit: Callable[..., Tensor]
) -> None:
    name = "breadcrumbs" if consensus == "sum" else "breadcrumbs_ties"
    each = changes(shape)
    for density, gamma in [(0.9, 0.01), (0.5, 0.1), (0.7, 0.5), (0.3, 0.2), (1.0, 0.3)]:
        parameters = {"density": density, "gamma": gamma, "weight": by_model(WEIGHTS)}
        left = [without_extremes(change, density, gamma) for change in each]
        seen = joined(left, WEIGHTS, consensus, BREADCRUMBS)
        torch.testing.assert_close(seen, mergekit(name, each, **parameters), atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("shape", [(8, 5), (4, 9), (7,), (1, 6)])
@pytest.mark.parametrize("consensus", ["sum", "ties"])
def test_della_equals_mergekit(
    shape: tuple[int, ...],
    consensus: Any,
    mergekit: Callable[..., Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the same numbers drawn: what it asks torch.bernoulli for are the chances."""
    density, epsilon = 0.6, 0.2
    each = changes(shape)
    numbers = [uniform(name, each[0].numel(), 1) for name in "abc"]
    queue, asked = list(numbers), []

    def bernoulli(chance: Tensor) -> Tensor:
        asked.append(chance)
        return (queue.pop(0).reshape(chance.shape) < chance).to(chance.dtype)

    monkeypatch.setattr(torch, "bernoulli", bernoulli)
    name = "della" if consensus == "ties" else "della_linear"
    parameters = {"density": density, "epsilon": epsilon, "weight": by_model(WEIGHTS)}
    expected = mergekit(name, each, **parameters)
    left = [
        magnitude_drop(change, drawn, density, epsilon, "norm")
        for change, drawn in zip(each, numbers, strict=True)
    ]
    seen = joined(left, WEIGHTS, consensus, DELLA["mergekit"].ties)
    torch.testing.assert_close(seen, expected, atol=1e-5, rtol=1e-5)  # it draws in float32
    for chance, change in zip(asked, each, strict=True):
        seen = chances(change, density, epsilon)
        torch.testing.assert_close(chance.reshape(shape).double(), seen, atol=1e-6, rtol=1e-6)


@shapes
@pytest.mark.parametrize("density", [1.0, 0.7, 0.2])
def test_sce_equals_mergekit(
    shape: tuple[int, ...], density: float, mergekit: Callable[..., Tensor]
) -> None:
    each = changes(shape)
    expected = mergekit("sce", each, select_topk=density)
    torch.testing.assert_close(select_and_erase(each, density), expected)


@shapes
def test_tsvm_equals_fusion_bench(
    shape: tuple[int, ...], library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    if shape == (1, 6):
        pytest.skip("fusion_bench keeps nothing of a rank below the number of models")
    fusion = library("fusion_bench.method.task_singular_vector.utils.TSVM_utils")
    each = changes(shape)
    states = [{"x": change} for change in each]
    expected = fusion.compute_and_sum_svd_mem_reduction(states, accelerator="cpu")["x"]
    torch.testing.assert_close(without_interference(each, [1.0] * 3), expected)
    capsys.readouterr()


@shapes
def test_iso_c_equals_fusion_bench(
    shape: tuple[int, ...], library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    fusion = library("fusion_bench.method.isotropic_merging.iso_utils")
    each = changes(shape)
    expected = fusion.iso_c([{"x": change} for change in each], accelerator="cpu")["x"]
    torch.testing.assert_close(isotropic(each, [1.0] * 3), expected)
    capsys.readouterr()


def test_emr_equals_fusion_bench() -> None:
    """By what emr_reference.py wrote down of it."""
    known = json.loads((Path(__file__).parents[1] / "data" / "emr_fusion_bench.json").read_text())
    assert known["library"] == "fusion_bench 0.2.33"

    def flat(pieces: Any) -> Tensor:
        return torch.cat([tensor(piece).flatten() for piece in pieces])

    each = [flat(state.values()) for state in known["changes"]]
    sizes = [tensor(piece).numel() for piece in known["unified"].values()]
    elected = elect(each)
    torch.testing.assert_close(elected, flat(known["unified"].values()))
    for i, vector in enumerate(each):
        mask = agrees(vector, elected)
        assert torch.equal(mask.double(), flat(own[i] for own in known["masks"].values()))
        scale = rescaling(vector, torch.where(mask, elected, 0), sizes)
        assert scale == pytest.approx(known["scales"][i], rel=1e-5)


# By hand ------------------------------------------------------------------------------------------


def test_slerp_by_hand() -> None:
    """Half way round a right angle both have the weight 1 / sqrt 2."""
    seen = slerp_tensors([tensor(2.0, 0.0), tensor(0.0, 3.0)], 0.5)
    torch.testing.assert_close(seen, tensor(2.0, 3.0) / 2**0.5)
    third = slerp_tensors([tensor(1.0, 0.0), tensor(0.0, 1.0)], 1 / 3)
    torch.testing.assert_close(third, tensor(3**0.5 / 2, 0.5))
    near = slerp_tensors([tensor(1.0, 0.0), tensor(3.0, 0.0)], 0.25)
    torch.testing.assert_close(near, tensor(1.5, 0.0))


def test_means_of_directions_by_hand() -> None:
    each = [tensor(2.0, 0.0), tensor(0.0, 4.0)]
    for seen in (mean_direction(each, [0.5, 0.5]), karcher_mean(each, [0.5, 0.5], 10, 1e-5)):
        torch.testing.assert_close(seen, tensor(3.0, 3.0) / 2**0.5)
    # a third of the arc by its length, where the straight mean is nearer to the larger weight
    seen = karcher_mean([tensor(1.0, 0.0), tensor(0.0, 1.0)], [2 / 3, 1 / 3], 50, 1e-9)
    torch.testing.assert_close(seen, tensor(3**0.5 / 2, 0.5))
    straight = mean_direction([tensor(1.0, 0.0), tensor(0.0, 1.0)], [2 / 3, 1 / 3])
    torch.testing.assert_close(straight, tensor(2.0, 1.0) / 5**0.5)


def test_model_stock_by_hand() -> None:
    same = [tensor([1.0, 2.0], [3.0, 0.0])] * 3
    torch.testing.assert_close(stocked(same), same[0])
    apart = [tensor([1.0, 0.0], [1.0, 0.0]), tensor([0.0, 1.0], [1.0, 0.0])]
    # cosine 1/2 over the tensor, ratio 2/3; by unit 0 and 1
    torch.testing.assert_close(stocked(apart), (apart[0] + apart[1]) / 3)
    torch.testing.assert_close(stocked(apart, by_unit=True), tensor([0.0, 0.0], [1.0, 0.0]))
    opposite = [tensor(1.0, 2.0), tensor(-1.0, -2.0)]
    assert stocked(opposite).tolist() == [0.0, 0.0]


def test_breadcrumbs_by_hand() -> None:
    change = tensor(5.0, -1.0, 3.0, 0.5, -4.0, 2.0, 0.1, -0.2, 6.0, 0.3)
    left = without_extremes(change, 0.4, 0.2)
    assert left.tolist() == [0, -1.0, 3.0, 0, -4.0, 2.0, 0, 0, 0, 0]
    assert without_extremes(change, 0.9, 0.5).count_nonzero() == 9  # the density comes first
    assert without_extremes(change, 0.9, 0.5)[8] == 0


def test_della_by_hand() -> None:
    change = tensor([3.0, -1.0, 2.0], [0.0, 5.0, -4.0])
    expected = tensor([0.7, 0.3, 0.5], [0.3, 0.7, 0.5])
    torch.testing.assert_close(chances(change, 0.5, 0.2), expected)
    numbers = tensor(0.6, 0.6, 0.4, 0.2, 0.69, 0.9)
    left = magnitude_drop(change, numbers, 0.5, 0.2, "probability")
    torch.testing.assert_close(left, tensor([3 / 0.7, 0.0, 4.0], [0.0, 5 / 0.7, 0.0]))
    assert chances(tensor([1.0], [2.0]), 0.4, 0.1).tolist() == [[0.4], [0.4]]
    assert chances(torch.tensor(2.0), 0.5, 0.1).item() == 0.5


def test_sce_by_hand() -> None:
    one, other = tensor(2.0, 1.0, -1.0, 0.0), tensor(4.0, -3.0, -1.0, 2.0)
    energies = 6 / 4, 30 / 4
    mean = (energies[0] * 2 + energies[1] * 4) / sum(energies)
    seen = select_and_erase([one, other], 1.0)
    torch.testing.assert_close(seen, tensor(mean, -3.0, -1.0, 2.0))
    # three of four entries vary, by 1, 4 and 1: a third of them is the second
    assert select_and_erase([one, other], 0.34).tolist() == [0.0, -3.0, 0.0, 0.0]


def test_singular_vectors_by_hand() -> None:
    """Changes at right angles do not interfere: the leading half of each stays as it is."""
    one = torch.diag(tensor(3.0, 1.0, 0.0, 0.0))
    other = torch.diag(tensor(0.0, 0.0, 2.0, 5.0))
    seen = without_interference([one, other], [1.0, 1.0])
    torch.testing.assert_close(seen, one + other)
    flat = isotropic([one, other], [1.0, 1.0])
    torch.testing.assert_close(flat, torch.eye(4, dtype=FLOAT) * 11 / 4)


def test_emr_by_hand() -> None:
    one, other = tensor(2.0, -1.0, 3.0, 0.0), tensor(4.0, -2.0, -5.0, 1.0)
    elected = elect([one, other])
    assert elected.tolist() == [4.0, -2.0, -5.0, 1.0]
    mask = agrees(one, elected)
    assert mask.tolist() == [True, True, False, False]
    assert rescaling(one, torch.where(mask, elected, 0), [4]) == pytest.approx(6 / 6)
    assert rescaling(one, torch.where(mask, elected, 0), [2, 2]) == pytest.approx(3.0 / 3.0)
    assert rescaling(other, torch.where(agrees(other, elected), elected, 0), [4]) == 1.0
    assert rescaling(one, torch.zeros(4), [4]) == 0.0


def test_a_convolution_is_a_matrix_of_its_filters() -> None:
    each = changes((6, 2, 3, 3))
    flat = [change.flatten(1) for change in each]
    even = [1.0] * 3
    for join in (without_interference, isotropic):
        torch.testing.assert_close(join(each, even).flatten(1), join(flat, even))
    torch.testing.assert_close(stocked(each, True).flatten(1), stocked(flat, True))
    torch.testing.assert_close(chances(each[0], 0.5, 0.1).flatten(1), chances(flat[0], 0.5, 0.1))


def test_a_weight_of_0_counts_for_nothing_in_a_karcher_mean() -> None:
    """Also where it is all that has a direction."""
    one, nothing = tensor(3.0, 4.0), torch.zeros(2, dtype=FLOAT)
    assert karcher_mean([one, nothing], [0.0, 1.0], 10, 1e-5).tolist() == [0.0, 0.0]
    other = tensor(-1.0, 2.0)
    torch.testing.assert_close(
        karcher_mean([one, other, nothing], [0.0, 0.5, 0.5], 10, 1e-5), other / 2
    )


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_a_variance_is_torchs_whatever_the_pieces(count: int) -> None:
    each = changes((7, 30), count)
    expected = torch.stack(each).var(dim=0, correction=0)
    torch.testing.assert_close(variance_of(each), expected, rtol=1e-14, atol=0)
    columns = [variance_of([change[:, i] for change in each]) for i in range(30)]
    assert torch.equal(torch.stack(columns, dim=1), variance_of(each))
    single = [[variance_of([c[i, j] for c in each]) for j in range(30)] for i in range(7)]
    assert torch.equal(torch.stack([torch.stack(row) for row in single]), variance_of(each))
    assert not variance_of([tensor(0.1, 0.7)] * count).any()


def test_directions_that_cancel_out_but_for_rounding_give_the_weighted_mean() -> None:
    """What float32 leaves of opposite changes is no direction to be made as long as they are."""
    draw = torch.Generator().manual_seed(0)
    base, one = (torch.randn(50, generator=draw) for _ in range(2))
    mirrored = 2 * base - one
    each = [tensor.double() - base.double() for tensor in (one, mirrored)]
    assert float((each[0] + each[1]).norm()) > 0
    seen = mean_direction(each, [0.5, 0.5])
    torch.testing.assert_close(seen, (each[0] + each[1]) / 2)
    assert float(seen.norm()) < 1e-5
