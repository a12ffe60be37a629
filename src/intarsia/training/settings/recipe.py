"""Recipe: every setting of a training run, in one place; a preset fills in what is left open."""

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from intarsia.data.augmentations import read_augmentations
from intarsia.data.load import known_options
from intarsia.data.negatives import read_negatives
from intarsia.errors import RecipeError, nearest, shortened
from intarsia.objectives import OBJECTIVES, VISIBILITIES, objective
from intarsia.parsing import read_settings
from intarsia.pruning import PRUNINGS
from intarsia.specs import RegistryEntry, Spec, check_keys, is_number, split_outside
from intarsia.training.lora import lora_of
from intarsia.training.settings.batches import BATCHES, read_batches
from intarsia.training.settings.optimisers import OPTIMISERS
from intarsia.training.settings.presets import PRESETS, DataSize
from intarsia.training.settings.schedules import SCHEDULES

Text = str | Mapping[str, Any]  # `name`, `name(value, key=value)` or {name: ..., key: value}

TEXTS = (  # settings that are one such text
    *("model", "objective", "visibility", "pruning"),
    *("batches", "optimiser", "schedule"),
)
CUSTOM = "custom"  # what a recipe calls a network of the user's own
# Settings that came later, at the value at which they change nothing: it is not part of a recipe's
# identity, so that older folders and digests stay.
NEUTRAL: dict[str, Any] = {
    "optimiser": "adam",
    "batches": "all",
    "silent": False,
    "balance": 0.0,
    "negatives": "none",
    "augment": "none",
    "base": None,
    "trainable": "all",
    "visibility": "all",
    "precision": "float32",
}


