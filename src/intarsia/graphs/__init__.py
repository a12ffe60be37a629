"""Graphs at several scales: where heat says they are, graphs rewired there, nets that see both."""

from intarsia.graphs.adjacency import Graph, WeightedGraph, read_graph
from intarsia.graphs.class_modules import (
    NodeModel,
    NodeNetwork,
    graph_model,
    joint_partition,
    node_splits,
    train_class_modules,
    with_graph,
)
from intarsia.graphs.geometric import Renormalise, graphs_of
from intarsia.graphs.graph_layers import GATLayer, GCNLayer, GraphEncoder, MultiScale
from intarsia.graphs.graph_sets import (
    GRAPH_SETS,
    NodeData,
    available_sets,
    load_nodes,
    node_data,
)
from intarsia.graphs.heat_kernel import HeatKernel, heat_kernel
from intarsia.graphs.heat_spectrum import (
    HeatCurve,
    Spectrum,
    entropy,
    find_scale,
    heat_capacity,
    published_capacity,
    scales,
    spectrum,
)
from intarsia.graphs.node_training import (
    PROTOCOLS,
    VARIANTS,
    NodeResult,
    NodeSettings,
    TunedNodes,
    train_nodes,
    tune_nodes,
    variant_graphs,
)
from intarsia.graphs.rewiring import CoarseGraph, NodeGroups, coarsen, groups, rewire
from intarsia.graphs.second_graphs import diffusion_graph, hop_graph, page_rank, random_graph

__all__ = [
    "GRAPH_SETS",
    "PROTOCOLS",
    "VARIANTS",
    "CoarseGraph",
    "GATLayer",
    "GCNLayer",
    "Graph",
    "GraphEncoder",
    "HeatCurve",
    "HeatKernel",
    "MultiScale",
    "NodeData",
    "NodeGroups",
    "NodeModel",
    "NodeNetwork",
    "NodeResult",
    "NodeSettings",
    "Renormalise",
    "Spectrum",
    "TunedNodes",
    "WeightedGraph",
    "available_sets",
    "coarsen",
    "diffusion_graph",
    "entropy",
    "find_scale",
    "graph_model",
    "graphs_of",
    "groups",
    "heat_capacity",
    "heat_kernel",
    "hop_graph",
    "joint_partition",
    "load_nodes",
    "node_data",
    "node_splits",
    "page_rank",
    "published_capacity",
    "random_graph",
    "read_graph",
    "rewire",
    "scales",
    "spectrum",
    "train_class_modules",
    "train_nodes",
    "tune_nodes",
    "variant_graphs",
    "with_graph",
]
