"""What the page of pattern networks knows: moved weights against whole networks, and refusals."""

import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from intarsia.errors import DataError, IntarsiaError, ModelError, RecipeError
from intarsia.studio.patterns import PatternSession, open_patterns
from intarsia.sweetspot import PatternNetwork, initial_bank, load_network

QUICK = 0.2  # seconds of the processor in which a move is answered


@pytest.fixture(scope="module")
def session() -> PatternSession:
    return PatternSession([load_network("totem")], size=48)


def test_a_moved_weight_draws_what_the_changed_network_draws(session: PatternSession) -> None:
    network = session["totem"]
    for _, layer in session.layers("totem"):
        own = session.connections("totem", layer)[-1]
        moved = session.move("totem", own.place, own.value - 0.75)
        weights = [w.clone() for w in network.weights]
        weights[layer][own.place[1], own.place[2]] -= 0.75
        changed = PatternNetwork(network.layout, tuple(weights))
        assert torch.allclose(moved.picture, changed.image(48), atol=1e-4)
        error = float((changed.image(48) - network.image(48)).square().mean())
        assert moved.distance == pytest.approx(error, abs=1e-5)
        tile = moved.maps.shape[-1]
        assert torch.allclose(moved.maps, torch.stack(changed.maps(tile)), atol=1e-4)
        assert moved.unit_map.shape == (48, 48)


def test_back_at_its_value_the_picture_is_its_own(session: PatternSession) -> None:
    own = session.connections("totem", 0)[0]
    for value in (None, own.value, own.value + 5e-5):  # as a page rounds it
        moved = session.move("totem", own.place, value)
        assert moved.distance == 0
        assert torch.equal(moved.picture, session.picture("totem"))


def test_connections_are_those_of_the_layer_by_their_effect(session: PatternSession) -> None:
    network = session["totem"]
    for label, layer in session.layers("totem"):
        listed = session.connections("totem", layer)
        assert len(listed) == int(network.weights[layer].count_nonzero())
        assert [one.effect for one in listed] == sorted((o.effect for o in listed), reverse=True)
        assert str(layer + 1) in label or label == "outputs"


@pytest.mark.parametrize("name", ["totem", "skull", "apple-sgd"])
@pytest.mark.usefixtures("one_thread")
def test_a_move_at_128_pixels_takes_less_than_a_fifth_of_a_second(name: str) -> None:
    try:
        session = PatternSession([load_network(name)])
    except DataError:
        pytest.skip(f"needs {name} in the folder cppn of INTARSIA_DATA")
    assert session.size == 128
    place = session.connections(name, 0)[0].place  # all layers are drawn anew
    session.move(name, place)
    took = []
    for step in range(5):
        start = time.process_time()
        session.move(name, place, 0.3 + step / 10)
        took.append(time.process_time() - start)
    assert sorted(took)[2] < QUICK


PLACES: list[Any] = [
    None, "", "0,0", (0, 0), (0, 0, 0, 0), (99, 0, 0), (-1, 0, 0), (0, 10**9, 0), (0.0, 0, 0),
    [True, 0, 0], {"path": "x"}, math.nan, "../../etc", [[0], 0, 0],
]  # fmt: skip
VALUES: list[Any] = [math.nan, math.inf, -math.inf, 1e9, "1", "", [], {}, True, 10**400]


@pytest.mark.parametrize("place", PLACES, ids=repr)
def test_what_is_no_connection_is_refused(session: PatternSession, place: Any) -> None:
    with pytest.raises(RecipeError):
        session.move("totem", place, 0.5)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
def test_what_is_no_weight_is_refused(session: PatternSession, value: Any) -> None:
    place = session.connections("totem", 0)[0].place
    with pytest.raises(RecipeError, match="give a number from -1000 to 1000"):
        session.move("totem", place, value)


def test_unknown_networks_layers_and_zeros_are_refused(session: PatternSession) -> None:
    for name in (None, 3, "totme", ["totem"], {}):
        with pytest.raises(DataError, match="the studio has no network"):
            session.layers(name)
    for layer in (None, "0", 99, -1, 0.0, True):
        with pytest.raises(RecipeError, match="no connections into layer"):
            session.connections("totem", layer)
    zeros = (session["totem"].weights[1] == 0).nonzero()[0].tolist()
    with pytest.raises(RecipeError, match="is 0: choose another"):
        session.move("totem", (1, *zeros))


def test_what_cannot_be_a_page_is_refused() -> None:
    totem = load_network("totem")
    with pytest.raises(ModelError, match="at least one"):
        PatternSession([])
    with pytest.raises(ModelError, match=r"has 60 units.* use a size of 1057 or less"):
        PatternSession([totem], 1058)
    with pytest.raises(ModelError, match="nothing to move"):
        PatternSession([replace(totem, weights=tuple(torch.zeros_like(w) for w in totem.weights))])
    with pytest.raises(RecipeError, match="size is 1"):
        PatternSession([totem], 1)


def test_files_and_names_are_opened_and_damaged_ones_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cppn").mkdir()
    listing = {"targets": {"skull": {"sha256": "0" * 64}}}
    (tmp_path / "cppn" / "cppn.json").write_text(json.dumps(listing))
    (tmp_path / "cppn" / "skull.npz").write_bytes(b"no arrays")
    totem = load_network("totem")
    totem.save(tmp_path / "mine.safetensors")
    initial_bank(totem.layout, 2).save(tmp_path / "bank.safetensors")
    files = [str(tmp_path / name) for name in ("mine.safetensors", "bank.safetensors")]
    session, notes = open_patterns(files, 16)
    names = session.names
    assert (names[0], names[-1], len(names)) == ("mine", "totem", 4)
    assert all(name.startswith("bank, ") for name in names[1:3])
    assert [note.partition(" ")[0] for note in notes] == ["skull", "skull-sgd"]
    assert open_patterns([*files, *files], 16)[0].names[3] == "mine (2)"
    with pytest.raises(IntarsiaError, match="was altered"):
        open_patterns(["skull"])
    with pytest.raises(IntarsiaError, match="neither a file nor a known name"):
        open_patterns([os.devnull + "x"])
