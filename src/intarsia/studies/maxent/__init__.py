"""The studies of the maximum-entropy paper, and questions beyond it, registered."""

from intarsia.studies.maxent import (
    complete,
    confusion,
    connectivity,
    continual,
    controls,
    impact,
    pairs,
    single,
    sparsity,
    temperature,
    unlearning,
    width,
)

__all__ = [
    "complete",
    "confusion",
    "connectivity",
    "continual",
    "controls",
    "impact",
    "pairs",
    "single",
    "sparsity",
    "temperature",
    "unlearning",
    "width",
]
