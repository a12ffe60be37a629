"""Visitors: each with modules of their own, within limits, for a while."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import intarsia as ia
from intarsia.errors import CompositionError, FileError, RecipeError
from intarsia.studio import Session
from intarsia.studio.visitors import Visitors
from intarsia.studio.web.studio_limits import StudioLimits

Send = Callable[..., Path]


@pytest.fixture
def send(bank: ia.Bank, tmp_path: Path) -> Send:
    """`send(visitors, "me", "3", "mine")`: module 3 arrives as a file of that name."""

    def sending(visitors: Visitors, visitor: str, module: str, *names: str) -> Path:
        parts = [replace(bank[module], name=name) for name in names]
        path = visitors.uploads / "+".join(names) / "upload.safetensors"
        (ia.compose(parts, "logits") if len(parts) > 1 else parts[0]).save(path)
        with visitors.receiving(visitor, path.stat().st_size):
            visitors.arrived(visitor, [path])
        return path

    return sending


def visitors_of(session: Session, folder: Path, **limits: Any) -> Visitors:
    return Visitors(session, folder / "uploads", StudioLimits(**limits))


def test_nobody_sees_what_another_loaded(
    own_session: Session, bank: ia.Bank, tmp_path: Path, send: Send
) -> None:
    visitors = visitors_of(own_session, tmp_path)
    assert visitors.session("me") is visitors.session("you") is own_session
    mine = send(visitors, "me", "3", "guest")
    assert (visitors.owns("me", mine), visitors.owns("you", mine)) == (True, False)
    assert visitors.load("me", mine).message == "loaded guest; switch it on"
    assert not mine.parent.exists()
    assert not visitors.owns("me", mine)
    visitors.load("you", send(visitors, "you", "0", "guest"))
    assert visitors.session("me")["guest"].rewarded == ("3",)
    assert visitors.session("you")["guest"].rewarded == ("0",)
    assert visitors.session("third").names == own_session.names == bank.names
    with pytest.raises(CompositionError, match="has no module 'guest'"):
        visitors.remove("third", "guest")
    with pytest.raises(CompositionError, match="was here from the start"):
        visitors.remove("me", "0")
    visitors.remove("me", "guest")
    assert visitors.session("me") is own_session
    assert "guest" in visitors.session("you").names


def test_two_visitors_may_send_the_same_file(
    own_session: Session, tmp_path: Path, send: Send
) -> None:
    visitors = visitors_of(own_session, tmp_path)
    path = send(visitors, "me", "3", "guest")
    assert send(visitors, "you", "3", "guest") == path
    for visitor, is_left in (("me", True), ("you", False)):
        assert visitors.load(visitor, path).names == (("guest", "guest"),)
        assert path.exists() is is_left


def test_an_upload_is_read_once_and_goes(own_session: Session, tmp_path: Path, send: Send) -> None:
    def failing(path: Path) -> None:
        raise FileError(f"{path.name} is wrong")

    visitors = visitors_of(own_session, tmp_path, unread_files=1)
    path = send(visitors, "me", "3", "guest")
    size = path.stat().st_size
    assert visitors.read("me", path, lambda given: given.stat().st_size) == size
    assert not path.parent.exists()
    assert not visitors.owns("me", path)
    path = send(visitors, "me", "3", "guest")  # the first no longer counts
    with pytest.raises(FileError, match=r"upload.safetensors is wrong"):
        visitors.read("me", path, failing)
    assert not path.exists()
    with visitors.receiving("me", 1):
        pass


def test_the_number_of_modules_is_limited(own_session: Session, tmp_path: Path, send: Send) -> None:
    visitors = visitors_of(own_session, tmp_path, visitor_modules=2, all_modules=3)
    path = send(visitors, "me", "3", "a", "b", "c")
    with pytest.raises(
        FileError, match=r"^upload.safetensors: this would be 3 modules of yours, the limit is 2"
    ):
        visitors.load("me", path)
    assert not path.exists()
    assert visitors.session("me") is own_session
    visitors.load("me", send(visitors, "me", "3", "a", "b"))
    with pytest.raises(FileError, match="remove some first"):
        visitors.load("me", send(visitors, "me", "3", "c"))
    with pytest.raises(FileError, match="all visitors together may load 3 modules"):
        visitors.load("you", send(visitors, "you", "0", "a", "b"))
    visitors.load("you", send(visitors, "you", "0", "a"))
    visitors.remove("me", "a")
    visitors.load("me", send(visitors, "me", "3", "c"))
    assert visitors.session("me").names[-2:] == ("b", "c")


def test_bytes_are_limited_on_their_way_and_when_loaded(
    own_session: Session, bank: ia.Bank, tmp_path: Path, send: Send
) -> None:
    tensors = [*bank["3"].state.values(), *bank["3"].mask.values()]
    size = sum(t.numel() * t.element_size() for t in tensors) + 4 * own_session.logits("3").numel()
    visitors = visitors_of(own_session, tmp_path, visitor_bytes=2 * size, all_bytes=3 * size)
    with visitors.receiving("me", 2 * size):
        with pytest.raises(FileError, match="your modules and uploads would take"):
            visitors.receiving("me", 1).__enter__()
        with pytest.raises(FileError, match="of all visitors together may take"):
            visitors.receiving("you", size + 1).__enter__()
    visitors.load("me", send(visitors, "me", "3", "a"))
    with visitors.receiving("me", size), pytest.raises(FileError, match="would take"):
        visitors.receiving("me", 1).__enter__()
    with pytest.raises(FileError, match="would take"):  # a sparse file takes more when it is read
        visitors.load("me", send(visitors, "me", "3", "b", "c"))
    visitors.load("me", send(visitors, "me", "3", "b"))


def test_visitors_and_unread_files_are_limited(
    own_session: Session, tmp_path: Path, send: Send
) -> None:
    visitors = visitors_of(own_session, tmp_path, visitors=1, unread_files=2)
    first = send(visitors, "me", "3", "a")
    with visitors.receiving("me", 1), pytest.raises(FileError, match="2 of your files are being"):
        visitors.receiving("me", 1).__enter__()
    with pytest.raises(FileError, match="1 visitors have modules here"):
        visitors.receiving("you", 1).__enter__()
    visitors.load("me", first)
    visitors.remove("me", "a")
    with visitors.receiving("you", 1):
        pass
    several = [tmp_path / "uploads" / name for name in ("x", "y")]
    for path in several:
        path.write_bytes(b"x")
    with pytest.raises(FileError, match="one at a time"):
        visitors.arrived("you", several)
    assert not any(path.exists() for path in several)


def test_who_is_not_seen_for_long_is_forgotten(
    own_session: Session, tmp_path: Path, send: Send
) -> None:
    now = [0.0]
    limits = StudioLimits(idle_seconds=60)
    visitors = Visitors(own_session, tmp_path / "uploads", limits, clock=lambda: now[0])
    for visitor in ("me", "you"):
        visitors.load(visitor, send(visitors, visitor, "3", "guest"))
    now[0] = 50.0
    assert "guest" in visitors.session("me").names
    now[0] = 100.0
    assert "guest" in visitors.session("me").names
    assert visitors.session("you") is own_session


def test_files_that_nobody_loads_go_when_another_comes(
    own_session: Session, tmp_path: Path, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitors = visitors_of(own_session, tmp_path)
    old, new = (send(visitors, "me", "3", name) for name in ("old", "new"))
    stray = visitors.uploads / "tmp1234"  # of an upload that was broken off
    stray.write_bytes(b"x")
    for path in (old, stray):
        os.utime(path, (0, 0))
    with visitors.receiving("me", 1):
        assert [path.exists() for path in (old, stray, new)] == [False, False, True]
    assert not visitors.owns("me", old)
    monkeypatch.setattr("intarsia.studio.visitors.STRAYS", 1)
    for name in ("tmp1", "tmp2"):
        (visitors.uploads / name).write_bytes(b"x")
    with pytest.raises(FileError, match="broken off"):
        visitors.receiving("you", 1).__enter__()


def test_limits_have_names_and_are_numbers() -> None:
    limits = StudioLimits.read(["connections=7", "idle_seconds=0.5"])
    assert limits == StudioLimits(connections=7, idle_seconds=0.5)
    with pytest.raises(RecipeError, match="did you mean 'connections'"):
        StudioLimits.read(["conections=7"])
    for word in ("connections", "connections=", "connections=x", "connections=1e999"):
        with pytest.raises(RecipeError, match="expected"):
            StudioLimits.read([word])
    for word in ("connections=0", "connections=7.5", "idle_seconds=-1", "idle_seconds=nan"):
        with pytest.raises(RecipeError, match=f"limit {word.partition('=')[0]} is"):
            StudioLimits.read([word])
