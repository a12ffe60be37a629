"""What the numbers of a study say, in a few sentences that are computed from its tables.

Tables are known by their columns, so that a user's own study gets what fits it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from intarsia.reports.study.html_tables import (
    HALVES,
    Row,
    Summary,
    grouped_rows,
    known,
    label,
    labels_of,
    rows_of,
)
from intarsia.studies.tables import Difference, Entry, Paper, Spread, Table


@dataclass(frozen=True)
class _Compared:
    """One number of ours that the paper printed too."""

    what: str
    group: tuple[Entry, ...]  # the row's labels but the objective
    difference: Difference
    suspect: bool


def beside_paper(tables: Sequence[Table]) -> Summary:
    """How many of the printed numbers are met; of tables that share rows, by the largest."""
    most = max((_compared(table) for table in tables), key=len, default=[])
    if not most:
        return Summary()
    dead = _dead(tables)
    alive = [c for c in most if c.group not in dead]
    kept = [c for c in alive if not c.suspect]
    if not kept:
        return Summary()
    met = sum(not c.difference.beyond for c in kept)
    parts = []
    for what in dict.fromkeys(c.what for c in kept):
        own = [c for c in kept if c.what == what]
        parts.append(f"{what} {sum(not c.difference.beyond for c in own)} of {len(own)}")
    sentences = [
        f"Of {len(kept)} numbers that the paper printed for these cells, {met} {_are(met)} met "
        f"within two of its standard deviations ({', '.join(parts)})."
    ]
    if left := _left_out(len(alive) - len(kept), dead):
        sentences.append(left)
    tile = (f"{met} of {len(kept)}", "printed numbers met within two of the paper's deviations")
    return Summary(sentences, [], [tile])


def in_order(tables: Sequence[Table]) -> Summary:
    """In how many groups accuracy falls as the paper claims."""
    table = next((t for t in tables if "ordered" in t.columns), None)
    if table is None:
        return Summary()
    dead, names = _dead(tables), table.columns[: labels_of(table.rows)]
    rows = [r for r in rows_of(table) if tuple(r[name] for name in names) not in dead]
    known = [row for row in rows if row["ordered"] in HALVES]
    if not known:
        return Summary()
    yes = sum(row["ordered"] == "yes" for row in known)
    sure = sum(row["by the test"] == "yes" for row in known)
    halves = [
        f"{sum(r['ordered'] == 'yes' for r in own)} of {len(own)} {HALVES[imp]}"
        for imp in HALVES
        if (own := [r for r in known if r.get("IMP") == imp])
    ]
    told = f" ({', '.join(halves)})" if len(halves) > 1 else ""
    sentence = (
        f"ME > QME > XE, the order that the paper claims, holds in {yes} of {len(known)} groups"
        f"{told}; by Welch's test in {sure}."
    )
    tile = (f"{yes} of {len(known)}", "groups in the order ME > QME > XE")
    return Summary([sentence], [], [tile])


def _compared(table: Table) -> list[_Compared]:
    """Every difference with the paper's number before it."""
    result = []
    labels = labels_of(table.rows)
    names = [name for name in table.columns[:labels] if name != "objective"]
    for row in rows_of(table):
        group = tuple(row[name] for name in names)
        ours, paper = "", None
        for name, entry in row.items():
            if isinstance(entry, Spread):
                ours, paper = name, None
            elif isinstance(entry, Paper):
                paper = entry
            elif isinstance(entry, Difference) and paper is not None:
                result.append(_Compared(ours, group, entry, paper.suspect))
    return result


def _dead(tables: Sequence[Table]) -> list[tuple[Entry, ...]]:
    """Groups in which pruning cut every module through: they answer the same to every sample.

    Such modules have no live unit, or answer alike by whatever objective they were trained.
    """
    result: dict[tuple[Entry, ...], None] = {}
    for table in tables:
        names = table.columns[: labels_of(table.rows)]
        if "live units" in table.columns:
            for row in rows_of(table):
                live = row["live units"]
                if isinstance(live, Spread) and live.n and live.mean == 0:
                    result[tuple(row[name] for name in names)] = None
        elif "objective" in names and _compared(table):
            result |= dict.fromkeys(_alike(table, [n for n in names if n != "objective"]))
    return list(result)


