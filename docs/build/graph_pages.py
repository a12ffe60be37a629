"""The page on graphs: scales, edge counts and identities, met or missed; cost of large ones."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import studies
from intarsia.graphs.heat_spectrum import GRID
from intarsia.plots import curves, heat_curves, rewiring_steps
from intarsia.studies import Claim, Findings
from intarsia.studies.wording import several
from pages import RESULTS, Load, Result, met, page, table

TITLES = {"citeseer": "CiteSeer", "cora": "Cora", "photo": "Photo", "computers": "Computers"}
TITLES["europe"] = "Europe"
CLOSE = 1e-4  # of an edge count
LARGE = ("photo", "computers")
STUDY = "graphs"
SECONDS, GIB = 120, 6.0  # aimed at, for Computers
MILLION, MODULES = "graph_scales_million", "graph_modules"
TWO_CORES = "graph_scales_two_cores"
LATER = (MILLION, TWO_CORES, MODULES)  # shown where they were measured


def graphs(load: Load) -> str:
    result, speed = load("graph_scales"), load("graph_scales_speed")
    later = {name: load(name) for name in LATER if (RESULTS / f"{name}.json").exists()}
    return page(
        "Graphs at several scales",
        [result, speed, *later.values()],
        "Do we find the characteristic scales and the rewired graphs that were published, do "
        f"networks gain from a second graph, and what do large graphs cost? {_in_short(result)} "
        "All numbers are for the largest connected component of each data set; [the "
        "guide](../guide/graphs.md) explains the scales. *Printed* is what the paper (Caso et al. "
        "2025) and its supplement say.",
        "## Scales",
        table(
            "data|nodes|directed edges|`tau*` as published|printed|verdict|heat-capacity "
            "peaks|computed by",
            [_scales(row) for row in result["sets"]],
        ),
        "`tau*` *as published* is the scale by the published definition; it counts as met if it "
        f"is within one step of the grid ({len(GRID)} times from {GRID[0]:g} to {GRID[-1]:,.0f}) "
        "of the printed value. The peaks of the heat capacity lie elsewhere. The error of an "
        "estimate is the standard error over probes plus the change made by the last steps, the "
        "largest over the grid.",
        "![Both curves of Cora, with the scales that each gives](graphs-cora.svg)",
        "## Edges after rewiring",
        table(
            "data|tau|directed edges|printed|target|verdict|supernodes by contraction|undecided",
            [
                *(_count(row) for row in result["counts"]),
                *(
                    _large(row, result)
                    for row in speed["rows"]
                    if row["case"] in ("photo", "computers")
                ),
            ],
        ),
        "*Undecided* counts comparisons of two entries of the heat kernel that differ by less than "
        "twice the error of the series that computed them. Supernodes are not counted for the two "
        "large graphs.",
        "![A tree, its groups, and the graph it becomes at tau*](graphs-rewiring.svg)",
        "The drawing shows a Barabasi-Albert tree of "
        f"{len(result['drawing']['positions'])} nodes at its published scale, "
        f"{result['drawing']['tau']:.3g}; nodes of one supernode share a colour.",
        "## Identities",
        table(
            "identity|largest difference|allowed|verdict",
            [
                (row["what"], f"{row['difference']:.2g}", f"{row['allowed']:g}", met(row["met"]))
                for row in result["identities"]
            ],
        ),
        "## Cost",
        f"CPU seconds on {several(speed['threads'], 'thread')}, each row in its own process; "
        f"blocks may take {speed['memory_setting_gib']:g} GiB.",
        table(
            "graph|nodes|directed edges|scale, s|kernel, s|rewiring, s|total, s|peak memory, GiB",
            [_cost(row) for row in _rows(speed, later)],
        ),
        "For a data set all columns of the heat kernel are computed, for a random graph (ten edges "
        f"drawn per node) {_columns(speed)} of them.",
        *_dense(speed),
        *_computers(speed, later.get(TWO_CORES)),
        "![CPU seconds by number of nodes](graphs-cost.svg)",
        *_study(),
        *(_modules(later[MODULES]) if MODULES in later else []),
        *([] if MODULES in later else ["## Not yet measured", "Class modules of graph networks."]),
    )


def _in_short(result: Result) -> str:
    """How many printed scales and edge counts are met."""
    scales = [row["met"] for row in result["sets"] if row["printed"] is not None]
    counts = [row["met"] for row in result["counts"]]
    return (
        f"{sum(scales)} of {len(scales)} printed scales and {sum(counts)} of {len(counts)} printed "
        "edge counts of the smaller graphs are met."
    )


def figures(load: Load) -> dict[str, Figure]:
    """By the names of their files."""
    result, speed = load("graph_scales"), load("graph_scales_speed")
    own = result["curves"]["cora"]
    names = ("published", "heat capacity")
    drawn = result["drawing"]
    steps = {name: drawn[name] for name in ("graph", "groups", "rewired")}
    later = {name: load(name) for name in LATER if (RESULTS / f"{name}.json").exists()}
    random = [row for row in _rows(speed, later) if row["case"] == "random"]
    seconds = {
        name: {math.log10(row["nodes"]): math.log10(row["seconds_of"][key]) for row in random}
        for name, key in (("scale", "spectrum"), ("columns of the kernel", "columns"))
    }
    places = {math.log10(row["nodes"]): f"{row['nodes']:,}" for row in random}
    title = "CPU seconds by number of nodes"
    ax = curves(seconds, title=title, x="nodes", y="log10 of CPU seconds", x_names=places)
    cost = ax.get_figure(root=True)
    assert cost is not None
    return {
        "graphs-cora": heat_curves(
            GRID, {name: own[name] for name in names}, scales=own["scales"], title="Cora"
        ),
        "graphs-rewiring": rewiring_steps(
            drawn["positions"], steps, labels=drawn["labels"], title="Rewiring"
        ),
        "graphs-cost": cost,
    }


def _study() -> list[str]:
    """What the study's archives say of a second graph: each with the size it was run at."""
    parts = ["## Does a second graph help?"]
    variants = studies.read_studies(RESULTS).get(STUDY, [])
    for variant in variants:
        verdict = variant.study.judge(Findings(variant.measured, variant.label))
        parts += [_size(variant), *_claims(verdict.claims)]
        parts += studies.tables_markdown(variant.study.tables(variant.measured))
    if not variants:
        return [*parts, "Not yet measured."]
    names = ("epochs", "tau")
    return [*parts, *(f"![Accuracy against {name}](study_{STUDY}-{name}.svg)" for name in names)]


