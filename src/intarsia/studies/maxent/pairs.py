"""Tables 2 and 4: two modules joined, by weights and by logits."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from math import comb
from typing import TYPE_CHECKING, Any

from intarsia.data import disjoint_pairs, partition
from intarsia.measure.significance import LEVEL, clustered, holm
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.dead import STATES, PairGroup, dead_pairs, failures
from intarsia.studies.maxent.shared.merging import merge_pairs
from intarsia.studies.maxent.shared.ordering import (
    HEAD,
    INDEPENDENT,
    best_spreads,
    order_claim,
    ordering_table,
)
from intarsia.studies.maxent.shared.paper import pair_cell
from intarsia.studies.maxent.shared.vs_paper import MEANING, VS_PAPER, PaperComparison, vs_paper
from intarsia.studies.maxent.single import plans_by_state, presets
from intarsia.studies.options import check_count, fitting, readable
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Spread, Table, finite, grouped, point, yes_no
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import imp_label, listed, sentences, several, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Classes = tuple[str, ...]
Values = dict[str, list[float | None]]  # by objective: one number for each pair and seed
TABLE_2 = "Table 2: sum of two pruned modules"
TABLE_4 = "Table 4: sum of two modules"
ONE = "all from one partition"
MOST_SHUFFLES = 1000  # small catalogues run out of pairs long before

SCALES = scales(
    paper={
        "data": ["mnist", "fashion_mnist", "har", "yeast"],
        "models": ["shallow", "deep", "cnn"],
        "sizes": [1, 2, 5],
        "objectives": ["xe", "qme", "me"],
        "pairs": 10,
    },
    small={
        "sizes": [2, 5],
        "pairs": 2,
        "recipe": {"epochs": 2, "sparsity": 0.8, "batch": 128, "learning_rate": 0.01},
    },
)


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One cell per data set, model, size, objective and seed; sizes that leave no pair fall out."""
    number, preset = check_count(options, "pairs"), options["preset"]
    for data, model in readable(options, context):
        catalogue = context.data(data, preset).catalogue
        axes = fitting(options, "sizes", len(catalogue)), options["objectives"]
        for size, objective, seed in product(*axes, seeds_of(options["seeds"])):
            # Modules of single classes are those of all of them, which every study shares.
            sets = None if size == 1 else sets_of(pairs_of(catalogue, size, number))
            settings = {"data": data, "model": model, "preset": preset, "size": size}
            settings |= {"objective": objective, "pairs": number, "seed": seed}
            banks = plans_by_state(context, options, data, model, seed, sets, objective)
            yield Cell("pairs", {**settings, "recipe": options["recipe"]}, banks)


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """All pairs, with IMP and without, by weights and by logits."""
    settings = cell.settings
    data = context.data(settings["data"], settings["preset"])
    pairs = pairs_of(data.catalogue, settings["size"], settings["pairs"])
    result: dict[str, Any] = {"pairs": [[list(classes) for classes in pair] for pair in pairs]}
    for state, pruned in STATES.items():
        bank = context.bank(cell.banks[state], pruned=pruned)
        result[state] = merge_pairs(bank, pairs, data, context.device)
    return result


def tables(measured: Sequence[Measured]) -> list[Table]:
    """Tables 2 and 4, the same by logits, and how often ME > QME > XE."""
    groups = by_seed(measured, "sum", "accuracy")
    return [
        _against_paper(measured, TABLE_2, [True], TABLE_4),
        _against_paper(measured, TABLE_4),
        _by_logits(measured),
        ordering_table(groups, _about(measured), dead_pairs(measured)),
    ]


def figures(measured: Sequence[Measured]) -> "dict[str, Figure]":
    """Accuracy of weight sums: one figure per data set, with IMP or without, a panel per model."""
    from intarsia.plots import bar_panels

    panels: dict[str, Any] = {}
    for (model, size, imp, data), own in collected(measured, "sum", "accuracy").items():
        bars = {objective: point(values) for objective, values in own.items() if finite(values)}
        if not bars:  # all of its modules diverged
            continue
        name = f"pairs-{data}-{'imp' if imp else 'unpruned'}"
        panels.setdefault(name, {}).setdefault(model, {})[str(size)] = bars
    return {
        name: bar_panels(
            own,
            title=f"Accuracy of the sum of two modules: {name}",
            x="|R|",
            y="accuracy",
            share_y=True,
            bounds=(0.0, 1.0),
        )
        for name, own in panels.items()
    }


def verdict(findings: Findings) -> Verdict:
    """Which printed numbers are met, in how many groups ME > QME > XE, and what logits add."""
    dead = dead_pairs(findings.cells)
    paper = PaperComparison(
        findings, lambda cells: _against_paper(cells, TABLE_4), dead_pairs
    ).claim()
    order = order_claim(by_seed(findings.cells, "sum", "accuracy"), dead)
    line = "; ".join(f"{claim.counted} {claim.short}" for claim in (paper, order) if claim.short)
    return Verdict(
        line or "the paper prints no such number",
        [paper, order, *_logits_claim(findings.cells, dead), *_partition_claim(findings.cells)],
        failures(dead),
    )


