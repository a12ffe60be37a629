"""The folder in which uploads arrive: private, marked as the studio's, and deleted with it."""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

try:
    import fcntl
except ImportError:  # Windows: whether an owner lives cannot be told, so that nothing is swept
    fcntl = None  # type: ignore[assignment]

PREFIX = "intarsia-studio-"
MARK = "studio.lock"  # locked for as long as its studio lives
FILES = "uploads"


@contextmanager
def upload_folder() -> Iterator[Path]:
    """An empty folder for uploads, which goes at the end; what killed studios left goes first."""
    sweep_left_over(Path(gettempdir()))
    with TemporaryDirectory(prefix=PREFIX) as name, _marked(Path(name)):
        uploads = Path(name).resolve() / FILES
        uploads.mkdir(mode=0o700)
        yield uploads


def sweep_left_over(parent: Path) -> list[Path]:
    """Delete the folders in `parent` that studios of this user left, and return them.

    A folder is deleted only if it has the studio's name and mark, belongs to this user alone, and
    no living process holds the mark's lock.
    """
    swept = []
    for folder in sorted(parent.glob(f"{PREFIX}*")):
        if _is_private(folder) and _is_abandoned(folder / MARK):
            shutil.rmtree(folder, ignore_errors=True)
            swept.append(folder)
    return swept


@contextmanager
def _marked(folder: Path) -> Iterator[None]:
    """A mark that is locked from the moment it has its name, so that nobody finds it free."""
    part = folder / f".{MARK}"
    with part.open("x", encoding="utf-8") as file:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # no locks here: then nobody can take it, either
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        part.replace(folder / MARK)
        yield


def _is_private(folder: Path) -> bool:
    try:
        about = folder.lstat()
    except OSError:
        return False
    is_folder, others = stat.S_ISDIR(about.st_mode), about.st_mode & 0o077
    return is_folder and not others and about.st_uid == getattr(os, "getuid", lambda: -1)()


def _is_abandoned(mark: Path) -> bool:
    """Whether there is a mark that nobody holds; no, where that cannot be told."""
    if fcntl is None or mark.is_symlink() or not mark.is_file():
        return False
    try:
        with mark.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
