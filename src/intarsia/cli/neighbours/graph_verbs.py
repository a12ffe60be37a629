"""graphs scale, rewire, train, modules: scales, the graph rewired there, nets that see both."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.cli import completion
from intarsia.cli.common_options import (
    Device,
    Figure,
    Json,
    name_argument,
    name_option,
    text_option,
)
from intarsia.cli.console import busy, facts, plain_text, show, show_result, table
from intarsia.cli.verbs import graphs_verb as verb

if TYPE_CHECKING:
    from intarsia.graphs import Graph, HeatCurve

Source = Annotated[
    str,
    name_argument(
        "NAME|FILE",
        completion.GRAPH_SETS,
        "cora, citeseer, photo, computers, europe; a text of two node numbers on a line, or "
        "an .npz with edges.",
    ),
]
Memory = Annotated[float, typer.Option(help="GiB that blocks and results may take.")]
NodeSource = Annotated[
    str,
    name_argument(
        "NAME|FILE",
        completion.GRAPH_SETS,
        "A named set, or an .npz with edges, labels and features.",
    ),
]
Root = Annotated[Path | None, typer.Option(help="A folder of PyTorch Geometric that has the data.")]
ScaleKind = Annotated[
    str,
    name_option(
        ("published", "heat_capacity"),
        "Of the scale that auto finds: published, as the authors' code has it, or heat_capacity.",
    ),
]
WRITTEN = (".npz", ".txt", ".csv", ".tsv", ".edges")
Whole = Annotated[bool, typer.Option("--all", help="Keep all components, not the largest alone.")]


@verb(
    "graphs scale cora",
    "graphs scale edges.txt --figure capacity.svg",
    "graphs scale photo --probes 96",
)
def scale(
    source: Source,
    whole: Whole = False,
    probes: Annotated[
        int, typer.Option(min=2, help="Random vectors, for graphs of more than 5,000 nodes.")
    ] = 48,
    seed: Annotated[int, typer.Option(help="Of these vectors.")] = 0,
    memory: Memory = 4.0,
    figure: Figure = None,
    json: Json = False,
) -> None:
    """Find a graph's characteristic scales: the published kind, and the peaks of heat capacity."""
    from intarsia.graphs import heat_capacity, published_capacity, spectrum

    graph = _graph(source, whole)
    with busy("taking the Laplacian's spectrum"):
        density = spectrum(graph, probes=probes, seed=seed, memory=memory)
    curves = {"published": published_capacity(density), "heat capacity": heat_capacity(density)}
    found = {name: [float(own.tau[p]) for p in own.peaks()] for name, own in curves.items()}
    result = {
        "source": source,
        "nodes": graph.size,
        "edges": graph.edges,
        "undirected_edges": graph.edges // 2,
        "method": "eigenvalues" if density.exact else f"Lanczos, {probes} probes",
        "largest_eigenvalue": density.largest,
        "published": found["published"],
        "heat_capacity": found["heat capacity"],
        "error_of_heat_capacity": float(curves["heat capacity"].errors.max()),
    }
    if figure is not None:
        result["figure"] = _save_capacities(curves, found, source, figure)
    show_result(result, json, _show_facts)


@verb(
    "graphs rewire cora -o rewired.npz",
    "graphs rewire edges.txt --tau 1.5 -o rewired.txt",
    "graphs rewire edges.txt --coarsen -o supernodes.npz",
)
def rewire(
    source: Source,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write: .npz, or a text of edges.")
    ],
    tau: Annotated[str, text_option("TIME|auto", "When to look at heat.")] = "auto",
    kind: ScaleKind = "published",
    coarsen: Annotated[
        bool, typer.Option("--coarsen", help="Write the graph of supernodes instead.")
    ] = False,
    whole: Whole = False,
    memory: Memory = 4.0,
    json: Json = False,
) -> None:
    """Rewire a graph at a scale: an edge where groups of nodes are neighbours."""
    from intarsia import graphs
    from intarsia.errors import RecipeError

    if out.suffix not in WRITTEN:  # before anything is computed
        raise RecipeError(f"{out} must end in {', '.join(WRITTEN[:-1])} or {WRITTEN[-1]}")
    if out.resolve() == Path(source).resolve():
        raise RecipeError(f"{out} is the graph that is read: write to another file")
    graph = _graph(source, whole)
    with busy("computing the heat kernel"):
        time = graphs.find_scale(graph, kind, memory=memory) if tau == "auto" else tau
        own = graphs.groups(graph, time, memory=memory)  # type: ignore[arg-type]  # checked there
        coarse = graphs.coarsen(own)
        made = coarse.graph if coarsen else graphs.rewire(own, memory=memory)
    labels = coarse.labels if coarsen else None
    _write(made, out, graph.nodes, labels)
    result = {
        "source": source,
        "nodes": graph.size,
        "edges": graph.edges,
        "undirected_edges": graph.edges // 2,
        "tau": own.tau,
        "supernodes": coarse.graph.size,
        "written_nodes": made.size,
        "written_edges": made.edges,
        "written_undirected_edges": made.edges // 2,
        "error_of_entries": own.error,
        "undecided_pairs": own.undecided,
        "out": str(out),
    }
    show_result(result, json, _show_facts)


