"""Which weights stay: magnitude, random, whole units, units that are alike, territory."""

from intarsia.pruning.group import (
    PRUNINGS,
    Group,
    Mask,
    State,
    density,
    normalisations,
    prunable,
    round_fraction,
)
from intarsia.pruning.magnitude import magnitude, random
from intarsia.pruning.structured import similarity, units
from intarsia.pruning.territory import territory

__all__ = [
    "PRUNINGS",
    "Group",
    "Mask",
    "State",
    "density",
    "magnitude",
    "normalisations",
    "prunable",
    "random",
    "round_fraction",
    "similarity",
    "territory",
    "units",
]
