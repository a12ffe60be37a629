"""Operators carry traits, and one of another program's is asked for its own."""

import re
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import torch

from intarsia.composition import OPERATORS, MergeContext, compose, operator
from intarsia.composition.operators.changes.dare import DARE, Dare
from intarsia.composition.operators.changes.ties import PRESETS, Ties
from intarsia.composition.operators.inlay import inlay
from intarsia.composition.operators.registry import is_entrywise, is_tensorwise, joins_pieces
from intarsia.errors import CompositionError, LimitError, RecipeError
from intarsia.limits import account, limited
from unusable_settings import UNUSABLE

Make = Callable[..., MergeContext]


@pytest.fixture
def registered() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = set(OPERATORS)
    yield
    for name in OPERATORS.keys() - before:
        del OPERATORS[name]


def test_traits_are_of_one_kind_for_all() -> None:
    for how in OPERATORS.values():
        assert how.on in ("weights", "units", "logits")
        assert how.colour is None or re.fullmatch("#[0-9a-f]{6}", how.colour)
        assert not how.weight_sum or how.on == "weights"
        assert how.mask is None or how.on == "units"


@pytest.mark.parametrize("name", [n for n, how in OPERATORS.items() if how.logit_sum])
def test_a_logit_sum_is_one(name: str, make_context: Make) -> None:
    parts = make_context(3).parts
    x = torch.randint(0, 256, (20, *parts[0].architecture.shape), dtype=torch.uint8)
    with torch.no_grad():
        expected = sum(part.to_module()(x) for part in parts)
        torch.testing.assert_close(compose(parts, name)(x), expected)


@pytest.mark.usefixtures("registered")
def test_the_mask_of_units_is_the_operators_own(make_context: Make) -> None:
    def everything(context: MergeContext) -> dict[str, torch.Tensor]:
        state = inlay([part.state for part in context.parts], context)
        learned = (name for name, entry in context.plan.items() if entry.learned)
        return {name: torch.ones_like(state[name], dtype=torch.bool) for name in learned}

    @operator("dense_inlay", on="units", paper="none", mask=everything)
    def dense_inlay(states, context):  # type: ignore[no-untyped-def]
        return inlay(states, context)

    @operator("bare_inlay", on="units", paper="none")
    def bare_inlay(states, context):  # type: ignore[no-untyped-def]
        return inlay(states, context)

    parts = make_context(2).parts
    dense, bare = (compose(parts, name).joined for name in ("dense_inlay", "bare_inlay"))
    assert dense is not None
    assert bare is not None
    assert dense.density == 1.0
    assert all(torch.equal(mask, bare.state[name] != 0) for name, mask in bare.mask.items())


def test_an_unknown_trait_is_refused() -> None:
    with pytest.raises(RecipeError, match="no trait 'color': did you mean 'colour'"):
        OPERATORS.register("other", color="#000000")


def test_traits_of_our_operators() -> None:
    def having(trait: str) -> set[str]:
        return {name for name in OPERATORS if getattr(OPERATORS.entry(name), trait)}

    ours = {"fisher", "regmean", "inlay", "logits", "sum", "mean", "ties", "dare", "own"}
    assert having("samples") & ours == {"fisher", "regmean"}
    assert having("logit_sum") & ours == {"inlay", "logits"}
    assert having("weight_sum") & ours == {"sum"}
    assert having("mask") & ours == {"inlay"}
    on = {name: OPERATORS.entry(name).on for name in ours}
    assert {name for name in ours if on[name] == "weights"} == {
        *("fisher", "regmean", "sum", "mean", "ties", "dare"),
    }
    assert (on["inlay"], on["logits"], on["own"]) == ("units", "logits", "logits")


TENSORWISE = {"sum", "mean", "weighted", "task_arithmetic", "breadcrumbs", "della", "sce"} | {
    *("model_stock", "slerp", "multislerp", "karcher", "tsvm", "iso_c", "dare"),
}


def test_who_joins_one_tensor_after_another_says_so() -> None:
    on_weights = {name for name, how in OPERATORS.items() if how.on == "weights"}
    assert {name for name in on_weights if is_tensorwise(name)} == TENSORWISE
    assert not any(is_tensorwise(name) for name in OPERATORS.keys() - on_weights)
    assert is_tensorwise("ties(trim='tensor')")
    assert is_tensorwise("ties(preset='mergekit')")
    assert not is_tensorwise("ties(preset='mergekit', trim='whole')")
    assert not is_tensorwise("ties(preset='fusion_bench', trim='tensor')")
    assert is_tensorwise("dare(preset='mergekit', consensus='ties')")
    assert not is_tensorwise("dare(consensus='ties')")
    assert not is_tensorwise("sum(affine='mean')")


def test_who_joins_piece_by_piece_says_so() -> None:
    assert {name for name in OPERATORS if is_entrywise(name)} == {
        "sum", "mean", "weighted", "task_arithmetic", "dare",
    }  # fmt: skip
    assert is_entrywise("ties(preset='mergekit')")
    assert is_entrywise("dare(preset='mergekit', rescale=False)")
    for other in (
        "ties(preset='mergekit', density=0.9)",
        "ties(density=1)",
        "dare(preset='mergekit')",
        "dare(preset='mergekit', consensus='ties')",
        "sum(affine='mean')",
    ):
        assert not is_entrywise(other)


