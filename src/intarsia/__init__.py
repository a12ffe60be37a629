"""Classifiers laid from sparse class modules: train them, join them, take them apart, see why."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives; torch is imported when the first of them is used.
_HOMES = {
    "data": ["Data", "Scaling", "Split", "disjoint_pairs", "load_data", "partition"],
    "models": ["MODELS", "build", "initialise", "wiring_of"],
    "objectives": ["OBJECTIVES", "Objective", "objective"],
    "pruning": ["PRUNINGS"],
    "training": ["Recipe", "Task", "train"],
    "modules": ["Bank", "Classifier", "Module"],
    "measure": [
        "Evaluation",
        "confusion",
        "entropy",
        "evaluate",
        "nonrewarded_entropy",
        "rewarded_accuracy",
    ],
    "composition": ["Composition", "compose"],
    "errors": ["IntarsiaError"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from intarsia.composition import Composition, compose
    from intarsia.data import Data, Scaling, Split, disjoint_pairs, load_data, partition
    from intarsia.errors import IntarsiaError
    from intarsia.measure import (
        Evaluation,
        confusion,
        entropy,
        evaluate,
        nonrewarded_entropy,
        rewarded_accuracy,
    )
    from intarsia.models import MODELS, build, initialise, wiring_of
    from intarsia.modules import Bank, Classifier, Module
    from intarsia.objectives import OBJECTIVES, Objective, objective
    from intarsia.pruning import PRUNINGS
    from intarsia.training import Recipe, Task, train


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'intarsia' has no attribute {name!r}")
    return getattr(import_module(f"intarsia.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
