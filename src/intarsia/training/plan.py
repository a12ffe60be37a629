"""Plan: what a call of train asks for, checked and filled in, before anything is trained."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.data import Data, check_options, load_data
from intarsia.data.negatives import read_negatives
from intarsia.errors import DataError, RecipeError, WiringError
from intarsia.files import digest_of
from intarsia.models import Model, Wiring, as_model, initialise, silence, wiring_of
from intarsia.models.custom.symmetry import unit_that_cannot_be_empty
from intarsia.models.custom.trial import is_foreign
from intarsia.models.wiring import carries_wiring
from intarsia.modules import BASES, Architecture, Base, LowRank
from intarsia.modules.bases.base_weights import BaseSource, fit_base, output_names, read_base
from intarsia.objectives import OBJECTIVES, visible_labels
from intarsia.pruning import PRUNINGS
from intarsia.specs import Spec
from intarsia.training.lora import LowRankNetwork, lora_of, low_rank_names
from intarsia.training.settings.batches import read_batches
from intarsia.training.settings.presets import OPEN, PRESETS, DataSize, describe
from intarsia.training.settings.recipe import CUSTOM, Recipe, selected
from intarsia.training.settings.trainable import frozen_names
from intarsia.training.tasks import Task, check_tasks, rows_of, tasks_of, with_batches

MOST_COLUMNS = 1000  # of a table, whose names every module of it remembers
# What tasks of one's own bring along.
REPLACED = ("objective", "balance", "partition", "partition_seed", "seeds", "learning_rate")


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """The resolved recipe, the loaded data and the tasks; and the network, which follows from them.

    Nothing here depends on the device or the engine.
    """

    recipe: Recipe
    factory: Model | None  # of a custom network
    data: Data
    tasks: list[Task]
    own_tasks: bool  # given by the caller, not made from the recipe
    sample_weight: Tensor | None = None  # one per training sample
    pretrained: Base | None = None  # what modules are changes of, with any number of outputs

    @classmethod
    def of(
        cls,
        data: Any,
        recipe: Recipe | None,
        model: Model | None,
        settings: dict[str, Any],
        tasks: Callable[[Data], Sequence[Task]] | None,
        sample_weight: Any = None,
        base: BaseSource | None = None,
    ) -> "TrainingPlan":
        """From all that `train` was given, as its docstring says."""
        if isinstance(data, Recipe):
            raise RecipeError(
                "the data is a Recipe, which comes second: train(data, recipe), or "
                "train(recipe=recipe) for the data that it names"
            )
        if recipe is not None and not isinstance(recipe, Recipe):
            raise RecipeError(
                f"the recipe is a {type(recipe).__name__}: expected a Recipe, such as Recipe.load("
                "path); inputs and labels go together, as in train((x, y)), and settings by name"
            )
        recipe, pretrained, form = _with_base(recipe or Recipe(), base, settings)
        if pretrained is not None:
            model = form if model is None and recipe.model == OPEN else as_model(model)
        asked, factory = _asked(data, recipe, model, settings)
        resolved, loaded = _load(data, asked.resolve())
        resolved = resolved.resolve(DataSize.of(loaded))
        weight = _weights(sample_weight, len(loaded.train))
        _check_scaling(resolved, loaded)
        given = list(tasks(loaded)) if tasks else tasks_of(resolved, loaded, weight)
        check_tasks(given, loaded)
        batches, rows = read_batches(resolved.batches), rows_of(loaded)
        given = [with_batches(task, batches, rows) for task in given]
        _check_visibility(resolved, given)
        if tasks:  # their objectives replace the recipe's, which may have left no choice of batches
            before = dataclasses.replace(resolved, batches=asked.batches)
            resolved = before.for_objectives(hidden=any(t.hidden for t in given))
        if not len(loaded.validation):
            raise DataError(
                "training needs validation samples, to choose checkpoints and to see divergence; "
                f"{loaded.name!r} has none: load it with validation above 0"
            )
        _check_validation(given, loaded)
        plan = cls(resolved, factory, loaded, given, tasks is not None, weight, pretrained)
        plan.check_base()
        return plan

    @property
    def model(self) -> Model:
        return self.factory or self.recipe.model

    @property
    def outputs(self) -> int:
        return self.tasks[0].objective.outputs

    @property
    def choices(self) -> str | None:
        """What the preset chose for the data, where that is worth telling."""
        if not PRESETS[self.recipe.preset].by_size:
            return None
        return describe(self.recipe, DataSize.of(self.data))

    @cached_property
    def architecture(self) -> Architecture:
        return Architecture.of(self.model, self.data.shape, self.outputs)

    @cached_property
    def base(self) -> Base | None:
        """What modules are changes of, as a full state of the network."""
        if self.pretrained is None:
            return None
        return fit_base(self.pretrained, self.architecture, self.factory)

    @cached_property
    def frozen(self) -> tuple[str, ...]:
        """The parameters that stay at the base's values."""
        if self.base is None:
            return ()
        head = output_names(self.architecture, self.factory)
        return frozen_names(self.network, self.recipe.trainable, head)

    def check_base(self) -> None:
        """Before anything is trained: whether the base fits, and what is asked of it."""
        if self.base is None:
            return
        pruning = PRUNINGS.entry(self.recipe.pruning or "magnitude")
        if pruning.needs_units:
            raise RecipeError(
                f"pruning by {pruning.name} takes units out of a network, and what is pruned of a "
                "change stays at the base's value: use magnitude or random"
            )
        if self.low_rank is not None:
            self._check_head(self.low_rank)
            return
        if len(self.frozen) == sum(
            entry.learned for entry in self.architecture.plan(self.factory).values()
        ):
            raise RecipeError(
                f"trainable is {self.recipe.trainable!r}, and no parameter of the network is that: "
                "name layers with weights, or head"
            )

    @cached_property
    def network(self) -> nn.Module:
        """A network of the form that is trained; the weights to begin with are in `origins`."""
        return initialise(self.model, self.data.shape, self.outputs, 0)

    @cached_property
    def low_rank(self) -> LowRankNetwork | None:
        """The network as it trains where changes are products; None where weights train."""
        settings = lora_of(selected(self.recipe.trainable))
        if self.base is None or settings is None:
            return None
        head = output_names(self.architecture, self.factory)
        names = low_rank_names(self.network, settings, self.frozen, head)
        return LowRankNetwork(self.network, self.frozen, names, settings.rank, settings.scale)

    def _check_head(self, network: LowRankNetwork) -> None:
        """Nothing can be learned behind a layer of zeros that stays."""
        assert self.base is not None
        head = output_names(self.architecture, self.factory)
        still = [n for n in head if n in self.frozen and n not in network.names]
        if head and still == list(head) and not any(bool(self.base.state[n].any()) for n in head):
            raise RecipeError(
                f"trainable is {self.recipe.trainable!r}, and the layer that makes the outputs is "
                f"0 in the base: let it train too, as in trainable='{self.recipe.trainable}, head'"
            )

    def start(self, seed: int) -> dict[str, Tensor]:
        """The tensors that a module of this seed begins with, under the names that train."""
        state = self.origins[seed][1]
        return state if self.low_rank is None else self.low_rank.start(state, seed)

    def parts(
        self, state: dict[str, Tensor], mask: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, LowRank]]:
        """A trained state and its mask as a module has them, and the changes that are products."""
        if self.low_rank is None:
            return state, mask, {}
        own, changes = self.low_rank.parts(state)
        names = [name for name in self.frozen if name not in changes]
        return own, {n: torch.zeros(own[n].shape, dtype=torch.bool) for n in names}, changes

    @cached_property
    def wiring(self) -> Wiring | None:
        """The network's wiring; None where it has none, which only pruning by units minds."""
        pruning = PRUNINGS.entry(self.recipe.pruning or "magnitude")
        try:
            wiring = wiring_of(self.network, self.data.shape)
        except WiringError as error:
            if carries_wiring(self.network):
                raise
            if pruning.needs_units:
                raise WiringError(
                    f"pruning by {pruning.name} gives out units and needs the network's wiring: "
                    f"{error}"
                ) from error
            return None
        if pruning.needs_units and is_foreign(self.network):
            self._check_empty_units(pruning.name, wiring)
        return wiring

    def _check_empty_units(self, pruning: str, wiring: Wiring) -> None:
        axis = unit_that_cannot_be_empty(self.network, wiring, self.data.shape)
        if axis is not None:
            raise RecipeError(
                f"pruning by {pruning} takes whole units, and where all weights of a unit of axis "
                f"{axis!r} are 0 this network answers infinity or nan (weight norm divides by "
                "their size): use a network without that, or prune by magnitude"
            )

    @cached_property
    def origins(self) -> dict[int, tuple[str, dict[str, Tensor]]]:
        """The initial weights of every seed, after their digest: the base's, where there is one."""
        return {seed: self._origin(seed) for seed in dict.fromkeys(t.seed for t in self.tasks)}

    def _origin(self, seed: int) -> tuple[str, dict[str, Tensor]]:
        if self.base is not None:  # of every seed
            return self.base.digest, dict(self.base.state)
        network = initialise(self.model, self.data.shape, self.outputs, seed)
        if self.recipe.silent and self.wiring is not None:
            silence(network, self.wiring)
        state = {n: t.detach().clone() for n, t in network.state_dict().items()}
        return digest_of("origin", state), state

    @cached_property
    def key(self) -> str:
        """What tells this run from others, wherever it is trained."""
        tasks = [[t.name, t.rewarded, t.seed, t.learning_rate] for t in self.tasks]
        tensors = {
            f"{t.name}/{part}": tensor
            for t in self.tasks
            for part, tensor in t.objective.tensors.items()
        }
        if self.sample_weight is not None:
            tensors["sample_weight"] = self.sample_weight
        origins = [digest for digest, _ in self.origins.values()]
        parts: list[Any] = [self.recipe.identity(), self.data.digest, tasks, origins]
        drawn = {t.name: [t.others, t.stands_for] for t in self.tasks if math.isfinite(t.others)}
        if drawn and self.own_tasks and self.recipe.visibility is None:  # nothing else tells
            parts.append(drawn)
        probe = self.architecture.probe
        if probe is not None:  # three digits, which no machine rounds otherwise
            parts.append([f"{value:.3g}" for value in probe])
        return digest_of(parts, tensors)

    def provenance(self, task: Task) -> dict[str, Any]:
        """What a module remembers of how it was asked for."""
        settings = self.recipe.for_objectives(hidden=bool(task.hidden)).as_dict()
        if self.own_tasks:
            settings = {k: v for k, v in settings.items() if k not in REPLACED}
        about: dict[str, Any] = {"name": self.data.name, "digest": self.data.digest}
        if self.data.fill is not None:  # what stood in place of missing values
            about["fill"] = list(self.data.fill)
        if 0 < len(self.data.columns) <= MOST_COLUMNS:
            about["columns"] = list(self.data.columns)
        return {
            "recipe": settings,
            "seed": task.seed,
            "learning_rate": task.learning_rate,
            "objective": digest_of("objective", task.objective.tensors),
            "data": about,
        }


