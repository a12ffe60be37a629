"""Classifiers laid from sparse class modules: train them, join them, take them apart, see why."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives; torch is imported when the first of them is used.
_HOMES = {
    "data": [
        "DATASETS",
        "NEGATIVES",
        "Data",
        "Scaling",
        "Split",
        "disjoint_pairs",
        "load_data",
        "partition",
    ],
    "models": ["MODELS", "build", "initialise", "wiring_of"],
    "objectives": ["OBJECTIVES", "Objective", "objective"],
    "pruning": ["PRUNINGS"],
    "training": ["Recipe", "Task", "train"],
    "modules": ["Bank", "Classifier", "Module", "compact", "grown", "sparse"],
    "measure": [
        "Evaluation",
        "abstention",
        "compatibility",
        "compatibility_matrix",
        "confusion",
        "entropy",
        "evaluate",
        "nonrewarded_entropy",
        "novelty",
        "path",
        "rewarded_accuracy",
        "threshold",
    ],
    "composition": ["OPERATORS", "Composition", "MergeRecipe", "align", "compose", "operator"],
    "estimator": ["ModularClassifier"],
    "exports": ["export", "export_program", "to_network"],
    "reports": ["Report", "report"],
    "hub": ["from_pretrained", "push_to_hub", "save_pretrained"],
    "errors": ["IntarsiaError"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

# In full, since type checkers read it without running it.
__all__ = [
    "DATASETS",
    "MODELS",
    "NEGATIVES",
    "OBJECTIVES",
    "OPERATORS",
    "PRUNINGS",
    "Bank",
    "Classifier",
    "Composition",
    "Data",
    "Evaluation",
    "IntarsiaError",
    "MergeRecipe",
    "ModularClassifier",
    "Module",
    "Objective",
    "Recipe",
    "Report",
    "Scaling",
    "Split",
    "Task",
    "abstention",
    "align",
    "build",
    "compact",
    "compatibility",
    "compatibility_matrix",
    "compose",
    "confusion",
    "disjoint_pairs",
    "entropy",
    "evaluate",
    "export",
    "export_program",
    "from_pretrained",
    "grown",
    "initialise",
    "load_data",
    "nonrewarded_entropy",
    "novelty",
    "objective",
    "operator",
    "partition",
    "path",
    "push_to_hub",
    "report",
    "rewarded_accuracy",
    "save_pretrained",
    "sparse",
    "threshold",
    "to_network",
    "train",
    "wiring_of",
]

if TYPE_CHECKING:
    from intarsia.composition import (
        OPERATORS,
        Composition,
        MergeRecipe,
        align,
        compose,
        operator,
    )
    from intarsia.data import (
        DATASETS,
        NEGATIVES,
        Data,
        Scaling,
        Split,
        disjoint_pairs,
        load_data,
        partition,
    )
    from intarsia.errors import IntarsiaError
    from intarsia.estimator import ModularClassifier
    from intarsia.exports import export, export_program, to_network
    from intarsia.hub import from_pretrained, push_to_hub, save_pretrained
    from intarsia.measure import (
        Evaluation,
        abstention,
        compatibility,
        compatibility_matrix,
        confusion,
        entropy,
        evaluate,
        nonrewarded_entropy,
        novelty,
        path,
        rewarded_accuracy,
        threshold,
    )
    from intarsia.models import MODELS, build, initialise, wiring_of
    from intarsia.modules import Bank, Classifier, Module, compact, grown, sparse
    from intarsia.objectives import OBJECTIVES, Objective, objective
    from intarsia.pruning import PRUNINGS
    from intarsia.reports import Report, report
    from intarsia.training import Recipe, Task, train


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'intarsia' has no attribute {name!r}")
    return getattr(import_module(f"intarsia.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
