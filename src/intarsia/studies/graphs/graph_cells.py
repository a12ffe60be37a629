"""Cells of the study `graphs`: a data set, an encoder, a protocol and what the networks see.

The networks of a cell differ in their seeds alone and are trained in one stack. Graphs that several
cells see are made once and kept in the store.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from intarsia.data.arrays import read_npz
from intarsia.errors import StudyError, nearest, shortened
from intarsia.files import digest_of, stream, write_whole
from intarsia.graphs import (
    GRAPH_SETS,
    VARIANTS,
    Graph,
    NodeData,
    WeightedGraph,
    available_sets,
    diffusion_graph,
    find_scale,
    hop_graph,
    load_nodes,
    random_graph,
    rewire,
    scales,
    train_nodes,
    tune_nodes,
)
from intarsia.graphs.graph_layers import ENCODER_KINDS
from intarsia.graphs.graph_sets import content_digest
from intarsia.graphs.node_training import PROTOCOLS, TUNED
from intarsia.studies.cells import Cell
from intarsia.studies.context import StudyContext
from intarsia.studies.options import check_count, check_counts, check_numbers
from intarsia.studies.study import seeds_of

NAME = "graphs"
AUTHORS, HONEST = "authors", "honest"
TABLE, CONTROL, TUNING, SCALE = "table", "controls", "honest", "scales"
MB, MR = "MB", "MR"
RANDOM, PEAK, DIFFUSION = "random edges", "heat capacity", "diffusion"
HOPS: dict[str, tuple[int, ...]] = {"2 hops": (2,), "2+3 hops": (2, 3)}
TAU = "tau "  # begins the name of a control at another time
CONTROLS = ("tau 1", "tau 2", "tau 4", *HOPS, RANDOM, PEAK, DIFFUSION)
"""What networks see beside the graph itself, in the place of the one rewired at tau*."""

SCALES: dict[str, dict[str, Any]] = {
    "paper": {
        "data": ["cora", "citeseer"],
        "encoders": list(ENCODER_KINDS),
        "protocols": [AUTHORS, HONEST],
        "seeds": 10,
        "width": 0,  # 0: as the authors have it, by encoder and data set
        "learning_rate": 1e-4,
        "epochs": 1000,
        "budgets": [10, 20, 50, 100, 200, 500, 1000],
        "controls": list(CONTROLS),
        "control_epochs": 100,
        "random_scales": 30,  # a third of them in each range
        "ranges": [[0.01, 0.1], [0.1, 1.0], [1.0, 10.0]],
        "scale_encoders": ["gcn"],
        "scale_seeds": 3,
        "honest_arms": [*VARIANTS, *HOPS, RANDOM, DIFFUSION],
        "honest_encoders": list(ENCODER_KINDS),
        "honest_width": 64,
        "honest_epochs": 200,
        "grid": {
            "dropout": [0.0, 0.5],
            "learning_rate": [1e-2, 1e-3],
            "weight_decay": [0.0, 5e-4],
        },
        "diffusion_top": 32,
    },
}
SCALES["small"] = {
    **SCALES["paper"],
    "seeds": 4,
    "width": 64,
    "learning_rate": 1e-3,
    "epochs": 100,
    "budgets": [10, 20, 50, 100],
    "control_epochs": 50,
    "random_scales": 9,
    "honest_arms": [*VARIANTS, "2 hops", DIFFUSION],
    "honest_encoders": ["gcn"],
    "honest_epochs": 60,
    "grid": {"dropout": [0.0, 0.5], "learning_rate": [1e-2], "weight_decay": [5e-4]},
}


def cells(options: Mapping[str, Any], context: StudyContext) -> Iterator[Cell]:
    """The paper's table, the honest protocol, controls, then random scales.

    Known data sets that are not on this machine fall out.
    """
    _check(options)
    here = available_sets()
    known = [name for name in options["data"] if name in here or name not in GRAPH_SETS]
    names = known or options["data"]  # where none is here, loading says where they belong
    digests = {name: content_digest(_nodes(name, context))[:16] for name in names}
    for part in (TABLE, TUNING, CONTROL, SCALE):
        for name in names:
            for own in PARTS[part](options):
                settings = {"part": part, "data": name, "content": digests[name], **own}
                yield Cell(NAME, settings, {})


def _table(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if AUTHORS not in options["protocols"]:
        return
    epochs = options["epochs"]
    between = {*options["budgets"], options["control_epochs"]}
    budgets = sorted(b for b in between if b <= epochs)
    for encoder, arm in product(options["encoders"], VARIANTS):
        yield _authors(options, encoder, arm, epochs) | {"budgets": budgets}


def _controls(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if AUTHORS not in options["protocols"]:
        return
    for encoder, arm in product(options["encoders"], options["controls"]):
        yield _authors(options, encoder, arm, options["control_epochs"]) | _of_arm(arm, options)


def _random_scales(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if AUTHORS not in options["protocols"]:
        return
    seeds = seeds_of(options["seeds"])[: options["scale_seeds"]]
    for encoder, tau in product(options["scale_encoders"], drawn_scales(options)):
        own = _authors(options, encoder, f"{TAU}{tau:g}", options["control_epochs"])
        yield own | {"seeds": seeds}


def _honest(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if HONEST not in options["protocols"]:
        return
    grid = {key: list(options["grid"][key]) for key in TUNED if key in options["grid"]}
    for encoder, arm in product(options["honest_encoders"], options["honest_arms"]):
        yield {
            "protocol": HONEST, "encoder": encoder, "arm": arm, "width": options["honest_width"],
            "epochs": options["honest_epochs"], "grid": grid,
            "seeds": seeds_of(options["seeds"]), **_of_arm(arm, options),
        }  # fmt: skip


PARTS: dict[str, Callable[[Mapping[str, Any]], Iterator[dict[str, Any]]]] = {
    TABLE: _table,
    CONTROL: _controls,
    TUNING: _honest,
    SCALE: _random_scales,
}


def _authors(options: Mapping[str, Any], encoder: str, arm: str, epochs: int) -> dict[str, Any]:
    return {
        "protocol": AUTHORS, "encoder": encoder, "arm": arm, "width": options["width"],
        "learning_rate": float(options["learning_rate"]), "epochs": epochs,
        "seeds": seeds_of(options["seeds"]),
    }  # fmt: skip


def _of_arm(arm: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"top": options["diffusion_top"]} if arm == DIFFUSION else {}


def drawn_scales(options: Mapping[str, Any]) -> list[float]:
    """The same number of times in every range, drawn evenly by their logarithm, to four digits."""
    ranges = options["ranges"]
    draw = np.random.default_rng(stream("random scales"))
    each = -(-options["random_scales"] // len(ranges))
    taus = [
        float(f"{10 ** draw.uniform(np.log10(low), np.log10(high)):.4g}")
        for low, high in ranges
        for _ in range(each)
    ]
    return taus[: options["random_scales"]]


def measure(cell: Cell, context: StudyContext) -> dict[str, Any]:
    """Accuracies by seed; of a second graph without edges nothing but that."""
    settings = cell.settings
    data = _nodes(settings["data"], context)
    arm, sees = settings["arm"], VARIANTS.get(settings["arm"], VARIANTS[MR])
    second, tau = data.graph, None
    if any(sees):
        second, tau = _second(settings, data, context)
    result: dict[str, Any] = {"edges": second.edges, "nodes": data.graph.size, "tau": tau}
    if arm not in VARIANTS and not second.edges:
        return {**result, "empty": True}
    graphs = [second if own else data.graph for own in sees]
    how: dict[str, Any] = {
        "protocol": settings["protocol"], "encoder": settings["encoder"],
        "width": settings["width"] or None, "epochs": settings["epochs"],
        "seeds": settings["seeds"], "device": str(context.device),
    }  # fmt: skip
    if settings["protocol"] == HONEST:
        tuned = tune_nodes(data, graphs, settings["grid"], **how)
        return {
            **result, "test": list(tuned.test), "validation": list(tuned.validation),
            "chosen": list(tuned.chosen), "tried": [dict(own) for own in tuned.grid],
        }  # fmt: skip
    rate = settings["learning_rate"]
    done = train_nodes(data, graphs, **how, learning_rate=rate, budgets=settings.get("budgets", ()))
    found = done.to_json()
    keys = ("test", "validation", "epochs", "budgets")
    width = found["settings"]["width"]
    return {**result, **{key: found[key] for key in keys}, "width": width}


def _nodes(name: str, context: StudyContext) -> NodeData:
    """A data set's largest component, on which the authors work."""
    return context.remembered(f"nodes {name}", lambda: load_nodes(name).largest_component())


