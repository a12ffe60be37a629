"""What the note on graphs names: scales, edge counts, supernodes and identities, met or missed.

    INTARSIA_DATA=... python benchmarks/experiments/graph_scales.py

Each data set's largest component: its scales of both kinds, by eigenvalues up to 5,000 nodes and by
stochastic Lanczos beyond; Cora and CiteSeer rewired at tau*, 1, 2 and 4. Beside each number is the
paper's, where it printed one. Photo and Computers are rewired by benchmarks/speed/graph_scales.py.
Results go to docs/results/graph_scales.json, with curves for the page's figure.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import RESULTS, made_by, save
from intarsia.graphs import (
    GATLayer,
    GCNLayer,
    Graph,
    Spectrum,
    coarsen,
    entropy,
    groups,
    heat_capacity,
    load_nodes,
    published_capacity,
    read_graph,
    rewire,
    scales,
    spectrum,
)
from intarsia.graphs.heat_spectrum import GRID, SMALL

# The supplement's directed edge counts and the paper's tau* (Caso et al. 2025).
PRINTED: dict[str, dict[str, Any]] = {
    "citeseer": {
        "nodes": 2120, "edges": 7358, "tau": 0.57,
        "rewired": {"tau*": 39040, "1": 56244, "2": 100366, "4": 131900},
    },
    "cora": {
        "nodes": 2485, "edges": 10138, "tau": 0.57,
        "rewired": {"tau*": 83660, "1": 121522, "2": 223588, "4": 378536},
    },
    "photo": {"nodes": 7487, "edges": 238086, "tau": 0.07, "rewired": {"tau*": 6000168}},
    "computers": {"nodes": 13381, "edges": 491556, "tau": 0.07, "rewired": {"tau*": 34784570}},
    "europe": {"tau": None, "rewired": {}},  # neither its scale nor its counts were printed
}  # fmt: skip
EXACT = {("citeseer", "tau*"), ("citeseer", "1"), ("citeseer", "2"), ("citeseer", "4"),
         ("cora", "tau*"), ("cora", "1")}  # fmt: skip
CLOSE = 1e-4  # of an edge count that need not be exact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sets, counts, curves = [], [], {}
    for name, printed in PRINTED.items():
        graph = load_nodes(name).largest_component().graph
        density = spectrum(graph)
        row = scales_of(name, graph, density, printed)
        sets.append(row)
        counts += edge_counts(name, graph, row["published"][0], printed)
        if name in ("cora", "citeseer"):
            curves[name] = curves_of(density)
        print(row, flush=True)
    result = made_by(__file__, machine="CPU") | {
        "sets": sets,
        "counts": counts,
        "identities": identities(),
        "curves": curves,
        "drawing": drawing(),
    }
    save(options.out, "graph_scales", result)


def scales_of(
    name: str, graph: Graph, density: Spectrum, printed: dict[str, Any]
) -> dict[str, Any]:
    """Sizes and scales beside those that were printed."""
    published, capacity = scales(density), heat_capacity(density)
    step, tau = GRID[1] / GRID[0], printed["tau"]
    sizes = [graph.size, graph.edges]
    return {
        "name": name,
        "nodes": graph.size,
        "edges": graph.edges,
        "sizes_met": None if tau is None else sizes == [printed["nodes"], printed["edges"]],
        "published": [round(tau, 5) for tau in published],
        "printed": tau,
        "printed_rewired": printed["rewired"].get("tau*"),
        "met": None if tau is None else bool(1 / step < published[0] / tau < step),
        "heat_capacity": [round(float(capacity.tau[p]), 3) for p in capacity.peaks()],
        "exact": density.exact,
        "error": round(float(capacity.errors.max()), 5),
    }


def edge_counts(
    name: str, graph: Graph, tau: float, printed: dict[str, Any]
) -> list[dict[str, Any]]:
    """Rewired edges and supernodes at the times that were printed."""
    rows = []
    for label, edges in printed["rewired"].items():
        if graph.size > SMALL:
            continue
        time = GRID[np.abs(GRID - tau).argmin()] if label == "tau*" else float(label)
        own = groups(graph, time)
        made, exact = rewire(own), (name, label) in EXACT
        met = made.edges == edges if exact else abs(made.edges - edges) <= CLOSE * edges
        rows.append(
            {
                "name": name, "tau": label, "time": round(float(time), 5), "edges": made.edges,
                "printed": edges, "exact": exact, "met": bool(met), "error": own.error,
                "undecided": own.undecided, "supernodes": coarsen(own).graph.size,
            }
        )  # fmt: skip
    return rows


def curves_of(density: Spectrum) -> dict[str, Any]:
    """Both curves over the grid, for a figure."""
    published, capacity = published_capacity(density), heat_capacity(density)
    return {
        "published": [float(f"{value:.5g}") for value in published.values],
        "heat capacity": [float(f"{value:.5g}") for value in capacity.values],
        "scales": {
            "published": [float(published.tau[p]) for p in published.peaks()],
            "heat capacity": [float(capacity.tau[p]) for p in capacity.peaks()],
        },
    }


def identities() -> list[dict[str, Any]]:
    """The largest difference of what must be equal, and how large it may be."""
    cora = load_nodes("cora").largest_component().graph
    density, step = spectrum(cora), 1e-4
    slope = (entropy(density, GRID * np.exp(step)).values
             - entropy(density, GRID * np.exp(-step)).values) / (2 * step)  # fmt: skip
    difference = np.abs(heat_capacity(density).values + slope).max()
    exact, series = (
        rewire(cora, 1.0, method=method).adjacency for method in ("exact", "chebyshev")
    )
    rows = [
        ("C by variance, and as the slope of S: Cora", float(difference), 1e-6),
        ("edges by eigenvectors and by Chebyshev: Cora, tau 1", float((exact != series).nnz), 0.0),
    ]
    rows += [(f"{name} layer and PyG's: Cora's graph", own, 1e-6) for name, own in layers(cora)]
    return [
        {"what": what, "difference": own, "allowed": most, "met": own <= most}
        for what, own, most in rows
    ]


def drawing(size: int = 64) -> dict[str, Any]:
    """A Barabasi-Albert tree, where its nodes lie, its groups and what it becomes at tau*."""
    import networkx

    tree = networkx.barabasi_albert_graph(size, 1, seed=0)
    graph = read_graph(tree)
    tau = scales(graph)[0]
    own = groups(graph, tau)
    places = networkx.kamada_kawai_layout(tree)
    near = own.relation.tocoo()
    pairs = np.stack([near.row, near.col], 1)
    return {
        "tau": tau,
        "positions": [[round(float(x), 4) for x in places[node]] for node in range(size)],
        "graph": [[a, b] for a, b in graph.edge_index.T.tolist() if a < b],
        "groups": [[a, b] for a, b in pairs.tolist() if a < b],
        "labels": own.labels.tolist(),
        "rewired": [[a, b] for a, b in rewire(own).edge_index.T.tolist() if a < b],
    }


def layers(graph: Graph) -> list[tuple[str, float]]:
    """The largest difference of outputs to PyTorch Geometric's, of 32 inputs and 64 outputs."""
    from torch_geometric.nn import GATConv, GCNConv

    torch.manual_seed(0)
    x = torch.randn(graph.size, 32)
    gcn, gat, their_gcn, their_gat = (
        GCNLayer(32, 64), GATLayer(32, 64, heads=4), GCNConv(32, 64), GATConv(32, 16, heads=4),
    )  # fmt: skip
    with torch.no_grad():
        their_gcn.lin.weight.copy_(gcn.weight.T)
        their_gat.lin.weight.copy_(gat.weight.T)
        their_gat.att_src[0].copy_(gat.sent)
        their_gat.att_dst[0].copy_(gat.received)
        pairs = (("GCN", gcn, their_gcn), ("GAT", gat, their_gat))
        return [
            (name, float((own(x, graph.edge_index) - other(x, graph.edge_index)).abs().max()))
            for name, own, other in pairs
        ]


if __name__ == "__main__":
    main()
