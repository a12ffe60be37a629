"""What the modules are together: what each answers, and what all of them do."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from intarsia.measure import Evaluation
from intarsia.plots import answers, confusion_panels, curve_panels
from intarsia.reports.html.elements import beside, listing, paragraph, table
from intarsia.reports.html.page import Section
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
from intarsia.reports.modules.figure_set import FigureSet
from intarsia.reports.modules.measurements import Measured
from intarsia.reports.modules.report_input import ReportInput
from intarsia.studies.tables import Spread

TILES_UP_TO = 12  # modules, and
CLASSES_UP_TO = 20  # classes, that a picture of all their answers has room for
UNSURE = 0.9  # of the ceiling: answers this near to it are nearly even
NAMES = {"sum": "weights added", "logits": "logits added", "inlay": "laid side by side (inlay)"}
MEANING = {
    "sum": "the weights of all modules added: one network of the size of one",
    "logits": "their answers added, which an inlay does in one sparse network",
    "inlay": "one sparse network of all their units, which adds their answers",
}


def name_of(operator: str) -> str:
    """An operator as a sentence has it, with the options that follow it."""
    name, comma, options = operator.partition(", ")
    return f"{NAMES[name]}{comma}{options}" if name in NAMES else operator


def best_of(measured: Measured) -> str:
    """The operator of the highest accuracy, of all seeds; of equal ones the first."""
    means = {o: mean(s.accuracy for s in scores) for o, scores in measured.seeded.items()}
    return max(means, key=lambda operator: means[operator])


def reached(measured: Measured, operator: str) -> str:
    """The accuracy of all modules joined: `78.5% ± 2.9 (n = 5)` where there are five seeds."""
    scores = measured.seeded[operator]
    return spread([s.accuracy for s in scores]) + (f" (n = {len(scores)})" if scores[1:] else "")


def one_seed(subject: ReportInput) -> str:
    """A sentence for what is shown of one seed alone; empty where there are no others."""
    if not subject.others:
        return ""
    return f" This is seed {subject.seeds[0]}, one of {number(len(subject.seeds))}."


def asked(score: Evaluation) -> str:
    """Of which samples an accuracy is."""
    count = int(score.confusion[places_of(score)].sum())
    if len(score.rewarded) == len(score.catalogue):
        return f"{count:,} test samples"
    return f"{count:,} test samples of {counted(len(score.rewarded), 'class', 'classes')}"


def overview(measured: Measured, drawn: FigureSet) -> str:
    """The picture of what every module answers, and all of them together; empty where too many."""
    modules, catalogue = measured.subject.together, measured.subject.catalogue
    if not 1 < len(modules) <= TILES_UP_TO or len(catalogue) > CLASSES_UP_TO or not measured.joined:
        return ""
    best = best_of(measured)
    parts = {module.name: measured.answers(measured.logits(module)) for module in modules}
    merged = {name_of(best): measured.answers(measured.whole_logits(best))}
    single = [measured.single[module.name] for module in modules]
    each = f"right on {percent(mean(s.accuracy for s in single))} of its own samples"
    unsure = mean(s.entropy for s in single)
    if not math.isnan(unsure):
        each += f", with {nats(unsure)} of at most {nats(single[0].ceiling)} nats on all others"
    told = f"right on {percent(measured.joined[best].accuracy)}"
    seed = one_seed(measured.subject)
    return drawn.figure(
        "answers",
        answers(parts, merged, catalogue),
        "Mean answers: a row is a true class, a column an answer, darker is more probable. Left, "
        f"each module alone: on average {each}. Right, all of them joined ({name_of(best)}): "
        f"{told}.{seed}",
        f"What {counted(len(modules), 'module')} answer: alone, on average {each}; joined, "
        f"{told}.{seed}",
    )


def alone(measured: Measured, drawn: FigureSet) -> str:
    """The confusion matrix of the one module that there is."""
    module = measured.subject.together[0]
    return _confusion(drawn, "alone", f"module {module.name}", measured.single[module.name])


def joined(measured: Measured, drawn: FigureSet) -> Section:
    """Confusion matrices of one module and of all, and the ways to join in numbers."""
    scores, single = measured.joined, measured.single
    modules = measured.subject.together
    best = best_of(measured)
    overall = {m.name: single[m.name].confusion.trace() / single[m.name].n for m in modules}
    best_alone = max(overall, key=lambda name: overall[name])
    words = (
        f"Joined without any training, {counted(len(modules), 'module')} are right on "
        f"{reached(measured, best)} of the {asked(scores[best])} ({name_of(best)})"
    )
    others = [f"{reached(measured, o)} with {name_of(o)}" for o in scores if o != best]
    words += f"; {listed(others)}" if others else ""
    words += (
        f". The best module alone, {best_alone}, is right on {percent(overall[best_alone])} of "
        "all samples, those of every class."
    )
    if single[best_alone].entropy >= UNSURE * single[best_alone].ceiling:
        words += " Where its answer is nearly even, the largest is a matter of chance."
    body = [paragraph(words)]
    seed = f", seed {measured.subject.seeds[0]}" if measured.subject.others else ""
    panels = {"alone": (f"module {best_alone} alone", single[best_alone])}
    panels |= {operator: (name_of(operator) + seed, score) for operator, score in scores.items()}
    body.append(beside(_confusion(drawn, key, *panel) for key, panel in panels.items()))
    body.append(_ways(measured))
    body += [paragraph(f"Not joined by {o}: {why}") for o, why in _refused(measured).items()]
    return Section("joined", "Joined", "\n".join(body))


def apart(measured: Measured) -> Section:
    """Why there is nothing joined."""
    words = "These modules cannot be joined as they are; each stands for itself."
    reasons = listing(f"{operator}: {why}" for operator, why in _refused(measured).items())
    return Section("joined", "Joined", f"{paragraph(words)}\n{reasons}")


def places_of(score: Evaluation) -> list[int]:
    """Of the rewarded classes in the catalogue."""
    return [place for place, name in enumerate(score.catalogue) if name in score.rewarded]


def _confusion(drawn: FigureSet, key: str, title: str, score: Evaluation) -> str:
    """The picture has all samples, the words those of rewarded classes; of one module, also all."""
    wrong = np.zeros_like(score.confusion)
    rows = list(range(len(wrong))) if key == "alone" else places_of(score)
    wrong[rows] = score.confusion[rows]
    np.fill_diagonal(wrong, 0)
    row, column = np.unravel_index(wrong.argmax(), wrong.shape)
    most = (
        f"The most frequent error: {score.catalogue[row]} taken for {score.catalogue[column]}, "
        f"{counted(int(wrong[row, column]), 'time')}."
        if wrong.any()
        else "There is no error."
    )
    right, of = score.accuracy, asked(score)
    if key == "alone":
        right, of = score.confusion.trace() / score.n, f"{score.n:,} test samples"
    told = f"{capital(title)}: {percent(right)} of {of} right."
    picture = confusion_panels({title: score.confusion}, score.catalogue)
    name = f"confusion-{re.sub(r'[^a-z0-9]+', '-', key).strip('-')}"
    return drawn.figure(name, picture, f"{told} {most}", f"{told} {most}")


def _ways(measured: Measured) -> str:
    ways = {_way(o): scores for o, scores in measured.seeded.items()}
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


def _way(operator: str) -> str:
    name = operator.partition(", ")[0]
    known = name in MEANING
    return f"{name_of(operator)}: {MEANING[name]}" if known else f"operator {operator}"


def _refused(measured: Measured) -> dict[str, str]:
    return {o: why for o, why in measured.refused.items() if o != "compatibility"}


def one_by_one(measured: Measured, drawn: FigureSet) -> Section:
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
        bounds = _bounds(key, measured)
        picture = curve_panels({title: panel}, title=title, x="modules", bounds=bounds)
        figures.append(drawn.figure(f"curve-{key}", picture, *_told(key, measured)))
    return Section("curve", "One after another", f"{paragraph(words)}\n{beside(figures)}")


def taken_out(measured: Measured) -> Section:
    """What becomes of a class when its module is taken out again."""
    without, merged = measured.without, measured.added
    assert merged is not None
    rows: list[list[Any]] = []
    for module in measured.subject.together:
        if module.name not in without:
            continue
        score = without[module.name]
        places, kept = [score.catalogue.index(c) for c in module.rewarded], places_of(score)
        before, after = (_right_on(places, s) for s in (merged, score))
        entropy, rest = _entropy_on(places, score), _right_on(kept, merged)
        rows.append([module.name, before, after, entropy, rest, _right_on(kept, score)])
    columns = [
        *("module taken out", "right on its classes before", "after"),
        *("entropy there after", "right on the rest before", "rest after"),
    ]
    before, after, entropy, rest, left = (mean(column) for column in [*zip(*rows, strict=True)][1:])
    words = (
        "A composition remembers its parts: taking a module out leaves exactly what the others "
        f"make without it. Its class is then answered right on {percent(after)} of its samples "
        f"instead of {percent(before)}, with {nats(entropy)} of at most "
        f"{nats(merged.ceiling)} nats of entropy, while the others go from {percent(rest)} to "
        f"{percent(left)}. These are means over the table. Put back, every bit is as "
        f"before.{one_seed(measured.subject)}"
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
