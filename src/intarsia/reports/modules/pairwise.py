"""Why joining works or fails: the compatibility of every two modules, and a path between two."""

import numpy as np

from intarsia.measure import Matrix, WeightPath
from intarsia.measure.compatibility import MEASURES
from intarsia.measure.path import TOLERANCE
from intarsia.plots import curve_panels, matrix_panels
from intarsia.reports.html.elements import TableValue, folded, paragraph, side_by_side, table
from intarsia.reports.html.words import capital, counted, listed, percent
from intarsia.reports.modules.merged import one_seed
from intarsia.reports.modules.sections import ReportContext, section

SHOWN = ("interference", "unit_overlap")  # the others are folded away


@section("compatibility", "Compatibility", order=70, needs_data=True)
def compatibility(context: ReportContext) -> str | None:
    """The measures between every two modules."""
    matrix = context.measured.matrix
    if matrix is None:
        return None
    known = [name for name in MEASURES if np.isfinite(matrix[name]).any()]
    shown = [_measure(matrix, name, context) for name in known if name in SHOWN]
    rest = [_measure(matrix, name, context) for name in known if name not in SHOWN]
    body = [paragraph(_opening(matrix) + one_seed(context.inputs)), side_by_side(shown)]
    if rest:
        body.append(folded(capital(counted(len(rest), "more measure")), side_by_side(rest)))
    count = len(context.inputs.together)
    if count > len(matrix.names):
        body.insert(1, paragraph(f"Shown are the first {len(matrix.names)} of {count} modules."))
    return "\n".join(body)


@section("path", "The path between two", order=80, needs_data=True)
def path_between(context: ReportContext) -> str | None:
    """The path between the two modules that interfere most."""
    path = context.measured.path
    if path is None:
        return None
    one, other = path.modules
    verdict = "connected" if path.connected else "not connected"
    barriers = [f"{curve.barrier:.1f}% on {name} samples" for name, curve in path.curves.items()]
    sizes = [f"{curve.n:,} {name}" for name, curve in path.curves.items()]
    text = (
        f"Walk from the weights of module {one} to those of module {other}, through their sum in "
        "the middle: the loss should stay below the straight line between its ends, or rise above "
        f"it by {TOLERANCE:g}% at most, the shaded band. These two, which interfere most, "
        f"are {verdict}: the highest rise is {listed(barriers)}. Measured on {listed(sizes)} "
        f"samples.{one_seed(context.inputs)}"
    )
    return "\n".join([paragraph(text), side_by_side(_panels(path, context)), _table(path)])


def _opening(matrix: Matrix) -> str:
    values = matrix["interference"]
    text = (
        "Interference is the accuracy that two modules are expected to lose when their weights are "
        f"added instead of their logits, read from {matrix.samples:,} unlabelled samples. "
    )
    if np.isfinite(values).any():
        one, other = _names(matrix, int(np.nanargmax(values)))
        average, most = _points(np.nanmean(values)), _points(np.nanmax(values))
        text += f"Over all pairs it is {average} percentage points"
        text += f"; most between {one} and {other}, {most}" if most != average else ""
        text += ". Modules that share few hidden units can hardly interfere. "
    else:
        text += "Here it is unknown: no module takes any of them for its own. "
    return text + "Logits and inlays mix no weights, so none of this matters to them."


def _measure(matrix: Matrix, name: str, context: ReportContext) -> str:
    values, title = matrix[name], name.replace("_", " ")
    least, most = _three(np.nanmin(values)), _three(np.nanmax(values))
    message = f"{capital(title)}: {MEASURES[name]}. "
    if least == most:
        message += f"{most} between any two."
    else:
        one, other = _names(matrix, int(np.nanargmax(values)))
        message += f"From {least} to {most}, most between {one} and {other}."
    picture = matrix_panels({title: values}, matrix.names)
    return context.figure(f"compatibility-{name.replace('_', '-')}", picture, message, message)


def _names(matrix: Matrix, place: int) -> tuple[str, str]:
    row, column = divmod(place, len(matrix.names))
    return matrix.names[row], matrix.names[column]


def _points(fraction: float) -> str:
    return f"{round(100 * fraction, 1) + 0.0:.1f}"


def _three(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}"  # no minus sign before a zero


def _panels(path: WeightPath, context: ReportContext) -> list[str]:
    x = f"from {path.modules[0]} (0) to {path.modules[1]} (1)"
    bands = {
        f"{name}: straight line + {TOLERANCE:g}%": {
            t: (end, end, end * (1 + TOLERANCE / 100))
            for t, end in ((0.0, curve.loss[0]), (1.0, curve.loss[-1]))
        }
        for name, curve in path.curves.items()
    }
    panels = []
    for key, title in (("loss", "loss"), ("accuracy", "accuracy on both modules' classes")):
        curves = {
            name: dict(zip(path.t, getattr(curve, key), strict=True))
            for name, curve in path.curves.items()
        }
        panel = {**curves, **bands} if key == "loss" else curves
        message = _message(path, key)
        picture = curve_panels({title: panel}, title=title, x=x)
        panels.append(context.figure(f"path-{key}", picture, message, message))
    return panels


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


def _table(path: WeightPath) -> str:
    middle, rows = len(path.t) // 2, list[list[TableValue]]()
    for name, curve in path.curves.items():
        worst = int(curve.excess.argmax())
        marks = ((path.modules[0], 0), ("sum", middle), (path.modules[1], -1), ("worst", worst))
        for label, i in marks:
            numbers = (curve.loss[i], curve.excess[i], curve.accuracy[i], curve.entropy[i])
            rows.append([f"{label}, {name}", f"{path.t[i]:.2f}", *map(float, numbers)])
    columns = ["where", "t", "loss", "above the line, %", "accuracy", "entropy on others"]
    return folded("The path in numbers", table(columns, rows, "At the ends, the sum, the worst"))
