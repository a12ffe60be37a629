"""Every error a user can cause: the thing, the value seen, what was expected, what to do.

And the warnings, for what works and yet is not well.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class IntarsiaError(Exception):
    """Base of all errors raised on purpose by intarsia."""


class DataError(IntarsiaError):
    """The data cannot be used as given."""


class RecipeError(IntarsiaError):
    """A setting is unknown or has a value that cannot be used."""


class ModelError(IntarsiaError):
    """A network cannot be built or read."""


class WiringError(ModelError):
    """The axes of a network cannot be named."""


class FileError(IntarsiaError):
    """A file is not what it should be."""


class DamagedError(FileError):
    """A file does not hold what was written to it."""


class VersionError(FileError):
    """A file was written by another version of intarsia."""


class TrainingError(IntarsiaError):
    """Training cannot start or go on."""


class CompositionError(IntarsiaError):
    """Modules do not fit together."""


class StudyError(IntarsiaError):
    """A study cannot be planned, run or shown."""


class HealthWarning(UserWarning):
    """Something that was trained, joined or loaded is dead, undertrained or inconsistent."""


class DataWarning(UserWarning):
    """The data were read by a guess that should be looked at."""


class FileWarning(UserWarning):
    """A file was damaged, and what it held is made again; or nothing tells whether it is."""


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, of Python, of torch's allocator or of a GPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def nearest(word: str, known: Iterable[str]) -> str:
    """A closing phrase for messages: the nearest known word, or all of them."""
    known = sorted(known)
    close = get_close_matches(str(word), known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(known)}"
