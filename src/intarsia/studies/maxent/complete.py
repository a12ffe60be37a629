"""Study `complete`: one module per class, joined one after another by every operator."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.composition import OPERATORS
from intarsia.measure.significance import LEVEL, holm, welch
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.complete_merges import (
    NAMES,
    figure_name,
    full,
    mean_curve,
    measure_figure,
    measure_steps,
    modules_in,
    operators_in,
    step_cell,
    step_tables,
)
from intarsia.studies.maxent.single import live_units
from intarsia.studies.options import (
    check_count,
    check_flags,
    check_operators,
    operator_name,
    readable,
)
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Spread, Table, grouped
from intarsia.studies.verdict import Claim, Findings, Verdict, by_mean
from intarsia.studies.wording import by_the_test, capital, imp_label, listed, named, several, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Operators that are another one at their defaults, to the last bit.
EQUAL = {"weighted": "sum", "logit_weighted": "logits"}
ROUTERS = ("centroid", "centroid_entropy", "entropy_router")  # measured by themselves, as routing
WORDS = {"own": "own (each class's logit from its own module)"}
BOUND = 0.90  # the paper: the sum of shallow modules with IMP stays above it
ABOVE = [("mnist", "shallow"), ("fashion_mnist", "shallow")]
BELOW = [(data, model) for model in ("deep", "cnn") for data, _ in ABOVE]
Place = tuple[str, str]  # data, model
Ends = Mapping[str, Sequence[float]]  # accuracies of all modules, by operator
DRAWN = ("sum", "mean", "ties", "fisher", "regmean", "logits")

SCALES = scales(
    paper={
        "data": ["mnist", "fashion_mnist", "har", "yeast"],
        "models": ["shallow", "deep", "cnn"],
        "imp": [True, False],
        "orders": 10,
        "operators": [
            *["sum", "mean", "task_arithmetic", "ties", "dare", "fisher", "regmean"],
            *["inlay", "logits", "logit_mean", "probabilities", "own"],
        ],
        "slow": ["task_arithmetic", "ties", "dare", "fisher", "regmean", "inlay"],
        "slow_orders": 3,
        "without": {"cnn": ["regmean", "inlay"]},
    },
    small={
        "recipe": {"epochs": 2, "sparsity": 0.8},
        "operators": ["sum", "mean", "ties", "regmean", "inlay", "logits", "own"],
        "orders": 2,
        "slow_orders": 1,
    },
)


def cells(options: Mapping[str, Any], context: StudyContext) -> list[Cell]:
    """One per data set, model, seed, and with or without pruning."""
    return [
        step_cell("complete", data, model, seed, _orders(model, options), options, context, imp=imp)
        for data, model in readable(options, context)
        for imp in check_flags(options, "imp")
        for seed in seeds_of(options["seeds"])
    ]


def tables(done: Sequence[Measured]) -> list[Table]:
    """Two tables per data set."""
    result = []
    for (data,), cells in grouped(done, "data").items():
        title, groups = f"Merge of all modules, {data}", grouped(cells, "model", "imp")
        columns = ["model", "IMP"]
        result += step_tables(title, columns, groups, _notes(cells), _fewer_orders(cells))
    return result


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """One figure per data set and model: accuracy and entropy, with and without pruning."""
    result = {}
    for (data, model), cells in grouped(done, "data", "model").items():
        panels = {}
        for what in ("accuracy", "entropy"):
            for (imp,), group in grouped(cells, "imp").items():
                own = operators_in(group)
                panels[f"{what}, {imp_label(imp)}"] = {
                    NAMES.get(operator, operator): mean_curve(group, operator, what)
                    for operator in [name for name in DRAWN if name in own] or own
                }
        if figure := measure_figure(
            f"Modules joined one by one, {data}, {model}", "modules", panels
        ):
            result[figure_name("complete", data, model)] = figure
    return result


def verdict(findings: Findings) -> Verdict:
    """Where the sum of all modules ends, against the paper's bound, and which operators are best.

    `findings.related["single"]` tells how many units are live in the modules of each variant.
    """
    merges = _merges(findings.cells)
    sums = {place[:2]: ends["sum"] for place, ends in merges.items() if place[2] and "sum" in ends}
    ranks = [
        claim
        for imp in (True, False)
        for claim in operator_claims([e for p, e in merges.items() if p[2] == imp], imp_label(imp))
    ]
    variants = {label: _merges(cells) for label, cells in findings.variants.items()}
    units = findings.related.get("single", {})
    causes = _by_variant({findings.label: merges, **variants}, units)
    there = [place for place in ABOVE if place in sums]
    if not there:
        line = f"{several(len(merges), 'complete merge')}, none of which the paper reports"
        return Verdict(line, [Claim(f"{capital(line)}."), *causes, *ranks])
    reached = []
    for place in there:
        means = [f"{Spread.of(sums[place]).mean:.3f}"]
        for label, own in variants.items():
            if values := own.get((*place, True), {}).get("sum"):
                means.append(f"{Spread.of(values).mean:.3f} under {label}")
        number = modules_in([c for c in findings.cells if c.settings["data"] == place[0]])
        word = {4: "four", 6: "six", 10: "ten"}.get(number, str(number))
        first, *others = means
        more = f" ({listed(others)})" if others else ""
        reached.append(
            f"on {titled(place[0])}, the sum of all {word} modules has accuracy {first}{more}"
        )
    return Verdict(
        f"{'; '.join(reached)}; the paper reports above {BOUND:.2f}",
        [
            _above(sums, there, findings.label),
            *_by_logits(merges),
            *_below(sums),
            *_not_run(sums),
            *causes,
            *ranks,
        ],
    )


def _merges(cells: Sequence[Measured]) -> dict[tuple[str, str, bool], Ends]:
    """The accuracies of all modules by data, model, with IMP or without, and operator."""
    return {
        (data, model, imp): {
            name: values for name in operators_in(group) if (values := full(group, name))
        }
        for (data, model, imp), group in grouped(cells, "data", "model", "imp").items()
    }


def _above(sums: Mapping[Place, Sequence[float]], there: Sequence[Place], label: str) -> Claim:
    """What the paper says of shallow modules, and what comes out."""
    spreads = {data: Spread.of(sums[data, model]) for data, model in there}
    held = sum(spread.mean > BOUND for spread in spreads.values())
    verb = "reproduces" if held == len(there) else "does not reproduce"
    part = f" everywhere ({held} of {len(there)})" if 0 < held < len(there) else ""
    return Claim(
        f"The paper's result that the sum of shallow modules with IMP stays above {BOUND:.2f} on "
        f"MNIST and Fashion-MNIST {verb}{part} under {label}: the accuracy of all modules is "
        f"{_by_data(spreads)}.",
        holds=held == len(there),
        evidence={data: spread.mean for data, spread in spreads.items()},
        n=min(spread.n for spread in spreads.values()),
    )


def _by_logits(merges: Mapping[tuple[str, str, bool], Ends]) -> list[Claim]:
    """What the same modules reach where their logits are added, not their weights."""
    spreads = {
        place[0]: Spread.of(merges[*place, True]["logits"])
        for place in ABOVE
        if "logits" in merges.get((*place, True), {})
    }
    if not spreads:
        return []
    evidence = {data: spread.mean for data, spread in spreads.items()}
    text = f"With logits added, the same modules reach {_by_data(spreads)}."
    return [Claim(text, evidence=evidence)]


def _by_data(spreads: Mapping[str, Spread]) -> str:
    return listed([f"{spread} on {titled(data)}" for data, spread in spreads.items()])


def _below(sums: Mapping[Place, Sequence[float]]) -> list[Claim]:
    """What the paper says of deep modules and CNNs."""
    spreads = {place: Spread.of(sums[place]) for place in BELOW if place in sums}
    if not spreads:
        return []
    words = {"deep": "deep modules", "cnn": "CNNs"}
    models = listed([words[model] for model in dict.fromkeys(model for _, model in spreads)])
    below = sum(spread.mean < BOUND for spread in spreads.values())
    verb = "reproduces" if below == len(spreads) else f"reproduces in {below} of {len(spreads)}"
    ends = listed([f"{s} ({model}, {titled(data)})" for (data, model), s in spreads.items()])
    return [
        Claim(
            f"The paper's result that the sum of {models} falls below {BOUND:.2f} {verb}: {ends}.",
            holds=below == len(spreads),
            evidence={", ".join(place): spread.mean for place, spread in spreads.items()},
            n=len(spreads),
        )
    ]


def _not_run(sums: Mapping[Place, Any]) -> list[Claim]:
    """What the paper speaks of and is not there, of the models that are."""
    models = {model for _, model in sums}
    lacking = [
        f"{titled(data)} ({model})"
        for data, model in [*ABOVE, *BELOW]
        if model in models and (data, model) not in sums
    ]
    return [Claim(f"Not run: {listed(lacking)}.")] if lacking else []


def _by_variant(
    variants: Mapping[str, Mapping[tuple[str, str, bool], Ends]],
    single: Mapping[str, Sequence[Measured]],
) -> list[Claim]:
    """What becomes of the sum where pruning and checkpoint differ and the objective does not."""
    claims = []
    for data, model in ABOVE:
        own = {
            label: ends
            for label, merges in variants.items()
            if "sum" in (ends := merges.get((data, model, True), {}))
        }
        if len(own) < 2:
            continue
        parts = []
        for label, ends in own.items():
            live = live_units(single.get(label, ()), data, model)
            logits = f" and {Spread.of(ends['logits'])} by logits" if "logits" in ends else ""
            units = f", {live.mean:.0f} live units per module" if live.n else ""
            parts.append(f"{label} {Spread.of(ends['sum'])} by sum{logits}{units}")
        sums = {label: Spread.of(ends["sum"]).mean for label, ends in own.items()}
        point = {f"Accuracy of all modules ({titled(data)}, {model})": f"{'; '.join(parts)}."}
        claims.append(Claim(_cause(sums, data), evidence=sums, n=len(own), details=named(point)))
    return claims


def _cause(sums: Mapping[str, float], data: str) -> str:
    """Which variant brings the sum above the bound that the first one misses."""
    first, *rest = sums
    lifted = [label for label in rest if sums[label] > BOUND >= sums[first]]
    if not lifted:
        ends = f"from {min(sums.values()):.3f} to {max(sums.values()):.3f}"
        where = f"On {titled(data)}, the accuracy of the sum ranges"
        return f"{where} {ends}, depending on pruning and checkpoint."
    label = next((label for label in lifted if "released" not in label), None)
    cause = "What the authors' code does differently from their text raises"
    if label:
        cause = f"{capital(label)} differs from {first} only in the settings it names, and raises"
    return (
        f"On {titled(data)}, all variants have the same objective. {cause} the accuracy of the sum "
        f"above {BOUND:.2f}; the objective alone does not."
    )


def operator_claims(places: Sequence[Ends], imp: str) -> list[Claim]:
    """Which operators the test puts above all others, and which are level with the best.

    Of all, and of those on weights, which give one network of the same shape. Operators that are
    equal to the digit are not told apart, and a place in which all are, which modules that are cut
    through make, is skipped.
    """
    apart = [ends for ends in places if len(_distinct(ends)) > 1]
    if not apart:
        return []
    skipped = len(places) - len(apart)
    more = several(skipped, "more setting")
    same = f"; in {more}, all operators give the same answers, as dead modules do" * bool(skipped)
    shaped = [
        {name: own for name, own in ends.items() if OPERATORS.entry(name).on == "weights"}
        for ends in apart
    ]
    shaped = [ends for ends in shaped if len(_distinct(ends)) > 1]
    start = f"Operators that give one network of the same shape, {imp}"
    text, alone = _ranked(apart)
    return [
        Claim(
            f"Operators {imp}: {text}{same}.",
            evidence=alone,
            n=len(apart),
            details=[f"{start}: {_ranked(shaped)[0]}."] if shaped else [],
        )
    ]


def _ranked(places: Sequence[Ends]) -> tuple[str, dict[str, int]]:
    """In how many places each operator is above all others, or level with the best; the former."""
    alone: Counter[str] = Counter()
    level: Counter[str] = Counter()
    tops = best_operators(places)
    for ends, top in zip(places, tops, strict=True):
        (alone if len(_distinct({name: ends[name] for name in top})) == 1 else level).update(top)
    first = "none is significantly above all others"
    if alone:
        first = f"significantly above all others: {_counts(alone)}"
    text = f"in {several(len(places), 'setting')} (data, model), {first}"
    if level:
        where = "in the rest, " if alone else ""
        text += f"; {where}not significantly below the best: {_counts(level)}"
    comparisons = sum(len(ends) - 1 for ends in places)
    return f"{text} ({by_the_test(comparisons)})", dict(alone)


def best_operators(places: Sequence[Ends]) -> list[list[str]]:
    """Place by place, the operator of the highest mean and all that the test puts not below it.

    p is corrected by Holm's method for all comparisons with the best, of all places.
    """
    ranked = [list(by_mean(ends)) for ends in places]
    below = [
        (place, name)
        for place, (ends, (best, *others)) in enumerate(zip(places, ranked, strict=True))
        for name in others
        if min(len(ends[best]), len(ends[name])) > 1
    ]
    values = [welch(places[i][ranked[i][0]], places[i][name]).p for i, name in below]
    corrected = zip(below, holm(values), strict=True)
    lower = {place for place, p in corrected if p < LEVEL}
    return [[name for name in names if (i, name) not in lower] for i, names in enumerate(ranked)]


def _counts(counts: Counter[str]) -> str:
    """`a and b in 3, c in 1`."""
    by: dict[int, list[str]] = {}
    for name, number in counts.most_common():
        by.setdefault(number, []).append(WORDS.get(name, name))
    return ", ".join(f"{listed(names)} in {number}" for number, names in by.items())


def _distinct(ends: Ends) -> set[tuple[float, ...]]:
    return {tuple(values) for values in ends.values()}


def _orders(model: str, options: Mapping[str, Any]) -> dict[str, int]:
    """How many class orders each operator is measured on."""
    most = check_count(options, "orders")
    fewer = min(most, check_count(options, "slow_orders"))
    slow = [operator_name(text, "slow") for text in options["slow"]]
    without = {
        other: [operator_name(text, "without") for text in texts]
        for other, texts in options["without"].items()
    }
    return {
        text: fewer if name in slow else most
        for text in check_operators(options)
        if (name := operator_name(text)) not in without.get(model, ())
    }


def _notes(done: Sequence[Measured]) -> list[str]:
    """Which operators are not there, and what the paper says."""
    models = {cell.settings["model"] for cell in done}
    notes = [
        f"{name} with its default weights equals {other}, bit for bit"
        for name, other in EQUAL.items()
    ]
    cnn = [cell.settings["orders"] for cell in done if cell.settings["model"] == "cnn"]
    if cnn and not any("regmean" in orders or "inlay" in orders for orders in cnn):
        notes.append(
            "not run on the cnn: regmean, which needs Gram matrices of 0.9 GB per module for the "
            "layer of 10816 inputs; inlay, the same sum as logits in a layer of 130 million entries"
        )
    if models & {"shallow", "deep", "cnn"}:
        notes.append(
            "the paper shows a figure without numbers: the sum of shallow modules with IMP stays "
            "above 0.90 on MNIST and Fashion-MNIST; that of deep modules and CNNs falls well below"
        )
    return notes


def _fewer_orders(done: Sequence[Measured]) -> list[str]:
    """Which operators were measured on fewer orders than others."""
    counts = {name: n for cell in done for name, n in cell.settings["orders"].items()}
    if not counts:
        return []
    least, most = min(counts.values()), max(counts.values())
    names = ", ".join(sorted(name for name, n in counts.items() if n < most))
    return [f"measured on the first {least} of {most} class orders only: {names}"] if names else []


register(
    Study(
        "complete",
        "Figure 4: merging the modules of all classes",
        "How do accuracy and entropy change while the modules of all classes are joined one by "
        "one? Each cell is one data set, model and seed, with or without pruning, and measures "
        "several class orders for every operator.",
        SCALES,
        *(cells, measure_steps, tables, figures, verdict),
        paper="Figure 4: the sum of all modules; shallow ones stay accurate, deep ones do not",
    )
)
