"""Our numbers beside the paper's: how many are met, what is not counted, and its order."""

from collections.abc import Sequence
from dataclasses import dataclass

from intarsia.reports.study_rows import HALVES, Summary, labels_of, rows_of
from intarsia.studies.entries import Difference, Entry, Paper, Spread
from intarsia.studies.tables import Table


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
    found = []
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
                found.append(_Compared(ours, group, entry, paper.suspect))
    return found


def _dead(tables: Sequence[Table]) -> list[tuple[Entry, ...]]:
    """Groups in which pruning cut every module through: they answer the same to every sample.

    Such modules have no live unit, or answer alike by whatever objective they were trained.
    """
    found: dict[tuple[Entry, ...], None] = {}
    for table in tables:
        names = table.columns[: labels_of(table.rows)]
        if "live units" in table.columns:
            for row in rows_of(table):
                live = row["live units"]
                if isinstance(live, Spread) and live.n and live.mean == 0:
                    found[tuple(row[name] for name in names)] = None
        elif "objective" in names and _compared(table):
            found |= dict.fromkeys(_alike(table, [n for n in names if n != "objective"]))
    return list(found)


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
