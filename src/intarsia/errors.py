"""Every error a user can cause: the thing, the value seen, what was expected, what to do.

And the warnings, for what works and yet is not well.
"""

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

LONGEST = 200  # characters of a value that a message shows
MOST = 60  # known words that it names


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


class StoppedError(IntarsiaError):
    """A run was stopped before its end, as was asked for; what it had done is kept."""


class CompositionError(IntarsiaError):
    """Modules do not fit together."""


class StudyError(IntarsiaError):
    """A study cannot be planned, run or shown."""


class LimitError(IntarsiaError):
    """A file or a setting asks for more than the limits allow, or than the machine has."""


class HealthWarning(UserWarning):
    """Something that was trained, joined or loaded is dead, undertrained or inconsistent."""


class DataWarning(UserWarning):
    """The data were read by a guess that should be looked at."""


class RecipeWarning(UserWarning):
    """A setting was given that changes nothing."""


class FileWarning(UserWarning):
    """A file was damaged, and what it held is made again; or nothing tells whether it is."""


def nearest(word: Any, known: Iterable[str]) -> str:
    """A closing phrase for messages: the nearest known word, or all of them."""
    known = sorted(known)
    text = word if isinstance(word, str) else shortened(word)
    close = get_close_matches(text, known, n=1, cutoff=0.6) if len(text) <= LONGEST else []
    if close:
        return f"did you mean {shortened(close[0])}?"
    if not known:
        return "there are none"
    more = f" and {len(known) - MOST} more" if len(known) > MOST else ""
    return f"known: {comma_separated(known[:MOST])}{more}"


def comma_separated(words: Iterable[str]) -> str:
    """Words parted by commas; one that has a comma of its own is in quotes, as commands take it."""
    return ", ".join(f'"{word}"' if "," in word else word for word in words)


def shortened(value: Any) -> str:
    """A value as messages show it, whatever it is and however large: at most LONGEST characters."""
    text = _SHORT.repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


class _Short(reprlib.Repr):
    """The first few items of what is long, and of a number that is too long its size."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = LONGEST
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 12

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > 256:
            return f"<a number of about {x.bit_length() * 3 // 10} digits>"
        return repr(x)


_SHORT = _Short()
