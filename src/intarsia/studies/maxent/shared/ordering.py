"""Ordering: the best of a group, and whether ME > QME > XE, in a table and as a claim."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from intarsia.measure.significance import LEVEL, Clusters, TTest, best_of, clustered, holm, welch
from intarsia.studies.maxent.shared.dead import PairGroup, failures
from intarsia.studies.maxent.shared.paper import pair_cell
from intarsia.studies.tables import Difference, Entry, Spread, Table, finite, yes_no
from intarsia.studies.verdict import Claim
from intarsia.studies.wording import count, imp_label, listed, titled

Accuracies = Mapping[str, Clusters]  # by objective, the values of every seed, pair by pair
ORDER = "ME > QME > XE"
STEPS = (("me", "qme"), ("qme", "xe"))  # what the paper claims, the higher one first
HEAD = ("model", "|R|", "IMP", "data")
INDEPENDENT = "Welch's t-test treats pairs that share a module as independent"
OVER_SEEDS = (
    "over seeds: differences are averaged over the pairs of a seed, and Student's t-test asks "
    "whether their mean over seeds is 0, so that pairs that share modules count as one value; the "
    "result generalises to other seeds, not to other pairs, and two seeds say next to nothing"
)


@dataclass(frozen=True)
class Order:
    """Whether a group is in order: by its means, by Welch's test and over seeds.

    A step's p is that of its two means, and a group's that of the weaker of its two steps;
    `corrected` is p over seeds after Holm's correction over all groups. 1 where a step goes the
    other way, or the modules are dead.
    """

    means: bool
    welch: float
    seeds: float
    corrected: float
    dead: bool


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

    Groups in `dead`, whose modules pruning cut through, are not in order.
    """
    orders, rows = orders_of(groups, dead), []
    for group, own in groups.items():
        model, size, imp, data = group
        answers: list[Entry] = [None] * 4
        if group in orders:
            order = orders[group]
            values = (order.welch, order.seeds, order.corrected)
            means = "dead" if order.dead else yes_no(order.means)
            answers = [means, *(yes_no(p < LEVEL) for p in values)]
        printed = yes_no(in_paper(*group))
        rows.append([model, size, yes_no(imp), data, *_steps(own), *answers, printed])
    steps = [f"{high.upper()} - {low.upper()}" for high, low in STEPS]
    columns = [
        name for step in steps for name in (step, f"Welch p, {step}", f"p over seeds, {step}")
    ]
    return Table(
        f"Rewarded accuracy of weight sums: {ORDER}?",
        [*HEAD, *columns, "ordered", "by Welch", "over seeds", "after Holm", "paper's means"],
        rows,
        [
            *_counts(orders),
            *(f"counted as not in order: {group}, {why}" for group, why in failures(dead).items()),
            f"by Welch: both steps significant at 95%, not corrected; {INDEPENDENT}",
            OVER_SEEDS,
            f"after Holm: over seeds, with Holm's correction for all {len(orders)} groups; the p "
            "of a group is the larger p of its two steps",
            "paper's means: whether the means that the paper prints are in this order",
            about,
        ],
    )


def order_claim(groups: Mapping[PairGroup, Accuracies], dead: Sequence[PairGroup]) -> Claim:
    """In how many groups the order holds: with IMP and without, by size, and step by step."""
    orders = orders_of(groups, dead)
    if not orders:
        return Claim(f"{ORDER} is not measured.")
    whole = _tally(orders.values())
    parts = []
    for imp in (True, False):
        if some := [order for group, order in orders.items() if group[2] == imp]:
            own = _tally(some)
            gone = f"; {own['dead']} are dead" if own["dead"] else ""
            parts.append(
                f"{own['means']} of {len(some)} groups {imp_label(imp)} ({_by_tests(own)}{gone})"
            )
    sizes = [
        f"{count([o for g, o in orders.items() if g[1] == size], lambda o: o.means)}"
        f" for |R| = {size}"
        for size in dict.fromkeys(group[1] for group in orders)
    ]
    alive = {group: groups[group] for group, order in orders.items() if not order.dead}
    steps = [_step_count(alive, len(orders), *step) for step in (*STEPS, ("me", "xe"))]
    gone = f"; {whole['dead']} are dead" if whole["dead"] else ""
    return Claim(
        f"Mean accuracy follows the order {ORDER} in {listed(parts)}; a group is one data set, "
        "model and |R|.",
        holds=whole["means"] == len(orders),
        evidence={
            "count": whole["means"],
            "of": len(orders),
            "dead": whole["dead"],
            "by Welch's test": whole["welch"],
            "over seeds": whole["seeds"],
            "over seeds, Holm": whole["corrected"],
        },
        n=len(orders),
        short=f"groups in the order {ORDER} ({_by_tests(whole)}{gone})",
        details=[
            *_counts(orders),
            f"In this order by size: {listed(sizes)}.",
            f"Step by step, with Holm's correction for the {len(orders)} groups of each step: "
            f"{listed(steps)}.",
            *_surviving(orders),
        ],
    )


