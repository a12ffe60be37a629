"""What the studies of questions beyond the paper say, counted from their cells."""

from collections.abc import Callable, Sequence

from intarsia.studies import Measured
from intarsia.studies.maxent.unlearning import ASCENT
from study_counting import (
    PRUNED,
    Row,
    Verdict,
    by_mean,
    capital,
    listed,
    rows_of,
    sentences,
    surely_best,
    titled,
)
from study_packs import Studies, Variant

Values = dict[str, list[float | None]]  # by objective: one number for each seed
STOPS = f"{ASCENT} (which stops at chance)"
ASKED = "The paper does not ask this."


def controls(variants: Sequence[Variant], studies: Studies) -> Verdict:
    """Which objective is best, operator by operator; amounts as the table chose them.

    Compared are only merges that all objectives have.
    """
    every = {cell.settings["objective"] for cell in variants[0].measured}
    ways, twins = _ways(variants[0])
    compared = {
        key: values for key, values in ways.items() if len(by_mean(values)) == len(every) > 1
    }
    if not compared:
        return Verdict("not all objectives are measured", "Not all objectives are measured.")
    lines, points = [], []
    for how in dict.fromkeys(how for *_, how in compared):
        parts = []
        for imp, name in PRUNED.items():
            own = {key: values for key, values in compared.items() if key[2:] == (imp, how)}
            parts += [f"{_bests(list(own.values()))} {name}"] if own else []
            points += [
                f"By {how}, {titled(data)}, {model}, {name}: {_leads(values)}."
                for (data, model, *_), values in own.items()
            ]
        lines.append(f"by {how} {listed(parts)}")
    line = f"the best objective is {'; '.join(lines)}"
    same = [f"{one} is {other} to the digit and not counted again." for one, other in twins.items()]
    return Verdict(line, sentences(f"{capital(line)}.", *map(capital, same)), tuple(points))


Key = tuple[str, str, str, str]  # data, model, IMP, operator


def _ways(variant: Variant) -> tuple[dict[Key, Values], dict[str, str]]:
    """Accuracies of all modules by place and objective, and operators that are another one.

    Those give the same numbers as it, to the digit, wherever both have some.
    """
    rows = rows_of(variant.table("one sparsity"))
    chosen = {(r["data"], r["model"], r["IMP"], r["objective"]): r["amount"] for r in rows}
    cells = variant.measured
    names = list(dict.fromkeys(how for cell in cells for how in cell.result["complete"]))
    # Those with most values first, so that the others are found to be one of them.
    names.sort(key=lambda how: sum(cell.result["complete"].get(how) is None for cell in cells))
    kept: list[str] = []
    twins: dict[str, str] = {}
    for how in names:
        other = next((other for other in kept if _equal(cells, how, other)), None)
        if other is None:
            kept.append(how)
        else:
            twins[how] = other
    found: dict[Key, Values] = {}
    for cell in cells:
        s = cell.settings
        place = (s["data"], s["model"], "yes" if s["imp"] else "no")
        amount = None if s["amount"] is None else f"{s['amount']:g}"
        if chosen[*place, s["objective"]] == amount:
            for how in kept:
                own = found.setdefault((*place, how), {}).setdefault(s["objective"], [])
                own.append(cell.result["complete"].get(how))
    return found, twins


def _equal(cells: Sequence[Measured], one: str, other: str) -> bool:
    pairs = [(c.result["complete"].get(one), c.result["complete"].get(other)) for c in cells]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    return bool(known) and all(a == b for a, b in known)


def _leads(values: Values) -> str:
    """The best and its accuracy, against the next and, where it is neither, ME."""
    (best, top), (second, next_best), *rest = by_mean(values).items()
    me = f"; `me` {dict(rest)['me']}" if "me" in dict(rest) else ""
    sure = "by the test" if surely_best(values) else "not surely by the test"
    return f"`{best}` {top} against `{second}` {next_best}, {sure}{me}"


def _bests(groups: Sequence[Values]) -> str:
    """Which objective is best in the mean, and whether surely; by count where there are several."""
    best = [next(iter(by_mean(values))) for values in groups]
    sure = sum(map(surely_best, groups))
    names = list(dict.fromkeys(best))
    test = f"by the test in {sure} of {len(best)}"
    if len(best) == 1:
        test = "by the test" if sure else "not surely"
    if len(names) == 1:
        return f"`{names[0]}` ({test})"
    return f"{' or '.join(f'`{name}` in {best.count(name)}' for name in names)} ({test})"


def unlearning(variants: Sequence[Variant], studies: Studies) -> Verdict:
    words, lines = [], []
    tables = [table for table in variants[0].tables if "in turn" in table.title]
    for table in tables:
        rows = _modules_first(rows_of(table))
        where = f"{_titled(table.title)}: " if len(tables) > 1 else ""
        exact = _each(rows, lambda row: row["exact"])
        left = _each(rows, lambda row: f"{row['removed after'].mean:.1%}")
        change = _each(rows, lambda row: f"{100 * row['change'].mean:+.1f}")
        start = _each(rows, lambda row: f"{row['remaining before'].mean:.3f}")
        words.append(
            f"{where}Removal is exact, bit for bit, in {exact}. Samples of the removed class "
            f"that are still answered right: {left.replace(ASCENT, STOPS)}. "
            f"Accuracy on the others was {start}; it changes, in points, by {change}."
        )
        lines.append(f"{where}exact in {exact}; still right of the removed class: {left}")
    return Verdict("; ".join(lines), sentences(ASKED, *words))


def continual(variants: Sequence[Variant], studies: Studies) -> Verdict:
    words, lines = [], []
    tables = [table for table in variants[0].tables if "arrive one by one" in table.title]
    for table in tables:
        rows = _modules_first(rows_of(table))
        where = f"{_titled(table.title)}: " if len(tables) > 1 else ""
        exact = _each(rows, lambda row: row["exact"] and f"{row['exact']} runs")
        ends = _each(rows, lambda row: f"{row['at the end'].mean:.3f}")
        lost = _each(rows, lambda row: f"{100 * row['forgetting'].mean:.1f}")
        words.append(
            f"{where}Accuracy on all classes at the end is {ends}. From its arrival to the end a "
            f"class loses, in points, {lost}. Modules added one by one answer, bit for bit, as if "
            f"joined at once in {exact}."
        )
        lines.append(f"{where}at the end {ends}")
    return Verdict("; ".join(lines), sentences(ASKED, *words))


def _each(rows: Sequence[Row], text: Callable[[Row], str | None]) -> str:
    """What every way has: `0.9 by a, 0.8 by b and by c`; ways without it are left out."""
    result: dict[str, list[str]] = {}
    for row in rows:
        if (own := text(row)) is not None:
            result.setdefault(own, []).append(f"by {row['way'].partition(' = ')[0]}")
    return listed([f"{own} {' and '.join(ways)}" for own, ways in result.items()]) or "none"


def _modules_first(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["exact"] is None)


def _titled(title: str) -> str:
    """The data set and model that a table's title begins with."""
    data, _, model = title.partition(":")[0].partition(", ")
    return capital(f"{titled(data)}, {model}")
