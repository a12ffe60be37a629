"""EMR as a composition: networks of one elected change, taken apart and saved like any other.

Against fusion_bench and by hand: test_field_operators.py.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from intarsia.composition import Composition, MergeContext, compose
from intarsia.composition.operators.logits.emr import modulated
from intarsia.errors import CompositionError, RecipeError
from intarsia.modules import logits_of
from small_modules import of_a_base

pytestmark = pytest.mark.usefixtures("one_thread")
Make = Callable[..., MergeContext]
X = torch.randint(0, 256, (20, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("rescale", ["paper", "fusion_bench"])
def test_every_network_is_its_mask_and_scale_of_one_change(
    rescale: str, make_context: Make
) -> None:
    context = make_context(3)
    origin, names = context.origin(), context.learned
    taus, masks = [], []
    for part in context.parts:
        own = [part.state[n].double() - origin[n].double() * part.mask[n] for n in names]
        taus.append(own)
    elected = []
    for i in range(len(names)):
        each = torch.stack([own[i] for own in taus])
        sign = torch.where(each.sum(0) > 0, 1.0, -1.0)
        elected.append(sign * (each * sign).clamp_min(0).amax(0))
        masks.append(each * elected[-1] > 0)
    made = modulated(context, rescale=rescale)  # type: ignore[arg-type]
    for k, (part, new) in enumerate(zip(context.parts, made, strict=True)):
        kept = [torch.where(m[k], e, 0) for m, e in zip(masks, elected, strict=True)]
        reduce = torch.mean if rescale == "fusion_bench" else torch.sum
        scale = sum(reduce(t.abs()) for t in taus[k]) / sum(reduce(t.abs()) for t in kept)
        for name, change in zip(names, kept, strict=True):
            expected = origin[name].double() * part.mask[name] + scale * change
            torch.testing.assert_close(new.state[name].double(), expected, atol=1e-6, rtol=1e-5)


def test_changes_of_a_base_give_the_same(make_context: Make) -> None:
    context = make_context(3, density=1.1)
    bare = modulated(context)
    based = modulated(MergeContext(tuple(of_a_base(context.parts, dict(context.origin())))))
    for one, other in zip(bare, based, strict=True):
        for name in context.learned:
            torch.testing.assert_close(one.state[name], other.state[name], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("join", ["logits", "own", "entropy_router"])
def test_the_logits_of_these_networks_are_joined(join: str, make_context: Make) -> None:
    context = make_context(3)
    merged = compose(context.parts, f"emr(join={join!r})")
    expected = compose(modulated(context), join)
    assert torch.equal(logits_of(merged, X), logits_of(expected, X))
    assert merged.parts == context.parts
    plain = compose(context.parts, join)
    assert not torch.equal(logits_of(merged, X), logits_of(plain, X))


def test_one_module_is_itself_and_removal_is_exact(make_context: Make, tmp_path: Path) -> None:
    parts = make_context(3).parts
    alone = compose(parts[:1], "emr")
    torch.testing.assert_close(logits_of(alone, X), logits_of(parts[0].to_module(), X))
    merged, rest = compose(parts, "emr"), compose(parts[:2], "emr")
    fewer = merged - parts[2]
    assert torch.equal(logits_of(fewer, X), logits_of(rest, X))
    assert not torch.equal(logits_of(fewer, X), logits_of(merged, X))
    assert torch.equal(logits_of(fewer + parts[2], X), logits_of(merged, X))
    turned = compose(parts[::-1], "emr")
    assert torch.equal(logits_of(turned, X), logits_of(merged, X))
    merged.save(tmp_path / "emr.safetensors")
    loaded = Composition.load(tmp_path / "emr.safetensors", quiet=True)
    assert torch.equal(logits_of(loaded, X), logits_of(merged, X))


def test_a_part_that_did_not_move_stays_at_the_origin(make_context: Make) -> None:
    context = make_context(2, density=1.1)
    still = replace(context.parts[0], name="z", state=context.origin(), mask={})
    *_, last = modulated(MergeContext((*context.parts, still)))
    assert all(torch.equal(t, context.origin()[n]) for n, t in last.state.items())


def test_what_does_not_fit_is_refused(make_context: Make) -> None:
    parts = make_context(2).parts
    other = replace(parts[1], origin="another")
    with pytest.raises(CompositionError, match="origin"):
        compose([parts[0], other], "emr")
    with pytest.raises(RecipeError, match="emr has no join 'sum'"):
        compose(parts, "emr(join='sum')")
