"""Classifiers laid from sparse class modules: train them, join them, take them apart, see why."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives; torch is imported when the first of them is used.
_HOMES = {
    "data": [
        "DATASETS",
        "AUGMENTATIONS",
        "NEGATIVES",
        "Data",
        "Scaling",
        "Split",
        "disjoint_pairs",
        "load_data",
        "partition",
        "ward_partition",
    ],
    "encoders": ["ENCODERS", "Encoder", "pretrained_state"],
    "models": ["MODELS", "build", "collated", "initialise", "packed", "published", "wiring_of"],
    "objectives": ["OBJECTIVES", "Objective", "objective"],
    "pruning": ["PRUNINGS"],
    "training": ["OPTIMISERS", "SCHEDULES", "Recipe", "Task", "train"],
    "modules": ["BASES", "Bank", "Base", "Classifier", "Module", "compact", "grown", "sparse"],
    "measure": [
        "Evaluation",
        "abstention",
        "compatibility",
        "compatibility_matrix",
        "confusion",
        "entropy",
        "evaluate",
        "fresh_head",
        "nonrewarded_entropy",
        "novelty",
        "path",
        "rewarded_accuracy",
        "threshold",
    ],
    "composition": [
        "OPERATORS",
        "Composition",
        "FileMerge",
        "MergeRecipe",
        "MergekitRecipe",
        "align",
        "compose",
        "merge_files",
        "operator",
    ],
    "estimator": ["ModularClassifier"],
    "exports": ["export", "export_program", "to_network"],
    "reports": ["Report", "report"],
    "hub": ["from_pretrained", "push_to_hub", "save_pretrained"],
    "limits": ["Limits", "limited"],
    "errors": ["IntarsiaError"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = ("flow", "graphs", "lens", "sweetspot")  # public as a whole: `intarsia.sweetspot.fit`

if TYPE_CHECKING:  # `as` tells type checkers, which do not run this, that a name is public
    from intarsia import flow as flow
    from intarsia import graphs as graphs
    from intarsia import lens as lens
    from intarsia import sweetspot as sweetspot
    from intarsia.composition import OPERATORS as OPERATORS
    from intarsia.composition import Composition as Composition
    from intarsia.composition import FileMerge as FileMerge
    from intarsia.composition import MergekitRecipe as MergekitRecipe
    from intarsia.composition import MergeRecipe as MergeRecipe
    from intarsia.composition import align as align
    from intarsia.composition import compose as compose
    from intarsia.composition import merge_files as merge_files
    from intarsia.composition import operator as operator
    from intarsia.data import AUGMENTATIONS as AUGMENTATIONS
    from intarsia.data import DATASETS as DATASETS
    from intarsia.data import NEGATIVES as NEGATIVES
    from intarsia.data import Data as Data
    from intarsia.data import Scaling as Scaling
    from intarsia.data import Split as Split
    from intarsia.data import disjoint_pairs as disjoint_pairs
    from intarsia.data import load_data as load_data
    from intarsia.data import partition as partition
    from intarsia.data import ward_partition as ward_partition
    from intarsia.encoders import ENCODERS as ENCODERS
    from intarsia.encoders import Encoder as Encoder
    from intarsia.encoders import pretrained_state as pretrained_state
    from intarsia.errors import IntarsiaError as IntarsiaError
    from intarsia.estimator import ModularClassifier as ModularClassifier
    from intarsia.exports import export as export
    from intarsia.exports import export_program as export_program
    from intarsia.exports import to_network as to_network
    from intarsia.hub import from_pretrained as from_pretrained
    from intarsia.hub import push_to_hub as push_to_hub
    from intarsia.hub import save_pretrained as save_pretrained
    from intarsia.limits import Limits as Limits
    from intarsia.limits import limited as limited
    from intarsia.measure import Evaluation as Evaluation
    from intarsia.measure import abstention as abstention
    from intarsia.measure import compatibility as compatibility
    from intarsia.measure import compatibility_matrix as compatibility_matrix
    from intarsia.measure import confusion as confusion
    from intarsia.measure import entropy as entropy
    from intarsia.measure import evaluate as evaluate
    from intarsia.measure import fresh_head as fresh_head
    from intarsia.measure import nonrewarded_entropy as nonrewarded_entropy
    from intarsia.measure import novelty as novelty
    from intarsia.measure import path as path
    from intarsia.measure import rewarded_accuracy as rewarded_accuracy
    from intarsia.measure import threshold as threshold
    from intarsia.models import MODELS as MODELS
    from intarsia.models import build as build
    from intarsia.models import collated as collated
    from intarsia.models import initialise as initialise
    from intarsia.models import packed as packed
    from intarsia.models import published as published
    from intarsia.models import wiring_of as wiring_of
    from intarsia.modules import BASES as BASES
    from intarsia.modules import Bank as Bank
    from intarsia.modules import Base as Base
    from intarsia.modules import Classifier as Classifier
    from intarsia.modules import Module as Module
    from intarsia.modules import compact as compact
    from intarsia.modules import grown as grown
    from intarsia.modules import sparse as sparse
    from intarsia.objectives import OBJECTIVES as OBJECTIVES
    from intarsia.objectives import Objective as Objective
    from intarsia.objectives import objective as objective
    from intarsia.pruning import PRUNINGS as PRUNINGS
    from intarsia.reports import Report as Report
    from intarsia.reports import report as report
    from intarsia.training import OPTIMISERS as OPTIMISERS
    from intarsia.training import SCHEDULES as SCHEDULES
    from intarsia.training import Recipe as Recipe
    from intarsia.training import Task as Task
    from intarsia.training import train as train
else:
    __all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"intarsia.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'intarsia' has no attribute {name!r}")
    return getattr(import_module(f"intarsia.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*_HOME, *_ROOMS, "__version__"]
