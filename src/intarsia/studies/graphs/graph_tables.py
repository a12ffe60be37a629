"""Tables and figures of the study `graphs`; accuracies are per cent of test nodes."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from intarsia.graphs import VARIANTS
from intarsia.studies.cells import Measured
from intarsia.studies.graphs.graph_cells import CONTROL, MB, MR, NAME, SCALE, TABLE, TUNING
from intarsia.studies.graphs.graph_claims import (
    Gap,
    accuracies,
    against_controls,
    against_scales,
    measured_arms,
    named,
    second_helps,
)
from intarsia.studies.later_figures import LaterFigures
from intarsia.studies.tables import Difference, Entry, Paper, Spread, Table, grouped
from intarsia.studies.wording import listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRINTED: dict[tuple[str, str], tuple[float, ...]] = {
    ("citeseer", "gcn"): (65.8, 65.7, 69.4, 69.0),
    ("citeseer", "gat"): (65.6, 66.3, 67.5, 69.0),
    ("cora", "gcn"): (72.0, 72.4, 72.0, 75.2),
    ("cora", "gat"): (72.6, 73.6, 74.2, 75.5),
    ("europe", "gcn"): (35.1, 35.8, 24.4, 38.6),
    ("europe", "gat"): (34.2, 30.8, 30.1, 29.9),
    ("photo", "gcn"): (96.0, 96.2, 90.3, 96.3),
    ("photo", "gat"): (95.9, 96.1, 92.1, 96.2),
    ("computers", "gcn"): (92.0, 92.6, 74.7, 91.9),
    ("computers", "gat"): (88.0, 91.5, 73.0, 89.7),
}
"""The paper's table, in the order of `VARIANTS`; deviations are 0.2 to 7.7, not by cell."""

TESTED = "p: Student's t-test paired by seed, with Holm's correction for the rows of this table"
EMPTY = "no network is trained where the second graph has no edges"


def tables(done: Sequence[Measured]) -> list[Table]:
    """The paper's table beside ours, then controls, the honest protocol and random scales."""
    makers = (_paper, _budgets, _control, _honest, _chosen, _scales)
    return [table for make in makers for table in make(done)]


def spread(values: Mapping[int, float]) -> Spread:
    """In per cent."""
    return Spread.of(100 * value for value in values.values())


def _paper(done: Sequence[Measured]) -> list[Table]:
    rows: list[list[Entry]] = []
    helped = second_helps(done, TABLE)
    for key, arms in measured_arms(done, TABLE).items():
        for place, arm in enumerate(VARIANTS):
            if arm not in arms:
                continue
            ours, printed = spread(accuracies(arms[arm])), PRINTED.get(key)
            paper = Paper(printed[place], places=1) if printed else None
            gap = helped.get(key) if arm == MR else None
            more = [paper, Difference.of(ours, paper), *_gap(gap)]
            rows.append([named(*key), arm, ours, *more])
    if not rows:
        return []
    columns = ["data, encoder", "variant", "accuracy", "paper", "ours - paper", "MR - MB", "p"]
    own = [cell for cell in done if cell.settings["part"] == TABLE]
    return [Table("The paper's table: authors' protocol", columns, rows, [_how(own), TESTED])]


def _how(own: Sequence[Measured]) -> str:
    """`width 64; Adam, learning rate 0.001; ... of 100`, of all cells."""
    widths = sorted({str(c.result["width"]) for c in own if "width" in c.result}, key=int)
    rates = sorted({f"{c.settings['learning_rate']:g}" for c in own})
    epochs = sorted({str(c.settings["epochs"]) for c in own}, key=int)
    known = f"width {listed(widths)}; " if widths else ""
    return (
        f"{known}Adam, learning rate {listed(rates)}; the epoch with the best validation accuracy "
        f"of {listed(epochs)}"
    )


def _gap(gap: Gap | None) -> list[Entry]:
    return [None, None] if gap is None else [f"{gap.mean:+.2f}", f"{gap.p:.2g}"]


