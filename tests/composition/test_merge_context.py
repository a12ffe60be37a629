"""What operators keep of a part changes their time and not a bit of what they lay."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from intarsia.composition import Ground, compose
from intarsia.composition.merge_context import Kept
from intarsia.composition.operators import fisher, regmean
from intarsia.modules import Module

pytestmark = pytest.mark.usefixtures("one_thread")

Make = Callable[..., Ground]
ROOMS = {"fisher": fisher, "regmean": regmean}


@pytest.fixture(params=ROOMS)
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An operator that has kept nothing yet."""
    monkeypatch.setattr(ROOMS[request.param], "_KEPT", Kept())
    return request.param


def forget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ROOMS[name], "_KEPT", Kept())


def state(whole: Any) -> dict[str, torch.Tensor]:
    return whole.joined.state


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(tensor, state(other)[key]) for key, tensor in state(one).items())


def test_kept_and_fresh_are_the_same_bits(
    name: str, make_ground: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = make_ground(4, samples=40)
    a, b, c, d = ground.parts
    whole = compose([a, b, c], name, samples=ground.samples)
    kept = ROOMS[name]._KEPT
    assert len(kept) == 3
    grown = compose([b, c], name, samples=ground.samples).add(d).remove("b")
    assert len(kept) == 4
    again = compose([a, b, c], name, samples=ground.samples)
    forget(name, monkeypatch)
    assert same(compose([c, d], name, samples=ground.samples), grown)
    forget(name, monkeypatch)
    fresh = compose([a, b, c], name, samples=ground.samples)
    assert same(fresh, whole)
    assert same(fresh, again)


def test_a_part_is_looked_at_once(
    name: str, make_ground: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    room = ROOMS[name]
    function = {"fisher": "diagonal", "regmean": "gram_matrices"}[name]
    find = getattr(room, function)
    monkeypatch.setattr(room, function, lambda *given: seen.append(1) or find(*given))
    ground = make_ground(3, samples=20)
    whole = compose(ground.parts, name, samples=ground.samples)
    whole.remove("a")
    assert len(seen) == 3
    # other samples, another temperature and other weights are asked about anew
    compose(ground.parts, name, samples=ground.samples.x[:10])
    assert len(seen) == 6
    warmer = [replace(part, temperature=2.0) for part in ground.parts]
    assert not same(whole, compose(warmer, name, samples=ground.samples))
    assert len(seen) == 9
    first = ground.parts[0]
    moved = replace(first, state={key: 2 * tensor for key, tensor in first.state.items()})
    compose([moved, *ground.parts[1:]], name, samples=ground.samples)
    assert len(seen) == 10


def test_a_strangers_network_is_asked_each_time(name: str, make_ground: Make) -> None:
    def plain(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 5), nn.ReLU(), nn.Linear(5, outputs))

    def bent(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 5), nn.Tanh(), nn.Linear(5, outputs))

    ground = make_ground(2, model=plain, samples=20)
    # As in files of old, which do not say what the factory's network computed.
    parts = [
        replace(part, architecture=replace(part.architecture, probe=None)) for part in ground.parts
    ]
    one = compose(parts, name, samples=ground.samples)
    assert len(ROOMS[name]._KEPT) == 0
    others: list[Module] = [replace(part, factory=bent) for part in parts]
    assert [o.digest for o in others] == [p.digest for p in parts]
    assert not same(one, compose(others, name, samples=ground.samples))


def test_room_is_bounded_and_the_oldest_goes(make_ground: Make) -> None:
    ground = make_ground(3, samples=5)
    inputs = ground.scaled("a test")
    asked: list[int] = []

    def find(network: nn.Module) -> dict[str, torch.Tensor]:
        asked.append(1)
        return {"x": torch.zeros(10, dtype=torch.float64)}  # 80 bytes

    def ask(kept: Kept, *parts: Module) -> int:
        asked.clear()
        list(kept.each(replace(ground, parts=parts), inputs, find))
        return len(asked)

    a, b, c = ground.parts
    for kept in (Kept(entries=2), Kept(size=170)):
        assert ask(kept, a, b) == 2
        assert ask(kept, a) == 0
        assert ask(kept, c) == 1  # b was used longest ago
        assert len(kept) == 2
        assert ask(kept, a) == 0
        assert ask(kept, b) == 1
    small = Kept(size=79)
    assert ask(small, a, b, c) == ask(small, a, b, c) == 3
    assert len(small) == 0
