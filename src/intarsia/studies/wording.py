"""How verdicts, tables and captions put things: lists, counts, and names of data in a text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

IMP = {"yes": "with IMP", "no": "without IMP"}  # as tables have it, and in words
TITLES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "har": "HAR",
    "yeast": "Yeast",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
}


def sentences(*parts: str) -> str:
    """The parts that say something, as one paragraph."""
    return " ".join(filter(None, parts))


def named(points: Mapping[str, str]) -> list[str]:
    """Points under their names; empty ones fall out."""
    return [f"{name}: {text}" for name, text in points.items() if text]


def listed(parts: Sequence[str]) -> str:
    """Parts as a list of words: a, b and c."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def several(number: int, word: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{number:,} {word}{'s' * (number != 1)}"


def count(items: Iterable[Any], holds: Callable[[Any], bool | None]) -> str:
    """`3 of 4`: for how many of the items it holds, of those for which it is known."""
    known = [result for item in items if (result := holds(item)) is not None]
    return f"{sum(map(bool, known))} of {len(known)}"


def capital(text: str) -> str:
    """With a capital first letter, and all others as they were."""
    return text[:1].upper() + text[1:]


def titled(data: str) -> str:
    """A data set as a text names it."""
    return TITLES.get(data, data)


def imp_label(imp: bool) -> str:
    return IMP["yes" if imp else "no"]


def by_the_test(places: int) -> str:
    """What `significant` means where it was asked of so many places."""
    more = f", with Holm's correction for {places} comparisons" if places > 1 else ""
    return f"significant: by Welch's t-test at 95%{more}"
