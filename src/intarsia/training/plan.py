"""Settle: what a call of train asks for, filled in and checked, before anything is trained."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intarsia.data import Data, check_options, load_data
from intarsia.errors import DataError, RecipeError, TrainingError
from intarsia.models import MODELS, Model
from intarsia.models.custom.trial import input_dtype
from intarsia.specs import Spec
from intarsia.training.auto import AUTO, DataSize
from intarsia.training.job import Job
from intarsia.training.recipe import Recipe
from intarsia.training.tasks import Task, check_tasks, tasks_of

# What tasks of one's own bring along.
REPLACED = ("objective", "balance", "partition", "partition_seed", "seeds", "learning_rate")


@dataclass(frozen=True)
class Settled:
    """The resolved recipe, a stranger's factory if there is one, the loaded data and the tasks."""

    recipe: Recipe
    factory: Model | None
    data: Data
    tasks: list[Task]
    own_tasks: bool  # given by the caller, not made from the recipe
    sample_weight: Tensor | None = None  # one per training sample
    said: tuple[str, ...] = ()  # what was chosen for the data

    def provenance(self, task: Task) -> dict[str, Any]:
        """The recipe without what tasks of the caller's own replace, as it concerns this task."""
        settings = self.recipe.for_objectives(hidden=bool(task.hidden)).as_dict()
        return {k: v for k, v in settings.items() if not (self.own_tasks and k in REPLACED)}


def settle(
    data: Any,
    recipe: Recipe | None,
    model: Model | None,
    settings: dict[str, Any],
    tasks: Callable[[Data], Sequence[Task]] | None,
    sample_weight: Any = None,
) -> Settled:
    """Everything that `train` was given, as its docstring tells."""
    asked, factory = _asked(data, recipe or Recipe(), model, settings)
    resolved, loaded = _load(data, asked.resolve())
    resolved = fitted(resolved, loaded)
    said = chosen_for(resolved, loaded) if resolved.preset == "auto" else ()
    weight = _weights(sample_weight, len(loaded.train))
    given = list(tasks(loaded)) if tasks else tasks_of(resolved, loaded)
    check_tasks(given, loaded)
    if tasks:  # their objectives replace the recipe's, which may have left no choice of batches
        hidden = any(t.hidden for t in given)
        batches = dataclasses.replace(resolved, batches=asked.batches)
        resolved = batches.for_objectives(hidden=hidden)
    return Settled(resolved, factory, loaded, given, tasks is not None, weight, said)


def fitted(recipe: Recipe, data: Data) -> Recipe:
    """The recipe with the settings that follow from the size of the data."""
    return recipe.resolve(size_of(data))


def size_of(data: Data) -> DataSize:
    """What the settings of the preset `auto` follow from."""
    return DataSize(len(data.train), math.prod(data.shape), data.classes)


def chosen_for(recipe: Recipe, data: Data) -> tuple[str, ...]:
    """The settings of a recipe of the preset `auto`, to be printed."""
    pruning = f"{recipe.pruning} to {recipe.sparsity:.0%}" if recipe.sparsity else "no pruning"
    if recipe.pruning and not recipe.sparsity and recipe.pruning != AUTO["pruning"]:
        pruning = str(recipe.pruning)
    values = recipe.as_dict()
    model = values["model"]
    named = MODELS.spec(model) if isinstance(model, dict) else model
    return (
        f"settings for {size_of(data)}: model {named}, {pruning}, {recipe.epochs} epochs "
        f"(pruning round {recipe.pruning_epochs}) in batches of {recipe.batch}, learning rate "
        f"{recipe.learning_rate:g} {recipe.schedule}, negatives {recipe.negatives}, "
        f"balance {recipe.balance:g}",
    )


def _weights(given: Any, rows: int) -> Tensor | None:
    if given is None:
        return None
    try:
        weights = torch.as_tensor(np.asarray(given, dtype=np.float32))
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight is not a list of numbers: {error}") from error
    if weights.shape != (rows,):
        raise DataError(
            f"sample_weight has shape {tuple(weights.shape)}: expected one number for each of the "
            f"{rows} training samples"
        )
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()) or not weights.any():
        raise DataError("sample_weight must be finite, at least 0, and above 0 for some sample")
    return weights


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


def read_as(network: torch.nn.Module, data: Data) -> torch.dtype:
    """What the network reads: float32, or whole numbers, which no scaling may have touched."""
    dtype = input_dtype(network, data.shape)
    if dtype == torch.int64 and data.scaling.kind != "none":
        raise DataError(
            f"{type(network).__name__} reads whole numbers, such as token ids, but {data.name!r} "
            f"is scaled ({data.scaling.kind!r}): load it with scale='none'"
        )
    return dtype


def check_samples(data: Data, job: Job) -> None:
    """There is something to validate on, and enough in a batch for the network."""
    if not len(data.validation):
        raise DataError(
            "training needs validation samples, to choose checkpoints and to see divergence; "
            f"{data.name!r} has none: load it with validation above 0"
        )
    norm = torch.nn.modules.batchnorm._BatchNorm
    if not any(isinstance(m, norm) for m in job.network.modules()):
        return
    for task in job.tasks:
        if job.size(task) < 2:
            raise RecipeError(
                "a network with BatchNorm needs batches of at least 2 samples, got 1 "
                f"for module {task.name!r}"
            )


def _asked(
    data: Any, base: Recipe, model: Model | None, settings: dict[str, Any]
) -> tuple[Recipe, Model | None]:
    """The recipe as it was asked for, and the stranger's factory if there is one."""
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
    return Recipe.read({**base.as_dict(), **settings}), factory


def _load(data: Any, merged: Recipe) -> tuple[Recipe, Data]:
    """The loaded data, and the recipe with what loading tells."""
    check_options(merged.data_options)
    if data is None or isinstance(data, str | Path):
        data = load_data(merged.data, **merged.data_options)
    elif not isinstance(data, Data):
        data = load_data(data, **merged.data_options)
        merged = dataclasses.replace(merged, data=data.name)
    else:
        _check_loaded(data, merged)
        merged = dataclasses.replace(merged, data_options=dict(data.options))
    return merged, data


def _check_loaded(data: Data, recipe: Recipe) -> None:
    """Options for loading must be those that the data were loaded with."""
    result = {**data.options, "scale": data.scaling.kind}
    for option, wanted in recipe.data_options.items():
        if result.get(option) != wanted:
            raise RecipeError(
                f"the recipe or its preset wants data loaded with {option}={wanted!r}, "
                f"but {data.name!r} was loaded with {result.get(option, 'its default')!r}: "
                "give the option to load_data, or give train the name"
            )