def _size(variant: Any) -> str:
    """Whether these are the paper's networks, and where they were trained."""
    paper = variant.study.options("paper")
    given = [dict(own.options) for own in variant.archives.values()]
    keys = ("seeds", "width", "learning_rate", "epochs", "control_epochs", "honest_epochs")
    keys = (*keys, "random_scales")
    other = [
        f"{key.replace('_', ' ')} {own[key]:g} (paper: {paper[key] or 'by data set':{form}})"
        for own in given
        for key in keys
        if own[key] != paper[key]
        for form in ["g" if paper[key] else ""]
    ]
    tried = [math.prod(map(len, own["grid"].values())) for own in (*given, paper)]
    if tried[0] != tried[-1]:
        other.append(f"{tried[0]} settings tried by the honest protocol (paper: {tried[-1]})")
    missing = sum(own.missing for own in variant.archives.values())
    lacks = f" {several(missing, 'cell')} missing, so some rows are absent." * bool(missing)
    devices = ", ".join(dict.fromkeys(d for run in variant.runs for d in run["devices"]))
    seconds = sum(run["measuring_seconds"] for run in variant.runs)
    size = (
        f"**A smaller run than the paper's**: {', '.join(dict.fromkeys(other))}."
        if other
        else "Run at the paper's size."
    )
    return (
        f"{size} Its {several(len(variant.measured), 'cell')}, training included, took "
        f"{seconds:,.0f} s of elapsed time on {devices}. [The study's page](study_{STUDY}.md) has "
        f"the command.{lacks}"
    )


def _claims(claims: Sequence[Claim]) -> list[str]:
    words = {True: "reproduces", False: "does not reproduce", None: "inconclusive"}
    rows = [
        [c.evidence["claim"], c.evidence["where"], words[c.holds], c.evidence["numbers"], c.n]
        for c in claims
        if "claim" in c.evidence
    ]
    return [
        table("claim|networks|verdict|measured|n", rows),
        "A claim reproduces if a test paired by seed says so at 95%, corrected by Holm's method; "
        "it does not reproduce if the mean is not the higher one. In between, it is inconclusive.",
    ]


def _scales(row: dict[str, Any]) -> list[str]:
    peaks = ", ".join(f"{tau:.3g}" for tau in row["heat_capacity"])
    by = "eigenvalues" if row["exact"] else f"Lanczos, error {row['error']:.2g}"
    size = [f"{row['nodes']:,}", f"{row['edges']:,}"]
    first = [TITLES[row["name"]], *size, f"{row['published'][0]:.4g}"]
    known = row["printed"] is not None
    return [*first, *([f"{row['printed']:g}", met(row["met"])] if known else ["", ""]), peaks, by]


def _count(row: dict[str, Any]) -> list[str]:
    aim = "equal" if row["exact"] else f"within {CLOSE:.2%}"
    numbers = [f"{row['edges']:,}", f"{row['printed']:,}", aim, met(row["met"])]
    return [TITLES[row["name"]], row["tau"], *numbers, f"{row['supernodes']:,}", row["undecided"]]


