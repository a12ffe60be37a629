"""Data sets: load, verify, cache, split; partitions of classes."""

from intarsia.data.arrays import to_shape
from intarsia.data.augmentations import AUGMENTATIONS
from intarsia.data.dataset import Data, Split, check_same_encoder, evenly_spaced, subsample
from intarsia.data.load import check_options, is_path, load_data, options_for
from intarsia.data.negatives import NEGATIVES
from intarsia.data.partitions import (
    class_means,
    disjoint_pairs,
    named_set,
    partition,
    set_name,
    ward_partition,
    ward_tasks,
)
from intarsia.data.scaling import Scaling
from intarsia.data.sources import news  # noqa: F401 (its data sets register themselves)
from intarsia.data.sources.datasets import DATASETS, File
from intarsia.data.sources.lookup import locate

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "NEGATIVES",
    "Data",
    "File",
    "Scaling",
    "Split",
    "check_options",
    "check_same_encoder",
    "class_means",
    "disjoint_pairs",
    "evenly_spaced",
    "is_path",
    "load_data",
    "locate",
    "named_set",
    "options_for",
    "partition",
    "set_name",
    "subsample",
    "to_shape",
    "ward_partition",
    "ward_tasks",
]
