"""A scikit-learn classifier made of modules."""

from intarsia.estimator.classifier import ModularClassifier
from intarsia.estimator.labels import EstimatorError

__all__ = ["EstimatorError", "ModularClassifier"]
