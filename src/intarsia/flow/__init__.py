"""Flow: cumulants through layers, and the central limit theorem as a flow that a network learns."""

from intarsia.flow.cumulants import Cumulants, cumulants
from intarsia.flow.laws import LAWS, draw, law_cumulants
from intarsia.flow.pair_fits import fit
from intarsia.flow.pair_networks import (
    GraphNetwork,
    ManifoldDistance,
    PairBank,
    PairNetwork,
    balanced_quadratic,
    floor_error,
    on_manifold,
)
from intarsia.flow.propagation import LayerMoments, Propagation, propagate
from intarsia.flow.renormalisation import FlowTrace, clt_step, iterate
from intarsia.flow.unit_moments import UNITS, UnitLayer

__all__ = [
    "LAWS",
    "UNITS",
    "Cumulants",
    "FlowTrace",
    "GraphNetwork",
    "LayerMoments",
    "ManifoldDistance",
    "PairBank",
    "PairNetwork",
    "Propagation",
    "UnitLayer",
    "balanced_quadratic",
    "clt_step",
    "cumulants",
    "draw",
    "fit",
    "floor_error",
    "iterate",
    "law_cumulants",
    "on_manifold",
    "propagate",
]
