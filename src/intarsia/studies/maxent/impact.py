"""Figure 3: what pruning does to the sum of two modules."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.measure.significance import LEVEL, Clusters, clustered, holm, welch
from intarsia.studies.cells import Measured
from intarsia.studies.maxent import pairs
from intarsia.studies.maxent.pairs import by_seed, differences
from intarsia.studies.maxent.shared.dead import dead_pairs, failures
from intarsia.studies.maxent.shared.ordering import INDEPENDENT, OVER_SEEDS
from intarsia.studies.maxent.shared.paper import pair_cell
from intarsia.studies.maxent.single import presets
from intarsia.studies.study import Study, register
from intarsia.studies.tables import Entry, Paper, Spread, Table, finite, point
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import capital, count, listed, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("accuracy", "entropy")
FIGURE_3 = {"objective": ("me",), "data": ("mnist", "fashion_mnist")}  # what the paper shows
Row = Mapping[str, Any]  # of the table; "dead" where pruning cut its modules through
Place = tuple[str, int, str, str]  # model, size, data, objective
Both = tuple[Clusters, Clusters]  # with IMP, without; by seed


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
        columns += [f"change of {what}", f"Welch p, {what}", f"p over seeds, {what}"]
        columns += [f"paper's change of {what}"]
    notes = [
        "change: with IMP minus without, over the pairs measured in both; p of Welch's t-test "
        f"between the two; {INDEPENDENT}",
        OVER_SEEDS,
        "p is not corrected for the number of rows; the counts of the verdict are",
        "paper's change: the difference of its means in Table 4",
        f"n: pairs x seeds, the same pairs for every seed; {presets(measured)}",
    ]
    return [Table("Effect of IMP on the sum of two modules", columns, rows, notes)]


def figures(measured: Sequence[Measured]) -> "dict[str, Figure]":
    """By data set and measure, a panel per model, groups by |R|, a bar per objective."""
    from intarsia.plots import bar_panels

    panels: dict[tuple[str, str], Any] = {}
    for what in MEASURES:
        for (model, size, data, objective), both in _changes(measured, what).items():
            change = _pairwise(*both)
            if finite(change):
                own = panels.setdefault((data, what), {}).setdefault(model, {})
                own.setdefault(str(size), {})[objective] = point(change)
    return {
        f"impact-{data}-{what}": bar_panels(
            own,
            title=f"Change of {what} by IMP, sum of two modules, {data}",
            x="|R|",
            y=f"change of {what}",
            share_y=True,
            bounds=(-1.0, 1.0) if what == "accuracy" else None,
        )
        for (data, what), own in panels.items()
    }


def verdict(findings: Findings) -> Verdict:
    """In how many settings pruning raises accuracy and entropy: first in those of Figure 3."""
    dead = dead_pairs(findings.cells)
    cut = [(model, size, data) for model, size, imp, data in dead if imp]
    rows: list[Row] = [
        {**row, "dead": (row["model"], row["|R|"], row["data"]) in cut}
        for row in tables(findings.cells)[0].records()
    ]
    whole = {what: [row for row in rows if row[f"change of {what}"].n] for what in MEASURES}
    theirs = [
        row for row in whole["accuracy"] if all(row[key] in own for key, own in FIGURE_3.items())
    ]
    claims = [_figure_3(theirs)] if theirs else []
    rises = {what: _rises(own, what) for what, own in whole.items() if own}
    gone = sum(row["dead"] for row in whole["accuracy"])
    start = f"across all {len(rows)} settings of model, |R|, data and objective"
    raised = listed([f"{what} in {number}" for what, number in rises.items()])
    line = f"{start}{f' ({gone} dead)' if gone else ''}, IMP raises {raised}"
    claims.append(
        Claim(
            f"{capital(line)}.",
            evidence=rises,
            n=len(whole["accuracy"]),
            details=[_by_objective(own, what) for what, own in whole.items() if own],
        )
    )
    short = f"{claims[0].counted} {claims[0].short}; " if theirs else ""
    return Verdict(f"{short}{line}", [*claims, *_signs(whole)], failures(dead))


def _figure_3(rows: Sequence[Row]) -> Claim:
    """The paper's own setting: ME, on the data sets of its figure."""
    tests = _by_tests(rows, "accuracy")
    where = listed([titled(data) for data in dict.fromkeys(row["data"] for row in rows)])
    entropy = [row for row in rows if row["change of entropy"].n]
    other = f" Mean entropy rises in {_rises(entropy, 'entropy')}." if entropy else ""
    risen = sum(map(_is_up("accuracy"), rows))
    return Claim(
        f"In the settings of Figure 3 (ME on {where}), IMP raises the mean accuracy of the sum of "
        f"two modules in {risen} of {len(rows)} (model, |R|, data). {_in_words(tests, len(rows))}."
        f"{other}",
        holds=risen == len(rows),
        evidence={"count": risen, "of": len(rows), "tests": tests},
        n=len(rows),
        short=f"settings of Figure 3 (ME on {where}) in which IMP raises accuracy (significant "
        f"over seeds in {tests['over seeds']['rises']}, after Holm's correction in "
        f"{tests['over seeds, Holm']['rises']})",
    )


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
            f"The change has the same sign as the paper's in {listed(parts)} (signs of means, not "
            "tested).",
            holds=all(map(all, known.values())),
            evidence={what: [sum(held), len(held)] for what, held in known.items()},
            n=sum(map(len, known.values())),
        )
    ]


