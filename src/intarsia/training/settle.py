"""Settle: what a call of train asks for, filled in and checked, before anything is trained."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from intarsia.data import Data, check_options, load_data
from intarsia.errors import DataError, RecipeError, TrainingError
from intarsia.models import Model
from intarsia.specs import Spec
from intarsia.training.recipe import Recipe
from intarsia.training.tasks import Task, check_tasks, tasks_of

REPLACED = ("objective", "partition", "partition_seed", "seeds", "learning_rate")  # by own tasks


@dataclass(frozen=True)
class Settled:
    """The resolved recipe, a stranger's factory if there is one, the loaded data and the tasks."""

    recipe: Recipe
    factory: Model | None
    data: Data
    tasks: list[Task]
    own_tasks: bool  # given by the caller, not made from the recipe

    def provenance(self) -> dict[str, Any]:
        """The recipe without what tasks of the caller's own replace."""
        settings = self.recipe.as_dict()
        return {k: v for k, v in settings.items() if not (self.own_tasks and k in REPLACED)}


def settle(
    data: Any,
    recipe: Recipe | None,
    model: Model | None,
    settings: dict[str, Any],
    tasks: Callable[[Data], Sequence[Task]] | None,
) -> Settled:
    """Everything that `train` was given, as its docstring tells."""
    resolved, factory, loaded = _load(data, recipe, model, settings)
    given = list(tasks(loaded)) if tasks else tasks_of(resolved, loaded)
    check_tasks(given, loaded)
    return Settled(resolved, factory, loaded, given, own_tasks=tasks is not None)


def device_of(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise TrainingError(f"device {name!r} cannot be used here: {first}") from error
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def check_samples(data: Data, recipe: Recipe, network: torch.nn.Module) -> None:
    if not len(data.validation):
        raise DataError(
            "training needs validation samples, to choose checkpoints and to see divergence; "
            f"{data.name!r} has none: load it with validation above 0"
        )
    batched = any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in network.modules())
    if batched and min(recipe.batch, len(data.train)) < 2:
        raise RecipeError("a network with BatchNorm needs batches of at least 2 samples, got 1")


def _load(
    data: Any, recipe: Recipe | None, model: Model | None, settings: dict[str, Any]
) -> tuple[Recipe, Model | None, Data]:
    """The resolved recipe, the stranger's factory if there is one, and the loaded data."""
    base = recipe or Recipe()
    factory = None
    if model is not None and not isinstance(model, str | dict | Spec):
        factory, settings = model, {**settings, "model": "custom"}
    elif model is not None:
        named = {"name": model.name, **model.arguments} if isinstance(model, Spec) else model
        settings = {**settings, "model": named}
    if isinstance(data, Data):
        settings = {**settings, "data": data.name}
    elif isinstance(data, str | Path):
        settings = {**settings, "data": str(data)}
    merged = Recipe.read({**base.as_dict(), **settings}).resolve()
    check_options(merged.data_options)
    if data is None or isinstance(data, str | Path):
        data = load_data(merged.data, **merged.data_options)
    elif not isinstance(data, Data):
        data = load_data(data, **merged.data_options)
        merged = dataclasses.replace(merged, data=data.name)
    else:
        _check_loaded(data, merged)
        merged = dataclasses.replace(merged, data_options=dict(data.options))
    return merged, factory, data


def _check_loaded(data: Data, recipe: Recipe) -> None:
    """Options for loading must be those that the data were loaded with."""
    found = {**data.options, "scale": data.scaling.kind}
    for option, wanted in recipe.data_options.items():
        if found.get(option) != wanted:
            raise RecipeError(
                f"the recipe or its preset wants data loaded with {option}={wanted!r}, "
                f"but {data.name!r} was loaded with {found.get(option, 'its default')!r}: "
                "give the option to load_data, or give train the name"
            )
