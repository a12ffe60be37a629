"""The folder of uploads: what a killed studio left goes, and nothing else."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from intarsia.studio.web import upload_folder as folders
from intarsia.studio.web.upload_folder import MARK, PREFIX, sweep_left_over, upload_folder

pytestmark = pytest.mark.skipif(folders.fcntl is None, reason="needs locks of files")
KILLED = """
import os, runpy, sys, tempfile
file, tempfile.tempdir = sys.argv[1:]
with runpy.run_path(file)["upload_folder"]() as uploads:  # without importing all else
    (uploads / "left").write_bytes(b"x")
    print(uploads, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_studio_left_goes_when_the_next_one_starts(temporary: Path) -> None:
    words = [sys.executable, "-c", KILLED, folders.__file__, temporary]
    run = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    left = Path(run.stdout.strip())
    assert (left / "left").read_bytes() == b"x"
    with upload_folder() as uploads:
        assert not left.parent.exists()
        assert uploads.is_dir()
        assert uploads.parent.name.startswith(PREFIX)
        assert uploads.parent.parent == temporary.resolve()
    assert list(temporary.iterdir()) == []


def test_folders_of_others_and_of_the_living_stay(temporary: Path) -> None:
    unmarked, foreign, open_to_all, link = (
        temporary / name
        for name in (f"{PREFIX}unmarked", "marked", f"{PREFIX}open", f"{PREFIX}link")
    )
    for folder in (unmarked, foreign, open_to_all):
        folder.mkdir(mode=0o700)
        if folder is not unmarked:
            (folder / MARK).touch()
    open_to_all.chmod(0o755)
    link.symlink_to(foreign)
    left = temporary / f"{PREFIX}left"
    left.mkdir(mode=0o700)
    (left / MARK).touch()
    with upload_folder() as living, upload_folder() as second:
        assert not left.exists()
        assert sweep_left_over(temporary) == []
        assert living.is_dir()
        assert second.is_dir()
    assert sorted(temporary.iterdir()) == sorted([unmarked, foreign, open_to_all, link])


def test_without_locks_nothing_is_swept(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = temporary / f"{PREFIX}left"
    left.mkdir(mode=0o700)
    (left / MARK).touch()

    def unsupported(*args: object) -> None:
        raise OSError(os.strerror(95))

    monkeypatch.setattr(folders.fcntl, "flock", unsupported)
    with upload_folder() as uploads:
        assert uploads.is_dir()
    monkeypatch.setattr(folders, "fcntl", None)
    with upload_folder() as uploads:
        assert uploads.is_dir()
    assert list(temporary.iterdir()) == [left]
