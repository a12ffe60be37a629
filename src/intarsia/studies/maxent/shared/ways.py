"""Ways to take a class in or out, side by side: what `continual` and `unlearning` have in common.

A cell's result has `ways`: by way, lists of numbers by name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from intarsia.studies.cells import Measured
from intarsia.studies.context import Options, StudyContext
from intarsia.studies.maxent.shared.baselines import UNPRUNED
from intarsia.studies.maxent.shared.complete_merges import NAMES
from intarsia.studies.plans import Plan
from intarsia.studies.tables import Spread, Table, finite, grouped, point
from intarsia.studies.verdict import Claim, Verdict
from intarsia.studies.wording import listed, titled

Sets = Sequence[Sequence[str]]  # of classes, one per network
Row = Mapping[str, Any]  # of a table with a row for each way
TableMaker = Callable[[str, Sequence[Measured]], Table]  # from data and model, and their cells
SMALL_RECIPE = {"epochs": 3, "learning_rate": 0.01, "sparsity": 0.8}


def joint_plan(
    options: Options, context: StudyContext, data: str, model: str, seed: int, sets: Sets
) -> Plan:
    """One network for each set of classes, trained as people usually do.

    Cross-entropy hides what is not rewarded: a network never meets the classes it lacks.
    """
    how = {"preset": options["preset"], "objective": "xe", "pruned": False}
    return context.plan(data, model, sets, seed, **how, **{**options["recipe"], **UNPRUNED})


def ways_in(group: Sequence[Measured]) -> list[str]:
    """Every way that any of the cells has."""
    return list(dict.fromkeys(way for cell in group for way in cell.result["ways"]))


def values_of(
    group: Sequence[Measured], way: str, key: str, place: int | None = None
) -> list[float | None]:
    """A number of a way over all cells, at all places of its list or at one."""
    lists = [cell.result["ways"].get(way, {}).get(key, []) for cell in group]
    return [v for values in lists for i, v in enumerate(values) if place in (None, i)]


def way_panels(
    group: Sequence[Measured], panels: Mapping[str, str], places: Iterable[int]
) -> dict[str, dict[str, Any]]:
    """A panel for each number that is there, a curve for each way; `places` are those of the axis.

    The first place is that of the lists' first value.
    """
    axis = list(places)
    return {
        panel: {
            NAMES.get(way, way): {
                float(x): point(values_of(group, way, key, i)) for i, x in enumerate(axis)
            }
            for way in ways_in(group)
        }
        for key, panel in panels.items()
        if any(finite(values_of(group, way, key)) for way in ways_in(group))
    }


def way_tables(done: Sequence[Measured], *makers: TableMaker) -> list[Table]:
    """Every table of one data set and model after another."""
    groups = grouped(done, "data", "model").items()
    return [make(", ".join(place), group) for place, group in groups for make in makers]


def ways_verdict(
    cells: Sequence[Measured],
    summary: TableMaker,
    describe: Callable[[Sequence[Row]], tuple[str, str]],
) -> Verdict:
    """A verdict by data and model; `describe` gives a line and sentences on rows of the summary."""
    claims, lines = [Claim("The paper does not study this.")], []
    groups = grouped(cells, "data", "model")
    tables = {place: summary(", ".join(place), group) for place, group in groups.items()}
    for (data, model), table in tables.items():
        rows = sorted(table.records(), key=lambda row: row["exact"] is None)  # modules first
        where = f"{titled(data)}, {model}: " if len(tables) > 1 else ""
        line, text = describe(rows)
        lines.append(f"{where}{line}")
        spreads = {
            row["way"]: {k: v for k, v in row.items() if isinstance(v, Spread) and v.n}
            for row in rows
        }
        evidence = {way: {k: v.mean for k, v in own.items()} for way, own in spreads.items()}
        n = min((spread.n for own in spreads.values() for spread in own.values()), default=0)
        claims.append(Claim(f"{where}{text}", evidence=evidence, n=n))
    return Verdict("; ".join(lines), claims)


def by_way(rows: Sequence[Row], text: Callable[[Row], str | None]) -> str:
    """What every way has: `0.9 for a, 0.8 for b and c`; ways without it are left out."""
    ways: dict[str, list[str]] = {}
    for row in rows:
        if (own := text(row)) is not None:
            ways.setdefault(own, []).append(row["way"].partition(" = ")[0])
    return listed([f"{own} for {listed(names)}" for own, names in ways.items()]) or "none"
