"""Weights joined entry by entry, and what is made of task vectors."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from intarsia.composition import OPERATORS, MergeContext
from intarsia.composition.operators.arithmetic import TOLERANCE, normalised, off_the_sum
from intarsia.errors import RecipeError
from unusable_settings import REFUSED_IN_JOINING, UNUSABLE

pytestmark = pytest.mark.usefixtures("one_thread")

Make = Callable[..., MergeContext]
NUMBERS = st.floats(-3, 3, width=32)
# Kinds of a mean of changes.
AVERAGING = ("multislerp", "karcher(base='origin')", "model_stock", "sce")
# What is linear in the modules, or keeps a module that is alone.
ALONE = [
    "sum",
    "sum(affine='mean')",
    "mean",
    "weighted",
    "weighted(normalise=True)",
    "task_arithmetic",
    "task_arithmetic(base='zero')",
    "ties(density=1)",
    "ties(density=1, base='zero', preset='peft')",
    "ties(preset='mergekit')",
    "ties(preset='fusion_bench', density=1, scale=1)",
    "dare(density=1)",
    "dare(density=1, preset='mergekit', consensus='ties')",
    "fisher",
    "regmean",
    "breadcrumbs(density=1)",
    "breadcrumbs(density=1, consensus='ties')",
    "della(density=1)",
    "sce",
    "sce(density=0.5)",
    "model_stock",
    "model_stock(by_unit=True)",
    "slerp",
    "slerp(t=0.2, base='origin')",
    "multislerp",
    "karcher",
    "karcher(base='origin')",
    "tsvm",
]
# What joins no more than two modules.
PAIRS = ["slerp", "slerp(t=0.2, base='origin')"]
FIELD = [
    "breadcrumbs",
    "breadcrumbs(density=0.4, gamma=0.2, consensus='ties')",
    "della(density=0.6, seed=3)",
    "della(consensus='sum', preset='mergekit')",
    "sce(density=0.3)",
    "iso_c",
    "tsvm(weights={'a': 2})",
]


def join(how: str, context: MergeContext) -> dict[str, Tensor]:
    spec = OPERATORS.spec(how)
    states = [part.state for part in context.parts]
    return OPERATORS.call(spec, states=states, context=context)


def close(one: dict[str, Tensor], other: dict[str, Tensor], atol: float = 1e-6) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype, name
        torch.testing.assert_close(one[name], other[name], atol=atol, rtol=1e-5, msg=name)


def stacked(context: MergeContext, name: str) -> Tensor:
    return torch.stack([part.state[name].double() for part in context.parts])


@pytest.mark.parametrize("how", ALONE)
@pytest.mark.parametrize("model", ["mlp(7)", "resnet18(2)"])
def test_one_module_is_itself(how: str, model: str, make_context: Make) -> None:
    shape = (6,) if model == "mlp(7)" else (3, 8, 8)
    context = make_context(1, model, shape, samples=20)
    close(join(how, context), dict(context.parts[0].state), atol=1e-5)


@pytest.mark.parametrize(
    "how",
    [
        *(how for how in ALONE if how not in PAIRS),
        *FIELD,
        *("ties(density=0.3)", "dare(density=0.5, consensus='ties')", "ties(reduce='max')"),
    ],
)
def test_the_order_of_the_parts_does_not_matter(how: str, make_context: Make) -> None:
    context = make_context(3, samples=20)
    turned = make_context(parts=context.parts[::-1], samples=20)
    close(join(how, context), join(how, turned))


@pytest.mark.parametrize(
    "how",
    ["sum", "weighted", "task_arithmetic", "task_arithmetic(base='zero')", "fisher"]
    + [f"ties(preset={p!r}, density=1, scale=1)" for p in ("paper", "peft", "fusion_bench")]
    + ["ties(preset='mergekit')", "dare(density=1, consensus='ties', preset='peft')"]
    + ["breadcrumbs(density=1, consensus='ties')", "della(density=1)"],
)
def test_disjoint_masks_give_the_sum(how: str, make_context: Make) -> None:
    """Each entry has one owner: what it says is not averaged, and the origin is not added twice."""
    context = make_context(3, disjoint=True, samples=20)
    joined = join(how, context)
    for name in context.plan:
        expected = stacked(context, name).sum(0).float()
        if how == "fisher":  # divides by what it multiplied with
            torch.testing.assert_close(joined[name], expected, rtol=1e-6, atol=0)
        else:
            assert torch.equal(joined[name], expected), name


@pytest.mark.parametrize(
    "how",
    [
        "mean",
        "regmean",
        "fisher",
        "task_arithmetic",
        "ties",
        "dare",
        *PAIRS,
        "multislerp",
        "karcher",
        "karcher(base='origin')",
        "model_stock",
        "tsvm(base='zero')",
        *FIELD,
    ],
)
def test_entries_that_no_part_keeps_stay_zero(how: str, make_context: Make) -> None:
    context = make_context(2, density=0.3, samples=20)
    joined = join(how, context)
    for name in context.plan:
        nobody = ~torch.stack([mask[name] for mask in context.masks]).any(0)
        assert nobody.any()
        assert (joined[name][nobody] == 0).all(), name


@settings(max_examples=20)
@given(weights=st.lists(NUMBERS, min_size=3, max_size=3), scale=NUMBERS)
def test_task_arithmetic_is_its_formula(
    weights: list[float], scale: float, make_context: Make
) -> None:
    context = make_context(3)
    names = dict(zip("abc", weights, strict=True))
    joined = join(f"task_arithmetic(scale={scale}, weights={names})", context)
    origin = context.origin()
    for name in context.plan:
        masks = [mask[name].double() for mask in context.masks]
        start = origin[name].double()
        expected = torch.stack(masks).amax(0) * start
        for weight, mask, part in zip(weights, masks, context.parts, strict=True):
            expected += scale * weight * (part.state[name].double() - mask * start)
        torch.testing.assert_close(joined[name].double(), expected, atol=1e-5, rtol=1e-5)
    zero = join(f"task_arithmetic(scale={scale}, weights={names}, base='zero')", context)
    close(
        zero, join(f"weighted(weights={ {n: scale * w for n, w in names.items()} })", context), 1e-5
    )


SCALED = ("breadcrumbs(0.5, ", "della(", "sce(", "tsvm(", "iso_c(")


@given(factor=st.sampled_from([0.25, 0.5, 2.0, 4.0]))
def test_scaling_the_task_vectors_scales_what_is_joined(factor: float, make_context: Make) -> None:
    context = make_context(3, density=1.0)
    origin = context.origin()
    for how in (
        "task_arithmetic(",
        "ties(density=0.3, ",
        "ties('peft', ",
        "dare(seed=3, ",
        *SCALED,
    ):
        once, more = (join(f"{how}scale={scale})", context) for scale in (1.0, factor))
        for name in context.plan:
            torch.testing.assert_close(
                more[name] - origin[name],
                factor * (once[name] - origin[name]),
                atol=1e-5,
                rtol=1e-5,
            )


@pytest.mark.parametrize(
    "how",
    ["task_arithmetic", "ties(density=1)", "dare(density=0.4)", "breadcrumbs", "della"],
)
def test_a_part_that_did_not_move_is_neutral(how: str, make_context: Make) -> None:
    context = make_context(2, density=1.0)
    still = replace(context.parts[0], name="z", state=context.origin(), mask={})
    close(join(how, MergeContext((*context.parts, still))), join(how, context))


@pytest.mark.parametrize(
    ("how", "factors"),
    [
        ("mean", (1 / 3, 1 / 3, 1 / 3)),
        ("weighted(0.5)", (0.5, 0.5, 0.5)),
        ("weighted({'a': 2, 'c': -1.5})", (2, 1, -1.5)),
        ("weighted({'a': 2, 'c': -1.5}, normalise=True)", (2 / 1.5, 1 / 1.5, -1)),
    ],
)
def test_linear_combinations(how: str, factors: tuple[float, ...], make_context: Make) -> None:
    context = make_context(3)
    joined = join(how, context)
    for name in context.plan:
        expected = torch.tensordot(torch.tensor(factors).double(), stacked(context, name), 1)
        torch.testing.assert_close(joined[name].double(), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("affine", ["sum", "mean"])
def test_gamma_and_beta_by_sum_or_mean(affine: str, make_context: Make) -> None:
    context = make_context(2, "resnet18(2)", (3, 8, 8), density=0.6)
    joined = join(f"sum(affine={affine!r})", context)
    for name, entry in context.plan.items():
        each = stacked(context, name)
        normalisation = name.replace("weight", "running_mean").replace("bias", "running_mean")
        if not entry.learned:
            continue
        expected = each.sum(0)
        if affine == "mean" and normalisation in context.plan:
            expected = expected / (each != 0).sum(0).clamp_min(1)
        torch.testing.assert_close(joined[name].double(), expected, atol=1e-6, rtol=1e-6, msg=name)


@pytest.mark.parametrize("how", ["sum", "mean", "weighted(0.3)", "ties", "fisher", "regmean"])
def test_buffers_are_joined_alike_by_all(how: str, make_context: Make) -> None:
    context = make_context(2, "resnet18(2)", (3, 8, 8), density=0.6, samples=8)
    joined = join(how, context)
    for name, entry in context.plan.items():
        if entry.learned:
            continue
        each = stacked(context, name)
        if "num_batches" in name:
            assert joined[name] == each.max()
            continue
        kept = stacked(context, name.rpartition(".")[0] + ".weight") != 0
        some = (each * kept).sum(0) / kept.sum(0)
        expected = torch.where(kept.any(0), some, each.mean(0))
        torch.testing.assert_close(joined[name].double(), expected, atol=1e-6, rtol=1e-6, msg=name)


@pytest.mark.parametrize(("how", "message"), (UNUSABLE | REFUSED_IN_JOINING).items())
def test_settings_are_explained(how: str, message: str, make_context: Make) -> None:
    with pytest.raises(RecipeError, match=message):
        join(how, make_context(3, samples=4))


@pytest.mark.parametrize("name", ["sum", "task_arithmetic", "ties", "dare", "fisher", "regmean"])
def test_papers_have_addresses(name: str) -> None:
    operator: Any = OPERATORS[name]
    assert operator.paper.startswith("https://")
    assert operator.samples == (name in ("fisher", "regmean"))


@pytest.mark.parametrize("how", ["slerp", "slerp(base='origin')", "iso_c", "model_stock"])
def test_two_in_turn_give_the_same(how: str, make_context: Make) -> None:
    context = make_context(2)
    close(join(how, context), join(how, make_context(parts=context.parts[::-1])))


@pytest.mark.parametrize(
    "how",
    [
        *AVERAGING,
        *("mean", "karcher", "model_stock(by_unit=True)"),
        *("slerp", "slerp(base='origin', t=0.3)"),
    ],
)
def test_equal_modules_give_what_each_is(how: str, make_context: Make) -> None:
    part = make_context(1, density=0.6).parts[0]
    twins = MergeContext((part, replace(part, name="b")))
    close(join(how, twins), dict(part.state), atol=1e-5)


@pytest.mark.parametrize(
    "how",
    [
        *AVERAGING,
        *("slerp(base='origin')", "tsvm", "iso_c", "breadcrumbs", "della", "sce(density=0.5)"),
    ],
)
def test_changes_of_zero_leave_the_origin(how: str, make_context: Make) -> None:
    part = make_context(1, density=1.1).parts[0]
    still = [replace(part, name=name, state=part_origin(make_context)) for name in "ab"]
    close(join(how, MergeContext(tuple(still))), dict(part_origin(make_context)))


def part_origin(make_context: Make) -> dict[str, Tensor]:
    return dict(make_context(1, density=1.1).origin())


def test_what_is_off_a_sum_is_more_than_rounding() -> None:
    def off(value: float, *logits: float) -> float | None:
        each = [torch.tensor([logit], dtype=torch.float64) for logit in logits]
        return off_the_sum(torch.tensor([value], dtype=torch.float64), each)

    assert off(TOLERANCE**2, 0.0) is None  # a thousandth, at least of a thousandth
    assert off(2 * TOLERANCE**2, 0.0) == 2 * TOLERANCE**2
    assert off(4.0 + 7e-3, 6.0, -2.0) is None  # of the sizes that were added
    assert off(4.0 + 9e-3, 6.0, -2.0) == pytest.approx(9e-3)
    assert TOLERANCE == 1e-3


def test_weights_that_nearly_cancel_are_not_divided_by_rounding() -> None:
    assert normalised([3.0, 1.0], "it") == [0.75, 0.25]
    assert normalised([1.0, -1.0 + 1e-6], "it")[0] == pytest.approx(1e6)
    with pytest.raises(RecipeError, match=r"^it: the weights \[1.0, -0.99"):
        normalised([1.0, -1.0 + 1e-8], "it")
