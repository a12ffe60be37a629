"""Modules joined without training, and taken apart again."""

from intarsia.composition.alignment.align import align
from intarsia.composition.composition import Composition, compose
from intarsia.composition.merge_context import MergeContext
from intarsia.composition.merge_recipe import MergeRecipe
from intarsia.composition.operators import OPERATORS, operator
from intarsia.composition.streaming.file_merge import FileMerge, merge_files
from intarsia.composition.streaming.mergekit_recipe import MergekitRecipe

__all__ = [
    "OPERATORS",
    "Composition",
    "FileMerge",
    "MergeContext",
    "MergeRecipe",
    "MergekitRecipe",
    "align",
    "compose",
    "merge_files",
    "operator",
]