@pytest.mark.parametrize("how", [*sorted(TENSORWISE), "ties(preset='peft')"])
def test_what_is_tensorwise_depends_on_a_tensor_alone(how: str, make_context: Make) -> None:
    """All other tensors of the parts are changed: this one is joined as before."""
    context = make_context(2)
    spec = OPERATORS.spec(how)
    own = context.learned[0]
    states = [part.state for part in context.parts]
    others = [{n: t if n == own else 3 * t for n, t in state.items()} for state in states]
    one, other = (OPERATORS.call(spec, states=s, context=context) for s in (states, others))
    assert torch.equal(one[own], other[own])
    assert not torch.equal(one[context.learned[-1]], other[context.learned[-1]])


def test_slerp_joins_two_at_most(make_context: Make) -> None:
    with pytest.raises(CompositionError, match="slerp joins 2 modules at most, and there are 3"):
        compose(make_context(3).parts, "slerp")


@pytest.mark.usefixtures("registered")
def test_a_registered_function_becomes_its_entry() -> None:
    made = operator("mine", on="logits", paper="")(lambda logits, context: logits[0])
    assert made is OPERATORS["mine"]
    assert made(logits=["one", "two"], context=None) == "one"


def choices(kind: Any) -> tuple[Any, ...]:
    """What an annotation offers, as in `Literal["sum", "mean"] | None`."""
    each = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(choice for one in each if get_origin(one) is Literal for choice in get_args(one))


@pytest.mark.parametrize("name", OPERATORS)
def test_defaults_are_among_the_choices(name: str) -> None:
    for key, parameter in OPERATORS.parameters(name).items():
        if offered := choices(parameter.annotation):
            assert parameter.default in (*offered, None), key


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_presets_are_among_the_choices(preset: Ties) -> None:
    for key, kind in get_type_hints(Ties).items():
        if offered := choices(kind):
            assert getattr(preset, key) in offered, key


def test_presets_of_dare_are_among_the_choices() -> None:
    assert DARE.keys() == PRESETS.keys()
    for preset in DARE.values():
        assert preset.rescale in choices(get_type_hints(Dare)["rescale"])


TAKEN = {
    **{"sum": 1, "mean": 1, "weighted": 2, "task_arithmetic": 7, "ties": 11, "dare": 13},
    **{"inlay": 3, "fisher": 4},
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_operators_take_in_copies_of_the_parts(name: str, make_context: Make) -> None:
    """What is refused depends on it: whoever changes an operator counts again."""
    context = make_context(3)  # without samples, which fisher counts besides
    assert OPERATORS[name].memory(context) == TAKEN[name] * context.nbytes


def test_what_layers_read_of_the_samples_is_counted(make_context: Make) -> None:
    for count, rows in ((10, 10), (300, 256)):
        context = make_context(3, samples=count)
        read = 8 * rows * (6 + 7)  # columns of both layers, in float64
        assert OPERATORS["fisher"].memory(context) == 4 * context.nbytes + 2 * read


@pytest.mark.usefixtures("registered")
def test_what_joining_takes_is_counted_by_what_it_works_on(make_context: Make) -> None:
    """On logits nothing is made; an operator that does not say is taken to need four copies."""

    @operator("quiet", on="weights", paper="")
    def quiet(states, context):  # type: ignore[no-untyped-def]
        return dict(states[0])

    @operator("quiet_logits", on="logits", paper="")
    def quiet_logits(logits, context):  # type: ignore[no-untyped-def]
        return logits[0]

    context = make_context(3)
    part = context.nbytes // 3
    for name, held in (("logits", 3), ("quiet_logits", 3), ("quiet", 2 + 4 * 3 + 3 + 2)):
        for short in (0, 1):
            with limited(memory=held * part - short), account() as taken:
                taken.room = 1  # as if they were being read
                if not short:
                    compose(context.parts, name)
                    continue
                with pytest.raises(LimitError, match="joining 3 modules takes"):
                    compose(context.parts, name)


@pytest.mark.parametrize("name", [n for n, how in OPERATORS.items() if how.samples])
def test_who_looks_at_samples_says_so(name: str, make_context: Make) -> None:
    context = make_context(2)
    with pytest.raises(CompositionError, match=rf"^{name} needs samples: "):
        OPERATORS[name]([part.state for part in context.parts], context)


@pytest.mark.parametrize("name", ["weighted", "logit_weighted"])
def test_weights_that_add_up_to_0_are_refused_by_name(name: str, make_context: Make) -> None:
    with pytest.raises(RecipeError, match=rf"^{name}: the weights .* add up to 0"):
        compose(make_context(3).parts, f"{name}(0, normalise=True)")


@pytest.mark.parametrize(
    "setting",
    ["density=0.9", "scale=0.5", "trim='tensor'", "elect='none'", "reduce='sum'", "weights=0.5"],
)
def test_what_is_given_with_a_preset_replaces_its_own(setting: str, make_context: Make) -> None:
    context = make_context(3, density=1.1)
    states = [part.state for part in context.parts]
    usual, other = (
        OPERATORS.call(OPERATORS.spec(how), states=states, context=context)
        for how in ("ties", f"ties({setting})")
    )
    assert any(not torch.equal(usual[name], other[name]) for name in usual)


@pytest.mark.parametrize(("how", "message"), UNUSABLE.items())
def test_traits_are_asked_of_settings_that_can_be_used(how: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        is_tensorwise(how)
    assert is_tensorwise("ties(preset='mergekit', scale='auto')")


def test_pieces_are_asked_where_there_is_something_to_look_for() -> None:
    asked = {
        "mean": True,
        "task_arithmetic": True,
        "ties(preset='mergekit', density=0.5)": True,
        "ties(preset='mergekit')": False,
        "dare": False,
        "dare(preset='mergekit')": True,
        "slerp": True,
        "tsvm": False,
    }
    assert {how: joins_pieces(how) for how in asked} == asked
