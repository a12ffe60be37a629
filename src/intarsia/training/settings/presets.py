"""Presets: what a recipe takes where it leaves a setting open, by its model, pruning and data.

`auto` serves data that nobody has tuned, by its rows, features and classes. Its numbers were chosen
on validation rows cut from the training rows of docs/results/defaults.md's data sets; no test row
was looked at. The guide explains each of them.

`paper` has the values printed in the paper, `released` what its authors' code does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intarsia.data import Data
from intarsia.data.negatives import amount_of, read_negatives
from intarsia.models import MODELS
from intarsia.objectives import VISIBILITIES, visible_labels
from intarsia.pruning import PRUNINGS
from intarsia.specs import Registry, name_of
from intarsia.training.settings.batches import read_batches

if TYPE_CHECKING:
    from intarsia.training.settings.recipe import Recipe

PRESETS = Registry("preset", given=("recipe", "size"), by_size=False)
"""By name, what a recipe takes where it leaves a setting open.

Trait: whether settings follow from the size of the data, `by_size`, and are worth telling.
"""


@dataclass(frozen=True)
class DataSize:
    """What the settings of the preset `auto` follow from."""

    rows: int  # to train on
    features: int
    classes: int
    images: bool = False
    public: bool = False  # whether there are public rows
    present: int | None = None  # classes that have rows; None for all

    @classmethod
    def of(cls, data: Data) -> "DataSize":
        present = int(data.train.y.unique().numel())
        return cls(
            len(data.train),
            math.prod(data.shape),
            data.classes,
            images=len(data.shape) == 3,
            public=data.public is not None,
            present=None if present == data.classes else present,
        )

    @property
    def own(self) -> float:
        """Rows of a class, on average."""
        return self.rows / max(1, self.present or self.classes)

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.features:,} features, {self.classes:,} classes"


# What does not depend on the data.
AUTO: dict[str, Any] = {
    "pruning": "magnitude(scope='layer')",  # no layer is cut through by another's large weights
    "schedule": "cosine",
    "balance": 0.5,
    "silent": True,
    "temperature": 1.0,
    "keep_moments": False,
    "select": "loss",
    "learning_rate": 6e-3,
}
CAREFUL = 1e-3  # the learning rate of convolutional networks and of those without a name
OPEN = "mlp"  # the model whose settings are a preset's to choose, if it is written with none
STEPS = 30.0  # steps of the last round: this times the square root of the rows
FEWEST, MOST = 200, 15_000
MANY = 30  # classes beyond which each module takes fewer steps, so that their sum stays the same
BATCHES = (8, 64)
# By rows: hidden units, dropout, sparsity. Small networks have little to give up.
NETWORKS = ((500, 64, 0.0, 0.0), (20_000, 128, 0.0, 0.5), (math.inf, 256, 0.1, 0.8))
FEW_ROWS = 50  # of a class, on average: below, the smallest network
NEGATIVES = "noise(0.25) + mixed(0.25)"
FEW_FEATURES = 20  # up to so many, made-up rows are too often like real ones
# Of modules that do not see all classes, for each row of their own: docs/results/apart.md.
APART_IMAGES = "noise(2.0) + mixed(2.0) + turned(2.0) + bent(2.0)"
APART_OWN_IMAGES = "noise(1.0) + bent(3.0, strength=0.5)"  # mixed and turned lie too near
APART_TABLES = "gaussian(1.5) + shuffled(1.5)"
APART_PUBLIC = "public(6.0) + gaussian(6.0)"


@PRESETS.register("auto", by_size=True)
def auto(recipe: "Recipe", size: DataSize | None = None) -> dict[str, Any]:
    """What serves data that nobody has tuned."""
    chosen = dict(AUTO)
    model = MODELS.get(name_of(recipe.model))
    if model is None or model.convolutional:
        chosen["learning_rate"] = CAREFUL
    if size is not None:
        chosen |= by_size(size, recipe.as_dict(), bare=recipe.model == OPEN)
    if recipe.pruning is not None:
        pruning, settings = PRUNINGS.entry(recipe.pruning), PRUNINGS.settings(recipe.pruning)
        if pruning.ranks_layers_together(settings):
            chosen["silent"] = False  # a layer that begins at 0 would be the first to go
    chosen |= _forced(recipe)
    if recipe.epochs and recipe.pruning_epochs is None:
        chosen["pruning_epochs"] = recipe.epochs
    return chosen


def by_size(size: DataSize, given: Mapping[str, Any], bare: bool) -> dict[str, Any]:
    """The settings that follow from the size of the data and from those that are given.

    `bare` is whether the model is named without settings, so that its width is free.
    """
    rows = 0 if size.rows < FEW_ROWS * size.classes else size.rows
    _, hidden, dropout, sparsity = next(row for row in NETWORKS if rows < row[0])
    negatives = NEGATIVES if size.features > FEW_FEATURES else "none"
    visibility = given.get("visibility") or "all"
    if name_of(visibility) != "all":
        negatives = apart_negatives(size, alone=name_of(visibility) == "own")
    asked = given.get("negatives")
    made = read_negatives(negatives if asked is None else asked)
    per_epoch = size.rows * (1.5 if made else 1.0)  # with those made up
    rows_seen = float(size.rows)
    if name_of(visibility) != "all":
        rows_seen = per_epoch = _seen_apart(size, visibility, amount_of(made))
    batch = min(BATCHES[1], max(BATCHES[0], 2 ** round(math.log2(max(1.0, rows_seen / 10)))))
    steps = STEPS * math.sqrt(rows_seen)
    steps = min(MOST, max(FEWEST, steps)) * min(1.0, MANY / size.classes)
    epochs = max(2, round(steps * (given.get("batch") or batch) / per_epoch))
    chosen: dict[str, Any] = {
        "batch": batch,
        "epochs": epochs,
        "sparsity": sparsity,
        "rounds": 1 if given.get("sparsity") or sparsity else 0,
        "negatives": negatives,
    }
    if given.get("rounds") and not sparsity:  # asked for
        chosen["sparsity"] = 0.5
    chosen["pruning_epochs"] = max(1, round((given.get("epochs") or epochs) / 2))
    if bare:
        chosen["model"] = {"name": OPEN, "hidden": [hidden], "dropout": dropout}
    return chosen


def apart_negatives(size: DataSize, alone: bool) -> str:
    """The negatives of modules that do not see all classes, by what kind of data it is.

    `alone` they see no class but their own.
    """
    if size.images:
        made = APART_OWN_IMAGES if alone else APART_IMAGES
        return f"{made} + public(1.0)" if size.public else made
    return APART_PUBLIC if size.public else APART_TABLES


def _seen_apart(size: DataSize, visibility: Any, made: float) -> float:
    """Rows that a module sees in an epoch, on average over the classes."""
    most = VISIBILITIES.settings(visibility).get("amount")
    seen = [
        float(visible_labels(visibility, size.classes, [c]).sum()) - 1 for c in range(size.classes)
    ]
    others = [
        min(n, (size.present or size.classes) - 1, math.inf if most is None else most) for n in seen
    ]
    return size.own * (1 + sum(others) / len(others) + made)


def describe(recipe: "Recipe", size: DataSize) -> str:
    """The settings that were chosen for data of this size, to be printed."""
    pruning = f"{recipe.pruning} to {recipe.sparsity:.0%}" if recipe.sparsity else "no pruning"
    if recipe.pruning and not recipe.sparsity and recipe.pruning != AUTO["pruning"]:
        pruning = str(recipe.pruning)
    model = recipe.as_dict()["model"]
    named = MODELS.spec(model) if isinstance(model, dict) else model
    rate = f"{recipe.learning_rate:g} {recipe.schedule}"
    if recipe.optimiser is not None:
        rate += f", optimiser {recipe.optimiser}"
    batches = str(recipe.batch)
    if math.isfinite(read_batches(recipe.batches).others):
        batches += f", {recipe.batches}"
    return (
        f"settings for {size}: model {named}, {pruning}, {recipe.epochs} epochs "
        f"(pruning round {recipe.pruning_epochs}) in batches of {batches}, learning rate "
        f"{rate}, negatives {recipe.negatives}, "
        f"balance {recipe.balance:g}"
    )


PAPER: dict[str, Any] = {
    "pruning": "magnitude",
    "sparsity": 0.99,
    "rounds": 2,
    "epochs": 20,
    "batch": 64,
    "learning_rate": 1e-3,
    "schedule": "constant",
    "negatives": "none",
    "balance": 0.0,
    "silent": False,
    "temperature": 5.0,
    "keep_moments": False,
    "select": "accuracy",
}
PAPER_CONVOLUTIONAL = {"sparsity": 0.6, "epochs": 15, "temperature": 1.0}
PAPER_BY_DATA: dict[str, dict[str, Any]] = {
    "har": {"epochs": 25, "learning_rate": 1e-4},
    "yeast": {"epochs": 25, "learning_rate": 1e-4},
}


@PRESETS.register("paper")
def paper(recipe: "Recipe", size: DataSize | None = None) -> dict[str, Any]:
    """The values printed in the paper; a network of your own takes an MLP's."""
    model = MODELS.get(name_of(recipe.model))
    chosen = dict(PAPER)
    if model is not None and model.convolutional:
        chosen |= PAPER_CONVOLUTIONAL
    chosen |= PAPER_BY_DATA.get(str(recipe.data), {})
    chosen |= _forced(recipe)
    chosen["pruning_epochs"] = recipe.epochs or chosen["epochs"]
    return chosen