def orders_of(
    groups: Mapping[PairGroup, Accuracies], dead: Collection[PairGroup]
) -> dict[PairGroup, Order]:
    """The order of every group that has all three objectives."""
    known = {group: own for group, own in groups.items() if ordered(_pooled(own)) is not None}
    by_welch = [1.0 if g in dead else _weaker(own, _welch) for g, own in known.items()]
    seeds = [1.0 if g in dead else _weaker(own, clustered) for g, own in known.items()]
    values = zip(known.items(), by_welch, seeds, holm(seeds), strict=True)
    return {
        group: Order(
            means=bool(ordered(_pooled(own))) and group not in dead,
            welch=p,
            seeds=p_of_seeds,
            corrected=corrected,
            dead=group in dead,
        )
        for (group, own), p, p_of_seeds, corrected in values
    }


def ordered(own: Mapping[str, Sequence[float]]) -> bool | None:
    """Whether the means fall from ME to QME to XE; None where one of them is missing."""
    if any(not own.get(name) for step in STEPS for name in step):
        return None
    return all(fmean(own[high]) > fmean(own[low]) for high, low in STEPS)


def in_paper(model: str, size: int, imp: bool, data: str) -> bool | None:
    """Whether the means that the paper printed fall so."""
    cells = {name: pair_cell(model, data, size, name, imp) for name in ("me", "qme", "xe")}
    means = {name: [cell.accuracy.mean] for name, cell in cells.items() if cell}
    return ordered(means)


def _pooled(own: Accuracies) -> dict[str, list[float]]:
    return {name: _values(clusters) for name, clusters in own.items()}


def _values(clusters: Clusters) -> list[float]:
    return finite(value for values in clusters.values() for value in values)


def _welch(a: Clusters, b: Clusters) -> TTest | None:
    """Welch's test of all values, whatever seed they are of."""
    first, second = _values(a), _values(b)
    return welch(first, second) if min(len(first), len(second)) > 1 else None


def _weaker(own: Accuracies, test: Callable[[Clusters, Clusters], TTest | None]) -> float:
    """p of the claim that both steps go down."""
    return max(_p_above(test(own[high], own[low])) for high, low in STEPS)


def _p_above(result: TTest | None) -> float:
    """p of a test if the first mean is above the second, else 1."""
    return result.p if result is not None and result.t > 0 else 1.0


def _steps(own: Accuracies) -> list[Entry]:
    entries: list[Entry] = []
    for high, low in STEPS:
        a, b = own.get(high, {}), own.get(low, {})
        first, second = _values(a), _values(b)
        entries.append(Difference(fmean(first) - fmean(second)) if first and second else None)
        for test in (_welch, clustered):
            result = test(a, b)
            entries.append(None if result is None else result.p)
    return entries


def _tally(orders: Iterable[Order]) -> dict[str, int]:
    """How many groups are in order, by each of the answers, and how many are dead."""
    some = list(orders)
    return {
        "means": sum(order.means for order in some),
        "welch": sum(order.welch < LEVEL for order in some),
        "seeds": sum(order.seeds < LEVEL for order in some),
        "corrected": sum(order.corrected < LEVEL for order in some),
        "dead": sum(order.dead for order in some),
    }


def _by_tests(tally: Mapping[str, int]) -> str:
    return (
        f"significant in {tally['welch']} by Welch's t-test, in {tally['seeds']} over seeds and in "
        f"{tally['corrected']} after Holm's correction"
    )


def _counts(orders: Mapping[PairGroup, Order]) -> list[str]:
    """How many groups are ordered, all together, with IMP and without."""
    notes = []
    for words, imps in (("", (False, True)), ("with IMP: ", (True,)), ("without IMP: ", (False,))):
        chosen = {group: order for group, order in orders.items() if group[2] in imps}
        if not chosen:
            continue
        tally = _tally(chosen.values())
        gone = f" ({tally['dead']} dead)" if tally["dead"] else ""
        printed = count(chosen, lambda group: in_paper(*group))
        theirs = "" if printed.endswith(" of 0") else f"; the paper's means follow it in {printed}"
        notes.append(
            f"{words}{ORDER} in {tally['means']} of {len(chosen)} groups{gone}, "
            f"{_by_tests(tally)}{theirs}"
        )
    return notes


def _surviving(orders: Mapping[PairGroup, Order]) -> list[str]:
    """The groups in which the order survives the correction, by name."""
    names = [
        f"{titled(data)} ({model}, |R| = {size}, {imp_label(imp)})"
        for (model, size, imp, data), order in orders.items()
        if order.corrected < LEVEL
    ]
    return [f"Significant over seeds after Holm's correction: {listed(names)}."] if names else []


def _step_count(alive: Mapping[PairGroup, Accuracies], of: int, high: str, low: str) -> str:
    """In how many of `of` groups one objective is above another, by means and by the tests."""
    values = [_p_above(clustered(own[high], own[low])) for own in alive.values()]
    corrected = holm([*values, *[1.0] * (of - len(values))])
    means = sum(fmean(_values(own[high])) > fmean(_values(own[low])) for own in alive.values())
    seeds, sure = (sum(p < LEVEL for p in own) for own in (values, corrected))
    return (
        f"{high.upper()} is above {low.upper()} in {means} of {of} (significant in {seeds} over "
        f"seeds, in {sure} after Holm's correction)"
    )