def _with_base(
    recipe: Recipe, base: BaseSource | None, settings: dict[str, Any]
) -> tuple[Recipe, Base | None, Model | None]:
    """The recipe that names the base, the base itself, and its model where that is known."""
    if base is None:
        source = settings.pop("base", recipe.base)
        if source == CUSTOM and source not in BASES:
            raise RecipeError(
                "the recipe's base was given in Python, which a recipe does not hold: give it "
                "again, as in train(..., base=network)"
            )
        base = source
    if base is None:
        return recipe, None, None
    named = str(base) if isinstance(base, str | Path) else CUSTOM
    return dataclasses.replace(recipe, base=named), *read_base(base)


def _asked(
    data: Any, base: Recipe, model: Model | None, settings: dict[str, Any]
) -> tuple[Recipe, Model | None]:
    """The recipe as it was asked for, and the factory of a custom network if there is one."""
    factory = None
    if model is not None and not isinstance(model, str | dict | Spec):
        factory, settings = model, {**settings, "model": CUSTOM}
    elif model is not None:
        named = {"name": model.name, **model.arguments} if isinstance(model, Spec) else model
        settings = {**settings, "model": named}
    if isinstance(data, Data):
        settings = {**settings, "data": data.name}
    elif isinstance(data, str | Path):
        settings = {**settings, "data": str(data)}
    return Recipe.read({**base.as_dict(), **settings}), factory


