"""Limits: how much a file or a text may ask for, and an account of the memory that a call takes.

A pruned tensor is stored as what survives, so that a file of a thousand bytes can ask for any
amount of memory. It is counted before it is taken, and refused here.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

from intarsia.errors import LimitError, RecipeError, nearest, shortened

VARIABLE = "INTARSIA_LIMITS"
ADVICE = (
    "if it is to be trusted, raise the limit, as in `with intarsia.limited({name}={value}):`, or "
    f"in a shell with {VARIABLE}={{name}}={{value}}"
)
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True)
class Limits:
    """What reading a file and joining its modules may take; see `limited` for other values.

    memory     bytes, at the most that are taken at one time; or `per_byte` bytes for each byte of
               the files that are read, where that is more: what is large may take much
    classes    names in a catalogue: tables of classes have their square of entries
    parts      modules of a bank or a composition
    header     bytes of a file's header
    text       characters of a recipe, of a setting or of a spec
    depth      lists and mappings inside one another in such a text
    units      of a layer whose units are to be aligned: that takes their cube of time
    numbers    that a data file may unpack to, and four more for each of its bytes

    `advice` is what a refusal says at its end, of `{name}` and the `{value}` that would do.
    """

    memory: int = 3 * 2**29
    per_byte: int = 160
    classes: int = 10_000
    parts: int = 1_000
    header: int = 8 * 2**20
    text: int = 2**17
    depth: int = 20
    units: int = 4_096
    numbers: int = 2**25
    advice: str = ADVICE

    def __post_init__(self) -> None:
        for name in NAMES:
            object.__setattr__(self, name, read_count(f"the limit {name!r}", getattr(self, name)))

    @classmethod
    def upload(cls) -> "Limits":
        """Those for files that visitors of the studio bring."""
        return cls(
            memory=2**28,
            per_byte=32,
            classes=1_000,
            parts=100,
            header=2**20,
            text=2**14,
            units=1_024,
            numbers=2**20,
            advice="that is too much for an upload: give its path to `intarsia studio` instead",
        )

    def check(self, name: str, asked: int, what: str) -> None:
        """Refuse what asks for more than the limit of this name; `{}` in `what` is how much."""
        if asked > getattr(self, name):
            raise self.refusal(name, asked, what)

    def refusal(self, name: str, asked: int, what: str, allowed: int | None = None) -> LimitError:
        """The error that names a limit, its value, what was asked for and how to raise it."""
        limit = getattr(self, name) if allowed is None else allowed
        amount = bytes_text if name in ("memory", "header") else str
        advice = self.advice.format(name=name, value=_enough(name, asked))
        seen = what.replace("{}", amount(asked), 1)
        return LimitError(f"{seen}, and the limit {name!r} is {amount(limit)}: {advice}")


NAMES = tuple(field.name for field in fields(Limits) if field.name != "advice")


def current() -> Limits:
    """The limits here and now: those of `limited`, else of INTARSIA_LIMITS, else the defaults."""
    return _CURRENT.get() or _from_environment(os.environ.get(VARIABLE, ""))


@contextmanager
def limited(limits: Limits | None = None, **changes: int | str) -> Iterator[Limits]:
    """Other limits for as long as it is open, in this thread.

    `changes` are those of the limits given, or of the current ones: `limited(memory="16 GiB")`.
    """
    for name in changes:
        if name not in NAMES:
            raise RecipeError(f"there is no limit {name!r}: {nearest(name, NAMES)}")
    chosen: Any = changes
    token = _CURRENT.set(replace(limits or current(), **chosen))
    try:
        yield current()
    finally:
        _CURRENT.reset(token)


class Account:
    """The memory that one call takes, in bytes: what it was given room for, and what it holds."""

    def __init__(self) -> None:
        self.room, self.held = 0, 0

    def read(self, size: int) -> None:
        """A file of this size is read: what is large itself may take more."""
        self.room += current().per_byte * size

    def take(self, what: str, stays: int, passing: int = 0) -> None:
        """Count bytes that stay, and others that are soon given back, before they are taken."""
        limits = current()
        allowed = max(limits.memory, self.room)
        if self.held + stays + passing > allowed:
            raise limits.refusal("memory", self.held + stays + passing, what, allowed)
        self.held += stays


@contextmanager
def account() -> Iterator[Account]:
    """The account of a call; whatever it calls counts on the same one."""
    if (opened := _ACCOUNT.get()) is not None:
        yield opened
        return
    token = _ACCOUNT.set(made := Account())
    try:
        yield made
    finally:
        _ACCOUNT.reset(token)


@contextmanager
def allocating(what: str) -> Iterator[None]:
    """An allocator that gives no more memory is our error."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise LimitError(
            f"{what} needs more memory than this machine has left: close other programs, or take "
            "fewer or smaller modules"
        ) from error


def machine_memory() -> int:
    """The bytes of memory that this machine has; 0 where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return 0


def out_of_memory(error: BaseException) -> bool:
    """Whether an error is an allocator's; torch's is a RuntimeError, known by its words."""
    words = ("can't allocate memory", "not enough memory", "out of memory")
    torch_says = isinstance(error, RuntimeError) and any(w in str(error).lower() for w in words)
    return isinstance(error, MemoryError) or torch_says


_CURRENT: ContextVar[Limits | None] = ContextVar("limits", default=None)
_ACCOUNT: ContextVar[Account | None] = ContextVar("account", default=None)


def _from_environment(text: str) -> Limits:
    """`memory=16GiB,classes=50000` as limits."""
    changes: Any = {}
    for word in filter(None, re.split(r"[,\s]+", text)):
        name, equals, value = word.partition("=")
        if not equals or name not in NAMES:
            raise RecipeError(
                f"{VARIABLE} has {shortened(word)}: expected some of {', '.join(NAMES)}, as in "
                "memory=16GiB,classes=50000"
            )
        changes[name] = value
    return Limits(**changes)


def read_count(what: str, value: Any) -> int:
    """A number, or one with a unit: 16GiB, "2 MB", 500k; units are powers of 1024."""
    if type(value) is int and 0 < value < 2**63:
        return value
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", str(value).lower())
    if not isinstance(value, str) or not match or not float(match[1]):
        raise RecipeError(
            f"{what} is {shortened(value)}: expected a number above 0, or one with a unit, as in "
            "16GiB"
        )
    return int(float(match[1]) * UNITS[match[2]])


def _enough(name: str, asked: int) -> str:
    """A value of the limit that would do, as people would write it."""
    if name != "memory":
        return str(asked)
    return f"'{-(-asked // 2**30)}GiB'"


def bytes_text(size: int) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