def by_seed(
    measured: Sequence[Measured], operator: str, what: str, imps: Sequence[bool] = (False, True)
) -> dict[PairGroup, dict[str, dict[int, list[float | None]]]]:
    """A measure of all pairs by group, objective and seed, in the order of the tables."""
    groups: dict[PairGroup, dict[str, dict[int, list[float | None]]]] = {}
    for (model, size, data), cells_of in grouped(measured, "model", "size", "data").items():
        for state, imp in STATES.items():
            if imp not in imps:
                continue
            own = groups.setdefault((model, size, imp, data), {})
            for cell in cells_of:
                seeds = own.setdefault(cell.settings["objective"], {})
                seeds.setdefault(cell.settings["seed"], []).extend(
                    cell.result[state][operator][what]
                )
    models = list(dict.fromkeys(model for model, *_ in groups))
    # Stable, so that data sets stay as they came.
    order = sorted(groups, key=lambda group: (models.index(group[0]), group[1], group[2]))
    return {group: groups[group] for group in order}


def collected(
    measured: Sequence[Measured], operator: str, what: str, imps: Sequence[bool] = (False, True)
) -> dict[PairGroup, Values]:
    """A measure of all pairs and seeds by group and objective, in the order of the tables."""
    return {
        group: {
            objective: [value for values in seeds.values() for value in values]
            for objective, seeds in own.items()
        }
        for group, own in by_seed(measured, operator, what, imps).items()
    }


def _against_paper(
    measured: Sequence[Measured],
    title: str,
    imps: Sequence[bool] = (False, True),
    included_in: str = "",
) -> Table:
    accuracies = collected(measured, "sum", "accuracy", imps)
    entropies = collected(measured, "sum", "entropy", imps)
    every, rows = objectives_of(measured), []
    for group in accuracies:
        model, size, imp, data = group
        own = accuracies[group], entropies[group]
        accuracy, entropy = (best_spreads(values, every) for values in own)
        for objective in accuracy:
            paper = pair_cell(model, data, size, objective, imp)
            numbers = vs_paper(accuracy[objective], entropy[objective], paper)
            rows.append([model, size, yes_no(imp), data, objective, *numbers])
    notes = [
        MEANING,
        "there is no entropy where every class is rewarded",
        *_bold(every),
        _about(measured),
    ]
    return Table(title, [*HEAD, "objective", *VS_PAPER], rows, notes, included_in)


def _by_logits(measured: Sequence[Measured]) -> Table:
    sums = collected(measured, "sum", "accuracy")
    logits = collected(measured, "logits", "accuracy")
    entropies = collected(measured, "logits", "entropy")
    every, rows = objectives_of(measured), []
    for group, own in logits.items():
        model, size, imp, data = group
        accuracy, entropy = (best_spreads(values, every) for values in (own, entropies[group]))
        for objective, values in own.items():
            paper = pair_cell(model, data, size, objective, imp, "logits")
            gain = Spread.of(differences(values, sums[group][objective]))
            printed = paper.accuracy if paper else None
            numbers = [accuracy[objective], printed, gain, entropy[objective]]
            rows.append([model, size, yes_no(imp), data, objective, *numbers])
    numbers_of = ("accuracy", "paper's accuracy", "gain over weights", "entropy")
    less = (
        "gain over weights: accuracy with logits added minus accuracy with weights added, by pair"
    )
    notes = [MEANING, less, *_bold(every), _about(measured)]
    title = "Logit sum of two modules"
    return Table(title, [*HEAD, "objective", *numbers_of], rows, notes)


def _logits_claim(measured: Sequence[Measured], dead: Sequence[PairGroup]) -> list[Claim]:
    """How often adding logits is more accurate than adding weights, objectives apart."""
    sums, logits = (by_seed(measured, how, "accuracy") for how in ("sum", "logits"))
    places = [
        (group, objective)
        for group, own in logits.items()
        for objective, seeds in own.items()
        if any(finite(values) for values in seeds.values())
    ]
    gains = {
        (group, objective): Spread.of(
            value
            for seed, values in logits[group][objective].items()
            for value in differences(values, sums[group][objective][seed])
        )
        for group, objective in places
    }
    tests = [clustered(logits[g][o], sums[g][o]) for g, o in places]
    corrected = holm([t.p if t is not None and t.t > 0 else 1.0 for t in tests])
    sure = {place for place, p in zip(places, corrected, strict=True) if p < LEVEL}
    evidence, parts = {}, []
    for imp in (True, False):
        own = [place for place in places if place[0][2] == imp]
        if not own:
            continue
        higher = sum(gains[place].mean > 0 for place in own)
        gone = sum(group in dead for group, _ in own)
        surely = sum(place in sure for place in own)
        evidence[imp_label(imp)] = {
            **{"count": higher, "of": len(own), "dead": gone},
            "over seeds, Holm": surely,
        }
        alike = f"; {gone} are dead and give the same answers" if gone else ""
        parts.append(
            f"{higher} of {len(own)} {imp_label(imp)} (significant over seeds in {surely}, with "
            f"Holm's correction for {len(places)}{alike})"
        )
    if not parts:
        return []
    text = (
        "With each objective counted separately, adding logits gives a higher mean accuracy than "
        f"adding weights in {listed(parts)}."
    )
    return [Claim(text, evidence=evidence, n=len(places))]


