"""Recipe: every setting of a training run, in one place, with the paper's values as presets."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from intarsia.errors import RecipeError, nearest
from intarsia.specs import Spec

Text = str | Mapping[str, Any]  # `name`, `name(value, key=value)` or {name: ..., key: value}

TABLES = ("har", "yeast")  # data sets that the paper trains with a smaller step


@dataclass(frozen=True)
class Recipe:
    """Settings of a run; a field left at None takes its preset's value for the model and data."""

    preset: str = "paper"
    # what is learned
    data: str = "digits"
    data_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    model: Text = "mlp"
    objective: Text = "me"
    partition: str | Sequence[Sequence[str]] = "each"
    partition_seed: int = 0
    seeds: Sequence[int] = (0,)
    # what stays
    pruning: Text | None = None
    sparsity: float | None = None
    rounds: int | None = None  # pruning rounds; one more round of training follows them
    # how it is trained
    epochs: int | None = None
    pruning_epochs: int | None = None
    batch: int = 64
    learning_rate: float | None = None
    schedule: str = "constant"  # or cosine, over the epochs of a round
    temperature: float | None = None
    keep_moments: bool | None = None  # Adam's moments live on across rewinds
    select: str | None = None  # checkpoint of a round: best accuracy, best loss, or the last
    patience: int | None = None  # epochs without a better validation loss before a module stops

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a YAML file; an unknown key fails with the nearest known one."""
        try:
            found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise RecipeError(f"cannot read the recipe {path}: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise RecipeError(f"{path} is not valid YAML: {error}") from None
        if found is None:
            found = {}
        if not isinstance(found, dict):
            raise RecipeError(f"{path} must hold `key: value` lines, got {type(found).__name__}")
        return cls.read(found)

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Self:
        """A recipe from plain values, as YAML and the command line give them."""
        known = [f.name for f in dataclasses.fields(cls)]
        for key in settings:
            if key not in known:
                raise RecipeError(f"a recipe has no setting {key!r}: {nearest(key, known)}")
        return cls(**settings)

    def resolve(self) -> "Recipe":
        """Fill in what was left open from the preset, and check every value."""
        if self.preset not in PRESETS:
            raise RecipeError(f"unknown preset {self.preset!r}: {nearest(self.preset, PRESETS)}")
        chosen = PRESETS[self.preset](self)
        given = {k: v for k, v in self.as_dict().items() if v is not None}
        if "model" in chosen:  # a preset names one only where the recipe gives no settings
            given.pop("model")
        options = {**chosen.pop("data_options", {}), **given.pop("data_options", {})}
        full = Recipe(**{**chosen, **given, "data_options": options})
        _check(full)
        return full

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as they are written to YAML and into module files."""
        plain: dict[str, Any] = json.loads(
            json.dumps(dataclasses.asdict(self), default=lambda v: list(v))
        )
        return plain

    def digest(self) -> str:
        text = json.dumps(self.as_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _paper(recipe: Recipe) -> dict[str, Any]:
    """The values printed in the paper."""
    name = _model_name(recipe.model)
    small = recipe.data in TABLES
    convolutional = name != "mlp"
    chosen: dict[str, Any] = {
        "pruning": "magnitude",
        "sparsity": 0.6 if convolutional else 0.99,
        "rounds": 2,
        "epochs": 25 if small else 15 if convolutional else 20,
        "learning_rate": 1e-4 if small else 1e-3,
        "temperature": 1.0 if convolutional else 5.0,
        "keep_moments": False,
        "select": "accuracy",
    }
    territory = _model_name(recipe.pruning or "") == "territory"
    if territory:
        by_share = "magnitude" not in str(recipe.pruning)
        chosen |= {"rounds": 0 if by_share else 1, "sparsity": 0.0}
    if recipe.sparsity == 0:
        chosen["rounds"] = 0
    chosen["pruning_epochs"] = recipe.epochs or chosen["epochs"]
    return chosen


def _released(recipe: Recipe) -> dict[str, Any]:
    """What the authors' published code does where it departs from the text."""
    chosen = _paper(recipe)
    pruned = chosen["rounds"] > 0
    epochs = recipe.epochs or chosen["epochs"]
    rounds = recipe.rounds or chosen["rounds"]
    chosen |= {
        "pruning": "magnitude(scope='layer', biases=True, ratios={'output': 0.5})",
        "pruning_epochs": max(1, epochs // max(1, rounds)),
        "temperature": 5.0,
        "keep_moments": True,
        "select": "last" if pruned else "loss",
        "patience": 3,
    }
    if recipe.data in ("mnist", "fashion_mnist"):
        chosen["data_options"] = {"scale": "signed"}
    if recipe.data == "yeast":
        chosen["learning_rate"] = 1e-3
    if recipe.model == "mlp":
        rates = {"har": 0.0, "yeast": 0.2}
        dropout = rates.get(recipe.data, 0.5) if pruned else 0.3
        hidden = [256] if recipe.data == "yeast" else [512]
        chosen["model"] = {"name": "mlp", "hidden": hidden, "dropout": dropout}
    return chosen


PRESETS = {"paper": _paper, "released": _released}


def _model_name(model: Any) -> str:
    if isinstance(model, Spec):
        return model.name
    if isinstance(model, Mapping):
        return str(model.get("name", ""))
    return str(model).partition("(")[0].strip()


def _check(recipe: Recipe) -> None:
    """Name the first setting that cannot be used."""

    def need(good: bool, key: str, expected: str) -> None:
        if not good:
            raise RecipeError(f"{key} is {getattr(recipe, key)!r}: expected {expected}")

    def number(key: str, low: float, high: float = float("inf")) -> None:
        value = getattr(recipe, key)
        fine = isinstance(value, int | float) and not isinstance(value, bool)
        need(fine and low <= value <= high, key, f"a number from {low:g}" + (
            "" if high == float("inf") else f" to {high:g}"))

    for key in ("rounds", "epochs", "pruning_epochs", "batch"):
        need(isinstance(getattr(recipe, key), int), key, "a whole number")
        number(key, 0 if key == "rounds" else 1)
    number("sparsity", 0, 0.9999999)
    number("learning_rate", 0)
    number("temperature", 1e-6)
    need(recipe.schedule in ("constant", "cosine"), "schedule", "'constant' or 'cosine'")
    need(recipe.select in ("accuracy", "loss", "last"), "select", "'accuracy', 'loss' or 'last'")
    if recipe.patience is not None:
        number("patience", 1)
    seeds = recipe.seeds
    whole = isinstance(seeds, Sequence) and all(type(s) is int and s >= 0 for s in seeds)
    need(whole and len(seeds) > 0, "seeds", "a list of whole numbers from 0")
    need(len(set(seeds)) == len(seeds), "seeds", "no seed twice")
    need(isinstance(recipe.data_options, Mapping), "data_options", "a mapping")
