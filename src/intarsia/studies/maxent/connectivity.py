"""Study `path`: is the sum of two modules reached without a barrier?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from intarsia.data import Data, Split
from intarsia.measure import path
from intarsia.measure.path import TOLERANCE, PathCurve
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.pairs import pairs_of
from intarsia.studies.maxent.shared.complete_merges import figure_name
from intarsia.studies.maxent.shared.dead import STATES
from intarsia.studies.maxent.single import plans_by_state
from intarsia.studies.options import check_count, readable
from intarsia.studies.study import Study, register, scales, seeds_of
from intarsia.studies.tables import Spread, Table, grouped, point, yes_no
from intarsia.studies.verdict import (
    Claim,
    Findings,
    Verdict,
    capital,
    count,
    imp_label,
    listed,
    titled,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPLITS = ("train", "test")

SCALES = scales(
    paper={"models": ["shallow", "deep", "cnn"], "pairs": 10, "points": 21, "rows": 10000},
    small={
        "recipe": {"epochs": 2, "batch": 128, "learning_rate": 0.02, "sparsity": 0.8},
        "pairs": 3,
        "points": 9,
        "rows": 300,
    },
)


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """One per data set, model and seed: all pairs, with and without pruning."""
    shared = {"recipe": options["recipe"], "pairs": check_count(options, "pairs")}
    shared["points"] = check_count(options, "points", 3, odd=True)
    # None are all rows.
    shared["rows"] = None if options["rows"] is None else check_count(options, "rows")
    seeds = seeds_of(options["seeds"])
    for (data, model), seed in product(readable(options, context), seeds):
        settings = {"data": data, "model": model, "preset": options["preset"], "seed": seed}
        banks = plans_by_state(context, options, data, model, seed, objective="me")
        yield Cell("path", settings | shared, banks)


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Loss and excess along every path, on training and test samples.

    `largest` is the largest excess between the ends, in percent, and may be below 0.
    """
    settings = cell.settings
    data = _moved(context.data(settings["data"], settings["preset"]), context.device)
    pairs = pairs_of(data.catalogue, 1, settings["pairs"])
    result: dict[str, Any] = {"t": np.linspace(0, 1, settings["points"]).tolist()}
    for state, pruned in STATES.items():
        bank = context.bank(cell.banks[state], pruned=pruned)
        result[state] = []
        for (one,), (other,) in pairs:
            if not {one, other} <= set(bank.names):
                continue  # a module that diverged has no path
            walked = path(
                bank[one],
                bank[other],
                data,
                settings["points"],
                samples=settings["rows"],
                device=context.device,
            )
            curves = {name: _plain(walked.curves[name]) for name in SPLITS}
            result[state].append({"pair": [one, other], **curves})
    return result


def tables(done: Sequence[Measured]) -> list[Table]:
    """How many paths stay below the straight line and 2% of it, and how far they rise above it."""
    rows = []
    for (data, model), group in grouped(done, "data", "model").items():
        for state, imp in STATES.items():
            walks = [walk for cell in group for walk in cell.result[state]]
            for split in SPLITS:
                curves = [walk[split] for walk in walks]
                rows.append([data, model, yes_no(imp), split, *_summary(curves)])
    columns = ["data", "model", "IMP", "samples", "connected"]
    columns += ["largest excess %", "excess at the sum %", "loss at the ends", "loss at the sum"]
    notes = [
        "connected: fraction of the pairs whose loss is nowhere more than "
        f"{TOLERANCE:g}% above the straight line between its ends",
        "largest excess: over the points between the ends; below 0 where all lie under the line",
        *_samples(done),
    ]
    return [Table("Mode connectivity through the sum of two modules", columns, rows, notes)]


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """Mean excess along the path with its standard deviation, and the band that it may rise to."""
    from intarsia.plots import COLOURS, curve_panels

    figures: dict[str, dict[str, Any]] = {}
    for (data, model), group in grouped(done, "data", "model").items():
        for split in SPLITS:
            curves: dict[str, Any] = {}
            for state, imp in STATES.items():
                walks = [walk[split] for cell in group for walk in cell.result[state]]
                if not walks:  # all of its modules diverged
                    continue
                curves[imp_label(imp)] = {
                    t: point(walk["excess"][place] for walk in walks)
                    for place, t in enumerate(group[0].result["t"])
                }
            if curves:
                figures.setdefault(figure_name("path", data), {})[f"{model}, {split}"] = curves
    return {
        name: curve_panels(
            panels,
            title="excess of the loss along the path through the sum",
            x="t",
            y="excess %",
            share_y=True,
            bands={f"up to {TOLERANCE:g}%": (0.0, TOLERANCE)},
            colours={"with IMP": COLOURS[1], "without IMP": COLOURS[3]},
        )
        for name, panels in figures.items()
    }


