"""What the paper printed: its Tables 1 and 4 cell by cell, out of maxent.json.

A value of the shallow MLP under ME is suspect where MNIST and Fashion-MNIST share its mean and its
deviation to the digit: the same network cannot be equally good at both, so one was likely copied.
Both are marked, since the table does not tell which.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import comb
from typing import Any

from intarsia.studies.tables import Paper

TWINS = ("mnist", "fashion_mnist")
SEEDS, PAIRS = 5, 10  # of the paper's tables, as its text says; the tables print no n
CLASSES = {"mnist": 10, "fashion_mnist": 10, "har": 6, "yeast": 4}


@dataclass(frozen=True)
class PaperCell:
    """Rewarded accuracy and non-rewarded entropy; the latter is None where all is rewarded."""

    accuracy: Paper
    entropy: Paper | None


def single_cell(model: str, data: str, imp: bool) -> PaperCell | None:
    """Table 1: modules of one class, by ME; None where the paper has no such cell."""
    return _cell("single", (model, data, imp), model == "shallow")


def pair_cell(
    model: str, data: str, size: int, objective: str, imp: bool, operator: str = "sum"
) -> PaperCell | None:
    """Table 4: two modules of `size` classes each, joined by weights.

    By "logits" the paper's text has two anchors, without deviation.
    """
    key = (model, data, size, objective, imp)
    return _cell(operator, key, model == "shallow" and objective == "me")


def printed_n(data: str, size: int | None = None) -> int:
    """Over how many values a printed number is, by the paper's text.

    Of single modules those are classes by seeds; of merges of two modules of `size` classes each,
    ten pairs by seeds, or as many pairs as there are.
    """
    classes = CLASSES[data]
    if size is None:
        return classes * SEEDS
    return min(PAIRS, comb(classes, 2 * size) * comb(2 * size, size) // 2) * SEEDS


def _cell(table: str, key: tuple[Any, ...], may_be_copied: bool) -> PaperCell | None:
    rows = _rows().get(table, {})
    if key not in rows:
        return None
    accuracy, entropy = rows[key]
    twins = [rows.get((key[0], data, *key[2:])) for data in TWINS]
    alike = [False, False]
    if may_be_copied and key[1] in TWINS and None not in twins:
        alike = [a is not None and a == b for a, b in zip(*twins, strict=True)]
    result = _number(accuracy, alike[0])
    assert result is not None
    return PaperCell(result, _number(entropy, alike[1]))


def _number(value: Sequence[float | None] | None, suspect: bool) -> Paper | None:
    if value is None:
        return None
    mean, sd = value
    assert mean is not None
    return Paper(mean, sd, suspect)


@cache
def _rows() -> dict[str, dict[tuple[Any, ...], tuple[Any, Any]]]:
    """Accuracy and entropy of every table, by what stands before them in a row."""
    content = json.loads(
        files("intarsia.studies.maxent").joinpath("maxent.json").read_text("utf-8")
    )
    return {
        table: {tuple(row[:-2]): (row[-2], row[-1]) for row in content[table]}
        for table in ("single", "sum", "logits")
    }
