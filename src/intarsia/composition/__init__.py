"""Modules joined without training, and taken apart again."""

from intarsia.composition.alignment.align import align
from intarsia.composition.composition import Composition, compose
from intarsia.composition.merge_context import MergeContext
from intarsia.composition.merge_recipe import MergeRecipe
from intarsia.composition.operators import OPERATORS, operator

__all__ = [
    "OPERATORS",
    "Composition",
    "MergeContext",
    "MergeRecipe",
    "align",
    "compose",
    "operator",
]
