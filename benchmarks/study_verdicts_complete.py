"""What the study of complete merges says, counted from its cells."""

from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.studies import Spread
from intarsia.studies.maxent.complete_merges import full, operators_in
from intarsia.studies.tables import grouped
from study_counting import (
    PRUNED,
    Verdict,
    capital,
    listed,
    points,
    sentences,
    several,
    titled,
)
from study_operators import operators
from study_packs import Studies, Variant
from study_verdicts import live_units

BOUND = 0.90  # the paper: the sum of shallow modules with IMP stays above it
ABOVE = [("mnist", "shallow"), ("fashion_mnist", "shallow")]
BELOW = [(data, model) for model in ("deep", "cnn") for data, _ in ABOVE]
Place = tuple[str, str, bool]  # data, model, with IMP or without
Merges = dict[Place, dict[str, list[float]]]  # accuracies of all modules by operator


def complete(variants: Sequence[Variant], studies: Studies) -> Verdict:
    result = {v.label: merges(v) for v in variants}
    main = result[variants[0].label]
    ours = {place[:2]: ends["sum"] for place, ends in main.items() if place[2] and "sum" in ends}
    more = {
        f"All modules {place}": words for place, words in _by_variant(variants, result, studies)
    }
    for imp, name in PRUNED.items():
        half = [ends for place, ends in main.items() if place[2] == (imp == "yes")]
        more |= operators(half, name)
    words = [_above(ours, variants[0].label), _by_logits(main), _below(ours), _not_run(ours)]
    if not any(place in ours for place in ABOVE):
        line = f"{several(len(main), 'complete merge')}, none of which the paper speaks of"
        return Verdict(line, f"{capital(line)}.", points(more))
    ends = [
        f"on {titled(place[0])} the sum of all {_modules(variants[0], place[0])} reaches "
        + listed([f"{mean:.3f}{under}" for under, mean in _means(place, variants, result)])
        for place in ABOVE
        if place in ours
    ]
    return Verdict(
        f"{'; '.join(ends)}; the paper says above {BOUND:.2f}", sentences(*words), points(more)
    )


def merges(variant: Variant) -> Merges:
    """The accuracies of all modules by data, model, with IMP or without, and operator."""
    groups = grouped(variant.measured, "data", "model", "imp")
    return {
        (data, model, imp): {
            name: values for name in operators_in(group) if (values := full(group, name))
        }
        for (data, model, imp), group in groups.items()
    }


def _above(ours: Mapping[tuple[str, str], Sequence[float]], label: str) -> str:
    """What the paper says of shallow modules, and what comes out."""
    there = [place for place in ABOVE if place in ours]
    if not there:
        return ""
    ends = listed([f"{Spread.of(ours[place])} on {titled(place[0])}" for place in there])
    holds = sum(Spread.of(ours[place]).mean > BOUND for place in there)
    verb = "reproduces" if holds == len(there) else "does not reproduce"
    part = f" everywhere ({holds} of {len(there)})" if 0 < holds < len(there) else ""
    return (
        f"In the paper the weight sum of shallow modules with IMP stays above {BOUND:.2f} on MNIST "
        f"and Fashion-MNIST; under {label} this {verb}{part}: it ends at {ends}."
    )


def _by_logits(main: Merges) -> str:
    """What the same modules reach where their logits are added, not their weights."""
    ends = [
        f"{Spread.of(main[*place, True]['logits'])} on {titled(place[0])}"
        for place in ABOVE
        if "logits" in main.get((*place, True), {})
    ]
    return f"By logits the same modules reach {listed(ends)}." if ends else ""


def _below(ours: Mapping[tuple[str, str], Sequence[float]]) -> str:
    there = [place for place in BELOW if place in ours]
    if not there:
        return ""
    models = [
        {"deep": "deep modules", "cnn": "CNNs"}[m] for m in dict.fromkeys(m for _, m in there)
    ]
    below = sum(Spread.of(ours[place]).mean < BOUND for place in there)
    ends = listed([f"{Spread.of(ours[p])} ({p[1]}, {titled(p[0])})" for p in there])
    verb = "reproduces" if below == len(there) else f"reproduces in {below} of {len(there)}"
    return f"That the sum of {listed(models)} falls below it {verb}: {ends}."


def _not_run(ours: Mapping[tuple[str, str], Any]) -> str:
    """What the paper speaks of and is not there, of the models that are."""
    models = {model for _, model in ours}
    places = [place for place in [*ABOVE, *BELOW] if place[1] in models and place not in ours]
    lacking = [f"{titled(data)} ({model})" for data, model in places]
    return f"Not run: {listed(lacking)}." if lacking else ""


def _modules(variant: Variant, data: str) -> str:
    """How many modules are joined, in words where that is usual."""
    cells = [cell for cell in variant.measured if cell.settings["data"] == data]
    curves = [curve for cell in cells for some in cell.result["curves"].values() for curve in some]
    number = max(len(curve["accuracy"]) for curve in curves)
    return {4: "four", 6: "six", 10: "ten"}.get(number, str(number))


def _means(
    place: tuple[str, str], variants: Sequence[Variant], result: Mapping[str, Merges]
) -> list[tuple[str, float]]:
    """The sum's mean accuracy, variant by variant; the first needs no name."""
    own = {v.label: result[v.label].get((*place, True), {}).get("sum") for v in variants}
    return [
        ("" if number == 0 else f" under {label}", Spread.of(values).mean)
        for number, (label, values) in enumerate(own.items())
        if values
    ]


def _by_variant(
    variants: Sequence[Variant], result: Mapping[str, Merges], studies: Studies
) -> list[tuple[str, str]]:
    """What becomes of the sum where pruning and checkpoint differ and the objective does not."""
    said = []
    for data, model in ABOVE:
        own = {
            v.label: result[v.label][data, model, True]
            for v in variants
            if "sum" in result[v.label].get((data, model, True), {})
        }
        if len(own) > 1:
            units = {v.label: live_units(v, (data, model)) for v in studies.get("single", ())}
            parts = [
                f"{label} {Spread.of(ends['sum'])} by weights"
                + (f" and {Spread.of(ends['logits'])} by logits" if "logits" in ends else "")
                + (
                    f", {live.mean:.0f} live units a module"
                    if (live := units.get(label)) and live.n
                    else ""
                )
                for label, ends in own.items()
            ]
            sums = {label: Spread.of(ends["sum"]).mean for label, ends in own.items()}
            said.append((f"of {titled(data)}, {model}", f"{'; '.join(parts)}.{_cause(sums)}"))
    return said


def _cause(sums: Mapping[str, float]) -> str:
    """Which variant brings the sum above the bound that the first one misses."""
    first, *rest = sums
    lifted = [label for label in rest if sums[label] > BOUND >= sums[first]]
    if not lifted:
        return ""
    named = next((label for label in lifted if "released" not in label), None)
    cause = "what the authors' code does otherwise than their text brings"
    if named:
        cause = f"{named} differs from {first} in what it names alone, and that brings"
    return (
        f" The objective is the same in all of them; {cause} the sum above {BOUND:.2f}. The "
        "objective alone does not."
    )
