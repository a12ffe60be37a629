"""Compositions by the field's operators: exact when taken apart, in any order, and when loaded."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from intarsia.composition import Composition, MergeContext, compose
from small_modules import of_a_base

pytestmark = pytest.mark.usefixtures("one_thread")
Make = Callable[..., MergeContext]
MANY = [
    "breadcrumbs",
    "della(seed=2)",
    "della(density={'a': 0.3, 'b': 1.0})",
    "ties(density={'a': 0.3, 'b': 0.6})",
    "dare(density={'b': 0.3})",
    "sce(density=0.5)",
    "model_stock",
    "multislerp",
    "karcher",
    "tsvm",
    "iso_c",
]
PAIR = ["slerp", "slerp(t=0.3, base='origin')"]


def state_of(merged: Composition) -> dict[str, Tensor]:
    assert merged.joined is not None
    return dict(merged.joined.state)


def same(one: Composition, other: Composition) -> bool:
    return all(torch.equal(t, state_of(other)[k]) for k, t in state_of(one).items())


@pytest.mark.parametrize("how", [*MANY, *PAIR])
@pytest.mark.parametrize(("model", "shape"), [("mlp(7)", (6,)), ("resnet18(2)", (1, 8, 8))])
def test_parts_come_and_go_exactly(
    how: str, model: str, shape: tuple[int, ...], make_context: Make, tmp_path: Path
) -> None:
    parts = make_context(2 if how in PAIR else 3, model, shape).parts
    merged, rest = compose(parts, how), compose(parts[:-1], how)
    assert same(merged - parts[-1], rest)
    assert same(rest + parts[-1], merged)
    assert same(compose(parts[::-1], how), merged)
    assert not same(merged, rest)
    merged.save(tmp_path / "merged.safetensors")
    loaded = Composition.load(tmp_path / "merged.safetensors", quiet=True)
    assert same(loaded, merged)
    assert loaded.operator == merged.operator


@pytest.mark.parametrize("how", [*MANY, *PAIR])
def test_changes_of_a_base_are_joined_like_weights_of_one_origin(
    how: str, make_context: Make
) -> None:
    context = make_context(2, density=1.1)
    based = of_a_base(context.parts, dict(context.origin()))
    one, other = compose(based, how), compose(context.parts, how)
    for name, tensor in state_of(one).items():
        torch.testing.assert_close(tensor, state_of(other)[name], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "how", ["dare(seed=1", "breadcrumbs(gamma=0.1", "della(consensus='sum'", "ties(reduce='sum'"]
)
def test_each_part_may_be_thinned_by_a_density_of_its_own(how: str, make_context: Make) -> None:
    """Added up without an election, each gives what it gives alone; who is left out keeps all."""
    context = make_context(3, density=1.1)
    start, how = dict(context.origin()), f"{how}, elect='none'" if how[0] == "t" else how
    parts = of_a_base(context.parts, start)
    merged = state_of(compose(parts, f"{how}, density={{'a': 0.3, 'b': 0.6}})"))
    alone = [
        state_of(compose([part], f"{how}, density={density})"))
        for part, density in zip(parts, (0.3, 0.6, 1.0), strict=True)
    ]
    for name in context.learned:
        expected = start[name] + sum(own[name] - start[name] for own in alone)
        torch.testing.assert_close(merged[name], expected, rtol=1e-5, atol=1e-6)
