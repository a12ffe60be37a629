"""Time a graph's scale, its heat kernel and its rewiring: large graphs, beside dense algebra.

    python benchmarks/speed/graph_scales.py --sets cora photo computers --sizes 10000 100000
    python benchmarks/speed/graph_scales.py --sets --sizes 1000000 --name graph_scales_million
    python benchmarks/speed/graph_scales.py --sets computers --sizes --threads 2 \\
        --name graph_scales_two_cores

Each row runs in a process of its own, whose largest memory is noted (on Linux and macOS). A named
data set's largest component is given its published scale by stochastic Lanczos, its groups by the
Chebyshev series, and is rewired; up to 5,000 nodes the same is done by eigenvectors, and the ratio
of the two is the row's. A synthetic graph has ten edges drawn for each node; its scale is found,
and 100 columns of its heat kernel at the first peak of the heat capacity. Times are those of the
processor, with `--threads`. Results go to docs/results/NAME.json.
"""

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import RESULTS, made_by, save
from intarsia.graphs import (
    Graph,
    groups,
    heat_capacity,
    heat_kernel,
    load_nodes,
    read_graph,
    rewire,
    scales,
    spectrum,
)
from intarsia.graphs.heat_spectrum import SMALL

EDGES_PER_NODE, COLUMNS = 10, 100
START = "spawn"  # a process that has used no memory yet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=["cora", "photo", "computers"])
    parser.add_argument("--sizes", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", type=float, default=4.0, help="GiB that blocks may take")
    parser.add_argument("--name", default="graph_scales_speed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    cases: list[tuple[Callable[..., Any], Any]] = [(measure_random, n) for n in options.sizes]
    cases += [(measure_set, name) for name in options.sets]
    rows: list[dict[str, Any]] = []
    words = ["--sets", *options.sets, "--sizes", *options.sizes, "--threads", options.threads]
    words += ["--memory", options.memory, "--name", options.name]
    machine = f"CPU, {options.threads} thread{'s' * (options.threads > 1)}"
    result = made_by(__file__, *words, machine=machine) | {
        "threads": options.threads,
        "memory_setting_gib": options.memory,
        "clock": "processor",
        "rows": rows,
    }
    for function, case in cases:
        rows.append(apart(function, case, options))
        print(rows[-1], flush=True)
        save(options.out, options.name, result)  # what is there stays if a later row is stopped


def apart(function: Callable[..., Any], case: Any, options: argparse.Namespace) -> dict[str, Any]:
    """A row, measured in a process of its own."""
    with multiprocessing.get_context(START).Pool(1) as pool:
        return pool.apply(_row, (function, case, options.threads, options.memory))


def measure_set(name: str, memory: float) -> dict[str, Any]:
    """The scale and the rewired graph of a data set, in blocks, and densely where that is small."""
    graph = load_nodes(name).largest_component().graph
    row: dict[str, Any] = {"case": name, "nodes": graph.size, "edges": graph.edges}
    took, began = time.process_time(), time.perf_counter()
    row["seconds_of"] = {}
    density = clocked(row, "spectrum", lambda: spectrum(graph, method="lanczos", memory=memory))
    row["tau"] = scales(density)[0]
    settings: dict[str, Any] = {"method": "chebyshev", "memory": memory}
    own = clocked(row, "groups", lambda: groups(graph, row["tau"], **settings))
    rewired = clocked(row, "rewire", lambda: rewire(own, memory=memory))
    row |= {"rewired": rewired.edges, "error": own.error, "undecided": own.undecided}
    row["seconds"] = round(time.process_time() - took, 2)
    row["wall_seconds"] = round(time.perf_counter() - began, 2)  # of use where nothing else runs
    if graph.size <= SMALL:
        took = time.process_time()
        tau = scales(graph, method="exact")[0]
        dense = rewire(graph, tau, method="exact", memory=memory)
        row["dense_seconds"] = round(time.process_time() - took, 2)
        row["dense_rewired"] = dense.edges
        row["ratio"] = round(row["dense_seconds"] / max(row["seconds"], 0.01), 2)
    return row


def measure_random(size: int, memory: float) -> dict[str, Any]:
    """The scale and some columns of a random graph."""
    graph = random_graph(size)
    row: dict[str, Any] = {"case": "random", "nodes": graph.size, "edges": graph.edges}
    row["seconds_of"] = {}
    density = clocked(row, "spectrum", lambda: spectrum(graph, method="lanczos", memory=memory))
    row["published"] = scales(density)[:1]
    curve = heat_capacity(density)
    peaks = curve.peaks()
    row["tau"] = float(curve.tau[peaks[0]] if peaks else curve.tau[curve.values.argmax()])
    row["capacity_error"] = float(curve.errors.max())
    kernel = heat_kernel(graph, row["tau"], method="chebyshev", memory=memory)
    chosen = np.arange(COLUMNS) * (graph.size // COLUMNS)
    columns = clocked(row, "columns", lambda: kernel.columns(chosen))
    row |= {"columns": COLUMNS, "terms": kernel.terms, "error": kernel.error}
    row["lost_heat"] = float(np.abs(columns.sum(0) - 1).max())
    row["seconds"] = round(sum(row["seconds_of"].values()), 2)
    return row


def random_graph(size: int, seed: int = 0) -> Graph:
    """Ten edges drawn for each node; its largest component."""
    draw = np.random.default_rng(seed)
    edges = draw.integers(0, size, (EDGES_PER_NODE * size, 2), dtype=np.int32)
    return read_graph(edges, size=size, component="largest")


def clocked(row: dict[str, Any], name: str, function: Callable[[], Any]) -> Any:
    """What it gives; its time goes into the row."""
    began = time.process_time()
    result = function()
    row["seconds_of"][name] = round(time.process_time() - began, 2)
    return result


def _row(function: Callable[..., Any], case: Any, threads: int, memory: float) -> dict[str, Any]:
    torch.set_num_threads(threads)
    row: dict[str, Any] = function(case, memory)
    unit = 2**30 if sys.platform == "darwin" else 2**20
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return row | {"peak_gib": round(used / unit, 2)}


if __name__ == "__main__":
    main()