@verb(
    "graphs train cora --width 64 --learning-rate 0.001 --epochs 70 --seeds 3",
    "graphs train cora --encoder gcn,gat --protocol honest --seeds 10",
    "graphs train nodes.npz --variants SB,MR --tau 1",
)
def train(
    source: NodeSource,
    encoder: Annotated[str, text_option("NAME,...", "gcn, gat or both.")] = "gcn",
    variants: Annotated[
        str, text_option("NAME,...", "SB: the graph; MB: it twice; SR: the rewired one; MR: both.")
    ] = "SB,MB,SR,MR",
    tau: Annotated[str, text_option("TIME|auto", "Of the rewired graph.")] = "auto",
    kind: ScaleKind = "published",
    protocol: Annotated[
        str,
        name_option(
            ("authors", "honest"),
            "authors: train on edges between training nodes; honest: on all, over random splits.",
        ),
    ] = "authors",
    seeds: Annotated[int, typer.Option(min=1, help="Networks of each kind.")] = 10,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the protocol's.")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Of the encoders.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of Adam.")] = None,
    root: Root = None,
    memory: Memory = 4.0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train classifiers of nodes on a graph, on the rewired one, and on both."""
    from intarsia import graphs

    data = graphs.load_nodes(source, root=root).largest_component()
    given = {"epochs": epochs, "width": width, "learning_rate": learning_rate}
    settings: dict[str, Any] = {key: own for key, own in given.items() if own is not None}
    names = [name.strip() for name in variants.split(",")]
    kinds = [name.strip() for name in encoder.split(",")]
    for name in names:  # before anything is computed
        graphs.variant_graphs(name, data.graph, data.graph)
    rewired, time = None, None
    with busy("rewiring"):
        if any(any(graphs.VARIANTS[name]) for name in names):
            found = graphs.find_scale(data.graph, kind, memory=memory) if tau == "auto" else tau
            own = graphs.groups(data.graph, found, memory=memory)  # type: ignore[arg-type]
            rewired, time = graphs.rewire(own, memory=memory), own.tau
    rows = []
    for one in kinds:
        for name in names:
            with busy(f"training {one} {name}"):
                trained = graphs.train_nodes(
                    data, graphs.variant_graphs(name, data.graph, rewired), protocol=protocol,
                    seeds=seeds, device=device, encoder=one, **settings,
                )  # fmt: skip
            row = {"encoder": one, "variant": name, "mean": trained.mean}
            rows.append(row | {"deviation": trained.deviation} | trained.to_json())
    result = {
        "data": data.name,
        "nodes": data.graph.size,
        "edges": data.graph.edges,
        "tau": time,
        "rewired_edges": None if rewired is None else rewired.edges,
        "protocol": protocol,
        "rows": rows,
    }
    show_result(result, json, _show_rows)


@verb("graphs modules cora -o modules", "graphs modules citeseer --seed 3 --epochs 60")
def modules(
    source: NodeSource,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder for the bank of modules.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the weights.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="Steps over the whole graph.")] = 200,
    hidden: Annotated[int, typer.Option(min=1, help="Units between the two layers.")] = 64,
    dropout: Annotated[float, typer.Option(help="Of features and units.")] = 0.5,
    root: Root = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train one module of a graph network per class, join them, and train them jointly beside."""
    from intarsia import graphs
    from intarsia.composition import compose
    from intarsia.measure import evaluate

    nodes = graphs.load_nodes(source, root=root).largest_component()
    data = graphs.node_splits(nodes)
    model = graphs.NodeModel(nodes, hidden, dropout)
    settings: dict[str, Any] = {"model": model, "seed": seed, "epochs": epochs, "device": device}
    with busy("training a module per class"):
        bank = graphs.train_class_modules(nodes, **settings)
    with busy("training all classes jointly"):
        joint = graphs.train_class_modules(
            nodes, partition=graphs.joint_partition(nodes), **settings
        )
    wholes = {"joint training": compose(joint, "logits")}
    wholes |= {f"modules by {name}": compose(bank, name) for name in ("logits", "inlay")}
    rows = [
        {
            "network": name,
            "validation": evaluate(whole, data.validation).accuracy,
            "test": evaluate(whole, data.test).accuracy,
        }
        for name, whole in wholes.items()
    ]
    if out is not None:
        graphs.with_graph(bank, source, model, root).save(out)
    result = {"data": nodes.name, "classes": nodes.classes, "rows": rows}
    show_result(result | ({} if out is None else {"out": str(out)}), json, _show_modules)


def _graph(source: str, whole: bool) -> "Graph":
    from intarsia.graphs import GRAPH_SETS, load_nodes, read_graph

    # A word that is neither a file nor looks like one is a name, and the nearest one is told.
    named = source in GRAPH_SETS or not (Path(source).suffix or Path(source).exists())
    graph = load_nodes(source).graph if named else read_graph(source)
    return graph if whole else graph.largest_component()


def _save_capacities(curves: "Mapping[str, HeatCurve]", scales: Any, title: str, path: Path) -> str:
    """Draw curves by name, with the scales of each; where they are then."""
    from intarsia.plots import heat_curves, save

    values = {name: own.values for name, own in curves.items()}
    errors = {name: own.errors for name, own in curves.items()}
    tau = curves["published"].tau
    save(heat_curves(tau, values, scales=scales, errors=errors, title=title), path)
    return str(path)


def _write(graph: "Graph", path: Path, nodes: Any, labels: Any) -> None:
    """Every edge once; `nodes` are the numbers they had in the source."""
    import io

    import numpy as np

    from intarsia.files import write_whole

    edges = graph.edge_index.numpy().T
    edges = edges[edges[:, 0] < edges[:, 1]].astype(np.int32)
    if path.suffix == ".npz":
        content = io.BytesIO()
        more = {} if labels is None else {"supernode": labels}
        np.savez_compressed(content, edges=edges, nodes=nodes, **more)
        return write_whole(path, content.getvalue())
    text = io.StringIO()
    named = edges if labels is not None else nodes[edges]
    np.savetxt(text, named, fmt="%d", delimiter="," if path.suffix == ".csv" else " ")
    write_whole(path, text.getvalue().encode())


def _show_facts(result: dict[str, Any]) -> None:
    rows = [(key.replace("_", " "), plain_text(value)) for key, value in result.items()]
    show(facts((key, value or "none") for key, value in rows))


def _show_rows(result: dict[str, Any]) -> None:
    rows = [
        (
            row["encoder"], row["variant"], f"{100 * row['mean']:.1f}",
            f"{100 * row['deviation']:.1f}", len(row["seeds"]),
        )
        for row in result["rows"]
    ]  # fmt: skip
    tau = "" if result["tau"] is None else f", tau {result['tau']:.4g}"
    title = f"{result['data']}, {result['protocol']} protocol{tau}: test accuracy in per cent"
    show(table(("encoder", "variant", "mean", "deviation", "seeds"), rows, title))


def _show_modules(result: dict[str, Any]) -> None:
    rows = [
        (row["network"], f"{100 * row['validation']:.1f}", f"{100 * row['test']:.1f}")
        for row in result["rows"]
    ]
    title = f"{result['data']}, {result['classes']} classes: accuracy in per cent"
    show(table(("network", "validation", "test"), rows, title))
    if "out" in result:
        show(facts([("bank", result["out"])]))
