"""Modules joined without training, and taken apart again."""

from intarsia.composition.alignment.align import align
from intarsia.composition.composition import Composition, compose
from intarsia.composition.merge_context import MergeContext
from intarsia.composition.merge_recipe import MergeRecipe
from intarsia.composition.operators import ensembles as outputs
from intarsia.composition.operators import fisher, inlay, regmean, weights
from intarsia.composition.operators import task_vectors as deltas
from intarsia.composition.operators.registry import OPERATORS, operator

# Each of these files registers its operators.
_ = deltas, fisher, inlay, outputs, regmean, weights

__all__ = [
    "OPERATORS",
    "Composition",
    "MergeContext",
    "MergeRecipe",
    "align",
    "compose",
    "operator",
]
