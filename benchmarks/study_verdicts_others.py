"""What the studies of paths, confusions and of questions beyond the paper say."""

from collections.abc import Sequence

from intarsia.measure.path import TOLERANCE
from intarsia.studies import Measured
from intarsia.studies.groups import grouped
from intarsia.studies.single import HALVES
from study_counting import PRUNED, Row, Verdict, by_mean, count, listed, rows_of, surely_best
from study_packs import Studies, Variant


def path(variants: Sequence[Variant], studies: Studies) -> Verdict:
    words, totals = [], []
    for way, pruned in HALVES.items():
        imp = "yes" if pruned else "no"
        shares = []
        for (data, model), cells in grouped(variants[0].measured, "data", "model").items():
            shares.append(f"{_connected(cells, way, 'test')} ({model}, {data})")
        total = _connected(variants[0].measured, way, "test")
        training = _connected(variants[0].measured, way, "train")
        totals.append(f"{total} {PRUNED[imp]}")
        words.append(
            f"{PRUNED[imp].capitalize().replace('imp', 'IMP')}, {total} paths through the sum of "
            f"two modules are connected on test samples, {training} on training samples: "
            f"{listed(shares)}."
        )
    words.append(
        f"A path that is not connected has somewhere a loss more than {TOLERANCE:g}% above the "
        "straight line between its ends; the paper shows this as figures, without counts."
    )
    return Verdict(f"connected: {listed(totals)}", " ".join(words))


def confusion(variants: Sequence[Variant], studies: Studies) -> Verdict:
    rows = rows_of(variants[0].tables[0])
    words = []
    spread = _means(rows, "single modules", "others on rewarded")
    for imp, own in spread.items():
        parts = listed([f"{share:.1%} under {name}" for name, share in own.items()])
        words.append(
            f"{_named(imp)}, modules of one class answer it for {parts} of the samples of other "
            "classes (mean over models)."
        )
    sums = _means(rows, "complete, sum", "rewarded accuracy")
    for imp, own in sums.items():
        parts = listed([f"{share:.3f} under {name}" for name, share in own.items()])
        words.append(f"{_named(imp)}, the sum of all modules is right for {parts}.")
    best = [next(iter(sorted(own, key=lambda name: -own[name]))) for own in sums.values()]
    least = [min(own, key=lambda name: own[name]) for own in spread.values()]
    line = (
        f"ME leaves others alone most in {count(least, lambda name: name == 'me')}, and its sum of "
        f"all is the most accurate in {count(best, lambda name: name == 'me')} (with and without "
        "IMP)"
    )
    words.append("The paper shows matrices of single seeds; these are their summary.")
    return Verdict(line, " ".join(words))


def controls(variants: Sequence[Variant], studies: Studies) -> Verdict:
    """Which objective is the best, group by group; amounts as the table chose them."""
    table = variants[0].table("one sparsity")
    chosen = {
        (r["data"], r["model"], r["IMP"], r["objective"]): r["amount"] for r in rows_of(table)
    }
    cells: dict[tuple[str, str, str], dict[str, list[Measured]]] = {}
    for cell in variants[0].measured:
        s = cell.settings
        place, objective = (s["data"], s["model"], "yes" if s["imp"] else "no"), s["objective"]
        amount = None if s["amount"] is None else f"{s['amount']:g}"
        if chosen[*place, objective] == amount:
            cells.setdefault(place, {}).setdefault(objective, []).append(cell)
    words, best = [], []
    for (data, model, imp), own in cells.items():
        for how in next(iter(own.values()))[0].result["complete"]:
            values = {
                name: [c.result["complete"].get(how) for c in some] for name, some in own.items()
            }
            ranked = by_mean(values)
            if len(ranked) < 2:
                continue
            sure = surely_best(values)
            best.append((next(iter(ranked)), sure))
            ends = ", ".join(f"{name} {spread}" for name, spread in ranked.items())
            words.append(
                f"On {data}, {model}, {PRUNED[imp]}, all modules by {how}: {ends}"
                f"{' (the first by the test)' if sure else ''}."
            )
    line = (
        f"ME is the best objective in {count(best, lambda found: found[0] == 'me')} groups (by the "
        f"test in {sum(name == 'me' and sure for name, sure in best)}), another one by the test in "
        f"{sum(name != 'me' and sure for name, sure in best)}"
    )
    return Verdict(line, " ".join([f"{line[0].upper()}{line[1:]}.", *words]))


def unlearning(variants: Sequence[Variant], studies: Studies) -> Verdict:
    words, lines = [], []
    for table in variants[0].tables:
        if "in turn" not in table.title:
            continue
        name = table.title.partition(":")[0]
        for row in rows_of(table):
            exact = f", {row['exact']} removals exact bit for bit" if row["exact"] else ""
            words.append(
                f"On {name}, {row['way']}: the removed class is still answered right for "
                f"{row['removed after']} of its samples, at an entropy of {row['entropy']}; "
                f"accuracy on the others changes by {row['change']}{exact}."
            )
        by = {row["way"]: row for row in rows_of(table)}
        changes = [f"{way} {row['change'].mean:+.4f}" for way, row in by.items()]
        same = [f"{row['exact']} by {way}" for way, row in by.items() if row["exact"]]
        lines.append(
            f"{name}: exact in {listed(same)}; accuracy on the others changes by {listed(changes)}"
        )
    start = "The paper does not ask this."
    return Verdict("; ".join(lines), " ".join([start, *words]))


def continual(variants: Sequence[Variant], studies: Studies) -> Verdict:
    words, lines = [], []
    for table in variants[0].tables:
        if "arrive one by one" not in table.title:
            continue
        name = table.title.partition(":")[0]
        rows = rows_of(table)
        for row in rows:
            exact = f"; {row['exact']} runs exact bit for bit" if row["exact"] else ""
            words.append(
                f"On {name}, {row['way']}: {row['at the end']} at the end, forgetting "
                f"{row['forgetting']}{exact}."
            )
        ends = [f"{row['way']} {row['at the end'].mean:.3f}" for row in rows]
        lines.append(f"{name}, accuracy at the end: {listed(ends)}")
    start = "The paper does not ask this. No module is changed by another that arrives."
    return Verdict("; ".join(lines), " ".join([start, *words]))


def _connected(cells: Sequence[Measured], way: str, split: str) -> str:
    walks = [walk for cell in cells for walk in cell.result[way]]
    return count(walks, lambda walk: walk[split]["connected"])


def _named(imp: str) -> str:
    return "With IMP" if imp == "yes" else "Without IMP"


def _means(rows: Sequence[Row], matrix: str, column: str) -> dict[str, dict[str, float]]:
    """The mean over models of a column, by pruned or not and objective."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["matrix"] == matrix and row[column] is not None:
            own = found.setdefault(row["IMP"], {})
            own.setdefault(row["objective"], []).append(row[column].mean)
    return {
        imp: {name: sum(values) / len(values) for name, values in own.items()}
        for imp, own in found.items()
    }
