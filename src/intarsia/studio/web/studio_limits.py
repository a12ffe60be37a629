"""How much the studio takes from the network: connections, seconds, uploads, visitors."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

from intarsia.errors import RecipeError
from intarsia.specs import check_keys, is_number

MEGABYTE = 2**20


@dataclass(frozen=True)
class StudioLimits:
    """Every limit of the studio by its name; `--limit NAME=VALUE` changes one.

    Where a new connection is one too many, that which has kept the studio waiting longest is closed
    for it. A body has `body_seconds` and what its length takes at `slowest_upload`.
    """

    connections: int = 800  # at a time
    header_seconds: float = 10.0  # until a request has begun and its headers are there
    body_seconds: float = 20.0
    slowest_upload: int = 2**16  # bytes per second
    answer_seconds: float = 30.0  # without a byte of an answer being fetched
    file_bytes: int = 64 * MEGABYTE  # of one upload
    unread_files: int = 4  # uploads of one visitor on their way, or not loaded yet
    visitor_modules: int = 64
    visitor_bytes: int = 256 * MEGABYTE  # of a visitor's modules and uploads
    all_modules: int = 512  # of all visitors together
    all_bytes: int = 1024 * MEGABYTE
    visitors: int = 100  # that have modules of their own, or are sending one
    idle_seconds: float = 3600.0  # after which a visitor's modules are forgotten
    pages: int = 500  # whose last switch and sample are remembered
    picture_bytes: int = 16 * MEGABYTE  # of one picture
    picture_pixels: int = 25_000_000  # by its header, before it is unpacked
    text_characters: int = 2000  # of one text

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not is_number(value) or value <= 0:
                raise RecipeError(f"limit {field.name} is {value!r}: expected a number above 0")
            if field.type is int and not isinstance(value, int):
                raise RecipeError(f"limit {field.name} is {value!r}: expected a whole number")

    @classmethod
    def read(cls, words: Iterable[str]) -> "StudioLimits":
        """The defaults, but for these `NAME=VALUE`; unknown names are refused."""
        given = {}
        for word in words:
            name, _, value = word.partition("=")
            check_keys("--limit", [name], [field.name for field in fields(cls)])
            try:
                given[name] = int(value) if value.isdigit() else float(value)
            except ValueError:
                raise RecipeError(
                    f"--limit {word}: expected NAME=NUMBER, such as connections=200"
                ) from None
        return cls(**given)  # type: ignore[arg-type]


def megabytes(count: float) -> str:
    """A number of bytes for people: `64 MB`."""
    return f"{math.ceil(count / MEGABYTE):,} MB"