def _load(data: Any, recipe: Recipe) -> tuple[Recipe, Data]:
    """The loaded data, and the recipe with what loading tells."""
    check_options(recipe.data_options)
    if data is None or isinstance(data, str | Path):
        return recipe, load_data(recipe.data, **recipe.data_options)
    if isinstance(data, Data):
        _check_loaded(data, recipe)
        return dataclasses.replace(recipe, data_options=dict(data.options)), data
    data = load_data(data, **recipe.data_options)
    return dataclasses.replace(recipe, data=data.name), data


def _check_loaded(data: Data, recipe: Recipe) -> None:
    """Options for loading must be those that the data were loaded with."""
    options = {**data.options, "scale": data.scaling.kind}
    for option, wanted in recipe.data_options.items():
        if options.get(option) != wanted:
            raise RecipeError(
                f"the recipe or its preset wants data loaded with {option}={wanted!r}, "
                f"but {data.name!r} was loaded with {options.get(option, 'its default')!r}: "
                "give the option to load_data, or give train the name"
            )


def _check_scaling(recipe: Recipe, data: Data) -> None:
    """What is hidden from a module must not reach it through the scaling."""
    if (
        recipe.visibility is not None
        and data.scale_on is None
        and data.scaling.fitted(data.train.x.dtype)
    ):
        raise RecipeError(
            f"visibility is {recipe.visibility!r}, but the scaling of {data.name!r} "
            f"({data.scaling.kind}) was fitted on the rows of all classes, which would reach every "
            "module: load the data with scale_on='public' and a public set, or with scale='none'; "
            "or with scale_on='train', if all who train modules agreed on these numbers"
        )


