"""Modules joined without training, and taken apart again."""

from intarsia.composition import deltas, fisher, inlay, outputs, regmean, weights
from intarsia.composition.align import align
from intarsia.composition.composition import Composition, compose
from intarsia.composition.ground import Ground
from intarsia.composition.operators import OPERATORS, operator
from intarsia.composition.recipe import MergeRecipe

# Each of these files registers its operators.
_ = deltas, fisher, inlay, outputs, regmean, weights

__all__ = ["OPERATORS", "Composition", "Ground", "MergeRecipe", "align", "compose", "operator"]
