"""The page on graphs: scales, edge counts and identities, met or missed; what large ones cost."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

import studies
from intarsia.graphs.heat_spectrum import GRID
from intarsia.plots import curves, heat_curves, rewiring_steps
from intarsia.studies import Claim, Findings
from pages import RESULTS, Load, Result, met, page, table

TITLES = {"citeseer": "CiteSeer", "cora": "Cora", "photo": "Photo", "computers": "Computers"}
TITLES["europe"] = "Europe"
CLOSE = 1e-4  # of an edge count
LARGE = ("photo", "computers")
STUDY = "graphs"
SECONDS, GIB = 120, 6.0  # aimed at, for Computers


def graphs(load: Load) -> str:
    result, speed = load("graph_scales"), load("graph_scales_speed")
    return page(
        "Graphs at several scales",
        [result, speed],
        "The largest component of each data set, and what [the guide](../guide/graphs.md) calls "
        "its scales. *Printed* is what the paper (Caso et al. 2025) and its supplement say.",
        "## Scales",
        table(
            "data|nodes|directed edges|published tau*|printed||peaks of the heat capacity|by",
            [_scales(row) for row in result["sets"]],
        ),
        "A published scale is met within one step of the grid, "
        f"{len(GRID)} times from {GRID[0]:g} to {GRID[-1]:,.0f}; the "
        "heat capacity's peaks lie elsewhere. Errors of estimates are the largest over the grid: "
        "the standard error over probes and what the last steps changed.",
        "![Both curves of Cora, with the scales of both kinds](graphs-cora.svg)",
        "## Edges after rewiring",
        table(
            "data|tau|directed edges|printed|aimed at||supernodes by contraction|undecided",
            [
                *(_count(row) for row in result["counts"]),
                *(
                    _large(row, result)
                    for row in speed["rows"]
                    if row["case"] in ("photo", "computers")
                ),
            ],
        ),
        "Undecided are comparisons of two entries of the heat kernel that are closer to each other "
        "than twice the error of the series that computed them. Supernodes are not counted in the "
        "run that rewires the two large graphs.",
        "![A tree, its groups, and the graph it becomes at tau*](graphs-rewiring.svg)",
        "The drawing: a Barabasi-Albert tree of "
        f"{len(result['drawing']['positions'])} nodes at its published scale, "
        f"{result['drawing']['tau']:.3g}; nodes of one supernode have one colour.",
        "## Identities",
        table(
            "what|largest difference|allowed|",
            [
                (row["what"], f"{row['difference']:.2g}", f"{row['allowed']:g}", met(row["met"]))
                for row in result["identities"]
            ],
        ),
        "## Cost",
        f"CPU seconds with {speed['threads']} thread, each row in a process of its own; blocks may "
        f"take {speed['memory_setting_gib']:g} GiB.",
        table(
            "graph|nodes|directed edges|scale, s|kernel, s|rewiring, s|all, s|largest memory, GiB",
            [_cost(row) for row in speed["rows"]],
        ),
        "The kernel's columns are all of them for a data set, and "
        f"{_columns(speed)} for a random graph with ten edges drawn for each node.",
        *_dense(speed),
        *_computers(speed),
        "![Seconds against nodes](graphs-cost.svg)",
        *_study(),
        "## Not measured yet",
        "Class modules of graph networks.",
    )


def figures(load: Load) -> dict[str, Figure]:
    """By the names of their files."""
    result, speed = load("graph_scales"), load("graph_scales_speed")
    own = result["curves"]["cora"]
    names = ("published", "heat capacity")
    drawn = result["drawing"]
    steps = {name: drawn[name] for name in ("graph", "groups", "rewired")}
    random = [row for row in speed["rows"] if row["case"] == "random"]
    seconds = {
        name: {math.log10(row["nodes"]): math.log10(row["seconds_of"][key]) for row in random}
        for name, key in (("scale", "spectrum"), ("columns of the kernel", "columns"))
    }
    places = {math.log10(row["nodes"]): f"{row['nodes']:,}" for row in random}
    title = "Seconds against nodes"
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
        return [*parts, "Not measured yet."]
    names = ("epochs", "tau")
    return [*parts, *(f"![Accuracy against {name}](study_{STUDY}-{name}.svg)" for name in names)]


def _size(variant: Any) -> str:
    """Whether these are the paper's networks, and where they were trained."""
    paper = variant.study.options("paper")
    given = [dict(own.options) for own in variant.archives.values()]
    keys = ("seeds", "width", "learning_rate", "epochs", "control_epochs", "honest_epochs")
    keys = (*keys, "random_scales")
    other = [
        f"{key.replace('_', ' ')} {own[key]:g} (there {paper[key] or 'by data set':{form}})"
        for own in given
        for key in keys
        if own[key] != paper[key]
        for form in ["g" if paper[key] else ""]
    ]
    tried = [math.prod(map(len, own["grid"].values())) for own in (*given, paper)]
    if tried[0] != tried[-1]:
        other.append(f"{tried[0]} settings tried by the honest protocol (there {tried[-1]})")
    missing = sum(own.missing for own in variant.archives.values())
    lacks = f" {missing} cells are missing, so that some rows below are not there." * bool(missing)
    devices = ", ".join(dict.fromkeys(d for run in variant.runs for d in run["devices"]))
    seconds = sum(run["measuring_seconds"] for run in variant.runs)
    size = (
        f"**A small run, not the paper's size**: {', '.join(dict.fromkeys(other))}."
        if other
        else "The paper's size."
    )
    return (
        f"{size} Its {len(variant.measured)} cells, training included, took {seconds:,.0f} s by "
        f"the clock on {devices}. [The study's page](study_{STUDY}.md) has the command.{lacks}"
    )


def _claims(claims: Sequence[Claim]) -> list[str]:
    words = {True: "reproduces", False: "does not reproduce", None: "cannot be told"}
    rows = [
        [c.evidence["claim"], c.evidence["where"], words[c.holds], c.evidence["numbers"], c.n]
        for c in claims
        if "claim" in c.evidence
    ]
    return [
        table("claim|networks|verdict|measured|n", rows),
        "A claim reproduces where a test paired by seed says so at 95%, corrected by Holm's "
        "method; it does not where the mean is not the higher one. Between, it cannot be told.",
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
        f"{row['ratio']:.1f} times as long, with {row['dense_rewired']:,} edges."
        for row in speed["rows"]
        if "ratio" in row
    ]


def _computers(speed: Result) -> list[str]:
    rows = [row for row in speed["rows"] if row["case"] == "computers"]
    if not rows:
        return ["Computers was not rewired in this run."]
    (row,) = rows
    return [
        f"Aimed at for Computers: {SECONDS} s on two cores and {GIB:g} GiB. On one core it took "
        f"{row['seconds']:.0f} s of its time ({met(row['seconds'] <= SECONDS)}) and "
        f"{row['peak_gib']:.1f} GiB ({met(row['peak_gib'] <= GIB)}); two cores were not timed."
    ]
