"""An evaluation from logits that are there already, and what changed since the last one."""

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from intarsia import measure
from intarsia.measure import Evaluation
from intarsia.modules import Module, Predicting

SEEN = 0.005  # a class's accuracy that changed by less is not told
MOST = 3  # classes told of one change


def scored(logits: Tensor, labels: Tensor, model: Module | Predicting) -> Evaluation:
    """What `evaluate` says of a model whose logits are known."""
    return measure.evaluate_logits(logits, labels, model)


def overall(score: Evaluation) -> float:
    """The share of all samples that are answered right, of whatever class."""
    return float(score.confusion.trace() / max(1, score.confusion.sum()))


def entropy_on(score: Evaluation, rewarded: bool) -> float:
    """Mean entropy over the samples of the classes that are, or are not, rewarded; nan if none."""
    of = [(name in score.rewarded) == rewarded for name in score.catalogue]
    counts = score.confusion.sum(axis=1) * np.array(of)
    known = counts > 0
    if not known.any():
        return math.nan
    return float((score.entropy_per_class[known] * counts[known]).sum() / counts.sum())


def switched(
    before: Sequence[str],
    after: Sequence[str],
    operators: tuple[str, str] | None = None,
    known: Sequence[str] = (),
) -> str:
    """What was done, in a few words: `3 off`, `3 and 5 on`, `all on`, `sum to inlay`."""
    done = []
    merged = {"off": not after, "on": set(after) == set(known)}
    for names, word in ((set(before) - set(after), "off"), (set(after) - set(before), "on")):
        if len(names) > 1 and merged[word]:
            done.append(f"all {word}")
        elif names:
            shown = sorted(names)
            some = shown if len(shown) <= MOST else [f"{len(shown)} modules"]
            done.append(f"{' and '.join(some)} {word}")
    if operators and operators[0] != operators[1]:
        done.append(f"{operators[0]} to {operators[1]}")
    return ", ".join(done)


def changes(before: Evaluation, after: Evaluation) -> list[tuple[str, float, float]]:
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
        if abs(moved[i]) >= SEEN
    ]
