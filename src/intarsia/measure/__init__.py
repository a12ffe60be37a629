"""What a model knows and what it does not, what will fit, and what lies between."""

from intarsia.measure.abstention import Abstention, abstention, threshold
from intarsia.measure.compatibility import Compatibility, compatibility, compatibility_matrix
from intarsia.measure.evaluation import (
    Evaluation,
    OpenSet,
    evaluate,
    evaluate_logits,
    format_number,
    open_set,
)
from intarsia.measure.logits import (
    accuracy_per_class,
    auroc,
    confusion,
    entropy,
    entropy_per_class,
    nonrewarded_entropy,
    rewarded_accuracy,
)
from intarsia.measure.matrix import Matrix
from intarsia.measure.novelty import Novelty, novelty
from intarsia.measure.path import WeightPath, path
from intarsia.measure.probe import FRESH_HEAD, Contract, FreshHead, ProbeScore, fresh_head
from intarsia.measure.significance import (
    Moments,
    TTest,
    above,
    best_of,
    best_p,
    clustered,
    equivalence,
    holm,
    welch,
    welch_of_moments,
)

__all__ = [
    "FRESH_HEAD",
    "Abstention",
    "Compatibility",
    "Contract",
    "Evaluation",
    "FreshHead",
    "Matrix",
    "Moments",
    "Novelty",
    "OpenSet",
    "ProbeScore",
    "TTest",
    "WeightPath",
    "above",
    "abstention",
    "accuracy_per_class",
    "auroc",
    "best_of",
    "best_p",
    "clustered",
    "compatibility",
    "compatibility_matrix",
    "confusion",
    "entropy",
    "entropy_per_class",
    "equivalence",
    "evaluate",
    "evaluate_logits",
    "format_number",
    "fresh_head",
    "holm",
    "nonrewarded_entropy",
    "novelty",
    "open_set",
    "path",
    "rewarded_accuracy",
    "threshold",
    "welch",
    "welch_of_moments",
]
