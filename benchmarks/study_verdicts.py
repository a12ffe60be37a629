"""What the studies of the paper's tables say, counted from their cells."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from intarsia.studies import Spread
from intarsia.studies.maxent.ordering import in_paper, ordered, significant
from intarsia.studies.maxent.pairs import collected
from intarsia.studies.tables import finite, grouped
from study_beside import Beside
from study_counting import (
    PRUNED,
    Verdict,
    count,
    listed,
    points,
    rows_of,
    sentences,
    several,
    titled,
)
from study_dead import alike, where
from study_packs import Studies, Variant

Group = tuple[str, int, bool, str]  # model, size, with IMP or without, data
Accuracies = Mapping[str, Sequence[float]]  # by objective
CLAIM = "ME > QME > XE"


def single(variants: Sequence[Variant], studies: Studies) -> Verdict:
    beside = Beside(variants, "Table 1")
    words = sentences(beside.opening(), beside.not_counted(), beside.why())
    more = {"Cut through": _cut_through(variants[0]), "Live units": _live_units(variants)}
    return Verdict(f"{beside.in_short()}{beside.apart()}", words, points(beside.points() | more))


def pairs(variants: Sequence[Variant], studies: Studies) -> Verdict:
    beside = Beside(variants, "Table 4")
    groups, dead = comparable(variants[0])
    words = sentences(beside.opening(), not_counted(dead), _claim(groups, dead), beside.why())
    more = _order(groups) | {"Logits": _logits(variants[0])}
    line = f"{beside.in_short()}; {claim_in_short(groups)}{beside.apart()}"
    return Verdict(line, words, points(beside.points() | more))


def claim_in_short(groups: Mapping[Group, Accuracies]) -> str:
    if not groups:
        return f"{CLAIM} not measured"
    return f"{CLAIM} in {_claimed(groups, ' groups')}"


def comparable(variant: Variant) -> tuple[dict[Group, Accuracies], list[Any]]:
    """Groups of pairs that have all objectives and live modules; and those of dead modules."""
    dead = alike(variant.measured)
    groups: dict[Group, Accuracies] = {}
    for group, values in collected(variant.measured, "sum", "accuracy").items():
        model, size, imp, data = group
        own = {name: finite(some) for name, some in values.items()}
        if ordered(own) is not None and (model, size, "yes" if imp else "no", data) not in dead:
            groups[group] = own
    return groups, dead


def not_counted(dead: Sequence[Any]) -> str:
    if not dead:
        return ""
    return (
        f"In {several(len(dead), 'group')} ({where(dead)}) pruning cut every module through and "
        "all objectives answer alike; they are not counted."
    )


def _cut_through(variant: Variant) -> str:
    """Modules that pruning has cut in two, so that no hidden unit is live."""
    found = []
    for (data, model), cells in grouped(variant.measured, "data", "model").items():
        live = finite([n for cell in cells for n in cell.result["pruned"]["live"]])
        if 0 in live:
            found.append(f"{live.count(0)} of {len(live)} of {titled(data)}, {model}")
    if not found:
        return ""
    return f"no way is left from the inputs to the outputs in {listed(found)}."


def _live_units(variants: Sequence[Variant]) -> str:
    """How many hidden units pruning leaves, by variant, in a place that all of them have."""
    groups = [grouped(v.measured, "data", "model") for v in variants]
    shared = [place for place in groups[0] if all(place in own for own in groups)]
    if len(variants) < 2 or not shared:
        return ""
    live = [live_units(v, shared[0]) for v in variants]
    ways = [f"{s.mean:.0f} under {v.label}" for s, v in zip(live, variants, strict=True)]
    data, model = shared[0]
    return f"of a pruned module ({model}, {titled(data)}) {listed(ways)}."


def live_units(variant: Variant, place: tuple[str, str]) -> Spread:
    """Of pruned modules, out of the cells of `single`."""
    cells = grouped(variant.measured, "data", "model").get(place, [])
    return Spread.of(n for cell in cells for n in cell.result["pruned"]["live"])


def _claim(groups: Mapping[Group, Accuracies], dead: Sequence[Any]) -> str:
    """In how many groups the order holds, with IMP and without."""
    parts = []
    for imp, name in PRUNED.items():
        if some := _half(groups, imp == "yes"):
            other = "the other " if any(group[2] == imp for group in dead) else ""
            parts.append(_claimed(some, f" {name}").replace(" of ", f" of {other}", 1))
    if not parts:
        return ""
    return f"By data, model and |R|, mean accuracy falls in the order {CLAIM} in {listed(parts)}."


def _claimed(groups: Mapping[Group, Accuracies], what: str) -> str:
    sure = sum(map(bool, map(significant, groups.values())))
    return f"{count(groups.values(), ordered)}{what} (by the test in {sure})"


def _half(groups: Mapping[Group, Accuracies], imp: bool) -> dict[Group, Accuracies]:
    return {group: own for group, own in groups.items() if group[2] == imp}


def _order(groups: Mapping[Group, Accuracies]) -> dict[str, str]:
    """The order in points: ours and the paper's, by |R|, and step by step."""
    if not groups:
        return {}
    halves = {"": groups} | {f" {PRUNED[i]}": _half(groups, i == "yes") for i in ("yes", "no")}
    ours = [_claimed(some, name) for name, some in halves.items() if some]
    theirs = [
        f"{count(some, lambda group: in_paper(*group))}{name}"
        for name, some in halves.items()
        if any(in_paper(*group) is not None for group in some)
    ]
    printed = f"; in the paper's means for the same groups {listed(theirs)}" if theirs else ""
    sizes = [
        f"{count([own for g, own in groups.items() if g[1] == size], ordered)} for |R| = {size}"
        for size in dict.fromkeys(group[1] for group in groups)
    ]
    steps = [
        f"{high.upper()} is above {low.upper()} in {count(groups.values(), _step(high, low))}"
        for high, low in (("me", "qme"), ("qme", "xe"), ("me", "xe"))
    ]
    return {
        f"Order {CLAIM}": f"{listed(ours)}{printed}.",
        "Order by size": f"{listed(sizes)}.",
        "Step by step": f"{listed(steps)}.",
    }


def _step(high: str, low: str) -> Callable[[Accuracies], bool]:
    return lambda own: fmean(own[high]) > fmean(own[low])


def _logits(variant: Variant) -> str:
    dead = alike(variant.measured)
    rows = [
        r
        for r in rows_of(variant.table("logits added"))
        if r["minus weights"].n and (r["model"], r["|R|"], r["IMP"], r["data"]) not in dead
    ]
    halves = [
        f"{count(some, lambda r: r['minus weights'].mean > 0)} {PRUNED[imp]}"
        for imp in ("yes", "no")
        if (some := [r for r in rows if r["IMP"] == imp])
    ]
    if not halves:
        return ""
    return (
        f"adding them is more accurate than adding weights in {listed(halves)} (objectives apart)."
    )
