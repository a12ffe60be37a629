"""What a model knows and what it does not."""

from intarsia.measure.evaluation import Evaluation, evaluate, figure
from intarsia.measure.logits import (
    accuracy_per_class,
    confusion,
    entropy,
    entropy_per_class,
    nonrewarded_entropy,
    rewarded_accuracy,
)

__all__ = [
    "Evaluation",
    "accuracy_per_class",
    "confusion",
    "entropy",
    "entropy_per_class",
    "evaluate",
    "figure",
    "nonrewarded_entropy",
    "rewarded_accuracy",
]
