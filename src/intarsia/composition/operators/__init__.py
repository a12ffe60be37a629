"""Operators: pure functions that join states or logits, one file per idea."""

from intarsia.composition.operators.registry import OPERATORS, On, Operator, State, operator

# isort: off
# Each of these files registers its operators; tables list them in this order.
from intarsia.composition.operators import weights, task_vectors, fisher
from intarsia.composition.operators import inlay, ensembles, routers, regmean

# isort: on

_ = weights, task_vectors, fisher, inlay, ensembles, routers, regmean

__all__ = ["OPERATORS", "On", "Operator", "State", "operator"]
