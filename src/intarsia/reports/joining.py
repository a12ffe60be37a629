"""What the modules are together: what each answers, and what all of them do."""

import math
import re
from typing import Any

import numpy as np

from intarsia.figures import answers_figure, confusion_figure
from intarsia.measure import Evaluation
from intarsia.reports.drawn import Drawn
from intarsia.reports.elements import beside, listing, paragraph, table
from intarsia.reports.measured import Measured
from intarsia.reports.page import Section
from intarsia.reports.words import capital, counted, listed, percent

TILES_UP_TO = 12  # modules, and
CLASSES_UP_TO = 20  # classes, that a picture of all their answers has room for
NAMES = {"sum": "weights added", "logits": "logits added", "inlay": "laid side by side (inlay)"}
MEANING = {
    "sum": "the weights of all modules added: one network of the size of one",
    "logits": "their answers added, which an inlay does in one sparse network",
    "inlay": "one sparse network of all their units, which adds their answers",
}


def name_of(operator: str) -> str:
    """An operator as a sentence has it."""
    return NAMES.get(operator, operator)


def best_of(joined: dict[str, Evaluation]) -> str:
    """The operator of the highest accuracy; of equal ones the first."""
    return max(joined, key=lambda operator: joined[operator].accuracy)


def asked(score: Evaluation) -> str:
    """Of which samples an accuracy is."""
    count = int(score.confusion[places_of(score)].sum())
    if len(score.rewarded) == len(score.catalogue):
        return f"{count:,} test samples"
    return f"{count:,} test samples of {counted(len(score.rewarded), 'class', 'classes')}"


def glance(measured: Measured, drawn: Drawn) -> str:
    """The picture of what every module answers, and all of them together; empty where too many."""
    modules, catalogue = measured.subject.together, measured.subject.catalogue
    if not 1 < len(modules) <= TILES_UP_TO or len(catalogue) > CLASSES_UP_TO or not measured.joined:
        return ""
    best = best_of(measured.joined)
    parts = {module.name: measured.answers(measured.logits(module)) for module in modules}
    whole = {name_of(best): measured.answers(measured.whole_logits(best))}
    return drawn.figure(
        "answers",
        answers_figure(parts, whole, catalogue),
        "Mean answers: a row is a true class, a column an answer, darker is more probable. Left, "
        "each module alone is dark in its own cell and pale elsewhere, since it spreads what it "
        f"does not know evenly. Right, all of them joined ({name_of(best)}).",
        f"Each of {counted(len(modules), 'module')} answers its own class and spreads the rest "
        f"evenly; joined they are right on {percent(measured.joined[best].accuracy)} of samples.",
    )


def alone(measured: Measured, drawn: Drawn) -> str:
    """The confusion matrix of the one module that there is."""
    module = measured.subject.together[0]
    return _confusion(drawn, "alone", f"module {module.name}", measured.single[module.name])


def joined(measured: Measured, drawn: Drawn) -> Section:
    """Confusion matrices of one module and of all, and the ways to join in numbers."""
    scores, single = measured.joined, measured.single
    modules = measured.subject.together
    best = best_of(scores)
    overall = {m.name: single[m.name].confusion.trace() / single[m.name].n for m in modules}
    best_alone = max(overall, key=lambda name: overall[name])
    words = (
        f"Joined without any training, {counted(len(modules), 'module')} are right on "
        f"{percent(scores[best].accuracy)} of the {asked(scores[best])} ({name_of(best)})"
    )
    others = [f"{percent(s.accuracy)} with {name_of(o)}" for o, s in scores.items() if o != best]
    words += f"; {listed(others)}" if others else ""
    words += (
        f". The best module alone is right on {percent(overall[best_alone])} of all: it knows "
        "nothing else, and where its answer is nearly even the largest is a matter of chance."
    )
    body = [paragraph(words)]
    panels = {"alone": (f"module {best_alone} alone", single[best_alone])}
    panels |= {operator: (name_of(operator), score) for operator, score in scores.items()}
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


def _confusion(drawn: Drawn, key: str, title: str, score: Evaluation) -> str:
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
    svg = confusion_figure({title: score.confusion}, score.catalogue)
    name = f"confusion-{re.sub(r'[^a-z0-9]+', '-', key).strip('-')}"
    return drawn.figure(name, svg, f"{told} {most}", f"{told} {most}")


def _ways(measured: Measured) -> str:
    rows: list[list[Any]] = [
        [f"{name_of(o)}: {MEANING[o]}" if o in MEANING else f"operator {o}", s.accuracy, s.entropy]
        for o, s in measured.joined.items()
    ]
    rows += [[name, s.accuracy, s.entropy] for name, s in measured.compared.items()]
    columns = ["way to one classifier", "accuracy", "entropy on unrewarded classes"]
    if all(math.isnan(row[2]) for row in rows):
        columns, rows = columns[:2], [row[:2] for row in rows]
    caption = f"Ways to one classifier, on {measured.split.y.numel():,} test samples"
    return table(columns, rows, caption)


def _refused(measured: Measured) -> dict[str, str]:
    return {o: why for o, why in measured.refused.items() if o != "compatibility"}
