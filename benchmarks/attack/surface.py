"""Surfaces: where inputs come in, what is made for each, and how an outcome is judged."""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from intarsia.errors import IntarsiaError

HELD = ("refused", "same", "other")
"""An error of ours; what the untouched artifact gives; a valid other artifact."""

FAULTS = ("foreign", "wrong", "memory", "time", "died")
"""An error of others; a value that nobody wrote; too much of either; the process is gone."""


@dataclass(frozen=True)
class Input:
    """A crafted input: how it is handed in, and how to see whether what was read is right.

    `same` says whether it is what the untouched artifact gives. `right` says whether it is what
    this input holds; without it any answer is, since nothing seals the format. `sealed` inputs were
    changed without the seal: for them the same is right and nothing else.
    """

    use: Callable[[], Any]
    same: Callable[[Any], bool] = lambda result: False
    right: Callable[[Any], bool] | None = None
    sealed: bool = False


class RefusalError(IntarsiaError):
    """What came in was refused, in a way that is not an exception: an exit code, a status."""


Maker = Callable[[Random, Path], Input]


@dataclass(frozen=True)
class Surface:
    """A way in, with a maker of inputs for each kind, and its share of all inputs."""

    name: str
    kinds: Mapping[str, Maker]
    weight: int = 1


@dataclass(frozen=True)
class Outcome:
    """What became of an input: one of HELD or FAULTS, and a word on it."""

    verdict: str
    detail: str = ""
    peak: int = 0  # bytes above what the process had
    seconds: float = 0.0


def outcome_of(given: Input) -> Outcome:
    """Hand an input in."""
    try:
        result = given.use()
    except IntarsiaError as error:
        return _refused(error)
    except BaseException as error:  # whatever it is, it is not ours
        return Outcome("memory" if _is_starved(error) else "foreign", _where(error))
    try:
        same = given.same(result)
        right = same or (not given.sealed and (given.right is None or given.right(result)))
    except MemoryError:
        return Outcome("memory", "what was read leaves no memory to compare it")
    if not right:
        return Outcome("wrong", str(result)[:200])
    return Outcome("same" if same else "other")


def _refused(error: IntarsiaError) -> Outcome:
    """Ours, unless it came too late, when there was no more memory."""
    try:
        message = str(error)
        message.encode("utf-8", "backslashreplace")
    except Exception as odd:
        return Outcome("foreign", f"the message cannot be made: {odd!r}")
    cause: BaseException | None = error
    while cause is not None:
        if _is_starved(cause):
            return Outcome("memory", f"{_where(cause)} behind {message[:160]!r}")
        cause = cause.__cause__ or cause.__context__
    return Outcome("refused", message[:200])


def _is_starved(error: BaseException) -> bool:
    words = (
        "can't allocate memory",
        "bad_alloc",
        "Unable to allocate",
        "realloc of size",
        "malloc",
    )
    return isinstance(error, MemoryError) or any(word in str(error)[:2000] for word in words)


def _where(error: BaseException) -> str:
    """The error, and the last line of ours that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/intarsia/" in f.filename]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "outside"
    try:
        message = str(error)
    except Exception as odd:
        message = f"no message: {odd!r}"
    return f"{type(error).__name__} at {place}: {message[:200]}"