def _alike(table: Table, names: Sequence[str]) -> list[tuple[Entry, ...]]:
    groups: dict[tuple[Entry, ...], list[list[tuple[float, float]]]] = {}
    for row in rows_of(table):
        spreads = [(e.mean, e.sd) for e in row.values() if isinstance(e, Spread) and e.n > 1]
        if spreads:
            groups.setdefault(tuple(row[name] for name in names), []).append(spreads)
    return [g for g, own in groups.items() if len(own) > 1 and all(o == own[0] for o in own[1:])]


def _left_out(suspect: int, dead: Sequence[tuple[Entry, ...]]) -> str:
    parts = []
    if suspect:
        parts.append(
            f"{suspect} that {_are(suspect)} suspect, since the paper has the same digits for two "
            "data sets"
        )
    if dead:
        of = ", ".join(dict.fromkeys(" ".join(_words(group)) for group in dead))
        parts.append(
            f"those of {len(dead)} group{'s' * (len(dead) > 1)} ({of}) in which pruning cut every "
            "module through"
        )
    return f"Not counted: {', and '.join(parts)}." if parts else ""


def _words(group: Sequence[Entry]) -> list[str]:
    """The data set and the half of a group: the labels that say why it died."""
    halves = [HALVES[str(v)] for v in group if v in HALVES]
    return [str(group[-1]) if group[-1] not in HALVES else str(group[-2]), *halves]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


NAMED = 8  # lines of a list; more would be a table again
SURE = 0.05  # of a test at 95%
ALL = "complete, "  # begins the name of a matrix of all modules
# What of the ways to add or remove a class is told first.
OF_WAYS = ("at the end", "forgetting", "remaining after", "removed after")


def summary_of(tables: Sequence[Table]) -> Summary:
    """What the tables say by their kind, or from the highest to the lowest number."""
    result = Summary()
    for say in (beside_paper, in_order, _change, _connected, _joined, _complete, _ways):
        told = say(tables)
        points = told.points
        if len(points) > NAMED:
            points = [*points[:NAMED], f"{len(points) - NAMED} more are in the tables below"]
        result.sentences.extend(told.sentences)
        result.points.extend(points)
        result.numbers.extend(told.numbers)
    return result if result.sentences else _extremes(tables)


def _change(tables: Sequence[Table]) -> Summary:
    """How often pruning raises the accuracy of a sum."""
    table = _with(tables, "change of accuracy", "p of accuracy")
    rows = [r for r in rows_of(table) if known(r["change of accuracy"])] if table else []
    if not rows:
        return Summary()
    parts = []
    for way, sign in (("raises", 1), ("lowers", -1)):
        own = [r for r in rows if sign * _mean(r["change of accuracy"]) > 0]
        sure = sum(isinstance(p := r["p of accuracy"], float) and p < SURE for r in own)
        parts.append(f"{way} it in {len(own)} (by Welch's test in {sure})")
    told = f"Pruning moves the accuracy of two modules added: of {len(rows)} groups, it "
    return Summary([f"{told}{' and '.join(parts)}."])


def _connected(tables: Sequence[Table]) -> Summary:
    """How many paths stay within the band, on the test samples where there are such."""
    table = _with(tables, "connected")
    rows = [r for r in rows_of(table) if isinstance(r["connected"], float)] if table else []
    rows = [r for r in rows if r.get("samples") == "test"] or rows
    names = ("data", "model", "IMP")
    points = [
        f"{label(row, [n for n in names if n in row])}: {row['connected']:.0%} of the paths"
        for row in rows
    ]
    if not points:
        return Summary()
    told = "How many paths between two modules rise nowhere more than 2% above the straight line:"
    return Summary([told], points)


