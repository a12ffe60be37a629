"""Budget: how much a data file may unpack to, counted before it is read, and that it is a file.

A compressed file of a megabyte can hold a gigabyte of zeros, and a header can name any shape.
What a file asks for is counted from its headers first; what is streamed is counted on the way.
"""

import os
import stat
from gzip import GzipFile
from pathlib import Path

from intarsia.errors import DataError
from intarsia.limits import current

PER_BYTE = 4  # numbers that a file may hold for each of its bytes, beyond the limit

_KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}
_CHUNK = 2**20


def file_size(path: Path) -> int:
    """The bytes of an ordinary file; what is none is refused, without being opened."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a zero byte in its name
        raise DataError(f"there is no file {path}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    for is_kind, name in _KINDS.items():
        if is_kind(status.st_mode):
            raise DataError(f"{path} is {name}: expected a file")
    return status.st_size


def check_entries(entries: int, size: int, where: object) -> None:
    """Refuse what would unpack to more numbers than a file of `size` bytes may hold."""
    most = most_entries(size)
    if entries > most:
        what = f"{where} has {size} bytes and would unpack to {{}} numbers"
        raise DataError(str(current().refusal("numbers", entries, what, most)))


def most_entries(size: int) -> int:
    """How many numbers a file of `size` bytes may hold."""
    return current().numbers + PER_BYTE * size


def read_bounded(file: GzipFile, size: int, where: object) -> bytes:
    """All that a gzipped file of `size` bytes unpacks to, or an error where that is too much."""
    most, content = most_entries(size), bytearray()
    while chunk := file.read(_CHUNK):
        content += chunk
        if len(content) > most:
            check_entries(len(content), size, where)
    return bytes(content)
