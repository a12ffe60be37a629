"""Files are whole or not there, and digests see every difference."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from intarsia.errors import FileError
from intarsia.files import canonical, digest_of, link_whole, plain, write_whole


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
    link_whole(source, path)
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
    steps: list[str] = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("sync"), sync(handle)))
    monkeypatch.setattr(
        Path, "replace", lambda part, path: (steps.append("rename"), replace(part, path))
    )
    write_whole(tmp_path / "file", b"x")
    assert steps == ["sync", "rename", "sync"]


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(FileError, match="cannot write"):
        write_whole(tmp_path / "file", b"x")


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
