"""Study `temperature`: complete merges of modules trained and read at several temperatures."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared import complete_merges as merges
from intarsia.studies.options import check_numbers, readable
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Table, grouped
from intarsia.studies.verdict import Findings, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCALES = scales(
    paper=merges.PAPER_MERGES | {"models": ["shallow"], "temperatures": [1, 3, 5, 7]},
    small=merges.SMALL_MERGES | {"temperatures": [1, 5]},
)


def cells(options: Mapping[str, Any], context: StudyContext) -> list[Cell]:
    """One per data set, model, temperature and seed."""
    orders = merges.orders_by_operator(options)
    return [
        merges.step_cell("temperature", data, model, seed, orders, options, context, temperature=t)
        for data, model in readable(options, context)
        for t in check_numbers(options, "temperatures")
        for seed in seeds_of(options["seeds"])
    ]


def tables(done: Sequence[Measured]) -> list[Table]:
    notes = [
        "the logits are divided by the temperature, both in training and for the entropy",
        "the paper shows a figure without numbers",
    ]
    columns = ("data", "model", "temperature")
    return merges.step_tables(
        "Merge of all modules, by temperature", columns, grouped(done, *columns), notes
    )


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    return merges.varied_figures(done, "temperature", "t =")


def verdict(findings: Findings) -> Verdict:
    return merges.varied_verdict(findings.cells, "temperature", "temperature")


register(
    Study(
        "temperature",
        "Figure 6: training temperature",
        "Do modules trained at another temperature merge better? Each cell is one data set, model, "
        "temperature and seed: the modules of all classes, joined one by one.",
        SCALES,
        *(cells, merges.measure_steps, tables, figures, verdict),
        paper="Figure 6: the sum of all modules, by temperature",
    )
)
