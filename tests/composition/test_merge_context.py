"""What operators keep of a part changes their time and not a bit of what they make."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from intarsia.composition import MergeContext, compose
from intarsia.composition.merge_context import StatsCache
from intarsia.composition.operators import fisher, regmean
from intarsia.modules import Module

pytestmark = pytest.mark.usefixtures("one_thread")

Make = Callable[..., MergeContext]
ROOMS = {"fisher": fisher, "regmean": regmean}


@pytest.fixture(params=ROOMS)
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An operator that has kept nothing yet."""
    monkeypatch.setattr(ROOMS[request.param], "_CACHE", StatsCache())
    return request.param


def forget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ROOMS[name], "_CACHE", StatsCache())


def state(merged: Any) -> dict[str, torch.Tensor]:
    return merged.joined.state


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(tensor, state(other)[key]) for key, tensor in state(one).items())


def test_kept_and_fresh_are_the_same_bits(
    name: str, make_context: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = make_context(4, samples=40)
    a, b, c, d = context.parts
    merged = compose([a, b, c], name, samples=context.samples)
    kept = ROOMS[name]._CACHE
    assert len(kept) == 3
    grown = compose([b, c], name, samples=context.samples).add(d).remove("b")
    assert len(kept) == 4
    again = compose([a, b, c], name, samples=context.samples)
    forget(name, monkeypatch)
    assert same(compose([c, d], name, samples=context.samples), grown)
    forget(name, monkeypatch)
    fresh = compose([a, b, c], name, samples=context.samples)
    assert same(fresh, merged)
    assert same(fresh, again)


def test_a_part_is_looked_at_once(
    name: str, make_context: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    room = ROOMS[name]
    function = {"fisher": "diagonal", "regmean": "gram_matrices"}[name]
    find = getattr(room, function)
    monkeypatch.setattr(room, function, lambda *given: seen.append(1) or find(*given))
    context = make_context(3, samples=20)
    merged = compose(context.parts, name, samples=context.samples)
    merged.remove("a")
    assert len(seen) == 3
    # other samples, another temperature and other weights are asked about anew
    compose(context.parts, name, samples=context.samples.x[:10])
    assert len(seen) == 6
    warmer = [replace(part, temperature=2.0) for part in context.parts]
    assert not same(merged, compose(warmer, name, samples=context.samples))
    assert len(seen) == 9
    first = context.parts[0]
    moved = replace(first, state={key: 2 * tensor for key, tensor in first.state.items()})
    compose([moved, *context.parts[1:]], name, samples=context.samples)
    assert len(seen) == 10


def test_a_custom_network_is_asked_each_time(name: str, make_context: Make) -> None:
    def plain(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 5), nn.ReLU(), nn.Linear(5, outputs))

    def bent(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 5), nn.Tanh(), nn.Linear(5, outputs))

    context = make_context(2, model=plain, samples=20)
    # As in files of old, which do not say what the factory's network computed.
    parts = [
        replace(part, architecture=replace(part.architecture, probe=None)) for part in context.parts
    ]
    one = compose(parts, name, samples=context.samples)
    assert len(ROOMS[name]._CACHE) == 0
    others: list[Module] = [replace(part, factory=bent) for part in parts]
    assert [o.digest for o in others] == [p.digest for p in parts]
    assert not same(one, compose(others, name, samples=context.samples))


def test_room_is_bounded_and_the_oldest_goes(make_context: Make) -> None:
    context = make_context(3, samples=5)
    inputs = context.scaled("a test")
    asked: list[int] = []

    def find(network: nn.Module) -> dict[str, torch.Tensor]:
        asked.append(1)
        return {"x": torch.zeros(10, dtype=torch.float64)}  # 80 bytes

    def ask(kept: StatsCache, *parts: Module) -> int:
        asked.clear()
        list(kept.each(replace(context, parts=parts), inputs, find))
        return len(asked)

    a, b, c = context.parts
    for kept in (StatsCache(entries=2), StatsCache(size=170)):
        assert ask(kept, a, b) == 2
        assert ask(kept, a) == 0
        assert ask(kept, c) == 1  # b was used longest ago
        assert len(kept) == 2
        assert ask(kept, a) == 0
        assert ask(kept, b) == 1
    small = StatsCache(size=79)
    assert ask(small, a, b, c) == ask(small, a, b, c) == 3
    assert len(small) == 0
