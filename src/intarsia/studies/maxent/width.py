"""Study `width`: complete merges of networks with few and with many hidden units."""

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any

from matplotlib.figure import Figure

from intarsia.plots import curve_panels
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.complete_merges import (
    NAMES,
    figure_name,
    full,
    measure_steps,
    operators_in,
    orders_by_operator,
    step_cell,
    step_notes,
    step_tables,
)
from intarsia.studies.options import check_counts, check_flags, readable
from intarsia.studies.study import Study, register, seeds_of
from intarsia.studies.tables import Table, grouped, point

PAPER: dict[str, Any] = {
    "data": ["mnist"],
    "widths": [32, 128, 512, 2048, 4096],
    "preset": "paper",
    "seeds": 3,
    "recipe": {},
    "imp": [True, False],
    "orders": 10,
    "operators": ["sum", "mean", "logits"],
}
SMALL = PAPER | {
    "data": ["digits"],
    "widths": [16, 64],
    "seeds": 2,
    "recipe": {"epochs": 2, "sparsity": 0.8},
    "orders": 2,
}


def cells(options: Mapping[str, Any], context: StudyContext) -> list[Cell]:
    """One a data set, width and seed, with or without pruning."""
    orders = orders_by_operator(options)
    models = [model_of(width) for width in check_counts(options, "widths")]
    return [
        step_cell("width", data, model, seed, orders, options, context, imp=imp)
        for data, model in readable({**options, "models": models}, context)
        for seed in seeds_of(options["seeds"])
        for imp in check_flags(options, "imp")
    ]


def tables(done: Sequence[Measured]) -> list[Table]:
    groups = [
        ((data, width_of(model), "yes" if imp else "no"), group)
        for (data, model, imp), group in grouped(done, "data", "model", "imp").items()
    ]
    notes = [
        "one hidden layer, dropout 0.5; logits is what an inlay gives, in one network",
        "the mean of K such networks is their sum over K squared: its answers, less sure",
        "the paper says that width helps and prints no number",
        *step_notes(done),
    ]
    columns = ["data", "hidden units", "IMP"]
    return step_tables("Complete merge by width", columns, groups, notes)


def figures(done: Sequence[Measured]) -> dict[str, Figure]:
    """The accuracy of all modules against the width."""
    result = {}
    for (data,), cells in grouped(done, "data").items():
        panels: dict[str, dict[str, Any]] = {}
        for (imp,), group in grouped(cells, "imp").items():
            curves: dict[str, dict[float, Any]] = {}
            for (model,), some in grouped(group, "model").items():
                for operator in operators_in(some):
                    curve = curves.setdefault(NAMES.get(operator, operator), {})
                    curve[log2(width_of(model))] = point(full(some, operator))
            if curves:
                panels["with IMP" if imp else "without IMP"] = curves
        if panels:
            title = f"accuracy of all modules by width, {data}"
            places = {p for own in panels.values() for curve in own.values() for p in curve}
            result[figure_name("width", data)] = curve_panels(
                panels,
                title=title,
                x="hidden units",
                x_names={place: f"{2**place:g}" for place in places},
                y="accuracy",
                share_y=True,
                bounds=(0.0, 1.0),
            )
    return result


def model_of(width: int) -> str:
    """The paper's shallow network with another width; at 512 units it is that network."""
    return "shallow" if width == 512 else f"mlp(hidden=[{width}], dropout=0.5)"


def width_of(model: str) -> int:
    return 512 if model == "shallow" else int(model.partition("[")[2].partition("]")[0])


register(
    Study(
        name="width",
        title="Width: complete merges of narrow and wide networks",
        about=(
            "Whether more hidden units leave modules more room beside one another. A cell is a "
            "data set, width and seed, with or without pruning: the modules of all classes joined "
            "one by one."
        ),
        forms={"paper": PAPER, "small": SMALL},
        cells=cells,
        measure=measure_steps,
        tables=tables,
        figures=figures,
    )
)
