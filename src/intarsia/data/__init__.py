"""Data sets: load, verify, cache, split; partitions of classes."""

from intarsia.data.dataset import Data, Split, few, spaced
from intarsia.data.layout import lay_out
from intarsia.data.load import check_options, load_data
from intarsia.data.lookup import locate
from intarsia.data.negatives import NEGATIVES
from intarsia.data.partitions import disjoint_pairs, partition
from intarsia.data.scaling import Scaling
from intarsia.data.sources import DATASETS

__all__ = [
    "DATASETS",
    "NEGATIVES",
    "Data",
    "Scaling",
    "Split",
    "check_options",
    "disjoint_pairs",
    "few",
    "lay_out",
    "load_data",
    "locate",
    "partition",
    "spaced",
]
