"""Files are whole or not there, and digests see every difference."""

import os
import stat
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from intarsia import files
from intarsia.errors import DamagedError, FileError
from intarsia.files import (
    canonical,
    digest_of,
    is_no_file,
    is_unreadable,
    link_whole,
    plain,
    read_sealed,
    sealed,
    stream,
    write_whole,
)


@pytest.fixture(autouse=True)
def _on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here files are synced in earnest, as nowhere else (see tests/conftest.py)."""
    monkeypatch.setattr(os, "fsync", sys.modules[os.name].fsync)


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file"]
    write_whole(str(path), b"")
    assert path.read_bytes() == b""


@pytest.mark.parametrize("links", [True, False])
def test_a_second_name_is_given_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """In one step where there are links, also over another file or the same; else by a copy."""

    def fail(*args: object) -> None:
        raise OSError(95, "Operation not supported")

    if not links:
        monkeypatch.setattr(os, "link", fail)
    source, path = tmp_path / "source", tmp_path / "new" / "folder" / "file"
    write_whole(source, b"one")
    for _ in range(2):
        link_whole(source, path)
        assert path.read_bytes() == b"one"
        assert path.samefile(source) == links
        assert os.listdir(path.parent) == ["file"]
    write_whole(source, b"two")
    assert path.read_bytes() == b"one"
    link_whole(str(source), str(path))
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failure_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
    with pytest.raises(FileError, match=r"cannot write .*file: No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_everything_is_on_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[object] = []
    sync, replace = os.fsync, Path.replace

    def note(handle: int) -> None:
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
        steps.append(os.fstat(handle).st_size if is_file else "folder")
        sync(handle)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(
        Path, "replace", lambda part, path: (steps.append("rename"), replace(part, path))
    )
    write_whole(tmp_path / "file", b"all")
    assert steps == [3, "rename", "folder"]


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(FileError, match=r"cannot write .*: it is a folder; name a file"):
        write_whole(tmp_path / "file", b"x")


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "own").write_bytes(b"x")
    with pytest.raises(FileError, match=r"cannot write .*: .*own is a file; name a folder"):
        write_whole(tmp_path / "own" / "file", b"x")


def test_digest_sees_names_types_shapes_and_bits() -> None:
    base = {"a": torch.zeros(2, 2), "b": torch.ones(2)}
    others = [
        {"a": torch.zeros(4), "b": torch.ones(2)},
        {"a": torch.zeros(2, 2), "c": torch.ones(2)},
        {"a": torch.zeros(2, 2, dtype=torch.int32), "b": torch.ones(2)},
        {"a": -torch.zeros(2, 2), "b": torch.ones(2)},
        {"a": torch.zeros(2, 2)},
        {},
    ]
    digests = [digest_of(None, tensors) for tensors in [base, *others]]
    digests += [digest_of({"x": 1}, base), digest_of({"x": 1.0}, base)]
    assert len(set(digests)) == len(digests)
    swapped = {"b": torch.ones(2, 1).T[0], "a": torch.zeros(2, 2)}
    assert digest_of(None, swapped) == digest_of(None, base)
    assert digest_of(None, {"s": torch.tensor(1.0, dtype=torch.bfloat16)})


def test_plain_values() -> None:
    value = {1: (np.float32(0.5), np.int64(2), float("inf")), "p": Path("x"), "s": {"b", "a"}}
    assert plain(value) == {"1": [0.5, 2, None], "p": "x", "s": ["a", "b"]}
    assert canonical({"b": 1, "a": "é"}) == '{"a":"\\u00e9","b":1}'
    with pytest.raises(FileError, match=r"recipe.model\[0\] is a function"):
        plain({"model": [plain]}, "recipe")
    with pytest.raises(FileError, match=r"^value is a function"):
        plain(plain)
    assert plain([True, None, "é", -3, float("-inf"), frozenset({2, 1})]) == [
        *(True, None, "é", -3, None),
        [1, 2],
    ]
    assert plain(np.arange(4.0).reshape(2, 2)) == [[0.0, 1.0], [2.0, 3.0]]
    assert plain(torch.tensor(float("nan"))) is None
    assert type(plain(np.bool_(True))) is bool
    with pytest.raises(ValueError, match="Out of range"):
        canonical(float("nan"))


def test_numbers_of_ones_own_become_plain_numbers() -> None:
    class Whole(int): ...

    class Real(float): ...

    assert [type(value) for value in plain([Whole(3), Real(0.5)])] == [int, float]


def test_a_digest_is_the_same_on_every_machine() -> None:
    """Written down once; files and caches are named by it."""
    assert digest_of({"b": [1, None], "a": "é"}) == (
        "9b10bedce64e86a275540261fbe95bc6c195bfb10d5def7a5fc12eefcc7d0a87"
    )
    tensors = {"w": torch.tensor([[1.0, -0.0]]), "n": torch.tensor(3)}
    assert digest_of("x", tensors) == (
        "940228a3fe15384c7d7160df3a1d094046ddef25e8bdd2b4f77b1b6dfd56aa7f"
    )


def test_a_stream_depends_on_all_its_parts() -> None:
    assert stream("a", 1) == 4742018630964328543
    seeds = {stream("a", 1), stream("a1"), stream("a", 2), stream(1, "a"), stream("a", 1, "")}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert any(seed >= 2**61 for seed in seeds)


def test_a_failed_link_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").write_bytes(b"one")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match="cannot write"):
        link_whole(tmp_path / "source", tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "source"]
    assert os.listdir(tmp_path / "folder") == []
    steps: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("sync"), sync(handle)))
    link_whole(tmp_path / "source", tmp_path / "link")
    assert steps == ["sync"]


def test_an_interrupted_write_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "file", b"x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"digest": 3}', b"\xff", b"[" * 10**5])
def test_what_was_not_sealed_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "note.json"
    path.write_bytes(sealed({"a": 1}))
    assert read_sealed(path) == {"a": 1}
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=r"note\.json: is damaged"):
        read_sealed(path)


def test_what_is_sealed_is_one_line_of_json(tmp_path: Path) -> None:
    (tmp_path / "note.json").write_bytes(sealed({"b": 1, "a": [2]}))
    digest = digest_of({"a": [2], "b": 1})
    expected = f'{{"a":[2],"b":1,"digest":"{digest}"}}\n'
    assert (tmp_path / "note.json").read_text() == expected
    assert read_sealed(str(tmp_path / "note.json")) == {"a": [2], "b": 1}
    with pytest.raises(FileNotFoundError):
        read_sealed(tmp_path / "none.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match=r"folder: is not a file") as error:
        read_sealed(tmp_path / "folder")
    assert not isinstance(error.value, DamagedError)


def test_a_sealed_file_that_cannot_be_read_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "note.json").write_bytes(sealed({}))
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(FileError, match=r"note\.json: cannot be read: Permission") as error:
        read_sealed(tmp_path / "note.json")
    assert not isinstance(error.value, DamagedError)
    assert is_unreadable(error.value)


def test_folders_pipes_and_dead_links_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dead").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    seen = {name: is_no_file(tmp_path / name) for name in ("file", "link", "dead", "pipe", "none")}
    assert seen == {"file": False, "link": False, "dead": True, "pipe": True, "none": False}
    assert is_no_file(str(tmp_path))


def test_an_unreadable_file_is_told_from_one_that_is_wrong_or_gone() -> None:
    def raised(*causes: Exception) -> BaseException:
        for error, cause in pairwise(causes):
            error.__cause__ = cause
        return causes[0]

    assert is_unreadable(OSError("reading failed"))
    assert is_unreadable(raised(FileError("a"), ValueError("b"), PermissionError("c")))
    assert not is_unreadable(FileNotFoundError("gone"))
    assert not is_unreadable(raised(FileError("a"), FileNotFoundError("gone")))
    assert not is_unreadable(raised(FileError("damaged"), ValueError("b")))


def test_windows_has_no_folder_to_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        patch.setattr(os, "name", "nt")
        files._sync_folder(tmp_path)
        patch.setattr(os, "name", "posix")
        with pytest.raises(PermissionError):
            files._sync_folder(tmp_path)


def test_a_handle_of_a_folder_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    close = os.close
    monkeypatch.setattr(os, "close", lambda handle: (closed.append(handle), close(handle))[1])
    files._sync_folder(tmp_path)
    assert len(closed) == 1