def _budgets(done: Sequence[Measured]) -> list[Table]:
    rows: list[list[Entry]] = []
    own = measured_arms(done, TABLE)
    budgets = sorted(
        {int(b) for a in own.values() for c in a.values() for b in c.result["budgets"]}
    )
    for key, arms in own.items():
        for arm, cell in arms.items():
            found = [spread(accuracies(cell, budget)) for budget in budgets]
            rows.append([named(*key), arm, *(one if one.n else None for one in found)])
    if not rows or not budgets:
        return []
    columns = ["data, encoder", "variant", *(f"{budget} epochs" for budget in budgets)]
    notes = ["accuracy at the best validation epoch among the first so many"]
    return [Table("Accuracy by number of epochs: authors' protocol", columns, rows, notes)]


def _control(done: Sequence[Measured]) -> list[Table]:
    return _against(done, CONTROL, "Other second graphs: authors' protocol")


def _honest(done: Sequence[Measured]) -> list[Table]:
    arms, helped = measured_arms(done, TUNING), second_helps(done, TUNING)
    rows: list[list[Entry]] = []
    for key, own in arms.items():
        found = [spread(accuracies(own[arm])) if arm in own else None for arm in VARIANTS]
        rows.append([named(*key), *found, *_gap(helped.get(key))])
    if not rows:
        return []
    notes = ["settings are chosen on validation nodes, for each network and seed", TESTED]
    columns = ["data, encoder", *VARIANTS, "MR - MB", "p"]
    first = Table("The honest protocol", columns, rows, notes)
    return [first, *_against(done, TUNING, "Other second graphs: honest protocol")]


def _against(done: Sequence[Measured], part: str, title: str) -> list[Table]:
    gaps = against_controls(done, part)
    table = measured_arms(done, TABLE if part == CONTROL else part)
    rows: list[list[Entry]] = []
    own = [cell for cell in done if cell.settings["part"] == part]
    for (data, encoder), group in grouped(own, "data", "encoder").items():
        arms = table.get((data, encoder), {})
        epochs = group[0].settings["epochs"]
        for arm, label in ((MB, "the same graph (MB)"), (MR, "tau* (MR)")):
            if arm in arms:
                number = spread(accuracies(arms[arm], epochs))
                rows.append([named(data, encoder), label, _edges(arms[arm]), number, None, None])
        for cell in group:
            arm = cell.settings["arm"]
            if arm not in VARIANTS:
                found = spread(accuracies(cell)) if "test" in cell.result else None
                gap = _gap(gaps.get((data, encoder, arm)))
                label = _label(cell)
                rows.append([named(data, encoder), label, _edges(cell), found, *gap])
    if not any(row[4] is not None for row in rows):
        return []
    notes = [TESTED]
    if part == CONTROL:
        notes.insert(0, _how(own))
    if any(cell.result.get("empty") for cell in own):
        notes.append(EMPTY)
    columns = ["data, encoder", "second graph", "directed edges", "accuracy", "MR - this", "p"]
    return [Table(title, columns, rows, notes)]


def _label(cell: Measured) -> str:
    arm, tau = str(cell.settings["arm"]), cell.result.get("tau")
    return f"{arm}, tau {tau:.3g}" if tau is not None and not arm.startswith("tau") else arm


def _edges(cell: Measured) -> str:
    return f"{cell.result['edges']:,}"


def _chosen(done: Sequence[Measured]) -> list[Table]:
    """How often seeds chose each setting of the grid."""
    rows: list[list[Entry]] = []
    for key, arms in measured_arms(done, TUNING).items():
        for arm, cell in arms.items():
            for place, tried in enumerate(cell.result["tried"]):
                count = cell.result["chosen"].count(place)
                if count:
                    line = [f"{tried[k]:g}" for k in ("dropout", "learning_rate", "weight_decay")]
                    rows.append([named(*key), arm, *line, count])
    if not rows:
        return []
    columns = ["data, encoder", "variant", "dropout", "learning rate", "weight decay", "seeds"]
    return [Table("Settings chosen: honest protocol", columns, rows)]