def _check_validation(tasks: Sequence[Task], data: Data) -> None:
    """A loss over no sample would be taken for one that diverged."""
    there = set(data.validation.y.unique().tolist())
    for task in tasks:
        if not there & (task.labels - set(task.hidden)):
            raise DataError(
                f"no validation sample of {data.name!r} is of a class that the objective shows "
                f"module {task.name!r}, so that none of its epochs can be judged: give the classes "
                f"{', '.join(task.rewarded)} validation samples, or leave the module out of the "
                "partition"
            )


def _check_visibility(recipe: Recipe, tasks: Sequence[Task]) -> None:
    """Tasks hide what the recipe says; those that see their own classes alone have negatives."""
    if recipe.visibility is None:
        return
    for task in tasks:
        visible = visible_labels(recipe.visibility, len(task.labels), task.indices)
        unseen = (visible == 0).nonzero().flatten().tolist()
        if unseen != list(task.unseen) or not set(unseen) <= set(task.hidden):
            raise RecipeError(
                f"visibility is {recipe.visibility!r}, but task {task.name!r} does not hide the "
                f"labels {unseen}: leave visibility out, or name them in unseen and give them the "
                "weight 0"
            )
    if read_negatives(recipe.negatives):
        return
    asks = OBJECTIVES.entry(recipe.objective).uncertain_elsewhere
    if asks and all(t.unseen and set(t.hidden) | set(t.indices) >= t.labels for t in tasks):
        raise RecipeError(
            f"visibility is {recipe.visibility!r} and negatives is 'none': the modules would see "
            "nothing but their own classes, and learn to answer them always; give negatives, as "
            "in 'noise(1.0) + mixed(1.0)'"
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
