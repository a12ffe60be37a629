"""The trained thing and its file."""

from intarsia.modules.architecture import Architecture
from intarsia.modules.bank import LISTING, Bank, file_name, find
from intarsia.modules.classifier import Classifier, Predicting, logits_of
from intarsia.modules.module import Module

__all__ = [
    "LISTING",
    "Architecture",
    "Bank",
    "Classifier",
    "Module",
    "Predicting",
    "file_name",
    "find",
    "logits_of",
]
