"""Table 1: what modules of one class know, with and without pruning."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from intarsia.data import Data, Split
from intarsia.measure import evaluate
from intarsia.modules import Bank
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.dead import STATES, dead_modules, failures
from intarsia.studies.maxent.shared.merging import live_count
from intarsia.studies.maxent.shared.paper import single_cell
from intarsia.studies.maxent.shared.vs_paper import MEANING, VS_PAPER, PaperComparison, vs_paper
from intarsia.studies.options import readable
from intarsia.studies.plans import Plan
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Spread, Table, finite, grouped, yes_no
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import listed, titled

SCALES = scales(
    paper={
        "data": ["mnist", "fashion_mnist", "har", "yeast"],
        "models": ["shallow", "deep", "cnn"],
        "objective": "me",
    },
    small={"recipe": {"epochs": 2, "sparsity": 0.8}},
)


def cells(options: Mapping[str, Any], context: StudyContext) -> list[Cell]:
    """One cell per data set, model and seed: a module for every class."""
    return [
        Cell(
            "single",
            {
                **{"data": data, "model": model, "preset": options["preset"]},
                **{"objective": options["objective"], "seed": seed, "recipe": options["recipe"]},
            },
            plans_by_state(context, options, data, model, seed),
        )
        for data, model in readable(options, context)
        for seed in seeds_of(options["seeds"])
    ]


def plans_by_state(
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
    return {
        state: context.plan(
            data,
            model,
            sets,
            seed,
            preset=options["preset"],
            objective=objective or options["objective"],
            pruned=pruned,
            **options["recipe"],
        )
        for state, pruned in STATES.items()
    }


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Each class's module on the test samples; None where it diverged."""
    data = context.data(cell.settings["data"], cell.settings["preset"])
    test = Split(data.test.x.to(context.device), data.test.y)
    result: dict[str, Any] = {"classes": list(data.catalogue)}
    for state, pruned in STATES.items():
        bank = context.bank(cell.banks[state], pruned=pruned)
        result[state] = _numbers(bank, data, test, context.device)
    return result


def tables(measured: Sequence[Measured]) -> list[Table]:
    """Accuracy and entropy beside the paper's, then the size of the modules."""
    known, sizes = [], []
    groups = grouped(measured, "model", "data")
    for model in dict.fromkeys(model for model, _ in groups):
        for state, imp in STATES.items():
            for data in [d for m, d in groups if m == model]:
                pooled = _pooled(groups[model, data], state)
                head = [model, yes_no(imp), data]
                printed = groups[model, data][0].settings["objective"] == "me"
                paper = single_cell(model, data, imp) if printed else None
                known.append([*head, *vs_paper(pooled["accuracy"], pooled["entropy"], paper)])
                shape = [Spread.of(pooled[key]) for key in ("density", "live")]
                sizes.append([*head, *shape, max(filter(None, pooled["units"]), default=None)])
    start = ["model", "IMP", "data"]
    about = f"n: classes x seeds; {presets(measured)}"
    notes = [MEANING, about]
    return [
        Table("Table 1: modules of one class", [*start, *VS_PAPER], known, notes),
        Table(
            "Size of the modules",
            [*start, "density", "live units", "hidden units"],
            sizes,
            ["density: fraction of the parameters that pruning keeps", about],
        ),
    ]


def verdict(findings: Findings) -> Verdict:
    """Which of the printed numbers are met; then what pruning leaves of the modules."""
    claim = PaperComparison(findings, lambda cells: tables(cells)[0], dead_modules).claim()
    line = f"{claim.counted} {claim.short}" if claim.short else "the paper prints no such number"
    claims = [claim, *_cut_through(findings.cells), *_live_units(findings)]
    return Verdict(line, claims, failures(dead_modules(findings.cells)))


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


def _cut_through(cells: Sequence[Measured]) -> list[Claim]:
    """Modules that pruning has cut in two, so that no hidden unit is live."""
    cut: dict[str, tuple[int, int]] = {}
    for (data, model), own in grouped(cells, "data", "model").items():
        live = finite([n for cell in own for n in cell.result["pruned"]["live"]])
        if 0 in live:
            cut[f"{titled(data)}, {model}"] = live.count(0), len(live)
    if not cut:
        return []
    where = listed([f"{number} of {of} modules ({place})" for place, (number, of) in cut.items()])
    text = f"Pruning leaves no path from inputs to outputs in {where}."
    return [Claim(text, evidence={"cut through": cut}, n=sum(of for _, of in cut.values()))]


def _live_units(findings: Findings) -> list[Claim]:
    """How many hidden units pruning leaves, by variant, in a place that all of them have."""
    variants = findings.by_label
    groups = [grouped(cells, "data", "model") for cells in variants.values()]
    shared = [place for place in groups[0] if all(place in own for own in groups)]
    if len(variants) < 2 or not shared:
        return []
    data, model = shared[0]
    live = {label: live_units(cells, data, model) for label, cells in variants.items()}
    parts = listed([f"{spread.mean:.0f} under {label}" for label, spread in live.items()])
    text = f"Mean number of live units of a pruned module ({model}, {titled(data)}): {parts}."
    means = {label: spread.mean for label, spread in live.items()}
    return [Claim(text, evidence={"live units": means}, n=min(s.n for s in live.values()))]


def live_units(cells: Sequence[Measured], data: str, model: str) -> Spread:
    """Of pruned modules, out of the cells of this study."""
    own = grouped(cells, "data", "model").get((data, model), [])
    return Spread.of(n for cell in own for n in cell.result["pruned"]["live"])


def _pooled(group: Sequence[Measured], state: str) -> dict[str, list[Any]]:
    """All classes of all seeds, measure by measure."""
    return {
        key: [value for m in group for value in m.result[state][key]]
        for key in group[0].result[state]
    }


register(
    Study(
        "single",
        "Table 1: modules of one class",
        "How well does a module recognise its own class, and how uncertain is it about all "
        "others, with and without pruning? Each cell is one data set, model and seed, with one "
        "module per class.",
        SCALES,
        *(cells, measure, tables, lambda measured: {}, verdict),
        paper="Table 1: modules recognise their class and are uncertain about all others",
    )
)
