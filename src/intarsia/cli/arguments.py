"""From the words of a command to values: settings, recipes, networks."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import typer

from intarsia.artifacts import Kind, is_recipe, kind_of, weights_path
from intarsia.composition.merge_recipe import MergeRecipe
from intarsia.composition.streaming.mergekit_recipe import MergekitRecipe, is_mergekit
from intarsia.data import DATASETS, check_options, is_path
from intarsia.data.load import ENDINGS, known_options
from intarsia.data.partitions import read_sets
from intarsia.data.sources.image_folders import holds_images
from intarsia.errors import DataError, ModelError, RecipeError, nearest, shortened
from intarsia.models import Model, copies_of
from intarsia.models.custom.published import is_published, published
from intarsia.modules import LISTING
from intarsia.parsing import parse_yaml
from intarsia.training import Recipe
from intarsia.training.settings.recipe import CUSTOM

DATA_OPTIONS = [name for name in known_options() if name not in ("seed", "download", "progress")]
FACTORY = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


def assignments(words: Sequence[str] | None, flag: str = "--set") -> dict[str, Any]:
    """`KEY=VALUE` words; a value is read as YAML."""
    settings: dict[str, Any] = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise RecipeError(f"{flag} {shortened(word)}: expected KEY=VALUE, such as patience=3")
        name = key.strip().replace("-", "_")
        if name in settings:
            raise RecipeError(f"{flag} {shortened(name)} is given twice: leave one of them out")
        settings[name] = parse_yaml(value, f"{flag} {shortened(word)}: its value")
    return settings


def data_options(
    words: Sequence[str] | None, target: str | int | None, features: str | None = None
) -> dict[str, Any]:
    """The options of the data that --set, --target and --features give."""
    flags = {"target": target, "features": features}
    return {**assignments(words), **{k: v for k, v in flags.items() if v is not None}}


def read_shape(words: str | None) -> tuple[int, ...] | None:
    """`3,64,64` as sizes."""
    if words is None:
        return None
    sizes = read_list(words, "--shape")
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        raise RecipeError(f"--shape {shortened(words)}: expected sizes such as 3,64,64")
    return tuple(sizes)


def is_factory(word: str | None) -> bool:
    """Whether --model means a function of the user's, and not a network that has a name."""
    return word is not None and ":" in word and "(" not in word


