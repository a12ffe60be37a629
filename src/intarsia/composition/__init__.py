"""Modules joined without training, and taken apart again."""

from intarsia.composition.composition import Composition, compose
from intarsia.composition.operators import OPERATORS, operator

__all__ = ["OPERATORS", "Composition", "compose", "operator"]
