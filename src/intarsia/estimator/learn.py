"""Learn: from kept rows and settings to modules, and from modules to a composition."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from intarsia.data import Data, Scaling, Split, to_shape
from intarsia.data.splits import check_fraction
from intarsia.errors import RecipeError, TrainingError
from intarsia.estimator.replay_buffer import ReplayBuffer
from intarsia.models import Model
from intarsia.modules import Architecture, Module, logits_of
from intarsia.specs import Spec
from intarsia.training import Recipe, train
from intarsia.training.plan import fitted

TRAINING = (
    "objective", "pruning", "sparsity", "epochs", "batch", "learning_rate", "schedule",
    "temperature", "balance", "negatives",
)  # fmt: skip
PULL = 1.0  # nats for a temperature e times the modules' own
SMALL = 2e9  # multiplications below which forked processes cost more than they save


@dataclass(frozen=True)
class Settings:
    """The parameters of the estimator, checked."""

    recipe: Recipe
    factory: Model | None  # of a network that intarsia has no name for
    scale: str
    shape: tuple[int, ...] | None
    validation: float
    background: int
    verbose: bool
    device: str

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "Settings":
        # A search over np.arange sets numpy's numbers.
        given = {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}
        model, shape, background = (given[key] for key in ("model", "shape", "background"))
        if not isinstance(background, int) or isinstance(background, bool) or background < 0:
            raise RecipeError(
                f"background is {background!r}: expected how many rows to keep, a whole number "
                "from 0"
            )
        if given["operator"] != AUTO:  # an unknown one should not be told after the training
            OPERATORS.spec(given["operator"])
        named = isinstance(model, str | Mapping | Spec)
        recipe = Recipe(
            model=model if named else "custom",
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


def learned(
    rows: ReplayBuffer,
    catalogue: tuple[str, ...],
    wanted: Sequence[str],
    settings: Settings,
    seed: int,
    modules: Sequence[Module],
) -> list[Module]:
    """One module for each class that is wanted, of the network and scaling of those there are."""
    scaling = modules[0].scaling if modules else None
    data = _data(rows, catalogue, wanted, settings, scaling)
    recipe = settings.recipe
    if modules and modules[0].architecture.model is not None:
        model = modules[0].architecture.model
        recipe = replace(recipe, model={"name": model.name, **model.arguments})
    recipe = fitted(recipe, data)
    with few_threads(_work(data, recipe, settings, len(wanted)) < SMALL):
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


def joins_weights(operator: Any) -> bool:
    """Whether modules are joined weight by weight, which needs one origin for all."""
    if operator == AUTO:
        return False
    how: Any = OPERATORS[OPERATORS.spec(operator).name]
    return how.on == "weights"


def laid(modules: Sequence[Module], operator: Any, kept: ReplayBuffer) -> Composition:
    """The modules joined, in float64; the operator sees the kept rows only where it needs them."""
    if operator == AUTO:
        return compose(modules).double()
    how: Any = OPERATORS[OPERATORS.spec(operator).name]
    looks = how.samples or (joins_weights(operator) and has_batchnorm(modules[0].to_module()))
    samples = kept.train if looks and len(kept) else None
    return compose(modules, operator, samples=samples).double()


def known_rows(merged: Composition, held: Split | None) -> Split | None:
    """The rows whose class has a module; None where there are none."""
    if held is None:
        return None
    known = held.select([merged.catalogue.index(name) for name in merged.rewarded])
    return known if len(known) else None


def fitted_temperature(merged: Composition, held: Split) -> float:
    """The temperature at which held-out rows are most probable, by the classes with a module.

    A weak pull towards the modules' own keeps a few rows that are all right from being believed.
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
    settings: Settings,
    scaling: Scaling | None,
) -> Data:
    # To a module all labels that it does not reward are one, so any of them stands for no label.
    spare = next((i for i, name in enumerate(catalogue) if name not in wanted), 0)
    train, held = (
        Split(_shaped(part.x, settings.shape), part.y.where(part.y >= 0, spare))
        for part in (rows.train, rows.validation)
    )
    held = held if len(held) else train
    none = Split(train.x[:0], train.y[:0])
    data = Data.build("arrays", catalogue, train, held, none, settings.scale)
    return data if scaling is None else replace(data, scaling=scaling)


def _shape(given: Any) -> tuple[int, ...]:
    sizes = tuple(given) if isinstance(given, Sequence | np.ndarray) else ()
    if not sizes or not all(isinstance(n, int | np.integer) and n > 0 for n in sizes):
        raise RecipeError(f"shape is {given!r}: expected the sizes of one input, as (1, 28, 28)")
    return tuple(map(int, sizes))


def _shaped(x: torch.Tensor, shape: tuple[int, ...] | None) -> torch.Tensor:
    return x if shape is None else to_shape(x, shape, "the rows of X")


def _work(data: Data, recipe: Recipe, settings: Settings, modules: int) -> float:
    """Roughly how many multiplications the training takes."""
    assert recipe.epochs is not None
    plan = Architecture.of(settings.factory or recipe.model, data.shape, data.classes).plan(
        settings.factory
    )
    size = sum(prod(entry.shape) for entry in plan.values())
    return float(size) * len(data.train) * recipe.epochs * modules


@contextmanager
def few_threads(small: bool) -> Iterator[None]:
    """One thread, and so no forked processes, for work that is too small for them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if small else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
