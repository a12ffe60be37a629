"""Operators: pure functions that join states or logits, one file per idea."""

from intarsia.composition.operators.registry import OPERATORS, On, Operator, State, operator

# isort: off
# Each of these files registers its operators; tables list them in this order.
from intarsia.composition.operators import weights
from intarsia.composition.operators.changes import task_vectors, sparsified, sce
from intarsia.composition.operators.changes import singular_vectors, spherical, model_stock
from intarsia.composition.operators import fisher, inlay
from intarsia.composition.operators.logits import ensembles, routers, emr
from intarsia.composition.operators import regmean

# isort: on

_ = (
    *(weights, task_vectors, sparsified, sce, singular_vectors, spherical, model_stock, fisher),
    *(inlay, ensembles, routers, emr, regmean),
)

__all__ = ["OPERATORS", "On", "Operator", "State", "operator"]
