"""What the studies of temperature, sparsity and width say, counted from their cells."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from intarsia.measure.significance import above
from intarsia.studies import Measured, Spread
from intarsia.studies.maxent.complete_merges import full, operators_in
from intarsia.studies.maxent.width import width_of
from intarsia.studies.tables import grouped
from study_counting import (
    PRUNED,
    Verdict,
    by_mean,
    capital,
    listed,
    sentences,
    surely_best,
    titled,
)
from study_packs import Studies, Variant

PAPERS_BEST = {"cnn": 0.6}  # the sparsity that the paper found best for pairs
CHANCE = 0.05  # so near to it an accuracy is no better
FEW = 3  # with fewer seeds a test is no evidence


def temperature(variants: Sequence[Variant], studies: Studies) -> Verdict:
    return _varied(variants[0].measured, "temperature", "temperature", "t =")


def sparsity(variants: Sequence[Variant], studies: Studies) -> Verdict:
    steps = [cell for cell in variants[0].measured if "size" not in cell.settings]
    pairs = [cell for cell in variants[0].measured if "size" in cell.settings]
    found = _varied(steps, "sparsity", "sparsity", "a sparsity of") if steps else Verdict("", "")
    points, met = [], []
    for (data, model, size), cells in grouped(pairs, "data", "model", "size").items():
        values = {
            s: [v for cell in some for v in cell.result["accuracy"].get("sum", [])]
            for (s,), some in grouped(cells, "sparsity").items()
        }
        ranked = by_mean(values)
        if ranked:
            best, sure = next(iter(ranked)), surely_best(values)
            points.append(
                f"Pairs of {titled(data)}, {model}, |R| = {size}, by weights: {_ends(ranked)}; "
                f"{best:g} is best{'' if sure else ', though not by the test'}."
            )
            met += [best == PAPERS_BEST[model]] if model in PAPERS_BEST else []
    if not met:
        return Verdict(found.line, found.words, (*found.points, *points))
    said = f"the paper's best sparsity for pairs of CNNs is ours in {sum(met)} of {len(met)}"
    line = f"{found.line}; {said}".removeprefix("; ")
    words = sentences(found.words, f"{capital(said)}.")
    return Verdict(line, words, (*found.points, *points))


def width(variants: Sequence[Variant], studies: Studies) -> Verdict:
    words, lines, points = [], [], []
    for (data, imp), cells in grouped(variants[0].measured, "data", "imp").items():
        own = {width_of(m): full(some, "sum") for (m,), some in grouped(cells, "model").items()}
        own = {units: values for units, values in sorted(own.items()) if values}
        if len(own) < 2:
            continue
        where = f"on {titled(data)} {PRUNED['yes' if imp else 'no']}"
        short, more = _by_width(own, _chance(cells))
        lines.append(f"{where} the sum {short}")
        words.append(f"{capital(where)} the sum of all modules {short} ({more}).")
        ends = listed([f"{Spread.of(v)} with {units}" for units, v in own.items()])
        points.append(f"{capital(where)}, all modules by weights: {ends} hidden units.")
    said = sentences("The paper says that width helps.", *words)
    return Verdict("; ".join(lines), said, tuple(points))


def _by_width(own: Mapping[int, Sequence[float]], chance: float) -> tuple[str, str]:
    """Whether wider is better, and more on it; without a test where there are too few for one."""
    means = {units: fmean(values) for units, values in own.items()}
    low, high = min(means.values()), max(means.values())
    if max(high - chance, chance - low) < CHANCE:
        return "stays near chance at every width", f"{low:.3f} to {high:.3f}, chance {chance:.3f}"
    rises = [b > a for a, b in pairwise(means.values())]
    narrow, *_, wide = means
    n = min(map(len, own.values()))
    test = f", n = {n}"
    if n >= FEW:
        test += ", by the test" if above(own[wide], own[narrow]) else ", not surely by the test"
    ends = [f"{means[units]:.3f} with {units}" for units in (narrow, wide)]
    steps = f"it rises in {sum(rises)} of {len(rises)} steps{test}"
    return f"goes from {ends[0]} hidden units to {ends[1]}", steps


def _chance(cells: Sequence[Measured]) -> float:
    """What guessing gives, were the classes equally frequent."""
    curves = [c for cell in cells for some in cell.result["curves"].values() for c in some]
    return 1 / max(len(curve["accuracy"]) for curve in curves)


def _varied(cells: Sequence[Measured], key: str, name: str, word: str) -> Verdict:
    """Where a complete merge is best, by weights and by logits."""
    points, lines = [], []
    groups = grouped(cells, "data", "model")
    for (data, model), group in groups.items():
        for operator in operators_in(group):
            values = {v: full(some, operator) for (v,), some in grouped(group, key).items()}
            ranked = by_mean(values)
            if not ranked:
                continue
            where = f" ({titled(data)}, {model})" if len(groups) > 1 else ""
            what = f"{'the sum' if operator == 'sum' else operator}{where}"
            said = f"no {name} is surely best for {what}"
            if surely_best(values):
                said = f"for {what} {word} {next(iter(ranked)):g} is best by the test"
            lines.append(said)
            points.append(
                f"On {titled(data)}, {model}, all modules by {operator}: {_ends(ranked)}."
            )
    start = "The paper prints a figure without numbers; this is what its axes hold here."
    line = "; ".join(lines)
    return Verdict(line, sentences(start, f"{capital(line)}." if line else ""), tuple(points))


def _ends(ranked: Mapping[float, Spread]) -> str:
    return listed([f"{spread} at {value:g}" for value, spread in sorted(ranked.items())])
