"""Tables and figures of the study `lens`: an arm's are entries of TABLES and FIGURES."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.lens.classification import (
    ALL,
    CHANCE,
    DUMMY,
    FIRST,
    LAST,
    MIDDLE,
    PERMUTED,
    SPREAD,
    THREE,
)
from intarsia.studies.cells import Measured
from intarsia.studies.lens.lens_cells import TEXT_KIND
from intarsia.studies.tables import Entry, Spread, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = (ALL, THREE, FIRST, MIDDLE, LAST, CHANCE, SPREAD)


def of_arm(done: Sequence[Measured], arm: str) -> list[Measured]:
    """The cells of an arm."""
    return [cell for cell in done if cell.settings["arm"] == arm]


def score(done: Sequence[Measured], name: str) -> Spread:
    """The area under the curve of some features, over seeds; its mean over folds counts."""
    return Spread.of(cell.result["scores"].get(name, [None])[0] for cell in done)


def single_layers(cell: Measured) -> dict[str, float]:
    """Those of every layer alone."""
    scores = cell.result["scores"]
    return {name: own[0] for name, own in scores.items() if name.startswith("layer ")}


def tables(done: Sequence[Measured]) -> list[Table]:
    """Those of every arm."""
    return [table for arm, own in TABLES.items() if (c := of_arm(done, arm)) for table in own(c)]


def figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    """Those of every arm."""
    result: dict[str, Figure] = {}
    for arm, own in FIGURES.items():
        if cells := of_arm(done, arm):
            result |= own(cells)
    return result


def _text_kind_tables(done: Sequence[Measured]) -> list[Table]:
    first = done[0]
    asked = first.settings
    about = (
        f"{asked['texts']} texts of each of {len(asked['kinds'])} kinds, {asked['tokens']} tokens "
        f"each; {asked['neighbours']} neighbours, {asked['folds']} folds; a story and its scramble "
        "share a fold"
    )
    result = [_features(done, about), _alphas(done), _profiles(done)]
    return result + [_subsets(done)] * bool(first.result["subsets"])


def _features(done: Sequence[Measured], about: str) -> Table:
    extra = [name for name in done[0].result["scores"] if name not in (*SHOWN, DUMMY, PERMUTED)]
    rows: list[list[Entry]] = []
    for name in (*SHOWN, *extra, DUMMY, PERMUTED):
        own = [cell.result["scores"][name] for cell in done if name in cell.result["scores"]]
        folds = Spread.of(sd for _, sd in own).mean
        rows.append([name, *(f"{cell[0]:.1f}" for cell in own), score(done, name), f"{folds:.1f}"])
    seeds = [f"seed {cell.settings['seed']}" for cell in done]
    notes = [
        f"area under the curve, one kind against the others, in percent; {about}",
        "over seeds: of texts, folds and permutation; sd over folds: mean over seeds",
    ]
    columns = ["features", *seeds, "over seeds", "sd over folds"]
    return Table("Which kind a text is, by features", columns, rows, notes)


def _alphas(done: Sequence[Measured]) -> Table:
    orders = list(done[0].result["alphas"])
    rows: list[list[Entry]] = []
    for alpha in orders:
        own = [cell.result["alphas"][alpha] for cell in done if alpha in cell.result["alphas"]]
        folds = Spread.of(sd for _, sd in own).mean
        rows.append([alpha, Spread.of(mean for mean, _ in own), f"{folds:.1f}"])
    title = "All layers, by Renyi's order of the entropy"
    return Table(title, ["alpha", "AUC", "sd over folds"], rows)


def _profiles(done: Sequence[Measured]) -> Table:
    first = done[0].result["profiles"]
    layers = len(next(iter(first.values()))[0])
    rows: list[list[Entry]] = []
    for kind in first:
        own = [cell.result["profiles"][kind][0] for cell in done]
        rows.append([kind, *(Spread.of(p[layer] for p in own) for layer in range(layers))])
    grows = [cell.result["expansion"] for cell in done]
    texts = [f"{np.mean([g[layer] for g in grows]):.0%}" for layer in range(layers - 1)]
    rows.append(["texts that expand", None, *texts])
    notes = ["entropy in nats, mean over positions and texts; spread over seeds"]
    columns = ["kind", *(f"layer {layer + 1}" for layer in range(layers))]
    return Table("Entropy by layer and kind", columns, rows, notes)


def _subsets(done: Sequence[Measured]) -> Table:
    rows: list[list[Entry]] = []
    for subset in done[0].result["subsets"]:
        own = [cell.result["subsets"][subset] for cell in done]
        spreads = [Spread.of(part[name][0] for part in own) for name in (ALL, LAST, CHANCE)]
        rows.append([subset, *spreads])
    columns = ["kinds", ALL, LAST, CHANCE]
    return Table("Kinds that are alike", columns, rows)


def _text_kind_figures(done: Sequence[Measured]) -> "dict[str, Figure]":
    from intarsia.plots import alpha_sweep, curve_panels, layer_bars, profile_plane

    first = done[0].result
    bands: dict[str, Any] = {
        kind: {float(n + 1): (m, s) for n, (m, s) in enumerate(zip(*own, strict=True))}
        for kind, own in first["profiles"].items()
    }
    title = "entropy by layer and kind, stories260K"
    spreads = {name: score(done, name) for name in (*SHOWN, PERMUTED)}
    known = {
        name: (own.mean, own.sd if math.isfinite(own.sd) else 0.0)
        for name, own in spreads.items()
        if own.n
    }
    orders = {
        f"seed {cell.settings['seed']}": {
            float(alpha): (mean, sd) for alpha, (mean, sd) in cell.result["alphas"].items()
        }
        for cell in done
    }
    bars = layer_bars(known, title="which kind a text is: AUC by features").figure
    return {
        "lens-profiles": curve_panels({title: bands}, title=title, x="layer", y="entropy, nats"),
        "lens-layers": bars,  # type: ignore[dict-item]
        "lens-alpha": alpha_sweep(orders),
        "lens-plane": profile_plane(
            np.array(first["plane"]), first["labels"], title="profiles, principal components"
        ),
    }


TABLES: dict[str, Callable[[Sequence[Measured]], list[Table]]] = {TEXT_KIND: _text_kind_tables}
FIGURES: "dict[str, Callable[[Sequence[Measured]], dict[str, Figure]]]" = {
    TEXT_KIND: _text_kind_figures
}
