"""Ordering: the best of a group, and whether ME > QME > XE, in a table and as a claim."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean

from intarsia.measure.significance import above, best_of, welch
from intarsia.studies.maxent.shared.dead import PairGroup, left_out
from intarsia.studies.maxent.shared.paper import pair_cell
from intarsia.studies.tables import Difference, Entry, Spread, Table, finite, yes_no
from intarsia.studies.verdict import Claim, count, imp_label, listed

Accuracies = Mapping[str, Sequence[float]]  # by objective
ORDER = "ME > QME > XE"
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
    groups: Mapping[PairGroup, Accuracies], about: str, dead: Sequence[PairGroup] = ()
) -> Table:
    """Group by group, whether mean accuracy falls from ME to QME to XE; the counts are notes.

    Groups in `dead`, whose modules pruning cut through, are shown and not counted.
    """
    rows = []
    for group, own in groups.items():
        model, size, imp, data = group
        known = [None, None] if group in dead else [ordered(own), significant(own)]
        answers = map(yes_no, [*known, in_paper(*group)])
        rows.append([model, size, yes_no(imp), data, *_steps(own), *answers])
    steps = [f"{high.upper()} - {low.upper()}" for high, low in STEPS]
    columns = [name for step in steps for name in (step, f"p of {step}")]
    return Table(
        f"Rewarded accuracy of weight sums: {ORDER}?",
        [*HEAD, *columns, "ordered", "by the test", "in the paper"],
        rows,
        [
            *_counts(_comparable(groups, dead)),
            *(f"not counted: {group}, {why}" for group, why in left_out(dead).items()),
            f"by the test: both steps at 95%; {INDEPENDENT}",
            about,
        ],
    )


def order_claim(groups: Mapping[PairGroup, Accuracies], dead: Sequence[PairGroup]) -> Claim:
    """In how many groups the order holds: with IMP and without, by size, and step by step."""
    groups = _comparable(groups, dead)
    if not groups:
        return Claim(f"{ORDER} is not measured.")
    held = sum(map(bool, map(ordered, groups.values())))
    parts = []
    for imp in (True, False):
        if some := [own for group, own in groups.items() if group[2] == imp]:
            other = "the other " if any(group[2] == imp for group in dead) else ""
            number = count(some, ordered).replace(" of ", f" of {other}", 1)
            parts.append(f"{number} {imp_label(imp)} (by the test in {_sure(some)})")
    sizes = [
        f"{count([own for g, own in groups.items() if g[1] == size], ordered)} for |R| = {size}"
        for size in dict.fromkeys(group[1] for group in groups)
    ]
    steps = [
        f"{high.upper()} is above {low.upper()} in {_above(groups.values(), high, low)}"
        f" of {len(groups)}"
        for high, low in (*STEPS, ("me", "xe"))
    ]
    sure = _sure(groups.values())
    return Claim(
        f"By data, model and |R|, mean accuracy falls in the order {ORDER} in {listed(parts)}.",
        holds=held == len(groups),
        evidence={"count": held, "of": len(groups), "by the test": sure},
        n=len(groups),
        short=f"groups in the order {ORDER} (by the test in {sure})",
        details=[
            *_counts(groups),
            f"Order by size: {listed(sizes)}.",
            f"Step by step: {listed(steps)}.",
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


def _comparable(
    groups: Mapping[PairGroup, Accuracies], dead: Sequence[PairGroup]
) -> dict[PairGroup, Accuracies]:
    """Groups that have all objectives and live modules."""
    return {g: own for g, own in groups.items() if g not in dead and ordered(own) is not None}


def _counts(groups: Mapping[PairGroup, Accuracies]) -> list[str]:
    """How many groups are ordered, all together, with IMP and without."""
    notes = []
    for words, imps in (("", (False, True)), ("with IMP: ", (True,)), ("without: ", (False,))):
        chosen = {group: own for group, own in groups.items() if group[2] in imps}
        if not chosen:
            continue
        steps = ", ".join(
            f"{high.upper()} > {low.upper()} in {_above(chosen.values(), high, low)}"
            for high, low in STEPS
        )
        printed = count(chosen, lambda group: in_paper(*group))
        theirs = "" if printed.endswith(" of 0") else f"; the paper's means in {printed}"
        notes.append(
            f"{words}{ORDER} in {count(chosen.values(), ordered)} groups, by the test in "
            f"{_sure(chosen.values())} ({steps}){theirs}"
        )
    return notes


def _sure(groups: Iterable[Accuracies]) -> int:
    """In how many groups the order holds by the test."""
    return sum(map(bool, map(significant, groups)))


def _above(groups: Iterable[Accuracies], high: str, low: str) -> int:
    """In how many groups one objective's mean is above another's."""
    return sum(fmean(own[high]) > fmean(own[low]) for own in groups)
