"""Study `confusion`: what modules and their merges answer for every true class."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from intarsia.composition import compose
from intarsia.data import Split
from intarsia.measure import evaluate
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.pairs import pairs_of
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.maxent.shared.merging import JOINED
from intarsia.studies.options import check_count, check_flags, readable
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Spread, Table, grouped, yes_no
from intarsia.studies.verdict import (
    IMP,
    Claim,
    Findings,
    Verdict,
    capital,
    listed,
    several,
    titled,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALONE, MERGED = ("single modules", "others on rewarded"), ("complete, sum", "rewarded accuracy")
Place = tuple[str, str, str]  # data, model, IMP
GROUP = ("data", "model", "imp", "objective")
COLUMNS = ["rewarded accuracy", "others on rewarded", "answers' entropy", "most frequent answer"]

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
        "rewarded accuracy: the diagonal's fraction of the rows of rewarded classes",
        "others on rewarded: fraction of the samples of other classes that are answered with a "
        "rewarded one; a merge of all modules has no other classes",
        "answers' entropy (nats) and most frequent answer (fraction): of the columns that the "
        "samples of other classes fall on, taken together",
        "n: modules, or pairs, of all seeds",
    ]
    return [Table("Confusion of modules and of their merges", columns, rows, notes)]


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """A pair of modules, their merge, and the merge of all, of the first seed there is."""
    from intarsia.plots import confusion_panels

    figures = {}
    for (data, model, imp, objective), group in grouped(done, *GROUP).items():
        result = group[0].result
        catalogue = result["catalogue"]
        pair = next((m["parts"] for m in result["merges"]), catalogue[:2])
        shown = [m for m in result["modules"] if m["parts"][0] in pair]
        shown += [m for m in result["merges"] if m["parts"] in (pair, catalogue)]
        panels = {_title(m, catalogue): np.array(m["counts"]) for m in shown}
        name = figure_name("confusion", data, model, objective, "imp" if imp else "unpruned")
        if panels:  # not where all modules diverged
            figures[name] = confusion_panels(panels, catalogue)
    return figures


def verdict(findings: Findings) -> Verdict:
    """Under which objective answers are best, model by model: a mean would hide differences."""
    rows = tables(findings.cells)[0].records()
    every = list(dict.fromkeys(row["objective"] for row in rows))
    alone, merged = (_by_place(rows, every, *what) for what in (ALONE, MERGED))
    fewest = _winners([min(own, key=lambda name: own[name]) for own in alone.values()], every)
    best = _winners([max(own, key=lambda name: own[name]) for own in merged.values()], every)
    numbers = {len(group) for group in grouped(findings.cells, *GROUP).values()}  # of seeds
    seeds = several(max(numbers), "seed")
    seeds = seeds if len(numbers) == 1 else f"{min(numbers)} to {seeds}"
    parts = []
    if fewest:
        parts.append(f"modules answer others with their own class least under {_where(fewest)}")
    if best:
        parts.append(f"the sum of all is the most accurate under {_where(best)}")
    line = "; ".join(parts) or "not all objectives are measured"
    evidence = {"modules": fewest, "sum": best}
    claim = Claim(
        f"{capital(line)} (models with and without IMP; {seeds}).",
        evidence=evidence,
        n=len(alone),
        details=[_details(place, alone, merged) for place in dict.fromkeys([*alone, *merged])],
    )
    context = Claim(
        "The class that is answered says little where an answer is nearly uniform: how unsure "
        "modules are shows in their entropy, in Table 1. The paper shows matrices of single seeds; "
        "these are their summary."
    )
    return Verdict(f"{line} ({seeds})", [claim, context])


def _by_place(
    rows: Sequence[Mapping[str, Any]], every: Sequence[str], matrix: str, column: str
) -> dict[Place, dict[str, float]]:
    """A column by place and objective, of the places that have every objective."""
    means: dict[Place, dict[str, float]] = {}
    for row in rows:
        if row["matrix"] == matrix and row[column] is not None:
            place = (row["data"], row["model"], row["IMP"])
            means.setdefault(place, {})[row["objective"]] = row[column].mean
    return {place: own for place, own in means.items() if len(own) == len(every) > 1}


def _winners(names: Sequence[str], every: Sequence[str]) -> dict[str, list[int]]:
    """In how many places, of how many, each objective comes first; those that never do fall out."""
    return {name: [names.count(name), len(names)] for name in every if name in names}


def _where(winners: Mapping[str, Sequence[int]]) -> str:
    return listed([f"{name.upper()} in {n} of {of}" for name, (n, of) in winners.items()])


def _details(
    place: Place,
    alone: Mapping[Place, Mapping[str, float]],
    merged: Mapping[Place, Mapping[str, float]],
) -> str:
    data, model, imp = place
    parts = []
    if place in alone:
        own = listed([f"{fraction:.1%} under {name}" for name, fraction in alone[place].items()])
        parts.append(f"modules answer their own class for {own} of the samples of others")
    if place in merged:
        own = listed([f"{accuracy:.3f} under {name}" for name, accuracy in merged[place].items()])
        parts.append(f"the sum of all is right for {own}")
    return f"{titled(data)}, {model}, {IMP[imp]}: {'; '.join(parts)}."


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
        "Which class is answered for which, by modules that know one class, by two of them "
        "joined, and by all? A cell counts the test samples of one bank, true by answered.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="Figures 2 and 9 to 21: which class is answered for which",
    )
)
