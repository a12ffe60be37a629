"""From the words of a command to values: recipes, data, networks, and whatever a path holds."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import torch
import typer
import yaml

from intarsia.composition import Composition
from intarsia.composition.alignment.align import How, align
from intarsia.composition.merge_recipe import MergeRecipe
from intarsia.composition.opening import open_path, parts_at
from intarsia.data import (
    DATASETS,
    Data,
    Split,
    check_options,
    is_path,
    load_data,
    locate,
    options_for,
    partition,
)
from intarsia.data.partitions import read_sets
from intarsia.errors import DataError, FileError, ModelError, RecipeError, nearest
from intarsia.measure.abstention import Abstention, abstention
from intarsia.measure.evaluation import Evaluation
from intarsia.models import MODELS, Model
from intarsia.modules import Bank, Module
from intarsia.modules.compact import compact
from intarsia.objectives import OBJECTIVES
from intarsia.pruning import PRUNINGS
from intarsia.training import Recipe
from intarsia.training.auto import DataSize
from intarsia.training.plan import fitted, size_of

Artifact = Module | Composition | Bank
SPLITS = ("train", "validation", "test", "all")
CUSTOM = "custom"  # what a recipe calls a network of the user's own
_FACTORY = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


def assignments(words: Sequence[str] | None) -> dict[str, Any]:
    """`key=value` words; a value is read as YAML."""
    result = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise RecipeError(f"--set {word!r}: expected KEY=VALUE, such as patience=3")
        try:
            result[key.strip().replace("-", "_")] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise RecipeError(f"--set {word!r}: its value is not valid YAML") from None
    return result


def target_of(word: str | None) -> str | int | None:
    """A column by its name, or by its number: a name that is a number stands in quotes."""
    if word is None:
        return None
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    quoted = re.fullmatch(r"""(["'])(.*)\1""", word)
    return quoted[2] if quoted else word


def data_options(words: Sequence[str] | None, target: str | None) -> dict[str, Any]:
    """What --set and --target say of the data."""
    options = assignments(words)
    return options if target is None else {**options, "target": target_of(target)}


def samples_of(source: str | None, target: str | None) -> dict[str, Any] | None:
    """What --samples and --target name."""
    if target is None:
        return None if source is None else {"data": source}
    if source is None:
        raise typer.BadParameter("--target is a column of the samples: name them with --samples")
    return {"data": source, "options": {"target": target_of(target)}}


def is_factory(word: str | None) -> bool:
    """Whether --model means a function of the user's, and not a network that has a name."""
    return word is not None and ":" in word and "(" not in word


def factory_of(word: str | None) -> Model | None:
    """The function that `package.module:factory` means, imported from here or the current folder.

    Only what a person typed gets here: no file can have code imported.
    """
    if word is None:
        return None
    match = _FACTORY.fullmatch(word)
    if not match:
        raise ModelError(
            f"--model {word}: expected package.module:factory, a function f(shape, outputs) that "
            "makes your network; networks that have a name need no --model here"
        )
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        result: Any = import_module(match[1])
    except ModuleNotFoundError as error:
        here = f"there is no module {error.name!r} in {folder} or among the installed packages"
        raise ModelError(f"--model {word}: {here}") from error
    except Exception as error:  # it is the user's code that fails
        raise ModelError(
            f"--model {word}: importing {match[1]} fails: {type(error).__name__}: {error}"
        ) from error
    for name in match[2].split("."):
        if not hasattr(result, name):
            known = [key for key, value in vars(result).items() if callable(value)]
            raise ModelError(f"--model {word}: it has no {name!r}: {nearest(name, known)}")
        result = getattr(result, name)
    if not callable(result) or isinstance(result, torch.nn.Module):
        raise ModelError(
            f"--model {word}: {match[2]} is a {type(result).__name__}: expected a function "
            "f(shape, outputs) that makes a new network"
        )
    return result


def recipe_and_out(paths: Sequence[Path], dry_run: bool) -> tuple[Path | None, Path | None]:
    """What `[RECIPE.yaml] OUT` means; a dry run needs no OUT."""
    is_recipe = [path.suffix in (".yaml", ".yml") for path in paths]
    if len(paths) == 2 and not is_recipe[1]:
        return paths[0], paths[1]
    if len(paths) == 1 and (dry_run or not is_recipe[0]):
        return (paths[0], None) if is_recipe[0] else (None, paths[0])
    if not paths and dry_run:
        return None, None
    if len(paths) < 2:
        command = " ".join(["intarsia train", *map(str, paths), "OUT"])
        raise typer.BadParameter(f"the folder is missing: {command}")
    given = " ".join(map(str, paths))
    raise typer.BadParameter(f"expected [RECIPE.yaml] OUT, got {given!r}")


def read_recipe(path: Path | None, flags: Mapping[str, Any], settings: Mapping[str, Any]) -> Recipe:
    """The file's settings under those of the flags under those of --set, resolved."""
    given = {key: value for key, value in flags.items() if value is not None}
    if "seeds" in given:
        given["seeds"] = _list(given["seeds"], "--seeds")
    if "partition" in given:
        given["partition"] = _sets(given["partition"])
    target = target_of(given.pop("target", None))
    if own := is_factory(given.get("model")):
        given["model"] = CUSTOM
    base = Recipe.load(path) if path else Recipe()
    recipe = Recipe.read({**base.as_dict(), **given, **settings})
    if target is not None:
        recipe = replace(recipe, data_options={**recipe.data_options, "target": target})
    recipe = recipe.resolve()
    check_options(recipe.data_options)
    _check_model(recipe, own)
    of_the_file = "data" not in given and "data" not in settings
    if of_the_file and is_path(recipe.data) and not Path(recipe.data).exists():
        raise DataError(f"{path}: there is no file {recipe.data}: give it with --data")
    return recipe


@dataclass(frozen=True)
class TrainingPlan:
    """What training would do.

    While the data set is not on this machine, nothing is known of its size, and the settings that
    follow from it are open.
    """

    recipe: Recipe
    size: DataSize | None = None
    modules: int | None = None
    open: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        size = None if self.size is None else asdict(self.size)
        about = {"size": size, "modules": self.modules, "open": list(self.open)}
        return {"recipe": self.recipe.as_dict(), **about}


def plan(recipe: Recipe) -> TrainingPlan:
    """The settings that a recipe trains its data with, and how many modules it makes."""
    if recipe.model != CUSTOM:
        MODELS.spec(recipe.model)
    OBJECTIVES.spec(recipe.objective)
    PRUNINGS.spec(recipe.pruning or "magnitude")
    known = DATASETS.get(recipe.data)
    if known is not None and known.files and not locate(recipe.data):
        now, some = recipe.as_dict(), recipe.resolve(DataSize(1000, 100, 10)).as_dict()
        return TrainingPlan(recipe, open=tuple(key for key in some if some[key] != now.get(key)))
    data = load(recipe.data, {**recipe.data_options, "download": False})
    sets = partition(data.catalogue, recipe.partition, recipe.partition_seed)
    return TrainingPlan(fitted(recipe, data), size_of(data), len(sets) * len(recipe.seeds))


def load(source: str, options: Mapping[str, Any]) -> Data:
    check_options(options)
    return load_data(source, **options)


def merge_recipe(paths: Sequence[Path], flags: Mapping[str, Any]) -> MergeRecipe:
    """What `RECIPE.yaml` or `PATHS...` mean, under the flags that are given."""
    given = {key: value for key, value in flags.items() if value is not None and value != []}
    if any(path.suffix in (".yaml", ".yml") for path in paths):
        if len(paths) > 1:
            raise typer.BadParameter(
                "a recipe names its models itself: give it alone, or paths of modules"
            )
        recipe = MergeRecipe.load(paths[0])
    else:
        recipe = MergeRecipe(models=[str(path) for path in paths])
    if "operator" in given:
        # Settings belong to the method they were written for.
        recipe = replace(recipe, parameters={}, base_model=None)
        given["merge_method"] = given.pop("operator")
    return replace(recipe, **given)


def modules_of(paths: Sequence[Path], seed: int | None, model: Model | None = None) -> list[Module]:
    """All modules that the paths hold, of one seed where a folder has several."""
    return [module for path in paths for module in parts_at(path, seed, one_seed=True, model=model)]


def one_module(path: Path, model: Model | None = None) -> Module:
    artifact = open_path(path, model)
    if not isinstance(artifact, Module):
        raise FileError(
            f"{path} holds a {type(artifact).__name__.lower()}: give the file of a module"
        )
    return artifact


def one_thing(path: Path, model: Model | None = None) -> Module | Composition:
    """A module or a composition; a folder has too many networks."""
    artifact = open_path(path, model)
    if isinstance(artifact, Bank):
        raise FileError(f"{path} holds a bank: give one of its files, or compose it first")
    return artifact


def compacted(path: Path, model: Model | None = None) -> tuple[Module, Module]:
    """What a file holds as one network, and the same without dead units."""
    artifact = one_thing(path, model)
    if isinstance(artifact, Module):
        return artifact, compact(artifact)
    after = artifact.compact()
    assert artifact.joined is not None
    return artifact.joined, after


def models_of(artifact: Artifact) -> dict[str, Module | Composition]:
    """What is measured, by name: a bank's modules one by one."""
    if isinstance(artifact, Bank):
        if not len(artifact):
            raise FileError("the bank has no modules, all of them diverged")
        return {module.name: module for module in artifact}
    name = artifact.name if isinstance(artifact, Module) else "composition"
    return {name: artifact}


def data_for(
    artifact: Artifact, source: str | None, options: Mapping[str, Any]
) -> tuple[Data, bool]:
    """The data to measure on, and whether it is what the modules were trained on.

    Options that it was loaded with for training, or that another file is to be read with, hold
    where they are not given.
    """
    learned = _first(artifact).provenance
    recipe = learned.get("recipe") or {}
    if source is None and not recipe.get("data"):
        raise DataError("the file does not say what it was trained on: name the data with --data")
    if source is None:
        source = str(recipe["data"])
        if source not in DATASETS and not Path(source).exists():
            raise DataError(
                f"module {_first(artifact).name!r} was trained on {source!r}, which is not here: "
                "give it with --data, as a file .npz, .csv or .parquet, or a folder of images"
            )
    data = load(source, {**options_for(source, learned), **options})
    return data, data.digest == (learned.get("data") or {}).get("digest")


def split_for(artifact: Artifact, data: Data, part: str) -> Split:
    """A split, or all three, with labels that are indices into the modules' catalogue."""
    if part not in SPLITS:
        raise DataError(f"unknown split {part!r}: {nearest(part, SPLITS)}")
    catalogue = _first(artifact).catalogue
    unknown = [name for name in data.catalogue if name not in catalogue]
    if unknown:
        raise DataError(
            f"{data.name} has the class {unknown[0]!r}, which is not in the modules' catalogue "
            f"({', '.join(catalogue)}): keep others only, as in --set 'classes=[...]'"
        )
    names = SPLITS[:-1] if part == "all" else (part,)
    x, y = (torch.cat([getattr(getattr(data, name), key) for name in names]) for key in "xy")
    if not len(y):
        raise DataError(f"{data.name} has no samples in its {part} split: choose another --split")
    places = torch.tensor([catalogue.index(name) for name in data.catalogue])
    return Split(x, places[y])


def labelled(artifact: Artifact, data: Data) -> Data:
    """Training and test part with labels that are indices into the modules' catalogue."""
    train, test = (split_for(artifact, data, part) for part in ("train", "test"))
    return replace(data, catalogue=_first(artifact).catalogue, train=train, test=test)


def aligned_pair(a: Module, b: Module, how: str, data: Data) -> tuple[Module, Module]:
    """Both modules, with the hidden units of the second matched to those of the first."""
    if how not in get_args(How):
        raise RecipeError(f"unknown alignment {how!r}: {nearest(how, get_args(How))}")
    inputs = a.scaling(data.validation.x[:1000]) if how == "activations" else None
    if inputs is not None and a.architecture.model is not None:
        inputs = inputs.to(torch.float32)  # networks that have a name read no others
    one, other = align([a, b], how, inputs)  # type: ignore[arg-type]
    return one, other


def abstentions(
    models: Mapping[str, Module | Composition],
    scores: Mapping[str, Evaluation],
    samples: Split,
    share: float,
) -> dict[str, Abstention]:
    """How each model withholds answers: samples of rewarded classes are the known ones."""
    result = {}
    for name, model in models.items():
        score = scores[name]
        rewarded = torch.tensor([score.catalogue.index(c) for c in score.rewarded])
        known = torch.isin(samples.y, rewarded)
        inside, outside = (Split(samples.x[rows], samples.y[rows]) for rows in (known, ~known))
        result[name] = abstention(model, inside, outside, share)
    return result


def _first(artifact: Artifact) -> Module:
    if isinstance(artifact, Module):
        return artifact
    return artifact.parts[0] if isinstance(artifact, Composition) else artifact[0]


def _list(words: str, flag: str) -> list[Any]:
    try:
        result = yaml.safe_load(f"[{words}]")
    except yaml.YAMLError:
        result = None
    if not isinstance(result, list):
        raise RecipeError(f"{flag} {words!r}: expected a list such as 0,1,2")
    return result


def _sets(words: str) -> str | list[list[str]]:
    """`each` and `blocks(n)` as they are; `0+1,2+3` as two sets of classes."""
    if words.strip() == "each" or re.match(r"\s*\w+\(", words):
        return words
    return read_sets(words, "--partition")


def _check_model(recipe: Recipe, given: bool) -> None:
    """A network of the user's own is typed, so that no recipe can have code imported."""
    name = recipe.model if isinstance(recipe.model, str) else ""
    if not given and (name == CUSTOM or is_factory(name)):
        raise ModelError(
            f"the recipe's model is {name!r}, a network of your own, and code is never imported "
            "because a file says so: give it with --model package.module:factory"
        )
