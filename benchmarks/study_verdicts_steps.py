"""What the studies of complete merges say, counted from their cells."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from intarsia.composition import OPERATORS
from intarsia.measure.significance import above
from intarsia.studies import Measured, Spread
from intarsia.studies.groups import grouped
from intarsia.studies.steps import full, operators_in
from intarsia.studies.width import width_of
from study_counting import Verdict, by_mean, listed, surely_best
from study_packs import Studies, Variant
from study_verdicts import live_units

BOUND = 0.90  # the paper: the sum of shallow modules with IMP stays above it
ABOVE = [("mnist", "shallow"), ("fashion_mnist", "shallow")]
PAPERS_BEST = {"cnn": 0.6}  # the sparsity that the paper found best for pairs


def complete(variants: Sequence[Variant], studies: Studies) -> Verdict:
    found = {v.label: _merges(v) for v in variants}
    main = found[variants[0].label]
    pruned = [place[:2] for place, ends in main.items() if place[2] and "sum" in ends]
    printed = [place for place in ABOVE if place in pruned]
    others = [(d, m) for d, m in pruned if m in ("deep", "cnn") and d in dict(ABOVE)]
    holds = [place for place in printed if main[*place, True]["sum"].mean > BOUND]
    below = [place for place in others if main[*place, True]["sum"].mean < BOUND]
    words = []
    if printed:
        ends = listed([f"{main[*place, True]['sum']} on {place[0]}" for place in printed])
        words.append(
            f"In the paper the weight sum of shallow modules with IMP stays above {BOUND:.2f} on "
            f"MNIST and Fashion-MNIST; under {variants[0].label} it ends at {ends}, so that this "
            f"holds in {len(holds)} of {len(printed)}."
        )
    if others:
        ends = listed([f"{main[*p, True]['sum']} ({p[1]}, {p[0]})" for p in others])
        words.append(
            f"Deep modules and the CNN fall below it in {len(below)} of {len(others)}, as printed: "
            f"{ends}."
        )
    words += [_by_variant(place, variants, found, studies) for place in printed or list(main)[:1]]
    words += [_operators(main, imp) for imp in (True, False)]
    line = f"above {BOUND:.2f} under {variants[0].label} in {len(holds)} of {len(printed)}"
    for variant in variants[1:]:
        own = [p for p in printed if "sum" in found[variant.label].get((*p, True), {})]
        if own:
            reached = sum(found[variant.label][*p, True]["sum"].mean > BOUND for p in own)
            line += f", under {variant.label} in {reached} of {len(own)}"
    if not printed:
        line = f"{len(main)} complete merges, none of which the paper speaks of"
    return Verdict(line, " ".join(filter(None, words)))


def temperature(variants: Sequence[Variant], studies: Studies) -> Verdict:
    return _varied(variants[0].measured, "temperature", "t")


def sparsity(variants: Sequence[Variant], studies: Studies) -> Verdict:
    steps = [cell for cell in variants[0].measured if "size" not in cell.settings]
    pairs = [cell for cell in variants[0].measured if "size" in cell.settings]
    found = _varied(steps, "sparsity", "a sparsity of") if steps else Verdict("", "")
    places = grouped(pairs, "data", "model", "size")
    words, met = [], []
    for (data, model, size), cells in places.items():
        values = {
            s: [v for cell in some for v in cell.result["accuracy"].get("sum", [])]
            for (s,), some in grouped(cells, "sparsity").items()
        }
        ranked = by_mean(values)
        if ranked:
            best, sure = next(iter(ranked)), surely_best(values)
            ends = listed([f"{spread} at {s:g}" for s, spread in sorted(ranked.items())])
            words.append(
                f"Pairs of {data}, {model}, |R| = {size}, by weights: {ends}; {best:g} is best"
                f"{'' if sure else ', though not by the test'}."
            )
            met += [best == PAPERS_BEST[model]] if model in PAPERS_BEST else []
    if met:
        said = f"the paper's best sparsity for pairs of CNNs is ours in {sum(met)} of {len(met)}"
        words.append(f"{said[0].upper()}{said[1:]}.")
        found = Verdict(f"{found.line}; {said}".removeprefix("; "), found.words)
    return Verdict(found.line, " ".join([found.words, *words]).strip())


def width(variants: Sequence[Variant], studies: Studies) -> Verdict:
    words, helped = [], []
    for (data, imp), cells in grouped(variants[0].measured, "data", "imp").items():
        own = {width_of(m): full(some, "sum") for (m,), some in grouped(cells, "model").items()}
        own = {units: values for units, values in sorted(own.items()) if values}
        if len(own) < 2:
            continue
        first, *_, last = own
        means = [fmean(values) for values in own.values()]
        rises = [b > a for a, b in pairwise(means)]
        sure = above(own[last], own[first])
        helped.append(sure)
        ends = listed([f"{Spread.of(v)} with {units}" for units, v in own.items()])
        words.append(
            f"On {data}, {'with' if imp else 'without'} IMP, all modules by weights: {ends} hidden "
            f"units. Accuracy rises in {sum(rises)} of {len(rises)} steps, and from the narrowest "
            f"to the widest it {'does' if sure else 'does not'} by Welch's test."
        )
    line = f"wider is better by the test in {sum(helped)} of {len(helped)} (with and without IMP)"
    return Verdict(line, " ".join(["The paper says that width helps.", *words]))


def _varied(cells: Sequence[Measured], key: str, word: str) -> Verdict:
    """Where a complete merge is best, by weights and by logits."""
    words, lines = [], []
    for (data, model), group in grouped(cells, "data", "model").items():
        for operator in operators_in(group):
            values = {v: full(some, operator) for (v,), some in grouped(group, key).items()}
            ranked = by_mean(values)
            if not ranked:
                continue
            best, sure = next(iter(ranked)), surely_best(values)
            ends = listed([f"{spread} at {v:g}" for v, spread in sorted(ranked.items())])
            test = "by the test too" if sure else "not surely by the test"
            words.append(
                f"On {data}, {model}, all modules by {operator}: {ends}; {word} {best:g} is best, "
                f"{test}."
            )
            lines.append(f"{operator} best at {word} {best:g} ({test})")
    start = "The paper prints a figure without numbers; this is what its axes hold here."
    return Verdict("; ".join(lines), " ".join([start, *words]))


Merges = dict[tuple[str, str, bool], dict[str, Spread]]


def _merges(variant: Variant) -> Merges:
    """The accuracy of all modules by data, model, with IMP or without, and operator; best first."""
    return {
        (data, model, imp): by_mean({name: full(group, name) for name in operators_in(group)})
        for (data, model, imp), group in grouped(variant.measured, "data", "model", "imp").items()
    }


def _by_variant(
    place: tuple[Any, ...],
    variants: Sequence[Variant],
    found: Mapping[str, Merges],
    studies: Studies,
) -> str:
    """What becomes of the sum where pruning and checkpoint differ and the objective does not."""
    data, model = place[:2]
    own = {
        v.label: found[v.label][data, model, True]
        for v in variants
        if "sum" in found[v.label].get((data, model, True), {})
    }
    if len(own) < 2:
        return ""
    units = {v.label: live_units(v, (data, model)) for v in studies.get("single", ())}
    parts = [
        f"{label} {ends['sum']} by weights"
        + (f" and {ends['logits']} by logits" if "logits" in ends else "")
        + (
            f", {units[label].mean:.0f} live units a module"
            if label in units and units[label].n
            else ""
        )
        for label, ends in own.items()
    ]
    first, *rest = own
    lifted = [label for label in rest if own[label]["sum"].mean > BOUND >= own[first]["sum"].mean]
    why = ""
    if lifted:
        named = next((label for label in lifted if "released" not in label), None)
        cause = "what the authors' code does otherwise than their text brings"
        if named:
            cause = f"{named} differs from {first} in what it names alone, and that brings"
        why = (
            f" The objective is the same in all of them; {cause} the sum above {BOUND:.2f}. The "
            "objective alone does not."
        )
    return f"All modules of {data}, {model}, with IMP: {'; '.join(parts)}.{why}"


def _operators(main: Merges, imp: bool) -> str:
    """Which operators come out best, of all and of those that keep the network's shape."""
    places = [ends for (_, _, pruned), ends in main.items() if pruned == imp and ends]
    if not places:
        return ""
    shape = [
        next((name for name in ends if OPERATORS.spec(name).name in _on_weights()), None)
        for ends in places
    ]
    best = Counter(next(iter(ends)) for ends in places)
    kept = Counter(filter(None, shape))
    return (
        f"{'With' if imp else 'Without'} IMP the most accurate operator is {_ranked(best)}; of "
        f"those that give one network of the same shape {_ranked(kept)}."
    )


def _ranked(counts: Counter[str]) -> str:
    return listed([f"{name} in {n} of {counts.total()}" for name, n in counts.most_common()])


def _on_weights() -> set[str]:
    return {
        name for name, operator in OPERATORS.items() if getattr(operator, "on", "") == "weights"
    }
