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
from intarsia.studies.verdict import Claim, Findings, Verdict
from intarsia.studies.wording import capital, imp_label, listed, sentences, titled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPLITS = ("train", "test")
PAPERS_DATA = ("fashion_mnist", "har")  # of its figures
PATHS, MEANS, SUMS = "path by path", "in the mean", "at the sum"
WORDS = {PATHS: "path by path", MEANS: "averaged over seeds", SUMS: "at the sum"}
READINGS = {  # of: connected up to 2%
    PATHS: f"the excess of the path is nowhere above {TOLERANCE:g}%",
    MEANS: f"the mean excess of a pair of classes over its seeds is nowhere above {TOLERANCE:g}%",
    SUMS: f"the excess at the sum is not above {TOLERANCE:g}%, whatever it is elsewhere",
}

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
            for split in SPLITS:
                rows.append([data, model, yes_no(imp), split, *_summary(group, state, split)])
    columns = ["data", "model", "IMP", "samples"]
    columns += [f"connected, {words}" for words in WORDS.values()]
    columns += ["largest excess %", "excess at the sum %", "loss at the ends", "loss at the sum"]
    notes = [
        *(f"{WORDS[name]}: {meaning}" for name, meaning in READINGS.items()),
        "connected: fraction of the paths; excess: loss above the straight line between the ends "
        "of a path; the largest excess is over the points between the ends, below 0 where all lie "
        "under the line",
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
            title="Excess loss along the path through the sum",
            x="t",
            y="excess %",
            share_y=True,
            bands={f"up to {TOLERANCE:g}%": (0.0, TOLERANCE)},
            colours={"with IMP": COLOURS[1], "without IMP": COLOURS[3]},
        )
        for name, panels in figures.items()
    }


def verdict(findings: Findings) -> Verdict:
    """How many paths are connected by every reading of 2%; first on the paper's data sets."""
    data_sets = list(dict.fromkeys(cell.settings["data"] for cell in findings.cells))
    theirs = [data for data in PAPERS_DATA if data in data_sets]
    others = [data for data in data_sets if data not in PAPERS_DATA]
    lacking = [titled(data) for data in PAPERS_DATA if data not in data_sets]
    claims, lines = [], []
    for own in filter(None, (theirs, others)):
        cells = [cell for cell in findings.cells if cell.settings["data"] in own]
        where = listed([titled(data) for data in own])
        counts = {
            imp_label(imp): read(cells, state, "test") for state, imp in reversed(STATES.items())
        }
        parts = [f"{imp}: {_in_words(number)}" for imp, number in counts.items()]
        line = f"on {where}, connected paths {'; '.join(parts)}"
        lines.append(line)
        held = counts["with IMP"][MEANS]
        claims.append(
            Claim(
                f"{capital(line)} (test samples).",
                holds=held[0] == held[1] if own == theirs and held[1] else None,
                evidence=counts,
                n=held[1],
                details=_details(cells),
            )
        )
    missing = f"; {listed(lacking)}, which the paper shows too, not run" if lacking else ""
    readings = listed([f"{WORDS[name]} ({text})" for name, text in READINGS.items()])
    about = sentences(
        "The paper shows figures without counts, for Fashion-MNIST and HAR, and calls a path "
        f"connected up to an excess of {TOLERANCE:g}% over the straight line between its ends. "
        f"This can be counted {readings}. The authors' code draws means over seeds, the second.",
        f"Not run: {listed(lacking)}." if lacking else "",
    )
    return Verdict(f"{'; '.join(lines)}{missing}", [Claim(about), *claims])


def read(cells: Sequence[Measured], state: str, split: str) -> dict[str, list[int]]:
    """How many are connected, and of how many, by each of READINGS."""
    curves: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        for walk in cell.result[state]:
            place = (cell.settings["data"], cell.settings["model"], *walk["pair"])
            curves.setdefault(place, []).append(walk[split])
    paths = [curve for own in curves.values() for curve in own]
    means = [np.mean([c["excess"] for c in own], axis=0).max() for own in curves.values()]
    sums = [curve["excess"][len(curve["excess"]) // 2] for curve in paths]
    return {
        PATHS: [sum(curve["connected"] for curve in paths), len(paths)],
        MEANS: [sum(bool(largest <= TOLERANCE) for largest in means), len(means)],
        SUMS: [sum(excess <= TOLERANCE for excess in sums), len(sums)],
    }


def _in_words(counts: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{n} of {of} {WORDS[name]}" for name, (n, of) in counts.items())


def _details(cells: Sequence[Measured]) -> list[str]:
    """By data and model; then on training samples."""
    points = []
    for (data, model), own in grouped(cells, "data", "model").items():
        parts = [f"{imp_label(imp)} {_in_words(read(own, s, 'test'))}" for s, imp in STATES.items()]
        training = [
            f"{imp_label(imp)} {_in_words(read(own, s, 'train'))}" for s, imp in STATES.items()
        ]
        points.append(
            f"{titled(data)}, {model}: {'; '.join(parts)}; on training samples "
            f"{'; '.join(training)}."
        )
    return points


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


def _summary(cells: Sequence[Measured], state: str, split: str) -> list[Any]:
    curves = [walk[split] for cell in cells for walk in cell.result[state]]
    if not curves:
        return [None] * (len(READINGS) + 4)
    middle = len(curves[0]["loss"]) // 2
    return [
        *(n / of for n, of in read(cells, state, split).values()),
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
        "Does the loss rise along the path from one module to another through their sum? Each cell "
        "follows ten paths between modules of one seed, with and without pruning, and measures the "
        "MaxEnt loss with both classes rewarded at 21 points.",
        SCALES,
        *(cells, measure, tables, figures, verdict),
        paper="Figures 5 and 22 to 24: the loss along the path from one module to another",
    )
)
