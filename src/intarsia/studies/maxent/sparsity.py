"""Study `sparsity`: complete merges and pairs of modules that keep many or few weights."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from intarsia.data import set_name
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.pairs import pairs_of, sets_of
from intarsia.studies.maxent.shared.complete_merges import (
    NAMES,
    PAPER_MERGES,
    Merges,
    as_curve,
    by_value,
    figure_name,
    measure_figure,
    measure_steps,
    orders_by_operator,
    step_cell,
    step_tables,
    varied_figures,
    varied_verdict,
)
from intarsia.studies.options import check_count, fitting, readable
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Spread, Table, finite, grouped, point
from intarsia.studies.verdict import Claim, Findings, Verdict, by_mean, surely_best
from intarsia.studies.wording import by_the_test, capital, several, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = scales(
    paper=PAPER_MERGES
    | {
        "models": ["shallow"],
        "sparsities": [0.9, 0.99, 0.999],
        "pair_models": ["cnn"],
        "pair_sizes": [2, 5],
        "pair_sparsities": [0.3, 0.6, 0.9],
        "pair_seeds": 1,
        "pairs": 10,
    },
    small={
        "recipe": {"epochs": 2},
        "orders": 2,
        "sparsities": [0.5, 0.9],
        "pair_models": ["mlp(16)"],
        "pair_sizes": [2],
        "pair_sparsities": [0.3, 0.6],
        "pairs": 3,
    },
)
PAPERS_BEST = {"cnn": 0.6}  # the sparsity that the paper found best for pairs


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """Complete merges, one per data set, model, sparsity and seed; then pairs, by size too.

    Sizes that leave no pair fall out.
    """
    orders, preset = orders_by_operator(options), options["preset"]
    axes = options["sparsities"], seeds_of(options["seeds"])
    for (data, model), sparsity, seed in product(readable(options, context), *axes):
        yield step_cell("sparsity", data, model, seed, orders, options, context, sparsity=sparsity)
    axes = options["pair_sparsities"], seeds_of(options["pair_seeds"])
    for data, model in readable(options, context, "pair_models"):
        catalogue = context.data(data, preset).catalogue
        sizes = fitting(options, "pair_sizes", len(catalogue))
        for size, sparsity, seed in product(sizes, *axes):
            pairs = pairs_of(catalogue, size, check_count(options, "pairs"))
            recipe = {**options["recipe"], "sparsity": sparsity}
            plan = context.plan(data, model, sets_of(pairs), seed, preset=preset, **recipe)
            settings = {"data": data, "model": model, "preset": preset, "seed": seed}
            settings |= {"sparsity": sparsity, "size": size, "operators": options["operators"]}
            settings["pairs"] = [[set_name(part, catalogue) for part in pair] for pair in pairs]
            yield Cell("sparsity", settings, {"modules": plan})


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """The curves of a complete merge, or accuracy and entropy of every pair, by operator."""
    settings = cell.settings
    if "size" not in settings:
        return measure_steps(cell, context)
    bank = context.bank(cell.banks["modules"])
    merges = Merges(bank, context.data(settings["data"], settings["preset"]), context.device)
    pairs = [pair for pair in settings["pairs"] if {*pair} <= {*bank.names}]
    curves = {
        operator: as_curve([merges.point(operator, pair) for pair in pairs])
        for operator in settings["operators"]
    }
    return {
        what: {operator: curve[what] for operator, curve in curves.items()}
        for what in ("accuracy", "entropy")
    }


def tables(done: Sequence[Measured]) -> list[Table]:
    steps, pairs = _kinds(done)
    columns, notes = ("data", "model", "sparsity"), ["the paper shows a figure without numbers"]
    groups = grouped(steps, *columns)
    result = (
        step_tables("Merge of all modules, by sparsity", columns, groups, notes) if steps else []
    )
    return [*result, _pair_table(pairs)] if pairs else result


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    steps, pairs = _kinds(done)
    result = varied_figures(steps, "sparsity", "sparsity")
    for (data, model), cells in grouped(pairs, "data", "model").items():
        panels = {
            f"{what}, |R| = {size}": {
                NAMES.get(operator, operator): {
                    sparsity: point(values)
                    for (sparsity,), some in grouped(group, "sparsity").items()
                    if (values := _values(some, what, operator))
                }
                for operator in group[0].settings["operators"]
            }
            for (size,), group in grouped(cells, "size").items()
            for what in ("accuracy", "entropy")
        }
        if figure := measure_figure(f"Pairs of modules, {data}, {model}", "sparsity", panels):
            result[figure_name("sparsity", "pairs", data, model)] = figure
    return result


def verdict(findings: Findings) -> Verdict:
    """The best sparsity of complete merges, and of pairs against the paper's."""
    steps, pairs = _kinds(findings.cells)
    merges = varied_verdict(steps, "sparsity", "sparsity")
    family = {
        place: values
        for place, cells in grouped(pairs, "data", "model", "size").items()
        if by_mean(
            values := {
                sparsity: _values(some, "accuracy", "sum")
                for (sparsity,), some in grouped(cells, "sparsity").items()
            }
        )
    }
    if not family:
        return merges
    sure, details, met = surely_best(family), [], []
    for place, values in family.items():
        data, model, size = place
        ranked = by_mean(values)
        best = next(iter(ranked))
        test = "significantly" if sure[place] else "by its mean, but not significantly"
        details.append(
            f"Accuracy of pairs joined by sum ({titled(data)}, {model}, |R| = {size}): "
            f"{by_value(ranked)}; {best:g} is best {test}."
        )
        if model in PAPERS_BEST:
            met.append((best == PAPERS_BEST[model], sure[place]))
    line = "the paper names no best sparsity for these pairs"
    higher, surely = sum(own for own, _ in met), sum(own and test for own, test in met)
    if met:
        line = (
            "the paper's best sparsity for pairs of CNNs has the highest mean here in "
            f"{higher} of {len(met)} sizes, significantly in {surely} of {len(met)}"
        )
    seeds = several(len({cell.settings["seed"] for cell in pairs}), "seed")
    claim = Claim(
        f"{capital(line)} ({by_the_test(len(family))}; pairs of {seeds}, some of which share a "
        "module, are treated as independent).",
        holds=surely == len(met) if met else None,
        evidence={"by mean": higher, "by the test": surely, "of": len(met)},
        n=len(details),
        details=details,
    )
    lines = filter(None, [merges.line, line if met else ""])
    return Verdict("; ".join(lines), [*merges.claims, claim])


