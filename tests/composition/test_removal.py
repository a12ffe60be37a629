"""What a removed part leaves: the others to the last bit, and a sum of logits without its own."""

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from intarsia.composition import Composition, compose
from intarsia.composition.batchnorm import has_batchnorm, recalibrate
from intarsia.models import initialise, wiring_of
from intarsia.models.axes import OUTPUT, hidden_axes
from intarsia.models.units import live_units, take_units
from intarsia.modules import Module, compact, logits_of
from intarsia.pruning.group import Group
from intarsia.pruning.territory import territory
from small_modules import small_module

pytestmark = pytest.mark.usefixtures("one_thread")
CATALOGUE = ("0", "1", "2", "3")
MODELS = {
    "mlp": ("mlp(22, 13)", (6,), 0.3),
    "lenet": ("lenet", (1, 8, 8), 0.1),
    "resnet18": ("resnet18(4)", (1, 8, 8), 0.3),
    "vgg11": ("vgg11(4)", (1, 8, 8), 0.2),
    "fastnet": ("fastnet(4)", (1, 8, 8), 0.2),
}
CASES = [
    (model, how, gone)
    for model in MODELS
    for how in ("sum", "inlay")
    for gone in (("0", "2") if model in ("mlp", "lenet") else ("2",))
]


@cache
def parts_of(model: str, how: str) -> tuple[Module, ...]:
    """Four modules: territories of one origin for a sum, overlapping sparse ones for an inlay."""
    spec, shape, density = MODELS[model]
    network = initialise(spec, shape, len(CATALOGUE), seed=0)
    draw = torch.Generator().manual_seed(1)
    learned = {name for name, _ in network.named_parameters()}
    states = [
        {
            k: v + 0.3 * torch.randn(v.shape, generator=draw) if k in learned else v
            for k, v in network.state_dict().items()
        }
        for _ in CATALOGUE
    ]
    if how == "sum":
        wiring, count = wiring_of(network, shape), len(states)
        masks = territory(Group(states, [{}] * count, wiring, 0.0, [0] * count, range(count)))
    else:
        masks = [
            {
                k: torch.rand(v.shape, generator=draw) < (density if v.ndim > 1 else 1.1)
                for k, v in state.items()
                if k in learned
            }
            for state in states
        ]
    x = samples(model) / 255
    return tuple(
        small_module(
            name,
            normalised(network, {k: v * mask[k] if k in mask else v for k, v in state.items()}, x),
            mask,
            CATALOGUE,
            spec,
            shape,
        )
        for name, state, mask in zip(CATALOGUE, states, masks, strict=True)
    )


def normalised(network: nn.Module, state: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
    """With statistics as training leaves them: without, nothing gets through many layers."""
    network = copy.deepcopy(network)
    network.load_state_dict(state)
    if has_batchnorm(network):
        recalibrate(network, x)
    return dict(network.state_dict())


@cache
def whole_of(model: str, how: str) -> Composition:
    return compose(parts_of(model, how), how)


def samples(model: str) -> Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (32, *MODELS[model][1]), dtype=torch.uint8, generator=draw)


def blocks_of(merged: Composition) -> dict[str, Module]:
    """The units of each part cut out of the joined network, with the part's own output bias."""
    assert merged.joined is not None
    wiring = merged.joined.architecture.wiring()
    at = dict.fromkeys(hidden_axes(wiring), 0)
    blocks = {}
    for part in merged.parts:
        live = live_units(wiring, part.state, part.mask)
        keep = {axis: live[axis].nonzero().flatten() for axis in at}
        if str(merged.operator) == "inlay":  # side by side, in the order of the parts
            keep = {axis: torch.arange(len(units)) + at[axis] for axis, units in keep.items()}
        at = {axis: at[axis] + len(units) for axis, units in keep.items()}
        state = take_units(merged.joined.state, wiring, keep)
        shared = [n for n, e in wiring.items() if [a and a.name for a in e] == [OUTPUT]]
        state |= {name: part.state[name] for name in shared}
        blocks[part.name] = replace(compact(part), state=state, mask={})
    return blocks


@pytest.mark.parametrize(("model", "how", "gone"), CASES)
def test_the_others_keep_their_units_and_their_own_logits(model: str, how: str, gone: str) -> None:
    merged, x = whole_of(model, how), samples(model)
    before, after = blocks_of(merged), blocks_of(merged - gone)
    assert after.keys() == before.keys() - {gone}
    for name, block in after.items():
        small = compact(parts_of(model, how)[CATALOGUE.index(name)])
        for key, value in small.state.items():
            assert torch.equal(block.state[key], value)
            assert torch.equal(before[name].state[key], value)
        logits = [logits_of(m.to_module(), x) for m in (before[name], block, small)]
        assert torch.equal(logits[0], logits[1])
        assert torch.equal(logits[1], logits[2])


@pytest.mark.parametrize(("model", "how", "gone"), CASES)
def test_what_goes_is_the_logits_of_the_part(model: str, how: str, gone: str) -> None:
    merged, x = whole_of(model, how), samples(model)
    before, after = logits_of(merged, x), logits_of(merged - gone, x)
    own = logits_of(merged.parts[CATALOGUE.index(gone)].to_module(), x)
    torch.testing.assert_close(before - after, own, rtol=1e-5, atol=1e-5)
    assert own.std(dim=0).max() > 1e-3  # far above the tolerance


@pytest.mark.parametrize(("model", "how", "gone"), CASES)
def test_the_rest_is_what_composing_it_gives(model: str, how: str, gone: str) -> None:
    merged, x = whole_of(model, how), samples(model)
    rest = compose([part for part in merged.parts if part.name != gone], how)
    assert digest(merged - gone) == digest(rest)
    assert torch.equal(logits_of(merged - gone, x), logits_of(rest, x))
    again = (merged - gone) + merged.parts[CATALOGUE.index(gone)]
    assert digest(again) == digest(merged)
    assert torch.equal(logits_of(again, x), logits_of(merged, x))


def digest(merged: Composition) -> str:
    assert merged.joined is not None
    return merged.joined.digest
