"""Study `confusion`: what modules and their merges answer for every true class."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from intarsia.composition import compose
from intarsia.data import Split
from intarsia.measure import evaluate
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.later_figures import LaterFigures
from intarsia.studies.maxent.pairs import pairs_of
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.maxent.shared.merging import JOINED
from intarsia.studies.options import check_count, check_flags, readable
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Spread, Table, grouped, yes_no
from intarsia.studies.verdict import Claim, Findings, Verdict, by_mean, surely_best
from intarsia.studies.wording import by_the_test, capital, imp_label, listed, several, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALONE, MERGED = ("single modules", "false rewarded"), ("complete, sum", "rewarded accuracy")
Place = tuple[str, str, str]  # data, model, with IMP or without
GROUP = ("data", "model", "imp", "objective")
COLUMNS = ["rewarded accuracy", "false rewarded", "entropy of answers", "most frequent answer"]

SCALES = scales(
    paper={
        "models": ["shallow", "deep", "cnn"],
        "seeds": 1,
        "objectives": ["xe", "qme", "me"],
        "imp": [False, True],
        "pairs": 2,
    },
    small={
        "seeds": 1,
        "recipe": {"epochs": 2, "batch": 128, "learning_rate": 0.02, "sparsity": 0.8},
    },
)


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model, objective and seed, with pruning and without."""
    preset, recipe = options["preset"], options["recipe"]
    axes = check_flags(options, "imp"), options["objectives"], seeds_of(options["seeds"])
    for (data, model), imp, objective, seed in product(readable(options, context), *axes):
        how = {"preset": preset, "objective": objective, "pruned": imp}
        bank = context.plan(data, model, None, seed, **how, **recipe)
        settings = {"data": data, "model": model, "preset": preset, "objective": objective}
        settings |= {"imp": imp, "seed": seed, "recipe": recipe}
        settings["pairs"] = check_count(options, "pairs")
        yield Cell("confusion", settings, {"bank": bank})


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Confusion matrices on the test samples: every module, some pairs, and all modules."""
    settings = cell.settings
    data = context.data(settings["data"], settings["preset"])
    bank = context.bank(cell.banks["bank"], pruned=settings["imp"])
    test = Split(data.test.x.to(context.device), data.test.y)

    def counts(model: nn.Module) -> list[list[int]]:
        result: list[list[int]] = evaluate(model.to(context.device), test).confusion.tolist()
        return result

    pairs = [(one, other) for (one,), (other,) in pairs_of(data.catalogue, 1, settings["pairs"])]
    # What lacks a module that diverged is left out.
    merges = [names for names in (*pairs, data.catalogue) if {*names} <= {*bank.names}]
    return {
        "catalogue": list(data.catalogue),
        "modules": [{"parts": [m.name], "counts": counts(m.to_module())} for m in bank],
        "merges": [
            {
                "parts": list(names),
                "operator": operator,
                "counts": counts(compose([bank[name] for name in names], operator)),
            }
            for names in merges
            for operator in JOINED
        ],
    }


def tables(done: Sequence[Measured]) -> list[Table]:
    """What the matrices show, in numbers."""
    rows = []
    for (data, model, imp, objective), group in grouped(done, *GROUP).items():
        catalogue = group[0].result["catalogue"]
        for what, matrices in _kinds(group).items():
            numbers = [_read(matrix, catalogue) for matrix in matrices]
            shown = [Spread.of_any(row[place] for row in numbers) for place in range(len(COLUMNS))]
            rows.append([data, model, yes_no(imp), objective, what, *shown])
    columns = ["data", "model", "IMP", "objective", "matrix", *COLUMNS]
    notes = [
        "rewarded accuracy: accuracy on samples of rewarded classes",
        "false rewarded: fraction of the samples of other classes that are classified as a "
        "rewarded class; a merge of all modules has no other classes",
        "entropy of answers (nats) and most frequent answer (fraction): of the distribution of "
        "predicted classes over all samples of other classes",
        "n: modules or pairs of all seeds",
    ]
    return [
        Table("Confusion matrices of modules and their merges, summarised", columns, rows, notes)
    ]


def figures(done: Sequence[Measured]) -> "Mapping[str, Figure]":
    """A pair of modules, their merge, and the merge of all: mean counts over the seeds."""
    from intarsia.plots import confusion_panels

    figures: dict[str, Callable[[], Figure]] = {}
    for (data, model, imp, objective), group in grouped(done, *GROUP).items():
        catalogue = group[0].result["catalogue"]
        merges = [m for cell in group for m in cell.result["merges"]]
        pair = next((m["parts"] for m in merges), catalogue[:2])
        shown = [m for cell in group for m in cell.result["modules"] if m["parts"][0] in pair]
        shown += [m for m in merges if m["parts"] in (pair, catalogue)]
        counts: dict[str, list[Any]] = {}
        for matrix in shown:
            counts.setdefault(_title(matrix, catalogue), []).append(matrix["counts"])
        panels = {title: np.rint(np.mean(own, axis=0)) for title, own in counts.items()}
        name = figure_name("confusion", data, model, objective, "imp" if imp else "unpruned")
        if panels:  # not where all modules diverged
            figures[name] = partial(confusion_panels, panels, catalogue)
    return LaterFigures(figures)


def verdict(findings: Findings) -> Verdict:
    """Under which objective answers are best, model by model: a mean would hide differences."""
    every = list(dict.fromkeys(cell.settings["objective"] for cell in findings.cells))
    alone, merged = (_by_place(findings.cells, every, *what) for what in (ALONE, MERGED))
    lower = {place: {n: [-v for v in x] for n, x in own.items()} for place, own in alone.items()}
    fewest, best = (_winners(own, every) for own in (lower, merged))
    parts = []
    if fewest:
        parts.append(
            f"modules assign other samples to their own class least under {_where(fewest)}"
        )
    if best:
        parts.append(f"the sum of all modules is most accurate under {_where(best)}")
    line = "; ".join(parts) or "not all objectives are measured"
    seeds = _seeds(findings.cells)
    claim = Claim(
        f"{capital(line)} (counted over models, with and without IMP, by means over {seeds}; "
        f"{by_the_test(len(alone))}, over seeds).",
        evidence={"modules": fewest, "sum": best},
        n=len(alone),
        details=[_details(place, alone, merged) for place in dict.fromkeys([*alone, *merged])],
    )
    context = Claim(
        "The predicted class says little where the prediction is nearly uniform; the entropies of "
        "Table 1 show how uncertain modules are. The paper's Figures 15 to 21 average five seeds; "
        f"numbers and figures here are means over {seeds}."
    )
    return Verdict(f"{line} ({seeds})", [claim, context])


def _by_place(
    cells: Sequence[Measured], every: Sequence[str], kind: str, column: str
) -> dict[Place, dict[str, list[float]]]:
    """A number of every seed by place and objective, of the places that have every objective."""
    values: dict[Place, dict[str, list[float]]] = {}
    for (data, model, imp, objective), group in grouped(cells, *GROUP).items():
        for cell in group:
            matrices = _kinds([cell]).get(kind, [])
            read = [_read(matrix, cell.result["catalogue"]) for matrix in matrices]
            mean = Spread.of(numbers[COLUMNS.index(column)] for numbers in read)
            if mean.n:
                own = values.setdefault((data, model, imp_label(imp)), {})
                own.setdefault(objective, []).append(mean.mean)
    return {place: own for place, own in values.items() if len(own) == len(every) > 1}


def _winners(
    places: Mapping[Place, Mapping[str, Sequence[float]]], every: Sequence[str]
) -> dict[str, list[int]]:
    """Of how many places each objective has the highest mean, of how many by the test, of all.

    Those that never do fall out.
    """
    sure = surely_best(places)
    best = {place: next(iter(by_mean(own))) for place, own in places.items()}
    return {
        name: [len(won), sum(sure[place] for place in won), len(places)]
        for name in every
        if (won := [place for place, winner in best.items() if winner == name])
    }


def _where(winners: Mapping[str, Sequence[int]]) -> str:
    return listed(
        [
            f"{name.upper()} in {n} of {of} (significant in {sure})"
            for name, (n, sure, of) in winners.items()
        ]
    )


def _seeds(cells: Sequence[Measured]) -> str:
    """`5 seeds for shallow and deep, 1 seed for cnn`."""
    models: dict[int, list[str]] = {}
    for (model,), own in grouped(cells, "model").items():
        models.setdefault(len({cell.settings["seed"] for cell in own}), []).append(model)
    if len(models) == 1:
        return several(next(iter(models)), "seed")
    return ", ".join(f"{several(n, 'seed')} for {listed(own)}" for n, own in models.items())


def _details(
    place: Place,
    alone: Mapping[Place, Mapping[str, Sequence[float]]],
    merged: Mapping[Place, Mapping[str, Sequence[float]]],
) -> str:
    data, model, imp = place
    parts = []
    if place in alone:
        own = listed([f"{fmean(values):.1%} under {n}" for n, values in alone[place].items()])
        parts.append(f"modules assign {own} of the samples of other classes to their own")
    if place in merged:
        own = listed([f"{fmean(values):.3f} under {n}" for n, values in merged[place].items()])
        parts.append(f"the accuracy of the sum of all modules is {own}")
    return f"{titled(data)}, {model}, {imp}: {'; '.join(parts)}."


def _read(matrix: Mapping[str, Any], catalogue: Sequence[str]) -> list[float]:
    """The four numbers of COLUMNS; nan for a fraction of nothing."""
    counts = np.array(matrix["counts"])
    rewarded = np.isin(catalogue, matrix["parts"])
    own, others = counts[rewarded], counts[~rewarded].sum(axis=0)
    answers = others / others.sum() if others.sum() else np.full(len(others), math.nan)
    known = answers[answers > 0]
    return [
        float(own[:, rewarded].diagonal().sum() / own.sum()) if own.sum() else math.nan,
        float(answers[rewarded].sum()),
        float(-(known * np.log(known)).sum()) if len(known) else math.nan,
        float(answers.max()),
    ]


def _kinds(group: Sequence[Measured]) -> dict[str, list[Mapping[str, Any]]]:
    """The matrices of all seeds by what they are of: single modules, pairs, all together."""
    kinds: dict[str, list[Mapping[str, Any]]] = {"single modules": []}
    for cell in group:
        kinds["single modules"] += cell.result["modules"]
        for matrix in cell.result["merges"]:
            merged = matrix["parts"] == cell.result["catalogue"]
            kind = f"{'complete' if merged else 'pairs'}, {matrix['operator']}"
            kinds.setdefault(kind, []).append(matrix)
    return kinds


def _title(matrix: Mapping[str, Any], catalogue: Sequence[str]) -> str:
    parts = matrix["parts"]
    names = "+".join(parts) if len(parts) < len(catalogue) else "all"
    return f"{names} by {matrix['operator']}" if "operator" in matrix else f"module {names}"


register(
    Study(
        "confusion",
        "Figures 2 and 9 to 21: confusion matrices",
        "Which class is predicted for which, by modules of one class, by two of them joined, and "
        "by all of them? Each cell counts the test samples of one bank by true and predicted "
        "class.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="Figures 2 and 9 to 21: which class is predicted for which",
    )
)
