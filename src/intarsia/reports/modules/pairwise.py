"""Why a join works or fails: what modules share two by two, and the path between two of them."""

import numpy as np

from intarsia.figures import line_figure, matrix_figure
from intarsia.measure import Matrix, WeightPath
from intarsia.measure.compatibility import MEASURES
from intarsia.measure.path import TOLERANCE
from intarsia.reports.html.elements import Entry, beside, folded, paragraph, table
from intarsia.reports.html.page import Section
from intarsia.reports.html.words import capital, counted, listed, percent
from intarsia.reports.modules.figure_set import FigureSet
from intarsia.reports.modules.measurements import Measured
from intarsia.reports.modules.merged import one_seed

SHOWN = ("interference", "unit_overlap")  # the others are folded away


def fits(measured: Measured, drawn: FigureSet) -> Section:
    """The compatibility of every two modules."""
    matrix = measured.matrix
    assert matrix is not None
    known = [name for name in MEASURES if np.isfinite(matrix[name]).any()]
    shown = [_measure(matrix, name, drawn) for name in known if name in SHOWN]
    rest = [_measure(matrix, name, drawn) for name in known if name not in SHOWN]
    body = [paragraph(_opening(matrix) + one_seed(measured.subject)), beside(shown)]
    if rest:
        body.append(folded(f"{capital(counted(len(rest), 'more measure'))}", beside(rest)))
    count = len(measured.subject.together)
    if count > len(matrix.names):
        body.insert(1, paragraph(f"Shown are the first {len(matrix.names)} of {count} modules."))
    return Section("fits", "What fits", "\n".join(body))


def way(measured: Measured, drawn: FigureSet) -> Section:
    """The path between the two modules that disturb each other most."""
    path = measured.path
    assert path is not None
    one, other = path.modules
    verdict = "connected" if path.connected else "not connected"
    barriers = [f"{curve.barrier:.1f}% on {name} samples" for name, curve in path.curves.items()]
    sizes = [f"{curve.n:,} {name}" for name, curve in path.curves.items()]
    words = (
        f"Walk from the weights of module {one} to those of module {other}, through their sum in "
        "the middle: the loss should stay below the straight line between its ends, or rise above "
        f"it by {TOLERANCE:g}% at most, the shaded band. These two, which disturb each other most, "
        f"are {verdict}: the highest rise is {listed(barriers)}. Measured on {listed(sizes)} "
        f"samples.{one_seed(measured.subject)}"
    )
    body = [paragraph(words), beside(_panels(path, drawn)), _places(path)]
    return Section("path", "The path between two", "\n".join(body))


def _opening(matrix: Matrix) -> str:
    values = matrix["interference"]
    words = (
        "Interference is the accuracy that two modules are expected to lose when their weights are "
        f"added instead of their logits, read from {matrix.samples:,} unlabelled samples. "
    )
    if np.isfinite(values).any():
        one, other = _names(matrix, int(np.nanargmax(values)))
        average, most = _points(np.nanmean(values)), _points(np.nanmax(values))
        words += f"Over all pairs it is {average} percentage points"
        words += f"; most between {one} and {other}, {most}" if most != average else ""
        words += ". Modules that share few hidden units can hardly disturb each other. "
    else:
        words += "Here it cannot be told: no module takes any of them for its own. "
    return words + "Logits and inlays mix nothing, so nothing here matters to them."


def _measure(matrix: Matrix, name: str, drawn: FigureSet) -> str:
    values, title = matrix[name], name.replace("_", " ")
    least, most = _three(np.nanmin(values)), _three(np.nanmax(values))
    message = f"{capital(title)}: {MEASURES[name]}. "
    if least == most:
        message += f"{most} between any two."
    else:
        one, other = _names(matrix, int(np.nanargmax(values)))
        message += f"From {least} to {most}, most between {one} and {other}."
    svg = matrix_figure({title: values}, matrix.names)
    return drawn.figure(f"fits-{name.replace('_', '-')}", svg, message, message)


def _names(matrix: Matrix, place: int) -> tuple[str, str]:
    row, column = divmod(place, len(matrix.names))
    return matrix.names[row], matrix.names[column]


def _points(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}"


def _three(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}"  # no minus before a zero


def _panels(path: WeightPath, drawn: FigureSet) -> list[str]:
    x = f"from {path.modules[0]} (0) to {path.modules[1]} (1)"
    bands = {
        f"{name}: straight line + {TOLERANCE:g}%": {
            t: (end, end, end * (1 + TOLERANCE / 100))
            for t, end in ((0.0, curve.loss[0]), (1.0, curve.loss[-1]))
        }
        for name, curve in path.curves.items()
    }
    result = []
    for key, title in (("loss", "loss"), ("accuracy", "accuracy on both modules' classes")):
        curves = {
            name: dict(zip(path.t, getattr(curve, key), strict=True))
            for name, curve in path.curves.items()
        }
        panel = {**curves, **bands} if key == "loss" else curves
        message = _message(path, key)
        svg = line_figure({title: panel}, title=title, x=x)
        result.append(drawn.figure(f"path-{key}", svg, message, message))
    return result


def _message(path: WeightPath, key: str) -> str:
    middle = len(path.t) // 2
    test = path.curves["test"]
    if key == "loss":
        return (
            f"Loss along the path: its barrier is {path.barrier:.1f}% of the straight line, so the "
            f"modules are {'' if path.connected else 'not '}connected at {TOLERANCE:g}%."
        )
    return (
        f"Accuracy along the path: {percent(test.accuracy[0])} of the test samples of both at the "
        f"start, where one module is alone, {percent(test.accuracy[middle])} in the middle, where "
        "both are added."
    )


def _places(path: WeightPath) -> str:
    middle, rows = len(path.t) // 2, list[list[Entry]]()
    for name, curve in path.curves.items():
        worst = int(curve.excess.argmax())
        marks = ((path.modules[0], 0), ("sum", middle), (path.modules[1], -1), ("worst", worst))
        for label, i in marks:
            numbers = (curve.loss[i], curve.excess[i], curve.accuracy[i], curve.entropy[i])
            rows.append([f"{label}, {name}", f"{path.t[i]:.2f}", *map(float, numbers)])
    columns = ["where", "t", "loss", "above the line, %", "accuracy", "entropy on others"]
    return folded("The path in numbers", table(columns, rows, "At the ends, the sum, the worst"))