def _scales(done: Sequence[Measured]) -> list[Table]:
    rows: list[list[Entry]] = []
    gaps = against_scales(done)
    own = [cell for cell in done if cell.settings["part"] == SCALE]
    for (data, encoder), group in grouped(own, "data", "encoder").items():
        for cell in sorted(group, key=lambda cell: cell.result["tau"]):
            found = spread(accuracies(cell)) if "test" in cell.result else None
            gap = gaps.get((data, encoder), {}).get(cell.settings["arm"])
            tau = f"{cell.result['tau']:.4g}"
            rows.append([named(data, encoder), tau, _edges(cell), found, *_gap(gap)])
    if not rows:
        return []
    columns = ["data, encoder", "tau", "directed edges", "accuracy", "tau* - this", "p"]
    notes = [
        _how(own),
        "p: as above, with the correction for the scales of one data set and encoder",
    ]
    if any(cell.result.get("empty") for cell in own):
        notes.append(EMPTY)
    return [Table("Random scales: authors' protocol", columns, rows, notes)]


def figures(done: Sequence[Measured]) -> "Mapping[str, Figure]":
    """Accuracy against epochs, and against tau with controls as lines."""
    ways: dict[str, Callable[[], Figure]] = {}
    table = measured_arms(done, TABLE)
    if any(cell.result["budgets"] for arms in table.values() for cell in arms.values()):
        ways[f"{NAME}-epochs"] = partial(_draw_epochs, table)
    panels = _tau_panels(done)
    if panels:
        ways[f"{NAME}-tau"] = partial(_draw_tau, panels)
    return LaterFigures(ways)


Curve = dict[float, tuple[float, float]]


def _point(values: Mapping[int, float]) -> tuple[float, float]:
    own = spread(values)
    return own.mean, 0.0 if math.isnan(own.sd) else own.sd


def _draw_epochs(table: Mapping[tuple[str, str], Mapping[str, Measured]]) -> "Figure":
    from intarsia.plots import curve_panels

    panels: dict[str, dict[str, Curve]] = {}
    places: dict[float, str] = {}
    for key, arms in table.items():
        own = panels.setdefault(named(*key), {})
        for arm, cell in arms.items():
            budgets = sorted(map(int, cell.result["budgets"]))
            own[arm] = {math.log10(b): _point(accuracies(cell, b)) for b in budgets}
            places |= {math.log10(b): str(b) for b in budgets}
    title = "Accuracy against epochs, authors' protocol"
    return curve_panels(panels, title=title, x="epochs", y="test accuracy, %", x_names=places)


def _tau_panels(done: Sequence[Measured]) -> dict[str, dict[str, Curve]]:
    """Times as a curve; what has no time as a line from end to end, without its deviation."""
    controls, table = measured_arms(done, CONTROL), measured_arms(done, TABLE)
    scales = measured_arms(done, SCALE)
    panels = {}
    for key in dict.fromkeys([*controls, *scales]):
        cells = [*controls.get(key, {}).values(), *scales.get(key, {}).values()]
        epochs = cells[0].settings["epochs"]
        ours = table.get(key, {})
        timed = [cell for cell in cells if cell.result.get("tau")]
        star = {arm: accuracies(ours[arm], epochs) for arm in (MB, MR) if arm in ours}
        curve: Curve = {math.log10(c.result["tau"]): _point(accuracies(c)) for c in timed}
        if star.get(MR) and (tau := ours[MR].result.get("tau")):
            curve[math.log10(tau)] = _point(star[MR])
        if len(curve) < 2:
            continue
        ends = (min(curve), max(curve))
        own: dict[str, Curve] = {"second graph at tau": dict(sorted(curve.items()))}
        if star.get(MR) and tau:
            own["tau*"] = {math.log10(tau): _point(star[MR])}
        lines = {c.settings["arm"]: accuracies(c) for c in cells if not c.result.get("tau")}
        if star.get(MB):
            lines["MB"] = star[MB]
        for name, values in lines.items():
            own[name] = {end: (_point(values)[0], 0.0) for end in ends}
        panels[named(*key)] = own
    return panels


def _draw_tau(panels: Mapping[str, Mapping[str, Curve]]) -> "Figure":
    from intarsia.plots import curve_panels

    every = [x for own in panels.values() for curve in own.values() for x in curve]
    decades = range(math.floor(min(every)), math.ceil(max(every)) + 1)
    places = {float(d): f"{10.0**d:g}" for d in decades if min(every) <= d <= max(every)}
    title = "Accuracy of MR against the tau of its second graph; controls are lines"
    return curve_panels(panels, title=title, x="tau", y="test accuracy, %", x_names=places)
