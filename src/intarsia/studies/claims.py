"""Claims: who works on what, among processes that share a store. A dead process holds none."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from intarsia.files import take_lock


@contextmanager
def claimed(folder: Path, keys: list[str]) -> Iterator[list[str]]:
    """Those of the keys that no other process works on; they are ours until the block ends."""
    held: dict[str, IO[str]] = {}
    try:
        for key in keys:
            file = _claim(folder / key)
            if file is not None:
                held[key] = file
        yield list(held)
    finally:
        for key, file in held.items():
            (folder / key).unlink(missing_ok=True)
            file.close()


def _claim(path: Path) -> IO[str] | None:
    """The locked file, or None where another process has it.

    Its owner removes the file before it lets go, so a lock may be got on a file that is gone: then
    somebody else may hold the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    try:
        mine = take_lock(file) and os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        mine = False
    if not mine:
        file.close()
    return file if mine else None