RELEASED: dict[str, Any] = {
    "pruning": "magnitude(scope='layer', biases=True, ratios={'output': 0.5})",
    "temperature": 5.0,
    "keep_moments": True,
    "patience": 3,
}
RELEASED_BY_DATA: dict[str, dict[str, Any]] = {
    "mnist": {"data_options": {"scale": "signed"}},
    "fashion_mnist": {"data_options": {"scale": "signed"}},
    "yeast": {"learning_rate": 1e-3},
}
# Hidden units, and dropout where weights are pruned; without pruning dropout is 0.3.
RELEASED_MLP, RELEASED_MLP_BY_DATA = (512, 0.5), {"har": (512, 0.0), "yeast": (256, 0.2)}


@PRESETS.register("released")
def released(recipe: "Recipe", size: DataSize | None = None) -> dict[str, Any]:
    """What the authors' published code does where it departs from the text."""
    chosen = paper(recipe)
    pruned = chosen["rounds"] > 0
    epochs, rounds = recipe.epochs or chosen["epochs"], recipe.rounds or chosen["rounds"]
    chosen |= RELEASED
    chosen |= RELEASED_BY_DATA.get(str(recipe.data), {})
    chosen["pruning_epochs"] = max(1, epochs // max(1, rounds))
    chosen["select"] = "last" if pruned else "loss"
    if recipe.model == OPEN:
        hidden, dropout = RELEASED_MLP_BY_DATA.get(str(recipe.data), RELEASED_MLP)
        dropout = dropout if pruned else 0.3
        chosen["model"] = {"name": OPEN, "hidden": [hidden], "dropout": dropout}
    return chosen


def _forced(recipe: "Recipe") -> dict[str, Any]:
    """Rounds and sparsity where the recipe leaves no choice.

    A pruning with a sparsity of its own acts before training, or after one round; a sparsity of 0
    asks for no round.
    """
    if recipe.pruning is not None and PRUNINGS.entry(recipe.pruning).own_sparsity:
        settings = PRUNINGS.settings(recipe.pruning)
        at_once = PRUNINGS.entry(recipe.pruning).before_training(settings)
        return {"rounds": 0 if at_once else 1, "sparsity": 0.0}
    if recipe.sparsity == 0 or recipe.rounds == 0:
        return {"rounds": 0, "sparsity": 0.0}
    return {}
