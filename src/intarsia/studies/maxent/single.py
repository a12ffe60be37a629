"""Table 1: what modules of one class know, with and without pruning."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from intarsia.data import Data, Split
from intarsia.measure import evaluate
from intarsia.modules import Bank
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.merging import live_count
from intarsia.studies.maxent.paper import PaperCell, single_cell
from intarsia.studies.options import readable
from intarsia.studies.plans import Plan
from intarsia.studies.study import Study, register, seeds_of
from intarsia.studies.tables import Difference, Entry, Spread, Table, grouped

HALVES = {"unpruned": False, "pruned": True}  # as results have them, and whether that is with IMP

PAPER = {
    "data": ["mnist", "fashion_mnist", "har", "yeast"],
    "models": ["shallow", "deep", "cnn"],
    "preset": "paper",
    "objective": "me",
    "seeds": 5,
    "recipe": {},
}
SMALL = {
    **PAPER,
    "data": ["digits"],
    "models": ["mlp(32)"],
    "seeds": 2,
    "recipe": {"epochs": 2, "sparsity": 0.8},
}


def cells(options: Mapping[str, Any], context: StudyContext) -> list[Cell]:
    """One cell a data set, model and seed: a module for every class."""
    return [
        Cell(
            "single",
            {
                "data": data,
                "model": model,
                "preset": options["preset"],
                "objective": options["objective"],
                "seed": seed,
                "recipe": options["recipe"],
            },
            halves(context, options, data, model, seed),
        )
        for data, model in readable(options, context)
        for seed in seeds_of(options["seeds"])
    ]


def halves(
    context: StudyContext,
    options: Mapping[str, Any],
    data: str,
    model: str,
    seed: int,
    sets: Sequence[Sequence[str]] | None = None,
    objective: str | None = None,
) -> dict[str, Plan]:
    """The plans of the modules with IMP and of those without; one and the same for most presets.

    Without `sets` there is a module for every class.
    """
    names = context.data(data, options["preset"]).catalogue
    return {
        half: context.plan(
            data,
            model,
            sets or [(name,) for name in names],
            seed,
            preset=options["preset"],
            objective=objective or options["objective"],
            pruned=pruned,
            **options["recipe"],
        )
        for half, pruned in HALVES.items()
    }


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Each class's module on the test samples; None where it diverged."""
    data = context.data(cell.settings["data"], cell.settings["preset"])
    test = Split(data.test.x.to(context.device), data.test.y)
    result: dict[str, Any] = {"classes": list(data.catalogue)}
    for half, pruned in HALVES.items():
        bank = context.bank(cell.banks[half], pruned=pruned)
        result[half] = _numbers(bank, data, test, context.device)
    return result


def tables(measured: Sequence[Measured]) -> list[Table]:
    """Accuracy and entropy beside the paper's, then the size of the modules."""
    known, sizes = [], []
    groups = grouped(measured, "model", "data")
    for model in dict.fromkeys(model for model, _ in groups):
        for half, imp in HALVES.items():
            for data in [d for m, d in groups if m == model]:
                pooled = _pooled(groups[model, data], half)
                head = [model, "yes" if imp else "no", data]
                printed = groups[model, data][0].settings["objective"] == "me"
                paper = single_cell(model, data, imp) if printed else None
                known.append([*head, *beside(pooled["accuracy"], pooled["entropy"], paper)])
                shape = [Spread.of(pooled[key]) for key in ("density", "live")]
                sizes.append([*head, *shape, max(filter(None, pooled["units"]), default=None)])
    start = ["model", "IMP", "data"]
    about = f"n: classes x seeds; {presets(measured)}"
    notes = [MEANING, about]
    return [
        Table("Table 1: modules of one class", [*start, *BESIDE], known, notes),
        Table(
            "Size of these modules",
            [*start, "density", "live units", "of"],
            sizes,
            ["density: surviving share of the parameters", about],
        ),
    ]


BESIDE = (
    *("accuracy", "paper's accuracy", "difference"),
    *("entropy", "paper's entropy", "entropy's difference"),
)

MEANING = "accuracy: of samples of rewarded classes; entropy: in nats, of all other samples"


def beside(
    accuracy: Spread | Sequence[float | None],
    entropy: Spread | Sequence[float | None],
    paper: PaperCell | None,
) -> list[Entry]:
    """Our two numbers, each with the paper's and the difference, as BESIDE names them."""
    entries: list[Entry] = []
    printed = (paper.accuracy, paper.entropy) if paper else (None, None)
    for values, theirs in zip((accuracy, entropy), printed, strict=True):
        ours = values if isinstance(values, Spread) else Spread.of(values)
        entries += [ours, theirs, Difference.of(ours, theirs)]
    return entries


def presets(measured: Sequence[Measured]) -> str:
    """Which preset the cells were trained with, for a note."""
    return f"preset {', '.join(dict.fromkeys(m.settings['preset'] for m in measured))}"


def _numbers(bank: Bank, data: Data, test: Split, device: torch.device) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = {
        key: [] for key in ("accuracy", "entropy", "density", "live", "units")
    }
    by_class = {module.rewarded: module for module in bank}
    for name in data.catalogue:
        module = by_class.get((name,))
        row: list[Any] = [None] * len(result)
        if module is not None:
            seen = evaluate(module.to_module().to(device), test)
            row = [seen.accuracy, seen.entropy, module.density, *live_count(module)]
        for key, value in zip(result, row, strict=True):
            result[key].append(value)
    return result


def _pooled(group: Sequence[Measured], half: str) -> dict[str, list[Any]]:
    """All classes of all seeds, measure by measure."""
    return {
        key: [value for m in group for value in m.result[half][key]]
        for key in group[0].result[half]
    }


register(
    Study(
        name="single",
        title="Table 1: modules of one class",
        about=(
            "How well does a module know its own class, and how unsure is it of all others, with "
            "and without pruning? A cell holds one module for each class, of one data set, model "
            "and seed."
        ),
        forms={"paper": PAPER, "small": SMALL},
        cells=cells,
        measure=measure,
        tables=tables,
        figures=lambda measured: {},
    )
)
