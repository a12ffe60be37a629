"""Operators: pure functions that join states or logits, one file per idea."""

from intarsia.composition.operators.registry import OPERATORS, On, Operator, State, operator

# isort: off
# Each of these files registers its operators; tables list them in this order.
from intarsia.composition.operators import weights, task_vectors, sparsified, sce
from intarsia.composition.operators import singular_vectors, spherical, model_stock, fisher
from intarsia.composition.operators import inlay, ensembles, routers, emr, regmean

# isort: on

_ = (
    *(weights, task_vectors, sparsified, sce, singular_vectors, spherical, model_stock, fisher),
    *(inlay, ensembles, routers, emr, regmean),
)

__all__ = ["OPERATORS", "On", "Operator", "State", "operator"]