def _partition_claim(measured: Sequence[Measured]) -> list[Claim]:
    """Where pairs come from: what a spread over them can speak of."""
    kinds: dict[str, list[str]] = {}
    for (size, data), own in grouped(measured, "size", "data").items():
        if pairs := own[0].result.get("pairs"):
            kinds.setdefault(f"|R| = {size}: {_partitions(pairs)}", []).append(titled(data))
    if not kinds:
        return []
    one = listed([f"{kind} ({listed(own)})" for kind, own in kinds.items() if ONE in kind])
    text = sentences(
        "The pairs are the same for every seed, and many share a module, so the spread over pairs "
        "is not a spread over independent draws.",
        f"These pairs come from one partition and say nothing about others: {one}." if one else "",
    )
    return [Claim(text, details=[f"{kind} ({listed(own)})." for kind, own in kinds.items()])]


def _partitions(pairs: Sequence[Sequence[Sequence[str]]]) -> str:
    """`10 pairs of 5 sets, all from one partition of the classes`."""
    sets = sets_of([(tuple(one), tuple(other)) for one, other in pairs])
    start = f"{several(len(pairs), 'pair')} of {several(len(sets), 'set')} of classes"
    if len({name for own in sets for name in own}) == sum(map(len, sets)):
        return f"{start}, {ONE} of the classes"
    return f"{start}, from several partitions of the classes"


def objectives_of(measured: Sequence[Measured]) -> list[str]:
    """The objectives that any of the cells has."""
    return list(dict.fromkeys(m.settings["objective"] for m in measured))


def differences(
    first: Sequence[float | None], second: Sequence[float | None]
) -> list[float | None]:
    """First minus second, pair by pair; None where one of them is missing."""
    both = zip(first, second, strict=True)
    return [None if a is None or b is None else a - b for a, b in both]


def _about(measured: Sequence[Measured]) -> str:
    return f"n: pairs x seeds, the same pairs for every seed; {presets(measured)}"


def _bold(objectives: Sequence[str]) -> list[str]:
    """What bold takes for granted, where there is something to compare."""
    if len(objectives) < 2:
        return []
    return [f"bold is used only where {', '.join(objectives)} are all measured; {INDEPENDENT}"]


def pairs_of(
    catalogue: Sequence[str], size: int, count: int = 10, seed: int = 0
) -> list[tuple[Classes, Classes]]:
    """`count` distinct pairs of disjoint sets of `size` classes, or all where there are fewer.

    The catalogue is shuffled and cut into blocks, and all pairs of blocks are taken, shuffle after
    shuffle: ten pairs of two classes out of ten need five modules, not twenty. Where one shuffle
    has more pairs than are wanted, as with single classes, they are drawn from all pairs.
    """
    blocks = len(catalogue) // size
    if comb(blocks, 2) > count or blocks < 2:
        return disjoint_pairs(catalogue, size, count, seed)
    possible = comb(len(catalogue), 2 * size) * comb(2 * size, size) // 2
    result: dict[frozenset[Classes], tuple[Classes, Classes]] = {}
    for shuffle in range(MOST_SHUFFLES):
        cut = partition(catalogue, f"blocks({size})", seed=seed * MOST_SHUFFLES + shuffle)
        for pair in combinations([block for block in cut if len(block) == size], 2):
            result.setdefault(frozenset(pair), pair)
            if len(result) == min(count, possible):
                return list(result.values())
    return list(result.values())


def sets_of(pairs: Sequence[tuple[Classes, Classes]]) -> list[Classes]:
    """Every set of the pairs, once, in order."""
    return list(dict.fromkeys(classes for pair in pairs for classes in pair))


register(
    Study(
        "pairs",
        "Tables 2 and 4: two modules joined",
        "Does the sum of two modules recognise the classes of both, and is it uncertain about the "
        "rest? Each cell holds all pairs of one data set, model, number |R| of rewarded classes "
        "per module, objective and seed, with and without IMP, with weights added and logits "
        "added.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="Tables 2 and 4: the sum of two modules recognises the classes of both; ME is better "
        "than QME, and QME than XE",
    )
)
