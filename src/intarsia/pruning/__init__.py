"""Which weights stay: magnitude, random, territory."""

from intarsia.pruning.magnitude import magnitude, random
from intarsia.pruning.rules import (
    PRUNINGS,
    Group,
    Mask,
    State,
    acts_before_training,
    density,
    needs_whole_group,
    prunable,
    round_share,
)
from intarsia.pruning.territory import territory

__all__ = [
    "PRUNINGS",
    "Group",
    "Mask",
    "State",
    "acts_before_training",
    "density",
    "magnitude",
    "needs_whole_group",
    "prunable",
    "random",
    "round_share",
    "territory",
]