def import_factory(word: str | None) -> Model | None:
    """The function that `package.module:factory` means, imported from here or the current folder.

    It is only called with what a person typed: no file can have code imported. `hf/NAME` and the
    like mean the network that modules were trained from.
    """
    if word is None:
        return None
    if is_published(word):
        return copies_of(published(word))
    match = FACTORY.fullmatch(word)
    if not match:
        raise ModelError(
            f"--model {word}: expected package.module:factory, a function f(shape, outputs) that "
            "makes your network, or hf/NAME, hf/./FOLDER or timm/NAME; networks that have a name "
            "need no --model here"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        value: Any = import_module(match[1])
    except ModuleNotFoundError as error:
        reason = f"there is no module {error.name!r} in {folder} or among the installed packages"
        raise ModelError(f"--model {word}: {reason}") from error
    except Exception as error:  # it is the user's code that fails
        raise ModelError(
            f"--model {word}: importing {match[1]} fails: {type(error).__name__}: {error}"
        ) from error
    for name in match[2].split("."):
        if not hasattr(value, name):
            known = [key for key, member in vars(value).items() if callable(member)]
            raise ModelError(f"--model {word}: it has no {name!r}: {nearest(name, known)}")
        value = getattr(value, name)
    if not callable(value) or isinstance(value, torch.nn.Module):
        raise ModelError(
            f"--model {word}: {match[2]} is a {type(value).__name__}: expected a function "
            "f(shape, outputs) that makes a new network"
        )
    return value


def recipe_and_out(
    paths: Sequence[Path], dry_run: bool, data: str | None = None
) -> tuple[Path | None, Path | None]:
    """What `[RECIPE.yaml] OUT` means; a dry run needs no OUT. The data, if they have a flag."""
    recipes = [is_recipe(path) for path in paths]
    _refuse_data(paths, unnamed=data is None and not any(recipes))
    if len(paths) == 2 and not recipes[1]:
        return paths[0], paths[1]
    if len(paths) == 1 and (dry_run or not recipes[0]):
        return (paths[0], None) if recipes[0] else (None, paths[0])
    if not paths and dry_run:
        return None, None
    if len(paths) < 2:
        command = " ".join(["intarsia train", *map(str, paths), "OUT"])
        raise typer.BadParameter(f"the folder is missing: {command}")
    given = " ".join(map(str, paths))
    raise typer.BadParameter(f"expected [RECIPE.yaml] OUT, got {given!r}")


def _refuse_data(paths: Sequence[Path], unnamed: bool) -> None:
    """What is to be learned comes by --data, and not where a recipe or a folder does."""
    for place, path in enumerate(paths):
        table = path.suffix.lower() in ENDINGS and path.is_file()
        pictures = unnamed and holds_images(path) and not (path / LISTING).exists()
        before_a_folder = place == 0 and len(paths) == 2
        if table or pictures or (before_a_folder and (path.is_dir() or str(path) in DATASETS)):
            out = paths[1] if before_a_folder else "OUT"
            raise typer.BadParameter(f"{path} is data: intarsia train {out} --data {path}")


def read_recipe(path: Path | None, flags: Mapping[str, Any], settings: Mapping[str, Any]) -> Recipe:
    """A recipe: --set goes before the flags, and the flags before the file.

    What is no setting of a recipe and an option of the data goes to the data; a seed alone does
    not, as that of training is seldom far from one's mind.
    """
    of_data = {key: settings[key] for key in settings if key in DATA_OPTIONS}
    settings = {key: value for key, value in settings.items() if key not in of_data}
    given = {key: value for key, value in flags.items() if value is not None}
    if "seeds" in given:
        given["seeds"] = read_list(given["seeds"], "--seeds")
    if "partition" in given:
        given["partition"] = _read_partition(given["partition"])
    options: dict[str, Any] = {
        key: given.pop(key) for key in ("target", "features") if key in given
    } | of_data
    custom = is_factory(given.get("model"))
    if custom:
        given["model"] = CUSTOM
    if path:
        _check_recipe(path, Kind.RECIPE)
    base = Recipe.load(path) if path else Recipe()
    recipe = Recipe.read({**base.as_dict(), **given, **settings})
    if options:
        recipe = replace(recipe, data_options={**recipe.data_options, **options})
    recipe = recipe.resolve()
    check_options(recipe.data_options)
    if not custom:
        _check_imports_nothing(recipe)
    from_file = "data" not in given and "data" not in settings
    if from_file and is_path(recipe.data) and not Path(recipe.data).exists():
        raise DataError(f"{path}: there is no file {recipe.data}: give it with --data")
    return recipe


def mergekit_recipe(
    paths: Sequence[Path], flags: Mapping[str, Any], shard_size: str | None
) -> MergekitRecipe | None:
    """What `RECIPE.yaml` means where it names models and not modules, which take no flags."""
    if len(paths) != 1 or not is_recipe(paths[0]) or not is_mergekit(paths[0]):
        if shard_size is not None:
            raise typer.BadParameter("--shard-size is for a recipe of mergekit's")
        return None
    if given := [key for key, value in flags.items() if value is not None and value != []]:
        raise typer.BadParameter(
            f"{paths[0]} joins models as mergekit does, and takes no --{given[0]}: write it into "
            "the recipe"
        )
    return MergekitRecipe.load(paths[0])


def merge_recipe(paths: Sequence[Path], flags: Mapping[str, Any]) -> MergeRecipe:
    """What `RECIPE.yaml` or `PATHS...` mean; flags go before the file."""
    given = {key: value for key, value in flags.items() if value is not None and value != []}
    if any(map(is_recipe, paths)):
        if len(paths) > 1:
            raise typer.BadParameter(
                "a recipe names its models itself: give it alone, or paths of modules"
            )
        _check_recipe(paths[0], Kind.MERGE_RECIPE)
        recipe = MergeRecipe.load(paths[0])
    else:
        recipe = MergeRecipe(models=[str(weights_path(path)) for path in paths])
    if "operator" in given:
        # Settings belong to the method they were written for.
        recipe = replace(recipe, parameters={}, base_model=None)
        given["merge_method"] = given.pop("operator")
    return replace(recipe, **given)


def _check_recipe(path: Path, expected: Kind) -> None:
    """Refuse the recipe of another verb."""
    if path.is_file() and (kind := kind_of(path)) is not expected:
        noun = expected.value.partition(":")[0]
        raise RecipeError(f"{path}: expected {noun}, but it is {kind.value}")


def read_list(words: str, flag: str) -> list[Any]:
    """`0,1,2` as values."""
    values = parse_yaml(f"[{words}]", f"{flag} {shortened(words)}")
    if not isinstance(values, list):
        raise RecipeError(f"{flag} {shortened(words)}: expected a list such as 0,1,2")
    return values


def read_seeds(words: str) -> int | list[Any]:
    """`3` as how many, `0,1,2` as which."""
    values = read_list(words, "--seeds")
    return values[0] if len(values) == 1 and type(values[0]) is int else values


def _read_partition(words: str) -> str | list[list[str]]:
    """`each` and `blocks(n)` as they are; `0+1,2+3` as two sets of classes."""
    if words.strip() == "each" or re.match(r"\s*\w+\(", words):
        return words
    return read_sets(words, "--partition")


def _check_imports_nothing(recipe: Recipe) -> None:
    """A network of the user's own is typed, so that no recipe can have code imported."""
    name = recipe.model if isinstance(recipe.model, str) else ""
    if name == CUSTOM or is_factory(name):
        raise ModelError(
            f"the recipe's model is {name!r}, a network of your own, and code is never imported "
            "because a file says so: give it with --model package.module:factory"
        )
