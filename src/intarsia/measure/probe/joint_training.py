"""The joint reference of a merge: one network for all classes, by the recipe of its modules."""

from dataclasses import replace
from typing import Any

from torch import nn

from intarsia.composition import Composition
from intarsia.data import Data
from intarsia.errors import ModelError, RecipeError
from intarsia.modules import Module
from intarsia.modules.bases.base_weights import common_base

APART = ("data", "data_options", "partition", "partition_seed", "seeds")  # how modules may differ


def train_joint(model: nn.Module | Module, data: Data, device: str = "auto") -> Module:
    """A network that learns the classes of the data together, as the model's modules were trained.

    The loss is cross-entropy, over all labels; nothing is pruned, and it trains for as many epochs
    as a module in all its rounds. Base, seed and everything else are the modules'.
    """
    from intarsia.training import train
    from intarsia.training.settings.recipe import CUSTOM

    parts = _parts(model)
    first, recipe = parts[0], _common_recipe(parts)
    if first.encoder is not None and data.encoder is None:
        raise ModelError(
            f"the modules read features of {first.encoder}, and a joint network would be trained "
            f"on raw inputs: load the data with features={str(first.encoder)!r}"
        )
    joint = replace(
        recipe,
        partition=[list(data.catalogue)],
        seeds=(first.provenance.get("seed", 0),),
        objective="xe",
        visibility=None,
        negatives=None,
        sparsity=0.0,
        rounds=0,
        epochs=(recipe.rounds or 0) * (recipe.pruning_epochs or 0) + (recipe.epochs or 0),
        base=None,
    )
    bank = train(
        data,
        joint,
        model=first.factory if recipe.model == CUSTOM else None,
        base=common_base(parts),
        device=device,
    )
    if not len(bank):
        raise ModelError("the joint network diverged: give a joint that was trained otherwise")
    return bank[0]


def _parts(model: Any) -> tuple[Module, ...]:
    if isinstance(model, Module):
        return (model,)
    if isinstance(model, Composition) and model.parts:
        return tuple(model.parts)
    raise RecipeError(
        f"joint is 'train', and a {type(model).__name__} does not say how it was trained: give a "
        "composition or a module, or as joint an accuracy or a network"
    )


def _common_recipe(parts: tuple[Module, ...]) -> Any:
    """The recipe of all modules, which may differ in their classes, seeds and data alone."""
    from intarsia.training.settings.recipe import Recipe

    recipes = []
    for part in parts:
        settings = part.provenance.get("recipe")
        if not isinstance(settings, dict):
            raise RecipeError(
                f"joint is 'train', and module {part.name!r} does not say by what recipe it was "
                "trained: give as joint an accuracy or a network"
            )
        recipes.append({k: v for k, v in settings.items() if k not in APART})
    for part, other in zip(parts, recipes, strict=True):
        for key in sorted(recipes[0].keys() | other.keys()):
            ours, theirs = recipes[0].get(key), other.get(key)
            if ours != theirs:
                raise RecipeError(
                    f"joint is 'train', and modules {parts[0].name!r} and {part.name!r} were "
                    f"trained by several recipes ({key} is {ours!r} and {theirs!r}): give as joint "
                    "an accuracy or a network"
                )
    return Recipe.read(recipes[0])
