"""The studies of the maximum-entropy paper and beyond, registered in the paper's order."""

# isort: off
from intarsia.studies.maxent import single
from intarsia.studies.maxent import pairs
from intarsia.studies.maxent import impact
from intarsia.studies.maxent import complete
from intarsia.studies.maxent import temperature
from intarsia.studies.maxent import sparsity
from intarsia.studies.maxent import width
from intarsia.studies.maxent import connectivity
from intarsia.studies.maxent import confusion
from intarsia.studies.maxent import controls
from intarsia.studies.maxent import unlearning
from intarsia.studies.maxent import continual
# isort: on

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
