"""Figure 3: what pruning does to the sum of two modules."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.measure.significance import welch
from intarsia.studies.cells import Measured
from intarsia.studies.maxent import pairs
from intarsia.studies.maxent.pairs import collected, differences
from intarsia.studies.maxent.shared.dead import dead_pairs, left_out
from intarsia.studies.maxent.shared.ordering import INDEPENDENT
from intarsia.studies.maxent.shared.paper import pair_cell
from intarsia.studies.maxent.single import presets
from intarsia.studies.study import Study, register
from intarsia.studies.tables import Entry, Paper, Spread, Table, finite, point
from intarsia.studies.verdict import Claim, Findings, Verdict, capital, count, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("accuracy", "entropy")
LEVEL = 0.05  # of Welch's test
Row = Mapping[str, Any]  # of the table
Place = tuple[str, int, str, str]  # model, size, data, objective
Both = tuple[Sequence[float | None], Sequence[float | None]]  # with IMP, without


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
        "with IMP minus without, over the pairs that both have; p by Welch's test of the two; "
        f"{INDEPENDENT}",
        "the paper's change is that of its means in Table 4",
        f"n: pairs x seeds; {presets(measured)}",
    ]
    return [Table("What IMP does to two modules whose weights are added", columns, rows, notes)]


def figures(measured: Sequence[Measured]) -> "dict[str, Figure]":
    """By data set and measure, a panel per model, groups by |R|, a bar per objective."""
    from intarsia.plots import bar_panels

    panels: dict[tuple[str, str], Any] = {}
    for what in MEASURES:
        for (model, size, data, objective), both in _changes(measured, what).items():
            change = differences(*both)
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


def verdict(findings: Findings) -> Verdict:
    """In how many settings pruning raises accuracy and entropy, and whether the paper says so."""
    dead = [(model, size, data) for model, size, imp, data in dead_pairs(findings.cells) if imp]
    rows = [
        row
        for row in tables(findings.cells)[0].records()
        if (row["model"], row["|R|"], row["data"]) not in dead
    ]
    numbers = {what: [r for r in rows if r[f"change of {what}"].n] for what in MEASURES}
    rises = {what: _rises(own, what) for what, own in numbers.items()}
    line = (
        f"IMP raises accuracy in {rises['accuracy']} settings (model, |R|, objective), entropy in "
        f"{rises['entropy']}"
    )
    claim = Claim(
        f"{line}, of the sum of two modules.",
        evidence=rises,
        n=len(numbers["accuracy"]),
        details=[_by_objective(own, what) for what, own in numbers.items()],
    )
    groups = left_out(dead_pairs(findings.cells))
    return Verdict(line, [claim, *_signs(numbers)], groups)


def _signs(numbers: Mapping[str, Sequence[Row]]) -> list[Claim]:
    """Whether changes go to the same side as the paper's."""
    same = {
        what: [held for row in own if (held := _same_sign(row, what)) is not None]
        for what, own in numbers.items()
    }
    known = {what: held for what, held in same.items() if held}
    if not known:
        return []
    parts = [f"{sum(held)} of {len(held)} for {what}" for what, held in known.items()]
    return [
        Claim(
            f"The change has the sign of the paper's in {listed(parts)}.",
            holds=all(map(all, known.values())),
            evidence={what: [sum(held), len(held)] for what, held in known.items()},
            n=sum(map(len, known.values())),
        )
    ]


def _by_objective(rows: Sequence[Row], what: str) -> str:
    names = dict.fromkeys(row["objective"] for row in rows)
    own = {name: [row for row in rows if row["objective"] == name] for name in names}
    by = listed([f"{name} in {_rises(some, what)}" for name, some in own.items()])
    return (
        f"{capital(what)}: rises in {_rises(rows, what)} ({by}); by the test it rises in "
        f"{_surely(rows, what, 1)} and falls in {_surely(rows, what, -1)}."
    )


def _rises(rows: Sequence[Row], what: str) -> str:
    return count(rows, lambda row: row[f"change of {what}"].mean > 0)


def _surely(rows: Sequence[Row], what: str, sign: int) -> int:
    """In how many settings the test says that the change has this sign."""
    return sum(
        row[f"p of {what}"] is not None
        and row[f"p of {what}"] < LEVEL
        and sign * row[f"change of {what}"].mean > 0
        for row in rows
    )


def _same_sign(row: Row, what: str) -> bool | None:
    paper = row[f"paper's change of {what}"]
    if paper is None or paper.suspect or paper.mean == 0:
        return None
    return bool((row[f"change of {what}"].mean > 0) == (paper.mean > 0))


def _changes(measured: Sequence[Measured], what: str) -> dict[Place, Both]:
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


register(
    Study(
        "impact",
        "Figure 3: what IMP does to two modules joined",
        "Does pruning make modules easier to add? Its cells are those of `pairs`, read as the "
        "change of each pair from without IMP to with it.",
        pairs.SCALES,
        *(pairs.cells, pairs.measure, tables, figures, verdict),
        paper="Figure 3: pruning helps modules to be added",
    )
)
