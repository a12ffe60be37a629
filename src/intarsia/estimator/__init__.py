"""A scikit-learn classifier made of modules."""

from intarsia.estimator.labels import EstimatorError
from intarsia.estimator.modular_classifier import ModularClassifier

__all__ = ["EstimatorError", "ModularClassifier"]
