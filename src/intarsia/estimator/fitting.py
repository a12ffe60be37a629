"""Fitting: from rows and settings to modules, and from modules to a composition."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch.nn.functional import cross_entropy

from intarsia.composition import OPERATORS, Composition, compose
from intarsia.composition.batchnorm import has_batchnorm
from intarsia.composition.composition import AUTO
from intarsia.composition.operators.registry import looks_at_samples
from intarsia.data import Data, Scaling, Split, to_shape
from intarsia.data.splits import check_fraction
from intarsia.errors import RecipeError, TrainingError
from intarsia.estimator.replay_buffer import ReplayBuffer
from intarsia.models import Model
from intarsia.modules import Architecture, Module, logits_of
from intarsia.specs import Spec
from intarsia.training import Recipe, train
from intarsia.training.engines.mlp_cpu.workers import few_threads
from intarsia.training.settings.presets import DataSize
from intarsia.training.settings.recipe import CUSTOM

TRAINING = (
    "objective", "pruning", "sparsity", "epochs", "batch", "learning_rate", "schedule",
    "temperature", "balance", "negatives",
)  # fmt: skip
ENOUGH = 0.5  # rows of other classes for each of a new one, below which more are made up
PULL = 1.0  # nats of penalty for a temperature e times the modules' own


@dataclass(frozen=True)
class EstimatorSettings:
    """The parameters of the estimator, checked."""

    recipe: Recipe
    factory: Model | None  # of a custom network
    scale: str
    shape: tuple[int, ...] | None
    validation: float
    background: int
    verbose: bool
    device: str

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "EstimatorSettings":
        # A grid search over np.arange sets numpy scalars.
        given = {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}
        model, shape, background = (given[key] for key in ("model", "shape", "background"))
        if not isinstance(background, int) or isinstance(background, bool) or background < 0:
            raise RecipeError(
                f"background is {background!r}: expected how many rows to keep, a whole number "
                "from 0"
            )
        if given["operator"] != AUTO:  # an unknown one should fail before the training
            OPERATORS.spec(given["operator"])
        named = isinstance(model, str | Mapping | Spec)
        recipe = Recipe(
            model=model if named else CUSTOM,
            **{key: given[key] for key in TRAINING},
        )
        return cls(
            recipe=recipe.resolve(),
            factory=None if named else model,
            scale=given["scale"] or ("capped" if shape is None else "unit"),
            shape=None if shape is None else _shape(shape),
            validation=check_fraction("validation", given["validation"]),
            background=background,
            verbose=bool(given["verbose"]),
            device=given["device"],
        )


def train_modules(
    rows: ReplayBuffer,
    catalogue: tuple[str, ...],
    wanted: Sequence[str],
    settings: EstimatorSettings,
    seed: int,
    modules: Sequence[Module],
) -> list[Module]:
    """One module for each wanted class, with the network and scaling of the existing modules."""
    scaling = modules[0].scaling if modules else None
    data = _data(rows, catalogue, wanted, settings, scaling)
    recipe = settings.recipe
    if modules:
        recipe = replace(recipe, visibility=_visibility(data, wanted))
    if modules and modules[0].architecture.model is not None:
        model = modules[0].architecture.model
        recipe = replace(recipe, model={"name": model.name, **model.arguments})
    recipe = recipe.resolve(DataSize.of(data))
    with few_threads(_work(data, recipe, settings, len(wanted))):
        bank = train(
            data,
            recipe,
            model=settings.factory,
            device=settings.device,
            partition=[[name] for name in wanted],
            seeds=[seed],
            progress=settings.verbose,
            sample_weight=rows.weight,
        )
    if bank.diverged:
        raise TrainingError(
            f"the modules {', '.join(bank.diverged)} diverged: lower the learning rate"
        )
    return list(bank)


def _visibility(data: Data, wanted: Sequence[str]) -> str | None:
    """What a class that comes later sees: with few rows of others, made-up ones stand in for them.

    None where there are enough: then they are its negatives, as in a fit.
    """
    if len(wanted) > 1:  # they have each other
        return None
    label = data.catalogue.index(wanted[0])
    own = int((data.train.y == label).sum())
    if own == len(data.train):
        return "own"
    if len(data.train) - own >= ENOUGH * own:
        return None
    others = [place for place in range(data.classes) if place != label]
    return f"past(order={[*others, label]}, amount=None)"


def joins_weights(operator: Any) -> bool:
    """Whether modules are joined weight by weight, which needs one origin for all."""
    return operator != AUTO and bool(OPERATORS.entry(operator).on == "weights")


def join_modules(modules: Sequence[Module], operator: Any, buffer: ReplayBuffer) -> Composition:
    """The modules joined, in float64; the operator gets the kept rows only if it needs them."""
    if operator == AUTO:
        return compose(modules).double()
    looks = looks_at_samples(operator) or (
        joins_weights(operator) and has_batchnorm(modules[0].to_module())
    )
    samples = buffer.train if looks and len(buffer) else None
    return compose(modules, operator, samples=samples).double()


def rows_with_module(merged: Composition, held: Split | None) -> Split | None:
    """The rows of classes that have a module; None if there are none."""
    if held is None:
        return None
    known = held.select([merged.catalogue.index(name) for name in merged.rewarded])
    return known if len(known) else None


def fit_temperature(merged: Composition, held: Split) -> float:
    """The temperature at which held-out rows are most probable, by the classes with a module.

    A weak pull towards the modules' own temperature guards against a few rows that all are right.
    """
    places = [merged.catalogue.index(name) for name in merged.rewarded]
    z = logits_of(merged, held.x)[:, places].double()
    own = torch.tensor([places.index(label) for label in held.y.tolist()])
    if len(places) < 2:
        return merged.temperature

    def cost(log_factor: float) -> float:
        scaled = z / (merged.temperature * math.exp(log_factor))
        return float(cross_entropy(scaled, own, reduction="sum")) + PULL * log_factor**2

    best = minimize_scalar(cost, bounds=(-4.0, 4.0), method="bounded")
    return float(merged.temperature * math.exp(best.x))


def _data(
    rows: ReplayBuffer,
    catalogue: tuple[str, ...],
    wanted: Sequence[str],
    settings: EstimatorSettings,
    scaling: Scaling | None,
) -> Data:
    # A module treats all labels that it does not reward alike, so any of them can stand for none.
    spare = next((i for i, name in enumerate(catalogue) if name not in wanted), 0)
    train, held = (
        Split(_shaped(part.x, settings.shape), part.y.where(part.y >= 0, spare))
        for part in (rows.train, rows.validation)
    )
    held = held if len(held) else train
    none = Split(train.x[:0], train.y[:0])
    data = Data.build("arrays", catalogue, train, held, none, settings.scale)
    return data if scaling is None else replace(data, scaling=scaling, scale_on="train")


def _shape(given: Any) -> tuple[int, ...]:
    sizes = tuple(given) if isinstance(given, Sequence | np.ndarray) else ()
    if not sizes or not all(isinstance(n, int | np.integer) and n > 0 for n in sizes):
        raise RecipeError(f"shape is {given!r}: expected the sizes of one input, as (1, 28, 28)")
    return tuple(map(int, sizes))


def _shaped(x: torch.Tensor, shape: tuple[int, ...] | None) -> torch.Tensor:
    return x if shape is None else to_shape(x, shape, "the rows of X")


def _work(data: Data, recipe: Recipe, settings: EstimatorSettings, modules: int) -> float:
    """Roughly how many multiplications the training takes."""
    assert recipe.epochs is not None
    plan = Architecture.of(settings.factory or recipe.model, data.shape, data.classes).plan(
        settings.factory
    )
    size = sum(prod(entry.shape) for entry in plan.values())
    return float(size) * len(data.train) * recipe.epochs * modules