@dataclass(frozen=True)
class Recipe:
    """Settings of a run; a field left at None takes its preset's value for the model and data."""

    preset: str = "auto"
    # what is learned
    data: str = "digits"
    data_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    model: Text = "mlp"
    objective: Text = "me"
    partition: str | Sequence[Sequence[str]] = "each"
    partition_seed: int = 0
    seeds: Sequence[int] = (0,)
    visibility: Text | None = None  # the labels a module may see: all, past or own; None for all
    # what stays
    pruning: Text | None = None
    sparsity: float | None = None
    rounds: int | None = None  # pruning rounds; one more round of training follows them
    # how it is trained
    epochs: int | None = None
    pruning_epochs: int | None = None
    batch: int | None = None
    batches: Text | None = None  # of all samples, of those shown, or of some; None where all are
    negatives: Text | Sequence[Text] | None = None  # made-up samples of no class, by source
    augment: Text | Sequence[Text] | None = None  # pictures changed anew in every epoch
    balance: float | None = None  # 0: every sample counts alike; 1: rewarded ones as all others
    silent: bool | None = None  # the layer that makes the logits begins at 0
    learning_rate: float | None = None
    optimiser: Text | None = None  # adam, adamw or sgd; None for adam
    schedule: Text | None = None  # constant, cosine or onecycle, over a round
    temperature: float | None = None
    precision: str | None = None  # of products: float32, or bf16 over float32 weights
    keep_moments: bool | None = None  # the optimiser's moments live on across rewinds
    select: str | None = None  # checkpoint of a round: best accuracy, best loss, or the last
    patience: int | None = None  # epochs without a better validation loss before a module stops
    # what it starts from
    base: str | None = None  # the path or name of the weights that modules are changes of
    # all, head, norms, names or patterns of layers, lora(8)
    trainable: str | Sequence[str] | None = None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a YAML file; an unknown key fails with the nearest known one."""
        return cls.read(read_settings(path))

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Self:
        """A recipe from plain values, as YAML and the command line give them."""
        known = [f.name for f in dataclasses.fields(cls)]
        for key in settings:
            if key not in known and key in known_options() and key != "seed":
                raise RecipeError(
                    f"{key!r} is not a setting of a recipe but an option of the data: give it "
                    f"there, as in data_options={{{key}: ...}}, or to load_data"
                )
        check_keys("a recipe", settings, known)
        return cls(**{key: _number(key, value) for key, value in settings.items()})

    def resolve(self, size: DataSize | None = None) -> "Recipe":
        """Fill in what was left open from the preset, and check every value.

        What the preset `auto` chooses by the size of the data stays open until that is given.
        """
        if self.preset not in list(PRESETS):
            raise RecipeError(f"unknown preset {self.preset!r}: {nearest(self.preset, PRESETS)}")
        _check(self)
        if lora_of(selected(self.trainable)) is not None:
            self = _unpruned(self)
        chosen = PRESETS[self.preset](self, size)
        given = {k: v for k, v in self.as_dict().items() if v is not None}
        if "model" in chosen:  # a preset names one only where the recipe gives no settings
            given.pop("model")
        options = {**chosen.pop("data_options", {}), **given.pop("data_options", {})}
        full = Recipe(**{**chosen, **given, "data_options": options})
        if full.negatives is not None:
            full = dataclasses.replace(full, negatives=_written(read_negatives(full.negatives)))
        if full.augment is not None:
            full = dataclasses.replace(full, augment=_written(read_augmentations(full.augment)))
        if full.visibility is not None:
            written = str(VISIBILITIES.spec(full.visibility))
            full = dataclasses.replace(full, visibility=None if written == "all" else written)
        if full.schedule is not None:
            full = dataclasses.replace(full, schedule=str(SCHEDULES.spec(full.schedule)))
        if full.optimiser is not None:
            written = str(OPTIMISERS.spec(full.optimiser))
            full = dataclasses.replace(full, optimiser=None if written == "adam" else written)
        full = full.for_objectives(hidden=full.visibility is not None or _hides(full.objective))
        _check(full)
        return full

    def for_objectives(self, hidden: bool) -> "Recipe":
        """With `batches` if the objectives hide any label or they draw samples, else without."""
        chosen = BATCHES.spec(self.batches or "shown")
        matters = hidden or BATCHES[chosen.name].draws
        return dataclasses.replace(self, batches=str(chosen) if matters else None)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as they are written to YAML and into module files."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values = {k: v for k, v in values.items() if v is not None or k not in NEUTRAL}
        for key in (*TEXTS, "negatives", "augment"):
            if isinstance(values.get(key), Spec):
                values[key] = {"name": values[key].name, **values[key].arguments}
        try:
            plain: dict[str, Any] = json.loads(json.dumps(values, default=_listed))
        except TypeError as error:
            raise RecipeError(f"a recipe holds text, numbers and lists of them: {error}") from None
        return plain

    def identity(self) -> dict[str, Any]:
        """The plain values that tell one run from another."""
        return {k: v for k, v in self.as_dict().items() if k not in NEUTRAL or v != NEUTRAL[k]}

    def digest(self) -> str:
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _unpruned(recipe: Recipe) -> Recipe:
    """Of changes that are products nothing is pruned, whatever a preset would."""
    return dataclasses.replace(recipe, sparsity=0.0, rounds=0)


def _written(specs: Sequence[Spec]) -> str:
    """One way to write them, whoever chose them."""
    return " + ".join(map(str, specs)) or "none"


def _hides(text: Text) -> bool:
    """Whether an objective hides labels, judged by the modules of each class in ten."""
    spec = OBJECTIVES.spec(text)
    return _found_hidden(OBJECTIVES[spec.name], str(spec))


@lru_cache
def _found_hidden(entry: RegistryEntry, text: str) -> bool:
    """Asked for every recipe, while ten objectives take longer than all else about it."""
    return any(bool((objective(text, 10, [c]).weight == 0).any()) for c in range(10))


def _number(key: str, value: Any) -> Any:
    """YAML takes 1e-3 for text, since it has no point; the settings here are numbers."""
    if key in ("learning_rate", "temperature", "sparsity", "balance") and isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return value


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | set | frozenset | range):
        return list(value)
    raise TypeError(f"{shortened(value)} is none of these")


def _check(recipe: Recipe) -> None:
    """Name the first setting that cannot be used; None is still open, where that is the default."""
    open_fields = {f.name for f in dataclasses.fields(recipe) if f.default is None}

    def need(good: bool, key: str, expected: str) -> None:
        value = getattr(recipe, key)
        if not good and not (value is None and key in open_fields):
            raise RecipeError(f"{key} is {shortened(value)}: expected {expected}")

    def number(key: str, low: float, high: float = math.inf, whole: bool = False) -> None:
        value = getattr(recipe, key)
        kind = "a whole number" if whole else "a number"
        fine = is_number(value) and (not whole or isinstance(value, int))
        upto = "" if high == math.inf else f" to {high:g}"
        need(fine and low <= value <= high, key, f"{kind} from {low:g}{upto}")

    number("rounds", 0, whole=True)
    for key in ("epochs", "pruning_epochs", "batch", "patience"):
        number(key, 1, whole=True)
    number("partition_seed", 0, whole=True)
    number("sparsity", 0)
    need(float(recipe.sparsity or 0) < 1, "sparsity", "a number from 0 to below 1")
    number("learning_rate", 0)
    number("balance", 0, 1)
    need(isinstance(recipe.silent, bool), "silent", "true or false")
    number("temperature", 1e-6)
    need(recipe.select in ("accuracy", "loss", "last"), "select", "'accuracy', 'loss' or 'last'")
    need(recipe.precision in ("float32", "bf16"), "precision", "'float32' or 'bf16'")
    need(isinstance(recipe.keep_moments, bool), "keep_moments", "true or false")
    need(isinstance(recipe.data_options, Mapping), "data_options", "a mapping")
    for key in TEXTS:
        text = isinstance(getattr(recipe, key), str | Mapping | Spec)
        need(text, key, "a name, as in name(value, key=value), or a mapping with a name")
    _check_steps(recipe)
    hidden = recipe.batches is not None and read_batches(recipe.batches).hidden
    if hidden and recipe.visibility not in (None, "all"):
        raise RecipeError(
            f"batches is 'all', which puts hidden samples through the network, but visibility is "
            f"{shortened(recipe.visibility)}: leave batches out"
        )
    seeds = recipe.seeds
    fine = isinstance(seeds, Sequence) and all(type(s) is int and 0 <= s < 2**63 for s in seeds)
    need(fine and len(seeds) > 0, "seeds", "a list of whole numbers from 0 to 2**63 - 1")
    need(len(set(seeds)) == len(seeds), "seeds", "no seed twice")
    need(isinstance(recipe.base, str) and recipe.base != "", "base", "a path or a name")
    _check_trainable(recipe)
    if recipe.rounds == 0 and recipe.sparsity:
        raise RecipeError(
            f"rounds is 0, which prunes nothing, but sparsity is {recipe.sparsity:g}: "
            "leave one of them out"
        )
    if recipe.pruning is not None:
        PRUNINGS.check_settings(recipe.pruning)  # a bad one fails here, not after a round
    if recipe.sparsity and recipe.pruning and PRUNINGS.entry(recipe.pruning).own_sparsity:
        raise RecipeError(
            f"sparsity is {recipe.sparsity:g}, but how much {PRUNINGS.spec(recipe.pruning).name} "
            "prunes follows from its rule: leave sparsity out"
        )


def _check_steps(recipe: Recipe) -> None:
    """Batches, optimiser and schedule are tried, so that a bad setting fails before training."""
    if recipe.batches is not None:
        read_batches(recipe.batches)
    if recipe.optimiser is not None:
        OPTIMISERS.call(OPTIMISERS.spec(recipe.optimiser))
    if recipe.schedule is not None:
        SCHEDULES.call(SCHEDULES.spec(recipe.schedule), step=0, steps=1)


def _check_trainable(recipe: Recipe) -> None:
    names = selected(recipe.trainable)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise RecipeError(
            f"trainable is {shortened(recipe.trainable)}: expected all, head, norms, lora(8), or "
            "names of layers, as text with commas or as a list"
        )
    if lora_of(names) is not None and (recipe.sparsity or recipe.rounds):
        raise RecipeError(
            f"trainable is {shortened(recipe.trainable)}, and pruning would take entries of a "
            "product, which is of low rank no more: leave sparsity and rounds out"
        )
    if names != ["all"] and recipe.base is None:
        raise RecipeError(
            f"trainable is {shortened(recipe.trainable)}, and there is no base: what does not "
            "train needs weights to stay at, as in train(..., base=network)"
        )


def selected(trainable: str | Sequence[str] | None) -> list[str]:
    """What is to train, one by one."""
    if trainable is None:
        return ["all"]
    if isinstance(trainable, str):
        return [name.strip() for name in split_outside(trainable, ",")]
    return list(trainable) if isinstance(trainable, Sequence) else []