def verdict(findings: Findings) -> Verdict:
    """How many paths are connected, with and without pruning."""
    counts, details = {}, []
    for state, imp in STATES.items():
        parts = [
            f"{_connected(cells, state, 'test')} ({model}, {titled(data)})"
            for (data, model), cells in grouped(findings.cells, "data", "model").items()
        ]
        counts[imp_label(imp)] = _connected(findings.cells, state, "test")
        training = _connected(findings.cells, state, "train")
        where = capital(imp_label(imp))
        details.append(f"{where}: {listed(parts)}; on training samples {training}.")
    totals = listed([f"{number} {imp}" for imp, number in counts.items()])
    text = (
        f"Of the paths from one module through the sum to another, {totals} are connected on test "
        f"samples. A path that is not connected has somewhere a loss more than {TOLERANCE:g}% "
        "above the straight line between its ends; the paper shows this as figures, without counts."
    )
    return Verdict(f"connected: {totals}", [Claim(text, evidence=counts, details=details)])


def _connected(cells: Sequence[Measured], state: str, split: str) -> str:
    walks = [walk for cell in cells for walk in cell.result[state]]
    return count(walks, lambda walk: walk[split]["connected"])


def _moved(data: Data, device: torch.device) -> Data:
    """Inputs on the device, for all paths at once; labels stay, since measures are taken here."""
    train, test = (Split(split.x.to(device), split.y) for split in (data.train, data.test))
    return replace(data, train=train, test=test)


def _plain(curve: PathCurve) -> dict[str, Any]:
    return {
        "loss": curve.loss.tolist(),
        "ends": [float(curve.loss[0]), float(curve.loss[-1])],
        "excess": curve.excess.tolist(),
        "largest": float(curve.excess[1:-1].max()),
        "barrier": curve.barrier,
        "connected": curve.barrier <= TOLERANCE,
        "samples": [curve.n, curve.of],
    }


def _summary(curves: Sequence[Mapping[str, Any]]) -> list[Any]:
    if not curves:
        return [None] * 5
    middle = len(curves[0]["loss"]) // 2
    return [
        sum(curve["connected"] for curve in curves) / len(curves),
        Spread.of([curve["largest"] for curve in curves]),
        Spread.of([curve["excess"][middle] for curve in curves]),
        Spread.of([fmean(curve["ends"]) for curve in curves]),
        Spread.of([curve["loss"][middle] for curve in curves]),
    ]


def _samples(done: Sequence[Measured]) -> list[str]:
    """A note where a path was measured on some of the training samples only."""
    seen = {
        (cell.settings["data"], *walk["train"]["samples"])
        for cell in done
        for state in STATES
        for walk in cell.result[state]
    }
    return [
        f"{data}: {n} of {of} training samples, evenly spaced; all test samples"
        for data, n, of in sorted(seen)
        if n < of
    ]


register(
    Study(
        "path",
        "Figures 5 and 22 to 24: mode connectivity",
        "Does the loss rise on the way from one module to another through their sum? A cell "
        "walks ten paths between modules of one seed, with and without pruning, and measures "
        "the MaxEnt loss with both classes rewarded at 21 points.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="Figures 5 and 22 to 24: the loss on the way from one module to another",
    )
)
