"""Study `complete`: one module a class, joined one after another by every operator."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from intarsia.plots import curve_panels
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.complete_merges import (
    NAMES,
    axes_of,
    figure_name,
    mean_curve,
    measure_steps,
    operators_in,
    step_cell,
    step_notes,
    step_tables,
)
from intarsia.studies.options import (
    check_count,
    check_flags,
    check_operators,
    operator_name,
    readable,
)
from intarsia.studies.study import Study, register, seeds_of
from intarsia.studies.tables import Table, grouped

# Operators that are another one at their defaults, to the last bit.
EQUAL = {"weighted": "sum", "logit_weighted": "logits"}
DRAWN = ("sum", "mean", "ties", "fisher", "regmean", "logits")

PAPER: dict[str, Any] = {
    "data": ["mnist", "fashion_mnist", "har", "yeast"],
    "models": ["shallow", "deep", "cnn"],
    "preset": "paper",
    "seeds": 5,
    "recipe": {},
    "imp": [True, False],
    "orders": 10,
    "operators": [
        *["sum", "mean", "task_arithmetic", "ties", "dare", "fisher", "regmean"],
        *["inlay", "logits", "logit_mean", "probabilities", "own"],
    ],
    "slow": ["task_arithmetic", "ties", "dare", "fisher", "regmean", "inlay"],
    "slow_orders": 3,
    "without": {"cnn": ["regmean", "inlay"]},
}
SMALL = PAPER | {
    "data": ["digits"],
    "models": ["mlp(32)"],
    "seeds": 2,
    "recipe": {"epochs": 2, "sparsity": 0.8},
    "operators": ["sum", "mean", "ties", "regmean", "inlay", "logits", "own"],
    "orders": 2,
    "slow_orders": 1,
}


def cells(options: Mapping[str, Any], context: StudyContext) -> list[Cell]:
    """One a data set, model, seed, and with or without pruning."""
    return [
        step_cell("complete", data, model, seed, _orders(model, options), options, context, imp=imp)
        for data, model in readable(options, context)
        for imp in check_flags(options, "imp")
        for seed in seeds_of(options["seeds"])
    ]


def tables(done: Sequence[Measured]) -> list[Table]:
    """Two tables a data set."""
    result = []
    for (data,), cells in grouped(done, "data").items():
        groups = [
            ((model, "yes" if imp else "no"), group)
            for (model, imp), group in grouped(cells, "model", "imp").items()
        ]
        notes, columns = [*_notes(cells), *step_notes(cells)], ["model", "IMP"]
        result += step_tables(f"Complete merge, {data}", columns, groups, notes, _few(cells))
    return result


def figures(done: Sequence[Measured]) -> dict[str, Figure]:
    """One figure a data set and model: accuracy and entropy, with and without pruning."""
    result = {}
    for (data, model), cells in grouped(done, "data", "model").items():
        panels = {}
        for what in ("accuracy", "entropy"):
            for (imp,), group in grouped(cells, "imp").items():
                own = operators_in(group)
                curves = {
                    NAMES.get(operator, operator): curve
                    for operator in [name for name in DRAWN if name in own] or own
                    if (curve := mean_curve(group, operator, what))
                }
                if curves:
                    panels[f"{what}, {'with' if imp else 'without'} IMP"] = curves
        if panels:
            title = f"complete merge, {data}, {model}"
            result[figure_name("complete", data, model)] = curve_panels(
                panels, title=title, x="modules", **axes_of(panels)
            )
    return result


def _orders(model: str, options: Mapping[str, Any]) -> dict[str, int]:
    """How many class orders each operator is measured on."""
    most = check_count(options, "orders")
    subsample = min(most, check_count(options, "slow_orders"))
    slow = [operator_name(text, "slow") for text in options["slow"]]
    without = {
        other: [operator_name(text, "without") for text in texts]
        for other, texts in options["without"].items()
    }
    return {
        text: subsample if name in slow else most
        for text in check_operators(options)
        if (name := operator_name(text)) not in without.get(model, ())
    }


def _notes(done: Sequence[Measured]) -> list[str]:
    """Which operators are not there, and what the paper says."""
    models = {cell.settings["model"] for cell in done}
    notes = [
        f"{name} at its default weights is {other}, bit by bit" for name, other in EQUAL.items()
    ]
    cnn = [cell.settings["orders"] for cell in done if cell.settings["model"] == "cnn"]
    if cnn and not any("regmean" in orders or "inlay" in orders for orders in cnn):
        notes.append(
            "not on the cnn: regmean, whose layer of 10816 inputs needs Gram matrices of 0.9 GB a "
            "module; inlay, the same sum as logits in a layer of 130 million entries"
        )
    if models & {"shallow", "deep", "cnn"}:
        notes.append(
            "the paper prints a figure without numbers: the sum of shallow modules with IMP stays "
            "above 0.90 on MNIST and Fashion-MNIST, of deep ones and the CNN it falls well below"
        )
    return notes


def _few(done: Sequence[Measured]) -> list[str]:
    """Which operators were measured on fewer orders than others."""
    counts = {name: n for cell in done for name, n in cell.settings["orders"].items()}
    if not counts:
        return []
    least, most = min(counts.values()), max(counts.values())
    subsample = ", ".join(sorted(name for name, n in counts.items() if n < most))
    return [f"on the first {least} of {most} class orders: {subsample}"] if subsample else []


register(
    Study(
        name="complete",
        title="Figure 4: complete merges, one class after another",
        about=(
            "How accuracy and entropy hold while the modules of all classes are joined one by one. "
            "A cell is a data set, model and seed, with or without pruning: several class orders "
            "for every operator."
        ),
        forms={"paper": PAPER, "small": SMALL},
        cells=cells,
        measure=measure_steps,
        tables=tables,
        figures=figures,
    )
)
