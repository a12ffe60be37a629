"""Figures of a model that was to lose a class, and their summary over seeds and classes."""

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

import intarsia as ia
from intarsia.modules.classifier import uncertainty

Cell = dict[str, Any]


def figures(model: Any, before: Tensor, after: Tensor, index: int, data: ia.Data) -> Cell:
    """What is left of the class and of the others, on test samples; answers are among all ten."""
    mine = data.test.y == index
    right = [logits.argmax(1) == data.test.y for logits in (before, after)]
    rest = [i for i in range(data.classes) if i != index]
    refuse = uncertainty(after, model.temperature) > ia.threshold(
        model, data.validation.select(rest)
    )
    return {
        "removed_before": share(right[0][mine]),
        "removed": share(right[1][mine]),
        "others_before": share(right[0][~mine]),
        "others": share(right[1][~mine]),
        "change": share(right[1][~mine]) - share(right[0][~mine]),
        "entropy": float(entropy(after[mine], model.temperature).mean()),
        "answered_as_removed": share(right[1][mine] & ~refuse[mine]),
        "refused": share(refuse[mine]),
        "answered": share(~refuse[~mine]),
    }


def share(result: Tensor) -> float:
    return float(result.double().mean())


def entropy(logits: Tensor, temperature: float) -> Tensor:
    return uncertainty(logits, temperature) * math.log(logits.shape[1])


def timed(call: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """What it gave, and its seconds: by the clock, and of processors in this process and others."""
    began, worked = time.perf_counter(), worked_seconds()
    result = call()
    return result, (time.perf_counter() - began, worked_seconds() - worked)


def worked_seconds() -> float:
    """Of this process and of those it started and that have ended."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def summary(cells: Sequence[Cell]) -> Cell:
    """Median times, mean and standard deviation of the rest, checks that hold for all."""
    result: Cell = {"n": len(cells), "classes": sorted({c["class"] for c in cells})}
    for key in ("seconds", "wall"):
        result[key] = {
            "median": round(statistics.median(c[key] for c in cells), 4),
            "least": round(min(c[key] for c in cells), 4),
            "most": round(max(c[key] for c in cells), 4),
        }
    for key in ("removed_before", "removed", "others_before", "others", "change", "entropy"):
        result[key] = spread([c[key] for c in cells], 5)
    for key in ("answered_as_removed", "refused", "answered", "uniform_share", "steps"):
        if key in cells[0]:
            result[key] = spread([c[key] for c in cells], 5)
    if "off" in cells[0]:
        for key in ("own_equal", "like_composed", "restored"):
            result[key] = sum(c[key] for c in cells)
        samples = sum(c["uniform_samples"] for c in cells)
        total = sum(c["uniform_entropy_sum"] for c in cells)
        result |= {
            "off": max(c["off"] for c in cells),
            "logits": max(c["logits"] for c in cells),
            "removed_most": max(c["removed"] for c in cells),
            "uniform_samples": samples,
            "uniform_entropy": round(total / samples, 5) if samples else None,
            "by_class": {name: by_class(cells, name) for name in result["classes"]},
        }
    return result


def by_class(cells: Sequence[Cell], name: str) -> Cell:
    mine = [cell for cell in cells if cell["class"] == name]
    keys = ("removed", "entropy", "uniform_share", "refused", "change")
    return {"n": len(mine)} | {key: spread([c[key] for c in mine], 5) for key in keys}


def spread(values: Sequence[float], digits: int) -> dict[str, float]:
    return {
        "mean": round(statistics.mean(values), digits),
        "sd": round(statistics.stdev(values), digits) if len(values) > 1 else 0.0,
    }
