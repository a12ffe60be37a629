"""Which weights stay: magnitude, random, territory."""

from intarsia.pruning.group import (
    PRUNINGS,
    Group,
    Mask,
    State,
    acts_before_training,
    density,
    needs_units,
    needs_whole_group,
    normalisations,
    prunable,
    round_share,
)
from intarsia.pruning.magnitude import magnitude, random
from intarsia.pruning.territory import territory

__all__ = [
    "PRUNINGS",
    "Group",
    "Mask",
    "State",
    "acts_before_training",
    "density",
    "magnitude",
    "needs_units",
    "needs_whole_group",
    "normalisations",
    "prunable",
    "random",
    "round_share",
    "territory",
]
