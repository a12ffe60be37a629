"""Plans: the banks that cells ask for. Equal plans are one bank, whichever study asks."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from intarsia.data import Data
from intarsia.files import digest_of, plain
from intarsia.objectives import objective
from intarsia.pruning import PRUNINGS
from intarsia.training import Recipe

HIDDEN = {"shallow": (512,), "deep": (512, 256)}
HIDDEN_YEAST = {"shallow": (256,), "deep": (128, 64)}  # in the authors' code
DROPOUT = 0.5
FLOATS = ("learning_rate", "sparsity", "temperature")
# What banks trained as one may differ in.
OF_ONE_BANK = ("partition", "partition_seed", "seeds", "objective")


@dataclass(frozen=True)
class Plan:
    """A bank to be trained: a resolved recipe with one seed, on data known by their digest.

    All rounds are trained; the modules of the first are unpruned, those of the last the result.
    """

    recipe: Recipe
    data_digest: str

    @cached_property
    def key(self) -> str:
        return digest_of([self.recipe.identity(), self.data_digest])

    @property
    def sets(self) -> Sequence[Sequence[str]]:
        assert not isinstance(self.recipe.partition, str)
        return self.recipe.partition

    @property
    def modules(self) -> int:
        return len(self.sets)

    @property
    def keeps_unpruned(self) -> bool:
        """Whether the modules of its first round are kept beside those of the last."""
        return bool(self.recipe.rounds)

    @property
    def epochs(self) -> int:
        """Epochs of all rounds, of one module."""
        recipe = self.recipe
        return (recipe.rounds or 0) * (recipe.pruning_epochs or 0) + (recipe.epochs or 0)

    @cached_property
    def training_group(self) -> str:
        """Plans of one group can be trained as one bank, each as if it were alone."""
        settings = self.recipe.as_dict()
        if PRUNINGS.entry(self.recipe.pruning or "magnitude").whole_group:
            return self.key  # its masks depend on who is trained beside it
        shared = {k: v for k, v in settings.items() if k not in OF_ONE_BANK}
        outputs = objective(self.recipe.objective, 2, [0]).outputs
        return digest_of([shared, self.data_digest, outputs])


def plan_of(
    data: Data,
    model: str,
    sets: Sequence[Sequence[str]],
    seed: int,
    *,
    preset: str = "paper",
    objective: str | Mapping[str, Any] = "me",
    pruned: bool = True,
    recipe: Mapping[str, Any] | None = None,
) -> Plan:
    """The bank of one seed with a module for each of these sets of classes.

    `pruned` False asks for the plan whose unpruned modules are wanted: under `paper` the same one,
    of which they are the first round, under `released` another, with other dropout and checkpoint.
    """
    settings: dict[str, Any] = {
        "preset": preset,
        "data": data.name,
        "data_options": dict(data.options),
        "model": _network(model, data.name, preset, pruned),
        "objective": objective,
        "partition": [list(classes) for classes in sets],
        "seeds": [seed],
        **{key: _number(key, value) for key, value in (recipe or {}).items()},
    }
    if preset == "released" and not pruned:
        settings["sparsity"] = 0.0
        settings.pop("rounds", None)
    resolved = Recipe.read(settings).resolve()
    return Plan(dataclasses.replace(resolved, data_options=dict(data.options)), data.digest)


def _number(key: str, value: Any) -> Any:
    """5 and 5.0 are one temperature, so one bank."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and key in FLOATS else value


def _network(model: str, data: str, preset: str, pruned: bool) -> str | dict[str, Any]:
    """The paper's networks by their short names; any other text is a model of the recipe."""
    if model == "cnn":
        return "lenet"
    if model not in HIDDEN:
        return model
    hidden, dropout = HIDDEN[model], DROPOUT
    if preset == "released":
        hidden = HIDDEN_YEAST[model] if data == "yeast" else hidden
        dropout = {"har": 0.0, "yeast": 0.2}.get(data, DROPOUT) if pruned else 0.3
    return {"name": "mlp", "hidden": list(hidden), "dropout": dropout}


def identity(settings: Mapping[str, Any], neutral: Mapping[str, Any]) -> dict[str, Any]:
    """All settings but those at their neutral value.

    A setting that came later is listed in `neutral` with the value at which it changes nothing, so
    that what was made before keeps its digest. Defaults play no part: a changed one shows.
    """
    values, empty = plain(settings, "settings"), plain(neutral, "neutral")
    return {k: v for k, v in values.items() if k not in empty or v != empty[k]}
