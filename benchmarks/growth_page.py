"""The page on what old modules say of a new class."""

from collections.abc import Callable
from typing import Any

from pages import Result, page, table

RESULTS = ("growth", "growth_mnist")
INTRO = """All classes but one are fitted, that one is added with `ModularClassifier.add_class`, \
and the same modules are joined with each rule for the old ones' output of the new class. Mean and \
standard deviation over seeds and added classes. Validation chooses, test reports. Entropy is that \
of the old modules on the new class's samples, as a share of the largest there is: they have not \
been told of it."""
CHOICE = """The mean of all outputs is what `intarsia` does. It is the best on MNIST and second \
on digits, where a quarter of the way to the rewarded output does better, but that is a number to \
be set, and evidence for a class that was never seen. What is left against fitting all classes at \
once is what the old modules take for their own in the new class."""


def growth(load: Callable[[str], Result]) -> str:
    results = [load(name) for name in RESULTS]
    parts = [part for result in results for part in _tables(result)]
    return page("Adding a class", results, INTRO, *parts, CHOICE)


def _tables(result: Result) -> list[str]:
    parts = []
    for objective in dict.fromkeys(row["objective"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["objective"] == objective]
        first = rows[0]
        parts.append(f"## {first['data']}, objective `{objective}`, n = {first['n']}")
        parts.append(
            table(
                "new output|validation, all|test, all|test, old|test, new|entropy",
                [
                    (
                        row["rule"],
                        _figure(row["validation"]["all"]),
                        *(_figure(row["test"][key]) for key in ("all", "old", "new", "entropy")),
                    )
                    for row in rows
                ],
            )
        )
    return parts


def _figure(value: dict[str, Any]) -> str:
    return f"{value['mean']:.3f} ± {value['sd']:.3f}"