def _second(
    settings: Mapping[str, Any], data: NodeData, context: StudyContext
) -> tuple[Graph, float | None]:
    """The second graph and the time it was rewired at, from the store or made now."""
    arm = "tau*" if settings["arm"] in VARIANTS else settings["arm"]
    key = digest_of(["second graph", settings["content"], arm, settings.get("top")])
    with context.shared_folder(key) as folder:
        path = folder / "graph.npz"
        if not path.exists():
            graph, tau = _made(arm, settings, data, context)
            folder.mkdir(parents=True, exist_ok=True)
            _save(path, graph, tau)
        return _load(path, data.graph)


def _made(
    arm: str, settings: Mapping[str, Any], data: NodeData, context: StudyContext
) -> tuple[Graph, float | None]:
    graph = data.graph
    if arm in HOPS:
        return hop_graph(graph, HOPS[arm]), None
    if arm == DIFFUSION:
        return diffusion_graph(graph, top=settings["top"]), None
    if arm == RANDOM:
        second, _ = _second({**settings, "arm": MR}, data, context)
        return random_graph(graph, second.edges), None
    if arm == PEAK:
        peaks = scales(graph, "heat_capacity")
        tau = peaks[0] if peaks else None
    else:
        tau = find_scale(graph) if arm == "tau*" else float(arm.removeprefix(TAU))
    if tau is None:
        return Graph(sp.csr_array(graph.adjacency.shape), graph.nodes), None
    return rewire(graph, tau, method="chebyshev"), tau


