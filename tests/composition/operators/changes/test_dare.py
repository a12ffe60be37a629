"""DARE: what is dropped, how the rest is rescaled, and what the libraries make of the same draw."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import product
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from intarsia.composition import OPERATORS, MergeContext, compose
from intarsia.composition.operators.arithmetic import combination
from intarsia.composition.operators.changes.dare import DARE, draw, drop
from intarsia.composition.operators.changes.ties import join

pytestmark = pytest.mark.usefixtures("one_thread")

Library = Callable[[str], ModuleType]
Tensors = list[Tensor]
Weights = tuple[float, ...]

SIZES = (12, 1, 40, 7)
WEIGHTS = [(1.0, 1.0, 1.0), (0.5, 2.0, 1.25), (1.0, -0.7, 0.3), (-1.0, -2.0, 0.5)]
DENSITY = 0.4


@pytest.fixture
def each() -> Tensors:
    return list(torch.randn(3, sum(SIZES), generator=torch.Generator().manual_seed(0)))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Tensors:
    """Our draw, which torch.bernoulli then gives to a library too, tensor after tensor."""
    ours = [draw(name, sum(SIZES), DENSITY, seed=3) for name in "abc"]
    pieces = [torch.split(mask, SIZES) for mask in ours]
    # both libraries take the three models of a tensor before the next tensor
    queue = [pieces[model][tensor] for tensor in range(len(SIZES)) for model in range(3)]

    def bernoulli(density: Tensor, **_: Any) -> Tensor:
        return queue.pop(0).reshape(density.shape).to(density.dtype)

    monkeypatch.setattr(torch, "bernoulli", bernoulli)
    return ours


def ours(each: Tensors, kept: Tensors, weights: Weights, preset: str, consensus: str) -> Tensor:
    how = DARE[preset]
    left = [drop(v, k, DENSITY, how.rescale, SIZES) for v, k in zip(each, kept, strict=True)]
    if consensus == "sum":
        return combination(weights, left)
    return join(left, weights, SIZES, replace(how.ties, scale=1.0))


def both_ways(test: Callable[..., None]) -> Callable[..., None]:
    """Whatever the weights, for DARE with a sum and with TIES."""
    names = [("dare_linear", "sum"), ("dare_ties", "ties")]
    by_name = pytest.mark.parametrize(("name", "consensus"), names)(test)
    return pytest.mark.parametrize("weights", WEIGHTS)(by_name)


@both_ways
def test_peft_equals_peft(
    name: str, consensus: str, weights: Weights, each: Tensors, kept: Tensors, library: Library
) -> None:
    theirs = getattr(library("peft.utils.merge_utils"), name)
    pieces = zip(*(torch.split(v, SIZES) for v in each), strict=True)
    expected = torch.cat([theirs(list(p), torch.tensor(weights), DENSITY) for p in pieces])
    torch.testing.assert_close(ours(each, kept, weights, "peft", consensus), expected)


@both_ways
def test_mergekit_equals_mergekit(
    name: str, consensus: str, weights: Weights, each: Tensors, kept: Tensors, library: Library
) -> None:
    merge = library("mergekit.merge_methods").merge_tensors
    settings = {
        "weight": {i + 1: w for i, w in enumerate(weights)},
        "density": dict.fromkeys((1, 2, 3), DENSITY),
    }
    expected = torch.cat(
        [
            merge([torch.zeros_like(p[0]), *p], name, parameters=settings, base_index=0)
            for p in zip(*(torch.split(v, SIZES) for v in each), strict=True)
        ]
    )
    torch.testing.assert_close(ours(each, kept, weights, "mergekit", consensus), expected)


@pytest.mark.parametrize("consensus", ["sum", "ties"])
def test_fusion_bench_equals_fusion_bench(
    consensus: str,
    each: Tensors,
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It drops where torch.rand is at most the sparsity, and trims once more for TIES."""
    utils = library("fusion_bench.method.dare.utils")
    fusion = library("fusion_bench.method.ties_merging.ties_merging_utils")
    kept = [draw(name, sum(SIZES), DENSITY, seed=3) for name in "abc"]
    queue = list(kept)
    monkeypatch.setattr(torch, "rand_like", lambda t: queue.pop(0).to(t.dtype))
    left = [torch.nn.Parameter(v.clone()) for v in each]
    for vector in left:
        utils.param_random_drop_(vector, 1 - DENSITY, rescale=True)
    stacked = torch.stack([v.data for v in left])
    expected = stacked.sum(0) if consensus == "sum" else fusion.ties_merging(stacked, 0.2, "sum")
    seen = ours(each, kept, (1.0, 1.0, 1.0), "fusion_bench", consensus)
    torch.testing.assert_close(seen, expected)
    capsys.readouterr()


@pytest.mark.parametrize("weights", WEIGHTS)
def test_task_arithmetic_equals_the_libraries(
    weights: Weights, each: Tensors, library: Library
) -> None:
    peft = library("peft.utils.merge_utils")
    seen = combination(weights, each)
    torch.testing.assert_close(seen, peft.task_arithmetic(each, torch.tensor(weights)))
    merge = library("mergekit.merge_methods").merge_tensors
    settings = {"weight": {i + 1: w for i, w in enumerate(weights)}}
    base = torch.zeros_like(each[0])
    expected = merge([base, *each], "task_arithmetic", parameters=settings, base_index=0)
    torch.testing.assert_close(seen, expected)


