"""Graphs at several scales: where heat says they are, graphs rewired there, nets that see both."""

from intarsia.graphs.adjacency import Graph, read_graph
from intarsia.graphs.class_modules import (
    NodeModel,
    NodeNetwork,
    joint_partition,
    node_splits,
    train_class_modules,
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
    train_nodes,
    variant_graphs,
)
from intarsia.graphs.rewiring import CoarseGraph, NodeGroups, coarsen, groups, rewire

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
    "available_sets",
    "coarsen",
    "entropy",
    "find_scale",
    "graphs_of",
    "groups",
    "heat_capacity",
    "heat_kernel",
    "joint_partition",
    "load_nodes",
    "node_data",
    "node_splits",
    "published_capacity",
    "read_graph",
    "rewire",
    "scales",
    "spectrum",
    "train_class_modules",
    "train_nodes",
    "variant_graphs",
]
