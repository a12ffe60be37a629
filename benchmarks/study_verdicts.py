"""What the studies of the paper's tables say, counted from their cells."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from intarsia.studies import Spread
from intarsia.studies.groups import grouped
from intarsia.studies.ordering import in_paper, ordered, significant
from intarsia.studies.pairs import collected
from intarsia.studies.tables import finite
from study_counting import (
    Compared,
    Row,
    Verdict,
    beside_the_paper,
    compared,
    count,
    listed,
    met_in_short,
    rows_of,
)
from study_packs import Studies, Variant

# Where the authors' code departs from their text, and which numbers that can touch.
DEPARTURES: dict[str, Callable[[Row], bool]] = {
    "pruning (the code prunes layer by layer and keeps the last epoch, the text globally and the "
    "best)": lambda row: row["IMP"] == "yes",
    "dropout without IMP (0.3 in the code, 0.5 in the text)": lambda row: (
        row["IMP"] == "no" and row["model"] != "cnn"
    ),
    "the sum of unpruned MLPs (the code counts the second output layer twice)": lambda row: (
        "|R|" in row and row["IMP"] == "no" and row["model"] != "cnn"
    ),
    "the CNN's temperature (5 in the code, 1 in the text)": lambda row: row["model"] == "cnn",
    "Yeast's networks (smaller in the code, with a higher learning rate)": lambda row: (
        row["data"] == "yeast"
    ),
    "HAR's features (computed anew from the raw signals)": lambda row: row["data"] == "har",
    "the pairs for |R| = 5 (one in the code, ten in the text)": lambda row: row.get("|R|") == 5,
}


def single(variants: Sequence[Variant], studies: Studies) -> Verdict:
    met, of = met_in_short(variants, "Table 1")
    words = [beside_the_paper(variants, "Table 1"), _reasons(variants, "Table 1")]
    words += [_cut_through(variants[0]), _live_units(variants)]
    return Verdict(_in_short(met, of), " ".join(filter(None, words)))


def pairs(variants: Sequence[Variant], studies: Studies) -> Verdict:
    met, of = met_in_short(variants, "Table 4")
    groups = {
        group: {name: finite(values) for name, values in own.items()}
        for group, own in collected(variants[0].measured, "sum", "accuracy").items()
    }
    words = [beside_the_paper(variants, "Table 4"), _reasons(variants, "Table 4")]
    words += [_order(groups), _logits(variants[0])]
    line = f"ME > QME > XE in {count(groups.values(), ordered)} groups, by the test in "
    line += count(groups.values(), significant)
    return Verdict(f"{_in_short(met, of)}; {line}", " ".join(filter(None, words)))


def impact(variants: Sequence[Variant], studies: Studies) -> Verdict:
    rows = rows_of(variants[0].tables[0])
    words = []
    for what in ("accuracy", "entropy"):
        known = [r for r in rows if r[f"change of {what}"].n]
        by = listed([f"{name} in {_rises(known, what, name)}" for name in _objectives(known)])
        words.append(
            f"IMP raises the {what} of the sum of two modules in {_rises(known, what)} places "
            f"({by}); by Welch's test it does so in {_surely(known, what, 1)} and lowers it in "
            f"{_surely(known, what, -1)}. The change has the sign of the paper's in "
            f"{count(known, partial(_same_sign, what=what))} that the paper has."
        )
    line = f"IMP raises accuracy in {_rises(rows, 'accuracy')} places, entropy in "
    return Verdict(line + _rises(rows, "entropy"), " ".join(words))


def _in_short(met: int, of: int) -> str:
    return f"{met} of {of} printed numbers within two standard deviations"


def _reasons(variants: Sequence[Variant], title: str) -> str:
    """Where known departures of the code from the text touch what was missed."""
    missed = [
        c for c in compared(variants[0].table(title)) if c.difference.beyond and not c.suspect
    ]
    released = next((v for v in variants if v.label == "preset `released`"), None)
    own = {c.place: c for c in compared(released.table(title))} if released else {}
    parts = []
    for what, touches in DEPARTURES.items():
        some = [c for c in missed if touches(c.labels)]
        again = [own[c.place] for c in some if c.place in own]
        met = f", {count(again, _is_met)} met by `released`" if again else ""
        if some:
            parts.append((len(some), f"{what}: {len(some)} missed{met}"))
    if not parts:
        return ""
    shown = "; ".join(text for _, text in sorted(parts, key=lambda part: -part[0]))
    again = [own[c.place] for c in missed if c.place in own]
    most = 2 * sum(map(_is_met, again)) > len(again)
    why = (
        f" Preset `released` {'explains' if most else 'does not explain'} most of them."
        if again
        else ""
    )
    return f"Known differences that touch the missed numbers: {shown}.{why}"


def _is_met(found: Compared) -> bool:
    return not found.difference.beyond


def _cut_through(variant: Variant) -> str:
    """Modules that pruning has cut in two, so that no hidden unit is live."""
    found = []
    for (data, model), cells in grouped(variant.measured, "data", "model").items():
        live = finite([n for cell in cells for n in cell.result["pruned"]["live"]])
        if 0 in live:
            found.append(f"{live.count(0)} of {len(live)} of {data}, {model}")
    if not found:
        return ""
    return (
        "Pruning leaves no way from the inputs to the outputs in some modules, which then answer "
        f"the same to every sample: {listed(found)}."
    )


def _live_units(variants: Sequence[Variant]) -> str:
    """How many hidden units pruning leaves, by variant, in a place that all of them have."""
    groups = [grouped(v.measured, "data", "model") for v in variants]
    shared = [place for place in groups[0] if all(place in own for own in groups)]
    if len(variants) < 2 or not shared:
        return ""
    live = [live_units(v, shared[0]) for v in variants]
    ways = [f"{s.mean:.0f} under {v.label}" for s, v in zip(live, variants, strict=True)]
    data, model = shared[0]
    return f"Live hidden units of a pruned module ({model}, {data}): {listed(ways)}."


def live_units(variant: Variant, place: tuple[str, str]) -> Spread:
    """Of pruned modules, out of the cells of `single`."""
    cells = grouped(variant.measured, "data", "model").get(place, [])
    return Spread.of(n for cell in cells for n in cell.result["pruned"]["live"])


def _order(groups: Mapping[Any, Mapping[str, Sequence[float]]]) -> str:
    words = []
    sure = {group: significant(own) for group, own in groups.items()}
    halves = {"All together": (True, False), "With IMP": (True,), "Without": (False,)}
    for name, imps in halves.items():
        some = {group: own for group, own in groups.items() if group[2] in imps}
        known = any(in_paper(*group) is not None for group in some)
        theirs = count(some, lambda group: in_paper(*group))
        printed = f"; in the paper's means in {theirs}" if known else ""
        if any(ordered(own) is not None for own in some.values()):
            words.append(
                f"{name}, mean accuracy falls from ME to QME to XE in "
                f"{count(some.values(), ordered)} groups, by Welch's test in "
                f"{count(some, sure.get)}{printed}."
            )
    steps = [
        f"{high.upper()} is above {low.upper()} in {count(groups.values(), _step(high, low))}"
        for high, low in (("me", "qme"), ("qme", "xe"), ("me", "xe"))
    ]
    sizes = [
        f"{count([own for g, own in groups.items() if g[1] == size], ordered)} for |R| = {size}"
        for size in dict.fromkeys(group[1] for group in groups)
    ]
    return " ".join([*words, f"Step by step: {listed(steps)}. Ordered: {listed(sizes)}."])


def _step(high: str, low: str) -> Callable[[Mapping[str, Sequence[float]]], bool | None]:
    def holds(own: Mapping[str, Sequence[float]]) -> bool | None:
        if not own.get(high) or not own.get(low):
            return None
        return fmean(own[high]) > fmean(own[low])

    return holds


def _logits(variant: Variant) -> str:
    rows = [r for r in rows_of(variant.table("logits added")) if r["minus weights"].n]
    halves = [
        f"{count([r for r in rows if r['IMP'] == imp], lambda r: r['minus weights'].mean > 0)} "
        f"{name} IMP"
        for imp, name in (("yes", "with"), ("no", "without"))
    ]
    return f"Adding logits is more accurate than adding weights in {listed(halves)}."


def _objectives(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["objective"] for row in rows))


def _rises(rows: Sequence[Row], what: str, objective: str | None = None) -> str:
    some = [r for r in rows if objective in (None, r["objective"]) and r[f"change of {what}"].n]
    return count(some, lambda r: r[f"change of {what}"].mean > 0)


def _surely(rows: Sequence[Row], what: str, sign: int) -> int:
    return sum(
        r[f"p of {what}"] is not None
        and r[f"p of {what}"] < 0.05
        and sign * r[f"change of {what}"].mean > 0
        for r in rows
    )


def _same_sign(row: Row, what: str) -> bool | None:
    paper = row[f"paper's change of {what}"]
    if paper is None or paper.suspect or paper.mean == 0:
        return None
    return bool((row[f"change of {what}"].mean > 0) == (paper.mean > 0))