def _joined(tables: Sequence[Table]) -> Summary:
    """By which operator all modules together are most accurate, beside the sum of weights."""
    points: list[str] = []
    for table in tables:
        names = list(table.columns[: labels_of(table.rows)])
        if list(table.columns[-1:]) != ["accuracy"] or names[-1:] != ["operator"]:
            continue
        data = table.title.partition(", ")[2].partition(":")[0]
        for own in grouped_rows(rows_of(table), names[:-1]).values():
            head = label(own[0], names[:-1])
            spreads = {str(row["operator"]): row["accuracy"] for row in own}
            points += _best(f"{data}, {head}" if data else head, spreads)
    if not points:
        return Summary()
    return Summary(
        ["Mean accuracy of all modules joined without training, the best operator first:"], points
    )


def _complete(tables: Sequence[Table]) -> Summary:
    """All modules together: out of columns `all by ...`, or of rows whose matrix is complete."""
    points = []
    for table in tables:
        rows = rows_of(table)
        columns = [name for name in table.columns if name.startswith("all by ")]
        if "matrix" in table.columns:
            names = list(table.columns[: table.columns.index("matrix")])
            for own in grouped_rows(rows, names).values():
                result = [(str(row["matrix"]), row["rewarded accuracy"]) for row in own]
                told = {of[len(ALL) :]: value for of, value in result if of.startswith(ALL)}
                points += _told(label(own[0], names), told)
        elif columns and "chosen" not in table.columns:
            names = [n for n in ("data", "model", "IMP", "objective") if n in table.columns]
            for row in rows:
                told = {name.removeprefix("all by "): row[name] for name in columns}
                points += _told(label(row, names), told)
    if not points:
        return Summary()
    return Summary(["Mean accuracy of all modules together, by operator:"], points)


def _ways(tables: Sequence[Table]) -> Summary:
    """Ways to add or remove classes, one a line."""
    points = []
    for table in tables:
        if table.columns[0] == "way":
            names = [name for name in OF_WAYS if name in table.columns]
            for row in rows_of(table):
                head = f"{table.title.partition(':')[0]}, {row['way']}"
                points += _told(head, {name: row[name] for name in names})
    return Summary(["Mean accuracy, way by way:"], points) if points else Summary()


def _extremes(tables: Sequence[Table]) -> Summary:
    """Without any of these: the highest and the lowest mean of the first measured column."""
    for table in tables:
        columns = [
            name
            for place, name in enumerate(table.columns)
            if sum(known(row[place]) for row in table.rows) > 1
        ]
        if not columns:
            continue
        column = next((name for name in columns if "accuracy" in name), columns[0])
        rows = [row for row in rows_of(table) if known(row[column])]
        names = [n for n in table.columns[: labels_of(table.rows)] if _differs(rows, n)]
        ends: list[Callable[..., Row]] = [max, min]
        high, low = (choose(rows, key=lambda row: _mean(row[column])) for choose in ends)
        if _mean(high[column]) == _mean(low[column]):
            return Summary([f"{table.title}: {column} is {high[column]} in every row."])
        return Summary(
            [
                f"{table.title}: {column} is highest for {label(high, names)}, {high[column]}, and "
                f"lowest for {label(low, names)}, {low[column]}."
            ]
        )
    return Summary()


def _best(head: str, spreads: Mapping[str, Entry]) -> list[str]:
    """The operator with the highest mean, with sum and logits beside it."""
    there = {name: spread for name, spread in spreads.items() if known(spread)}
    if not there:
        return []
    best = max(there, key=lambda name: _mean(there[name]))
    shown = [best, *(name for name in ("sum", "logits") if name in there and name != best)]
    return _told(head, {name: there[name] for name in shown})


def _told(head: str, spreads: Mapping[str, Entry]) -> list[str]:
    """`mnist, shallow: sum 0.785, logits 0.939`: means alone; spreads are in the tables."""
    told = [f"{name} {_mean(own):.3f}" for name, own in spreads.items() if known(own)]
    return [f"{head}: {', '.join(told)}"] if told else []


def _with(tables: Sequence[Table], *columns: str) -> Table | None:
    """The first table that has these columns."""
    return next((t for t in tables if set(columns) <= set(t.columns)), None)


def _mean(entry: Entry) -> float:
    assert isinstance(entry, Spread)
    return entry.mean


def _differs(rows: Sequence[Row], name: str) -> bool:
    return len({str(row[name]) for row in rows}) > 1
