"""Ordering: the best of a group, and whether ME > QME > XE, by Welch's test."""

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from intarsia.measure.significance import above, best_of, welch
from intarsia.studies.maxent.paper import pair_cell
from intarsia.studies.tables import Difference, Entry, Spread, Table, finite

Group = tuple[str, int, bool, str]  # model, size, with IMP or without, data
Accuracies = Mapping[str, Sequence[float]]  # by objective
STEPS = (("me", "qme"), ("qme", "xe"))  # what the paper claims, the higher one first
HEAD = ("model", "|R|", "IMP", "data")
INDEPENDENT = "Welch's test takes pairs that share a module for independent"


def best_spreads(
    values: Mapping[str, Sequence[float | None]], every: Collection[str]
) -> dict[str, Spread]:
    """The spread of each name's values, the best marked where the test says that it is.

    None is marked while one of the names in `every` is missing: it may still be the best.
    """
    known = {name: finite(own) for name, own in values.items()}
    best = best_of(known) if set(every) <= set(known) else None
    return {name: Spread.of(own, best=name == best) for name, own in known.items()}


def ordering_table(
    groups: Mapping[Group, Accuracies], about: str, dead: Collection[Group] = ()
) -> Table:
    """Group by group, whether mean accuracy falls from ME to QME to XE; the counts are notes.

    Groups in `dead`, whose modules pruning cut through, are shown and not counted.
    """
    rows = []
    for group, own in groups.items():
        model, size, imp, data = group
        paper = _yes(in_paper(*group))
        ours = [None, None] if group in dead else [_yes(ordered(own)), _yes(significant(own))]
        claims = [*ours, paper]
        rows.append([model, size, "yes" if imp else "no", data, *_steps(own), *claims])
    steps = [f"{high.upper()} - {low.upper()}" for high, low in STEPS]
    columns = [name for step in steps for name in (step, f"p of {step}")]
    return Table(
        "Rewarded accuracy of weight sums: ME > QME > XE?",
        [*HEAD, *columns, "ordered", "by the test", "in the paper"],
        rows,
        [
            *_counts({group: own for group, own in groups.items() if group not in dead}),
            *_uncounted(dead),
            f"by the test: both steps at 95%; {INDEPENDENT}",
            about,
        ],
    )


def ordered(own: Accuracies) -> bool | None:
    """Whether the means fall from ME to QME to XE; None where one of them is missing."""
    if any(not own.get(name) for step in STEPS for name in step):
        return None
    return all(fmean(own[high]) > fmean(own[low]) for high, low in STEPS)


def significant(own: Accuracies) -> bool | None:
    """Whether both steps are, by the test."""
    if ordered(own) is None:
        return None
    return all(above(own[high], own[low]) for high, low in STEPS)


def in_paper(model: str, size: int, imp: bool, data: str) -> bool | None:
    """Whether the means that the paper printed fall so."""
    cells = {name: pair_cell(model, data, size, name, imp) for name in ("me", "qme", "xe")}
    means = {name: [cell.accuracy.mean] for name, cell in cells.items() if cell}
    return ordered(means)


def _steps(own: Accuracies) -> list[Entry]:
    entries: list[Entry] = []
    for high, low in STEPS:
        a, b = own.get(high, ()), own.get(low, ())
        entries.append(Difference(fmean(a) - fmean(b)) if a and b else None)
        entries.append(welch(a, b).p if min(len(a), len(b)) > 1 else None)
    return entries


def _counts(groups: Mapping[Group, Accuracies]) -> list[str]:
    """How many groups are ordered, all together, with IMP and without."""
    notes = []
    for words, imps in (("", (False, True)), ("with IMP: ", (True,)), ("without: ", (False,))):
        chosen = {g: own for g, own in groups.items() if g[2] in imps and ordered(own) is not None}
        if not chosen:
            continue
        printed = [result for g in chosen if (result := in_paper(*g)) is not None]
        steps = ", ".join(
            f"{high.upper()} > {low.upper()} in "
            f"{sum(fmean(own[high]) > fmean(own[low]) for own in chosen.values())}"
            for high, low in STEPS
        )
        theirs = f"; the paper's means in {sum(printed)} of {len(printed)}" if printed else ""
        notes.append(
            f"{words}ME > QME > XE in {sum(map(bool, map(ordered, chosen.values())))} of "
            f"{len(chosen)} groups, by the test in "
            f"{sum(map(bool, map(significant, chosen.values())))} ({steps}){theirs}"
        )
    return notes


def _uncounted(dead: Collection[Group]) -> list[str]:
    if not dead:
        return []
    halves = [f"{data} {'with' if imp else 'without'} IMP" for _, _, imp, data in dead]
    return [
        "not counted, since pruning cut every module through and all objectives answer alike: "
        f"{', '.join(dict.fromkeys(halves))}"
    ]


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"