def _save(path: Path, graph: Graph, tau: float | None) -> None:
    import io

    arrays: dict[str, Any] = {
        "indptr": graph.adjacency.indptr.astype(np.int64),
        "indices": graph.adjacency.indices.astype(np.int32),
        "tau": np.array([] if tau is None else [tau]),
    }
    if isinstance(graph, WeightedGraph):
        arrays["weights"] = graph.weights.data
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_whole(path, content.getvalue())


def _load(path: Path, graph: Graph) -> tuple[Graph, float | None]:
    arrays = read_npz(path)
    place, shape = (arrays["indices"], arrays["indptr"]), graph.adjacency.shape
    adjacency = sp.csr_array((np.ones(len(place[0])), *place), shape=shape)
    tau = float(arrays["tau"][0]) if len(arrays["tau"]) else None
    if "weights" in arrays:
        weights = sp.csr_array((arrays["weights"], *place), shape=shape)
        return WeightedGraph(adjacency, graph.nodes, weights), tau
    return Graph(adjacency, graph.nodes), tau


def _check(options: Mapping[str, Any]) -> None:
    """What cannot be measured is refused before anything is trained."""
    for key, known in (
        ("encoders", ENCODER_KINDS),
        ("scale_encoders", ENCODER_KINDS),
        ("honest_encoders", ENCODER_KINDS),
        ("protocols", tuple(PROTOCOLS)),
    ):
        for value in options[key]:
            if value not in known:
                raise StudyError(f"option {key!r} has {shortened(value)}: {nearest(value, known)}")
    for key, more in (("controls", ()), ("honest_arms", tuple(VARIANTS))):
        for value in options[key]:
            if value not in (*CONTROLS, *more) and not _is_time(value):
                names = (*CONTROLS, *more)
                raise StudyError(f"option {key!r} has {shortened(value)}: {nearest(value, names)}")
    counts = ("epochs", "control_epochs", "honest_epochs", "honest_width", "diffusion_top")
    for key in (*counts, "scale_seeds"):
        check_count(options, key)
    for key in ("width", "random_scales"):
        check_count(options, key, 0)
    check_counts(options, "budgets")
    check_numbers({"learning_rate": [options["learning_rate"]]}, "learning_rate")
    for value in options["ranges"]:
        if not isinstance(value, list) or len(value) != 2 or not 0 < value[0] < value[1]:
            raise StudyError(
                f"option 'ranges' has {shortened(value)}: expected two times, the lower first"
            )
    if not options["ranges"]:
        raise StudyError("option 'ranges' is empty: expected at least one pair of times")
    for key, values in options["grid"].items():
        if key not in TUNED:
            raise StudyError(f"option 'grid' has {shortened(key)}: {nearest(key, TUNED)}")
        if not isinstance(values, list) or not values:
            raise StudyError(f"option 'grid' has {key} {shortened(values)}: expected a list")


def _is_time(value: Any) -> bool:
    """`tau 0.3`: any time may be a control."""
    if not isinstance(value, str) or not value.startswith(TAU):
        return False
    try:
        return 0 < float(value.removeprefix(TAU)) < float("inf")
    except ValueError:
        return False
