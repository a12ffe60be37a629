"""Figure 3: what pruning does to the sum of two modules."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from intarsia.measure.significance import welch
from intarsia.plots import bar_panels
from intarsia.studies.cells import Measured
from intarsia.studies.maxent import pairs
from intarsia.studies.maxent.ordering import INDEPENDENT
from intarsia.studies.maxent.pairs import collected, differences
from intarsia.studies.maxent.paper import pair_cell
from intarsia.studies.maxent.single import presets
from intarsia.studies.study import Study, register
from intarsia.studies.tables import Entry, Paper, Spread, Table, finite, point

MEASURES = ("accuracy", "entropy")
Place = tuple[str, int, str, str]  # model, size, data, objective


def tables(measured: Sequence[Measured]) -> list[Table]:
    """The change by IMP of accuracy and of entropy, with the change of the paper's means."""
    changes = {what: _changes(measured, what) for what in MEASURES}
    rows = []
    for place in changes["accuracy"]:
        row: list[Entry] = [*place]
        for what in MEASURES:
            row += _entries(place, what, *changes[what][place])
        rows.append(row)
    columns = ["model", "|R|", "data", "objective"]
    for what in MEASURES:
        columns += [f"change of {what}", f"p of {what}", f"paper's change of {what}"]
    notes = [
        "with IMP minus without, over the pairs that both halves have; p by Welch's test of the "
        f"two halves; {INDEPENDENT}",
        "the paper's change is that of its means in Table 4",
        f"n: pairs x seeds; {presets(measured)}",
    ]
    return [Table("What IMP does to two modules whose weights are added", columns, rows, notes)]


def figures(measured: Sequence[Measured]) -> dict[str, Figure]:
    """A figure a data set and measure, a panel a model, groups by |R|, a bar an objective."""
    panels: dict[tuple[str, str], Any] = {}
    for what in MEASURES:
        for (model, size, data, objective), halves in _changes(measured, what).items():
            change = differences(*halves)
            if finite(change):
                own = panels.setdefault((data, what), {}).setdefault(model, {})
                own.setdefault(str(size), {})[objective] = point(change)
    return {
        f"impact-{data}-{what}": bar_panels(
            own,
            title=f"Change of {what} by IMP, {data}: two modules, weights added",
            x="|R|",
            y=f"change of {what}",
            share_y=True,
            bounds=(-1.0, 1.0) if what == "accuracy" else None,
        )
        for (data, what), own in panels.items()
    }


Halves = tuple[Sequence[float | None], Sequence[float | None]]  # with IMP, without


def _changes(measured: Sequence[Measured], what: str) -> dict[Place, Halves]:
    groups = collected(measured, "sum", what)
    return {
        (model, size, data, objective): (values, groups[model, size, False, data][objective])
        for (model, size, imp, data), own in groups.items()
        if imp
        for objective, values in own.items()
    }


def _entries(
    place: Place, what: str, after: Sequence[float | None], before: Sequence[float | None]
) -> list[Entry]:
    change = Spread.of(differences(after, before))
    there = [(a, b) for a, b in zip(after, before, strict=True) if len(finite((a, b))) == 2]
    p = welch(*map(finite, zip(*there, strict=True))).p if len(there) > 1 else None
    return [change, p, _printed(place, what)]


def _printed(place: Place, what: str) -> Paper | None:
    model, size, data, objective = place
    cells = [pair_cell(model, data, size, objective, imp) for imp in (True, False)]
    values = [getattr(cell, what) for cell in cells if cell]
    if len(values) < 2 or None in values:
        return None
    after, before = values
    return Paper(round(after.mean - before.mean, 3), None, after.suspect or before.suspect)


FORMS: Mapping[str, Mapping[str, Any]] = {"paper": pairs.PAPER, "small": pairs.SMALL}

register(
    Study(
        name="impact",
        title="Figure 3: what IMP does to two modules joined",
        about=(
            "Does pruning make modules easier to add? Its cells are those of `pairs`, read as the "
            "change of each pair from without IMP to with it."
        ),
        forms=FORMS,
        cells=pairs.cells,
        measure=pairs.measure,
        tables=tables,
        figures=figures,
    )
)
