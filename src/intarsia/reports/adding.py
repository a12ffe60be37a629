"""Modules added one after another, and one of them taken out again."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.figures import line_figure
from intarsia.measure import Evaluation
from intarsia.reports.drawn import Drawn
from intarsia.reports.elements import beside, paragraph, table
from intarsia.reports.joining import name_of, one_seed, places_of
from intarsia.reports.measured import Measured
from intarsia.reports.page import Section
from intarsia.reports.words import counted, listed, mean, nats, percent


def one_by_one(measured: Measured, drawn: Drawn) -> Section:
    """Accuracy and entropy as modules are added, one after another."""
    curves, modules = measured.curves, measured.subject.together
    ends = [
        f"{percent(curve[1].accuracy)} to {percent(curve[len(modules)].accuracy)} "
        f"with {name_of(operator)}"
        for operator, curve in curves.items()
    ]
    words = (
        f"Modules are joined one after another, in the order {listed([m.name for m in modules])}. "
        f"Accuracy, over the classes that are in so far, goes from {listed(ends)}. Entropy is over "
        "all classes that are not yet in: it should stay near its ceiling of "
        f"{nats(measured.single[modules[0].name].ceiling)} nats until the last module comes."
        f"{one_seed(measured.subject)}"
    )
    figures = []
    for key, title in (("accuracy", "accuracy so far"), ("entropy", "entropy on the rest, nats")):
        panel = {
            _key(operator): {
                float(count): value
                for count, score in curve.items()
                if math.isfinite(value := getattr(score, key))
            }
            for operator, curve in curves.items()
        }
        if not any(panel.values()):
            continue
        svg = line_figure({title: panel}, title=title, x="modules", bounds=_bounds(key, measured))
        figures.append(drawn.figure(f"curve-{key}", svg, *_told(key, measured)))
    return Section("curve", "One after another", f"{paragraph(words)}\n{beside(figures)}")


def taken_out(measured: Measured) -> Section:
    """What becomes of a class when its module is taken out again."""
    without, whole = measured.without, measured.added
    assert whole is not None
    rows: list[list[Any]] = []
    for module in measured.subject.together:
        if module.name not in without:
            continue
        score = without[module.name]
        places, kept = [score.catalogue.index(c) for c in module.rewarded], places_of(score)
        before, after = (_right_on(places, s) for s in (whole, score))
        entropy, rest = _entropy_on(places, score), _right_on(kept, whole)
        rows.append([module.name, before, after, entropy, rest, _right_on(kept, score)])
    columns = [
        *("module taken out", "right on its classes before", "after"),
        *("entropy there after", "right on the rest before", "rest after"),
    ]
    before, after, entropy, rest, left = (mean(column) for column in [*zip(*rows, strict=True)][1:])
    words = (
        "A composition remembers its parts: taking a module out leaves exactly what the others "
        f"make without it. Its class is then answered right on {percent(after)} of its samples "
        f"instead of {percent(before)}, with {nats(entropy)} of at most {nats(whole.ceiling)} nats "
        f"of entropy, while the others go from {percent(rest)} to {percent(left)}. These are means "
        f"over the table. Put back, every bit is as before.{one_seed(measured.subject)}"
    )
    caption = "Each module taken out alone, logits added; accuracy is on test samples"
    return Section("removed", "A class taken out", paragraph(words) + table(columns, rows, caption))


def _right_on(places: Sequence[int], score: Evaluation) -> float:
    """Accuracy on the samples of these classes; nan where there are none."""
    counts = score.confusion[places]
    return float(counts[:, places].trace() / counts.sum()) if counts.sum() else math.nan


def _entropy_on(places: Sequence[int], score: Evaluation) -> float:
    """Mean entropy over the samples of these classes; nan where there are none."""
    counts = score.confusion[places].sum(axis=1)
    known = counts > 0
    if not known.any():
        return math.nan
    return float(np.average(score.entropy_per_class[places][known], weights=counts[known]))


def _key(operator: str) -> str:
    return "logits = inlay" if operator in ("logits", "inlay") else operator


def _bounds(key: str, measured: Measured) -> tuple[float, float]:
    ceiling = measured.single[measured.subject.together[0].name].ceiling
    return (0.0, 1.0 if key == "accuracy" else ceiling)


def _told(key: str, measured: Measured) -> tuple[str, str]:
    """The caption and the message of a merge curve."""
    count = len(measured.subject.together)
    if key == "accuracy":
        ends = [f"{name_of(o)} {percent(c[count].accuracy)}" for o, c in measured.curves.items()]
        message = f"With all {counted(count, 'module')} in, accuracy is {listed(ends)}."
        message += one_seed(measured.subject)
        return f"Accuracy on the classes that are in so far. {message}", message
    last: Sequence[tuple[str, float]] = [
        (operator, [s.entropy for s in curve.values() if math.isfinite(s.entropy)][-1])
        for operator, curve in measured.curves.items()
    ]
    ends = [f"{name_of(operator)} {nats(value)}" for operator, value in last]
    message = f"The last entropy on classes not yet in: {listed(ends)} nats."
    message += one_seed(measured.subject)
    return f"Entropy on samples of classes that are not in yet. {message}", message
