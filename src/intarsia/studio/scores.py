"""What an evaluation says beyond its own numbers, and what changed since the last one."""

from collections.abc import Sequence

import numpy as np

from intarsia.measure import Evaluation

SMALLEST = 0.005  # change of a class's accuracy that is shown
MOST = 3  # classes, or modules, that are named


def overall_accuracy(score: Evaluation) -> float:
    """The fraction of all samples that are answered correctly, of whatever class."""
    return float(score.confusion.trace() / max(1, score.confusion.sum()))


def describe_switch(
    before: Sequence[str],
    after: Sequence[str],
    operators: tuple[str, str] | None = None,
    known: Sequence[str] = (),
) -> str:
    """What was switched, in a few words: `3 off`, `3 and 5 on`, `all on`, `sum to inlay`."""
    done = []
    is_all = {"off": not after, "on": set(after) == set(known)}
    for names, word in ((set(before) - set(after), "off"), (set(after) - set(before), "on")):
        if len(names) > 1 and is_all[word]:
            done.append(f"all {word}")
        elif names:
            shown = sorted(names)
            some = shown if len(shown) <= MOST else [f"{len(shown)} modules"]
            done.append(f"{' and '.join(some)} {word}")
    if operators and operators[0] != operators[1]:
        done.append(f"{operators[0]} to {operators[1]}")
    return ", ".join(done)


def largest_changes(before: Evaluation, after: Evaluation) -> list[tuple[str, float, float]]:
    """The classes whose accuracy changed most: name, before, after."""
    moved = np.nan_to_num(after.accuracy_per_class - before.accuracy_per_class)
    order = np.argsort(-np.abs(moved), kind="stable")[:MOST]
    return [
        (
            after.catalogue[i],
            float(before.accuracy_per_class[i]),
            float(after.accuracy_per_class[i]),
        )
        for i in order
        if abs(moved[i]) >= SMALLEST
    ]