def _pair_table(done: Sequence[Measured]) -> Table:
    rows = [
        [
            *[data, model, size, f"{sparsity:g}", operator],
            *[Spread.of_any(_values(group, what, operator)) for what in ("accuracy", "entropy")],
        ]
        for (data, model, size, sparsity), group in grouped(
            done, "data", "model", "size", "sparsity"
        ).items()
        for operator in group[0].settings["operators"]
    ]
    columns = ["data", "model", "|R|", "sparsity", "operator", "accuracy", "entropy"]
    notes = [
        "n: pairs x seeds; no entropy where the two modules reward all classes between them",
        "the paper shows a figure without numbers; its optimum for the CNN is 0.6",
    ]
    return Table("Pairs of modules, by sparsity", columns, rows, notes)


def _kinds(done: Sequence[Measured]) -> tuple[list[Measured], list[Measured]]:
    """Complete merges, and pairs."""
    pairs = [cell for cell in done if "size" in cell.settings]
    return [cell for cell in done if "size" not in cell.settings], pairs


def _values(group: Sequence[Measured], what: str, operator: str) -> list[float]:
    return finite(v for cell in group for v in cell.result[what].get(operator, ()))


register(
    Study(
        "sparsity",
        "Figures 7 and 8: how many weights a module keeps",
        "Do sparser modules merge better? Each cell is one data set, model, sparsity and seed: the "
        "modules of all classes joined one by one, or pairs of modules of |R| classes each.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="Figures 7 and 8: the sum of modules, by sparsity",
    )
)