def test_rescaling_by_hand() -> None:
    vector, kept = torch.tensor([1.0, -3.0, 2.0, 5.0]), torch.tensor([True, False, True, False])
    assert drop(vector, kept, 0.5, "none", (2, 2)).tolist() == [1.0, 0.0, 2.0, 0.0]
    assert drop(vector, kept, 0.5, "density", (2, 2)).tolist() == [2.0, 0.0, 4.0, 0.0]
    assert drop(vector, kept, 0.5, "norm", (2, 2)).tolist() == [4.0, 0.0, 7.0, 0.0]
    nothing = torch.zeros(4, dtype=torch.bool)
    assert drop(vector, nothing, 0.5, "norm", (2, 2)).tolist() == [0.0] * 4
    small = torch.tensor([8e-8, 8e-8, 4e-8, 4e-8], dtype=torch.float64)
    assert drop(small, kept, 0.5, "norm", (4,)).tolist() == pytest.approx([1.6e-7, 0, 8e-8, 0])
    assert drop(small, kept, 0.5, "norm", (2, 2)).tolist() == [8e-8, 0.0, 4e-8, 0.0]
    assert drop(vector, kept, 1, "norm", (2, 2)).tolist() == [1.0, 0.0, 2.0, 0.0]
    edge = torch.tensor([1e-7, 1e-7], dtype=torch.float64)
    assert drop(edge, kept[:2], 0.5, "norm", (2,)).tolist() == [2e-7, 0.0]


def test_a_draw_is_the_same_everywhere_and_keeps_its_share() -> None:
    assert draw("a", 12, 0.5, seed=0).int().tolist() == [1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]
    many = draw("a", 100_000, 0.3, seed=1)
    assert float(many.double().mean()) == pytest.approx(0.3, abs=0.005)
    assert draw("a", 1000, 1.0, seed=1).all()
    other, seeded = draw("b", 100_000, 0.3, seed=1), draw("a", 100_000, 0.3, seed=2)
    for another in (other, seeded):
        assert float((many & another).double().mean()) == pytest.approx(0.09, abs=0.005)
    assert torch.equal(many[:50], draw("a", 50, 0.3, seed=1))


def test_a_part_is_dropped_alike_in_any_company(make_context: Callable[..., MergeContext]) -> None:
    """Disjoint masks show each part's own entries: they do not change when another part leaves."""
    context = make_context(3, disjoint=True)

    def dared(context: MergeContext) -> dict[str, Tensor]:
        spec = OPERATORS.spec("dare(density=0.5, seed=4)")
        states = [part.state for part in context.parts]
        return OPERATORS.call(spec, states=states, context=context)

    merged, fewer = dared(context), dared(MergeContext(context.parts[:2]))
    for name in context.plan:
        own = context.masks[0][name] | context.masks[1][name]
        assert torch.equal(merged[name][own], fewer[name][own])


def test_what_is_left_is_rescaled_unless_told_not_to(
    make_context: Callable[..., MergeContext],
) -> None:
    """With the base taken as zero and one part, the joined state is what is left of it."""
    context = make_context(1, density=1.1)
    state = context.parts[0].state

    def dared(text: str) -> dict[str, Tensor]:
        return OPERATORS.call(OPERATORS.spec(text), states=[state], context=context)

    kept = dared("dare(density=0.5, base='zero', rescale=False)")
    rescaled = dared("dare(density=0.5, base='zero')")
    for name in context.learned:
        stays = kept[name] != 0
        assert torch.equal(kept[name][stays], state[name][stays])
        torch.testing.assert_close(rescaled[name], 2 * kept[name])
    assert sum(int((kept[name] != 0).sum()) for name in context.learned) > 0


@pytest.mark.parametrize("density", [0.25, 0.7, 1.0])
def test_the_expected_value_over_all_masks_is_the_task_vector(density: float) -> None:
    """Every mask of five entries, by its probability."""
    vector = torch.tensor([1.5, -2.0, 0.25, 0.0, 3.0], dtype=torch.float64)
    mean = torch.zeros_like(vector)
    for mask in product([True, False], repeat=5):
        chance = density ** sum(mask) * (1 - density) ** (5 - sum(mask))
        mean += chance * drop(vector, torch.tensor(mask), density, "density", (2, 3))
    torch.testing.assert_close(mean, vector, atol=1e-12, rtol=0)


def test_every_entry_is_kept_as_often_as_the_density_says(each: Tensors) -> None:
    """Within five standard errors over the seeds, and so is the mean of what is left."""
    vector, seeds, density = each[0].double(), 4000, 0.3
    masks = [draw("a", len(vector), density, seed) for seed in range(seeds)]
    often = torch.stack(masks).double().mean(0)
    error = (density * (1 - density) / seeds) ** 0.5
    assert float((often - density).abs().max()) < 5 * error
    left = torch.stack([drop(vector, mask, density, "density", SIZES) for mask in masks]).mean(0)
    torch.testing.assert_close(left, vector * often / density, atol=1e-12, rtol=1e-12)


def test_task_arithmetic_of_modules_equals_fusion_bench(
    make_context: Callable[..., MergeContext], library: Library
) -> None:
    """Whole states of one origin, unpruned.

    By the functions that fusion_bench's task_arithmetic_merge calls: in this version the whole of
    it stops at its own check, which takes parameters and tensors for different types.
    """
    steps = library("fusion_bench.utils.state_dict_arithmetic")
    context = make_context(model="mlp(7)", density=1.1)
    origin = dict(context.origin())
    vectors = [steps.state_dict_sub(dict(part.state), origin) for part in context.parts]
    vector = steps.state_dict_mul(reduce(steps.state_dict_add, vectors), 0.3)
    expected = steps.state_dict_add(origin, vector)
    joined = compose(context.parts, "task_arithmetic(scale=0.3)").joined
    assert joined is not None
    for name, tensor in joined.state.items():
        torch.testing.assert_close(tensor, expected[name])