def _large(row: dict[str, Any], result: Result) -> list[str]:
    printed = next(own["printed_rewired"] for own in result["sets"] if own["name"] == row["case"])
    close = abs(row["rewired"] - printed) <= CLOSE * printed
    numbers = [f"{row['rewired']:,}", f"{printed:,}", f"within {CLOSE:.2%}", met(close)]
    return [TITLES[row["case"]], "tau*", *numbers, "", row["undecided"]]


def _cost(row: dict[str, Any]) -> list[str]:
    took = row["seconds_of"]
    kernel = took.get("groups", took.get("columns"))
    rewiring = took.get("rewire")
    parts = [
        f"{took['spectrum']:.1f}",
        f"{kernel:.1f}",
        "" if rewiring is None else f"{rewiring:.1f}",
    ]
    size = [TITLES.get(row["case"], row["case"]), f"{row['nodes']:,}", f"{row['edges']:,}"]
    return [*size, *parts, f"{row['seconds']:.1f}", f"{row['peak_gib']:.2f}"]


def _columns(speed: Result) -> str:
    return str(next((row["columns"] for row in speed["rows"] if "columns" in row), 0))


def _dense(speed: Result) -> list[str]:
    """How much longer eigenvectors take, where both were tried."""
    return [
        f"{TITLES[row['case']]} by eigenvectors, in the same run: {row['dense_seconds']:.1f} s, "
        f"{row['ratio']:.1f} times as long, giving {row['dense_rewired']:,} edges."
        for row in speed["rows"]
        if "ratio" in row
    ]


def _computers(speed: Result, two: Result | None) -> list[str]:
    rows = [row for row in speed["rows"] if row["case"] == "computers"]
    if not rows:
        return ["Computers was not rewired in this run."]
    (row,) = rows
    said = (
        f"The target for Computers is {SECONDS} s on two cores and {GIB:g} GiB. One core took "
        f"{row['seconds']:.0f} s of CPU time and {row['peak_gib']:.1f} GiB "
        f"({met(row['peak_gib'] <= GIB)})"
    )
    if two is None:
        return [f"{said}; two cores were not timed."]
    (row,) = two["rows"]
    took, threads = row["wall_seconds"], two["threads"]
    return [f"{said}; {threads} threads took {took:.0f} s elapsed ({met(took <= SECONDS)})."]


def _rows(speed: Result, later: dict[str, Result]) -> list[dict[str, Any]]:
    """Of all runs that were timed; random graphs first, by size."""
    rows = [*speed["rows"], *later.get(MILLION, {"rows": []})["rows"]]
    random = [row for row in rows if row["case"] == "random"]
    named = [row for row in rows if row["case"] != "random"]
    return [*sorted(random, key=lambda row: row["nodes"]), *named]


def _modules(result: Result) -> list[str]:
    """Class modules against joint training, by data set."""
    sets = list(dict.fromkeys(row["set"] for row in result["rows"]))
    groups = [[row for row in result["rows"] if row["set"] == name] for name in sets]
    removed = [row["removed"] for row in result["rows"]]
    same = all(own["bit_identical"] and own["added_bit_identical"] for own in removed)
    off = max(row["inlay_off"] for row in result["rows"])
    return [
        "## Class modules of a graph network",
        "One maximum-entropy module per class, each a graph network of two layers, joined without "
        "further training, against one network trained on all classes jointly. Both see the whole "
        f"graph and {result['per_class']} labels per class of a random split for each seed, train "
        f"for {result['epochs']} epochs, and use, for each seed, the best on validation of "
        f"{len(result['grid'])} settings: "
        f"{', '.join(own['optimiser'] for own in result['grid'])}. Test accuracy in per cent, "
        "mean ± standard deviation over seeds.",
        table(
            "data|seeds|joint network|modules, logits added|modules, inlay|logits minus joint"
            "|accuracy on others, before a removal|after",
            [_module_row(rows) for rows in groups],
        ),
        "*Others* are the test nodes of the other classes; each class is removed in turn. After a "
        "removal the logits are bit for bit those of the remaining modules joined without it, and "
        "after adding a class back they are bit for bit those of all modules joined at once: "
        f"{met(same)} in {several(len(removed), 'bank')}. The inlay's logits differ from the sum "
        f"of the modules' by at most {off:.1g}.",
    ]


def _module_row(rows: list[dict[str, Any]]) -> list[str]:
    def spread(values: list[float]) -> str:
        deviation = np.std(values, ddof=1) if len(values) > 1 else 0.0
        return f"{100 * np.mean(values):.1f} ± {100 * deviation:.1f}"

    kinds = [spread([row[kind] for row in rows]) for kind in ("joint", "logits", "inlay")]
    apart = spread([row["logits"] - row["joint"] for row in rows])
    others = [
        f"{100 * np.mean([row['removed'][key] for row in rows]):.1f}"
        for key in ("others_before", "others_after")
    ]
    return [TITLES[rows[0]["set"]], str(len(rows)), *kinds, apart, *others]