def _by_objective(rows: Sequence[Row], what: str) -> str:
    names = dict.fromkeys(row["objective"] for row in rows)
    own = {name: [row for row in rows if row["objective"] == name] for name in names}
    by = listed([f"{name} in {_rises(some, what)}" for name, some in own.items()])
    tests = _in_words(_by_tests(rows, what), len(rows))
    return f"Mean {what} rises in {_rises(rows, what)} ({by}). {tests}."


def _by_tests(rows: Sequence[Row], what: str) -> dict[str, dict[str, int]]:
    """In how many rows the change is surely up and in how many surely down, test by test.

    The correction is Holm's, for the number of these rows. Dead modules rise in none.
    """
    seeds = [_p(row, f"p over seeds, {what}") for row in rows]
    values = {
        "by Welch's test": [_p(row, f"Welch p, {what}") for row in rows],
        "over seeds": seeds,
        "over seeds, Holm": holm(seeds),
    }
    counts = {}
    for test, own in values.items():
        sure = [row for row, p in zip(rows, own, strict=True) if p < LEVEL]
        falls = sum(row[f"change of {what}"].mean < 0 for row in sure)
        counts[test] = {"rises": sum(map(_is_up(what), sure)), "falls": falls}
    return counts


def _in_words(tests: Mapping[str, Mapping[str, int]], rows: int) -> str:
    words = {
        "by Welch's test": "by Welch's t-test",
        "over seeds, Holm": f"over seeds with Holm's correction for {rows}",
    }
    parts = [
        f"{own['rises']} and {own['falls']} {words.get(test, test)}" for test, own in tests.items()
    ]
    return f"Significant rises and falls: {', '.join(parts)}"


def _p(row: Row, column: str) -> float:
    return 1.0 if row[column] is None else row[column]


def _is_up(what: str) -> Callable[[Row], bool]:
    """Whether live modules have more of it with IMP."""
    return lambda row: not row["dead"] and row[f"change of {what}"].mean > 0


def _rises(rows: Sequence[Row], what: str) -> str:
    return count(rows, _is_up(what))


def _same_sign(row: Row, what: str) -> bool | None:
    paper = row[f"paper's change of {what}"]
    if paper is None or paper.suspect or paper.mean == 0:
        return None
    same = (row[f"change of {what}"].mean > 0) == (paper.mean > 0)
    return bool(same and not row["dead"])


def _changes(measured: Sequence[Measured], what: str) -> dict[Place, Both]:
    groups = by_seed(measured, "sum", what)
    return {
        (model, size, data, objective): (seeds, groups[model, size, False, data][objective])
        for (model, size, imp, data), own in groups.items()
        if imp
        for objective, seeds in own.items()
    }


def _entries(place: Place, what: str, after: Clusters, before: Clusters) -> list[Entry]:
    change = Spread.of(_pairwise(after, before))
    there = [
        (a, b)
        for seed in after
        for a, b in zip(after[seed], before[seed], strict=True)
        if len(finite((a, b))) == 2
    ]
    p = welch(*map(finite, zip(*there, strict=True))).p if len(there) > 1 else None
    seeds = clustered(after, before)
    return [change, p, None if seeds is None else seeds.p, _printed(place, what)]


def _pairwise(after: Clusters, before: Clusters) -> list[float | None]:
    """The change of every pair of every seed."""
    return [value for seed in after for value in differences(after[seed], before[seed])]


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
        "Figure 3: the effect of IMP on two modules joined",
        "Does pruning make modules easier to add? The cells are those of `pairs`; each pair is "
        "compared with IMP and without.",
        pairs.SCALES,
        *(pairs.cells, pairs.measure, tables, figures, verdict),
        paper="Figure 3: pruned modules are easier to add",
    )
)
