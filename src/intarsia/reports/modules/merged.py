"""The modules joined: all at once, one after another, and with one of them taken out."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.composition import OPERATORS
from intarsia.measure import Evaluation
from intarsia.plots import confusion_panels, curve_panels
from intarsia.reports.html.elements import listing, paragraph, side_by_side, table
from intarsia.reports.html.words import (
    capital,
    counted,
    listed,
    mean,
    nats,
    number,
    percent,
    spread,
)
from intarsia.reports.modules.measurements import Measurements
from intarsia.reports.modules.report_input import ReportInput
from intarsia.reports.modules.sections import ReportContext, section
from intarsia.studies.tables import Spread

UNSURE = 0.9  # of the ceiling: answers this close to it are nearly even
RESULT = {
    "weights": "one network of the size of one module",
    "units": "one sparse network with the units of all modules",
    "logits": "all modules answer, and their answers are combined",
}  # of joining, by what an operator works on


@section("joined", "Joined", order=40, needs_data=True)
def joined(context: ReportContext) -> str | None:
    """Confusion matrices of one module and of all, and the ways to join in numbers."""
    measured, modules = context.measured, context.inputs.together
    if len(modules) < 2:
        return None
    if not measured.joined:
        reasons = listing(f"{operator}: {why}" for operator, why in measured.refused.items())
        text = "These modules cannot be joined as they are; each stands for itself."
        return f"{paragraph(text)}\n{reasons}"
    scores, single = measured.joined, measured.single
    best = best_of(measured)
    overall = {m.name: single[m.name].confusion.trace() / single[m.name].n for m in modules}
    best_alone = max(overall, key=lambda name: overall[name])
    text = (
        f"Joined without any training, {counted(len(modules), 'module')} are right on "
        f"{joined_accuracy(measured, best)} of the {samples_of(scores[best])} "
        f"({name_of(measured, best)})"
    )
    others = [
        f"{joined_accuracy(measured, o)} with {name_of(measured, o)}" for o in scores if o != best
    ]
    text += f"; {listed(others)}" if others else ""
    text += (
        f". The best module alone, {best_alone}, is right on {percent(overall[best_alone])} of "
        "all samples, those of every class."
    )
    if single[best_alone].entropy >= UNSURE * single[best_alone].ceiling:
        text += " Where its answer is nearly even, the largest is a matter of chance."
    seed = f", seed {context.inputs.seeds[0]}" if context.inputs.others else ""
    panels = {"alone": (f"module {best_alone} alone", single[best_alone])}
    panels |= {o: (name_of(measured, o) + seed, score) for o, score in scores.items()}
    body = [
        paragraph(text),
        side_by_side(confusion(context, key, *panel) for key, panel in panels.items()),
        _ways(measured),
        *(paragraph(f"Not joined by {o}: {why}") for o, why in measured.refused.items()),
    ]
    return "\n".join(body)


@section("curve", "One after another", order=50, needs_data=True)
def one_by_one(context: ReportContext) -> str | None:
    """Accuracy and entropy as modules are added, one after another."""
    measured, modules = context.measured, context.inputs.together
    curves = measured.curves
    if len(modules) < 2 or not curves:
        return None
    ceiling = measured.single[modules[0].name].ceiling
    ends = [
        f"{percent(curve[1].accuracy)} to {percent(curve[len(modules)].accuracy)} "
        f"with {name_of(measured, operator)}"
        for operator, curve in curves.items()
    ]
    text = (
        f"Modules are joined one after another, in the order {listed([m.name for m in modules])}. "
        f"Accuracy, over the classes that are in so far, goes from {listed(ends)}. Entropy is over "
        "all classes that are not yet in: it should stay near its ceiling of "
        f"{nats(ceiling)} nats until the last module comes."
        f"{one_seed(context.inputs)}"
    )
    figures = []
    for key, title in (("accuracy", "accuracy so far"), ("entropy", "entropy on the rest, nats")):
        panel = {
            "logits = inlay" if measured.is_logit_sum(operator) else operator: {
                float(count): value
                for count, score in curve.items()
                if math.isfinite(value := getattr(score, key))
            }
            for operator, curve in curves.items()
        }
        if not any(panel.values()):
            continue
        bounds = (0.0, 1.0 if key == "accuracy" else ceiling)
        picture = curve_panels({title: panel}, title=title, x="modules", bounds=bounds)
        figures.append(context.figure(f"curve-{key}", picture, *_curve_caption(key, measured)))
    return f"{paragraph(text)}\n{side_by_side(figures)}"


@section("removed", "A class taken out", order=60, needs_data=True)
def removed(context: ReportContext) -> str | None:
    """What becomes of a class when its module is removed."""
    without, merged = context.measured.without, context.measured.added
    if not without or merged is None:
        return None
    rows: list[list[Any]] = []
    for module in context.inputs.together:
        if module.name not in without:
            continue
        score = without[module.name]
        own, kept = [score.catalogue.index(c) for c in module.rewarded], _rewarded_places(score)
        before, after = (_accuracy_on(own, s) for s in (merged, score))
        entropy, rest = score.entropy_on(module.rewarded), _accuracy_on(kept, merged)
        rows.append([module.name, before, after, entropy, rest, _accuracy_on(kept, score)])
    columns = [
        *("module taken out", "accuracy on its classes before", "after"),
        *("entropy there after", "accuracy on the rest before", "rest after"),
    ]
    before, after, entropy, rest, left = (mean(column) for column in [*zip(*rows, strict=True)][1:])
    text = (
        "A composition remembers its parts: taking a module out leaves exactly what the others "
        f"make without it. Accuracy on its class goes from {percent(before)} to {percent(after)}, "
        f"with {nats(entropy)} of at most {nats(merged.ceiling)} nats of entropy there; on all "
        f"other classes it goes from {percent(rest)} to {percent(left)}. These are means over the "
        f"table. Put back, every bit is as before.{one_seed(context.inputs)}"
    )
    caption = "Each module taken out alone, logits added; accuracy is on test samples"
    return paragraph(text) + table(columns, rows, caption)


def name_of(measured: Measurements, operator: str) -> str:
    """A way of joining as a sentence has it, with what is done around it."""
    spec = measured.spec(operator)
    label = "" if spec.arguments else OPERATORS[spec.name].label
    return (label or str(spec)) + operator.removeprefix(str(spec))


def best_of(measured: Measurements) -> str:
    """The operator of the highest accuracy, averaged over seeds; of equal ones the first."""
    means = {o: mean(s.accuracy for s in scores) for o, scores in measured.seeded.items()}
    return max(means, key=lambda operator: means[operator])


def joined_accuracy(measured: Measurements, operator: str) -> str:
    """The accuracy of all modules joined: `78.5% ± 2.9 (n = 5)` where there are five seeds."""
    scores = measured.seeded[operator]
    return spread([s.accuracy for s in scores]) + (f" (n = {len(scores)})" if scores[1:] else "")


def samples_of(score: Evaluation) -> str:
    """The samples that an accuracy is of: `107 test samples of three classes`."""
    count = int(score.confusion[_rewarded_places(score)].sum())
    if len(score.rewarded) == len(score.catalogue):
        return f"{count:,} test samples"
    return f"{count:,} test samples of {counted(len(score.rewarded), 'class', 'classes')}"


def one_seed(inputs: ReportInput) -> str:
    """A sentence for what is shown of one seed alone; empty where there are no others."""
    if not inputs.others:
        return ""
    return f" This is seed {inputs.seeds[0]}, one of {number(len(inputs.seeds))}."


def confusion(context: ReportContext, key: str, title: str, score: Evaluation) -> str:
    """A confusion matrix; its caption counts samples of rewarded classes, or all of one module."""
    wrong = np.zeros_like(score.confusion)
    rows = list(range(len(wrong))) if key == "alone" else _rewarded_places(score)
    wrong[rows] = score.confusion[rows]
    np.fill_diagonal(wrong, 0)
    row, column = np.unravel_index(wrong.argmax(), wrong.shape)
    most = (
        f"The most frequent error: {score.catalogue[row]} taken for {score.catalogue[column]}, "
        f"{counted(int(wrong[row, column]), 'time')}."
        if wrong.any()
        else "There is no error."
    )
    right, samples = score.accuracy, samples_of(score)
    if key == "alone":
        right, samples = score.confusion.trace() / score.n, f"{score.n:,} test samples"
    caption = f"{capital(title)}: {percent(right)} of {samples} right. {most}"
    picture = confusion_panels({title: score.confusion}, score.catalogue)
    name = f"confusion-{re.sub(r'[^a-z0-9]+', '-', key).strip('-')}"
    return context.figure(name, picture, caption, caption)


def _ways(measured: Measurements) -> str:
    """A table of all ways to one classifier: those of joining, and what they are compared with."""
    ways = {
        f"{name_of(measured, o)}: {RESULT[OPERATORS.entry(measured.spec(o)).on]}": scores
        for o, scores in measured.seeded.items()
    }
    ways |= {name: [score] for name, score in measured.compared.items()}
    accuracy = {name: Spread.of(s.accuracy for s in scores) for name, scores in ways.items()}
    entropy = {name: Spread.of(s.entropy for s in scores) for name, scores in ways.items()}
    columns, rows = ["way to one classifier", "accuracy"], [[n, str(accuracy[n])] for n in ways]
    if any(result.n for result in entropy.values()):
        columns.append("entropy on unrewarded classes")
        rows = [[*row, str(entropy[row[0]])] for row in rows]
    caption = f"Ways to one classifier, on {measured.split.y.numel():,} test samples"
    seeds = max(len(scores) for scores in ways.values())
    if seeds > 1:
        caption += f"; in brackets, the standard deviation over {number(seeds)} seeds"
    return table(columns, rows, caption)


def _curve_caption(key: str, measured: Measurements) -> tuple[str, str]:
    """The caption of a merge curve, and the message for a screen reader."""
    count = len(measured.inputs.together)
    if key == "accuracy":
        ends = [
            f"{name_of(measured, o)} {percent(c[count].accuracy)}"
            for o, c in measured.curves.items()
        ]
        about = "Accuracy on the classes that are in so far."
        message = f"The last accuracy, with all {counted(count, 'module')} in: {listed(ends)}."
    else:
        last = {
            o: [s.entropy for s in c.values() if math.isfinite(s.entropy)][-1]
            for o, c in measured.curves.items()
        }
        ends = [f"{name_of(measured, o)} {nats(entropy)}" for o, entropy in last.items()]
        about = "Entropy on samples of classes that are not in yet."
        message = f"The last entropy on classes not yet in: {listed(ends)} nats."
    message += one_seed(measured.inputs)
    return f"{about} {message}", message


def _rewarded_places(score: Evaluation) -> list[int]:
    """The places of the rewarded classes in the catalogue."""
    return [place for place, name in enumerate(score.catalogue) if name in score.rewarded]


def _accuracy_on(places: Sequence[int], score: Evaluation) -> float:
    """Accuracy on the samples of these classes; nan where there are none."""
    counts = score.confusion[places]
    return float(counts[:, places].trace() / counts.sum()) if counts.sum() else math.nan
