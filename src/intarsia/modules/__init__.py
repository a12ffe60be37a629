"""Modules, banks of them, and their files."""

from intarsia.modules.architecture import Architecture
from intarsia.modules.bank import LISTING, Bank, file_name, find
from intarsia.modules.bases import named_bases  # noqa: F401 (they register themselves)
from intarsia.modules.bases.base_weights import BASE, BASES, Base
from intarsia.modules.bases.low_rank import LowRank
from intarsia.modules.classifier import Classifier, Predicting, logits_of
from intarsia.modules.compact import compact
from intarsia.modules.grow import grown
from intarsia.modules.health import Finding, Health
from intarsia.modules.module import Module
from intarsia.modules.sparse import SparseLinear, sparse

__all__ = [
    "BASE",
    "BASES",
    "LISTING",
    "Architecture",
    "Bank",
    "Base",
    "Classifier",
    "Finding",
    "Health",
    "LowRank",
    "Module",
    "Predicting",
    "SparseLinear",
    "compact",
    "file_name",
    "find",
    "grown",
    "logits_of",
    "sparse",
]
