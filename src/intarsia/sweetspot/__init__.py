"""Pattern networks: pictures as functions of x and y, and what depth and wiring do to them."""

from intarsia.sweetspot.depth_scan import (
    DepthRow,
    DepthScan,
    VolumeMap,
    depth,
    predicted_depth,
    volume,
)
from intarsia.sweetspot.genomes import Genome, read_genome
from intarsia.sweetspot.judges import (
    VisionJudge,
)
from intarsia.sweetspot.networks import (
    ACTIVATIONS,
    PatternBank,
    PatternLayout,
    PatternNetwork,
    render,
)
from intarsia.sweetspot.pattern_fits import fit, fit_grid, initial_bank, losses_of
from intarsia.sweetspot.pattern_scores import (
    DistinctMaps,
    Inflation,
    distinct_maps,
    inflation,
    judged,
    orthogonality,
    perturb,
    png_ratio,
)
from intarsia.sweetspot.pattern_steps import PATTERN_OPTIMISERS
from intarsia.sweetspot.pruning_arms import (
    ARMS,
    copy_masks,
    live_masks,
    prune,
)
from intarsia.sweetspot.sweeps import (
    Connection,
    WeightSweep,
    connections,
    sweep,
)
from intarsia.sweetspot.targets import (
    TargetPicture,
    available,
    load,
    load_genome,
    load_network,
    published_picture,
)

__all__ = [
    "ACTIVATIONS",
    "ARMS",
    "PATTERN_OPTIMISERS",
    "Connection",
    "DepthRow",
    "DepthScan",
    "DistinctMaps",
    "Genome",
    "Inflation",
    "PatternBank",
    "PatternLayout",
    "PatternNetwork",
    "TargetPicture",
    "VisionJudge",
    "VolumeMap",
    "WeightSweep",
    "available",
    "connections",
    "copy_masks",
    "depth",
    "distinct_maps",
    "fit",
    "fit_grid",
    "inflation",
    "initial_bank",
    "judged",
    "live_masks",
    "load",
    "load_genome",
    "load_network",
    "losses_of",
    "orthogonality",
    "perturb",
    "png_ratio",
    "predicted_depth",
    "prune",
    "published_picture",
    "read_genome",
    "render",
    "sweep",
    "volume",
]
