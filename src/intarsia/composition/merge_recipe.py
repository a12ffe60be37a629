"""MergeRecipe: a merge as YAML, with mergekit's keys where it has them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from intarsia.composition.build import MergeOptions
from intarsia.composition.checks import locate
from intarsia.composition.composition import AUTO, Composition, compose
from intarsia.composition.module_paths import modules_at
from intarsia.composition.operators.registry import OPERATORS
from intarsia.data import (
    DATASETS,
    Split,
    check_options,
    evenly_spaced,
    is_path,
    load_data,
    options_for,
)
from intarsia.errors import DataError, RecipeError, nearest, shortened
from intarsia.limits import account
from intarsia.models import Model
from intarsia.modules import Module, grown
from intarsia.modules.traits import check_columns
from intarsia.parsing import read_settings
from intarsia.specs import check_keys

# mergekit's methods that an operator equals with these settings.
METHODS: dict[str, dict[str, Any]] = {
    "linear": {"name": "weighted", "normalise": True},
    "dare_linear": {"name": "dare", "preset": "mergekit", "consensus": "sum"},
    "dare_ties": {"name": "dare", "preset": "mergekit", "consensus": "ties"},
    "breadcrumbs_ties": {"name": "breadcrumbs", "consensus": "ties"},
    "della_linear": {"name": "della", "preset": "mergekit", "consensus": "sum"},
}
WORDS = {  # theirs to ours
    "weight": "weights",
    "lambda": "scale",
    "normalize": "normalise",
    "select_topk": "density",
    "filter_wise": "by_unit",
    "max_iter": "steps",
    "tol": "tolerance",
}
BASES = ("origin", "zero")
MODEL = ("model", "parameters")  # keys of a model
SAMPLES = ("data", "split", "rows", "options")  # keys of samples
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class MergeRecipe:
    """Which modules are joined, by what, and what joining may look at.

    A model is a path (a module, a composition, or a folder of modules), or {model: path,
    parameters: {weight: 0.5}}. `parameters` are the operator's settings.
    """

    merge_method: str | Mapping[str, Any] = AUTO
    models: Sequence[str | Mapping[str, Any]] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    base_model: str | None = None  # what task vectors are measured from: origin or zero
    seed: int | None = None  # which modules to take of a folder that has several seeds
    without: Sequence[str] = ()  # modules to leave out, by name or class
    align: str | None = None
    samples: str | Mapping[str, Any] | None = None  # data, or {data, split, rows, options}
    recalibrate: bool = True
    calibrate: bool = False
    grow: bool = False  # give every module outputs for the classes that only others know

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a YAML file, whose paths are relative to its folder."""
        recipe = cls.read(read_settings(path))
        models = [{**m, "model": str(Path(path).parent / m["model"])} for m in _entries(recipe)]
        samples = read_samples(recipe.samples)
        if samples and samples["data"] not in DATASETS:
            relative = Path(path).parent / samples["data"]
            if is_path(samples["data"]) or relative.is_dir():
                samples["data"] = str(relative)
        return dataclasses.replace(recipe, models=models, samples=samples)

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> Self:
        """A recipe from plain values; an unknown key fails with the nearest known one."""
        check_keys("a merge", settings, [f.name for f in dataclasses.fields(cls)])
        return cls(**settings)

    def resolve(self) -> "MergeRecipe":
        """Every value checked, and mergekit's words put into ours."""
        _check(self)
        named, each = _settings(self)
        models = [
            {"model": entry["model"], **({"parameters": own} if own else {})}
            for entry, own in zip(_entries(self), each, strict=True)
        ]
        return dataclasses.replace(
            self,
            merge_method=named,
            models=models,
            parameters={},
            base_model=None,
            samples=read_samples(self.samples),
        )

    @property
    def paths(self) -> list[Path]:
        """Where the modules lie."""
        return [Path(entry["model"]) for entry in _entries(self)]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as they are written to YAML."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @account()
    def compose(self, model: Model | None = None) -> Composition:
        """Read the modules and join them; `model` as in Module.load."""
        recipe = self.resolve()
        assert isinstance(recipe.merge_method, Mapping)
        settings = dict(recipe.merge_method)
        how = OPERATORS.get(settings["name"])  # None for auto
        one_seed = how is not None and how.on == "weights" and recipe.align is None
        parts: list[Module] = []
        own: dict[str, float] = {}
        for entry in _entries(recipe):
            result = modules_at(Path(entry["model"]), recipe.seed, one_seed=one_seed, model=model)
            for weight in entry["parameters"].values():  # all else is the operator's by now
                own |= {part.name: weight for part in result}
            parts += result
        for key in recipe.without:
            parts.remove(locate(parts, str(key)))
        if recipe.grow:
            catalogue = list(dict.fromkeys(name for part in parts for name in part.catalogue))
            parts = [grown(part, catalogue) for part in parts]
        if own:
            settings["weights"] = _weights(settings.get("weights", 1.0), own, parts)
        return compose(
            parts,
            settings,
            samples=load_samples(read_samples(recipe.samples), parts),
            align=recipe.align,
            recalibrate=recipe.recalibrate,
            calibrate=recipe.calibrate,
        )


def _weights(given: Any, own: Mapping[str, float], parts: Sequence[Module]) -> dict[str, float]:
    """The weights of all parts: a model's own before those under parameters."""
    names = [part.name for part in parts]
    others = given if isinstance(given, Mapping) else dict.fromkeys(names, given)
    return {**dict.fromkeys(names, 1.0), **others, **{n: own[n] for n in names if n in own}}


def _settings(recipe: MergeRecipe) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The operator with its settings, and the weight that each model has of its own."""
    spec, entries = recipe.merge_method, _entries(recipe)
    if spec in (AUTO, {"name": AUTO}):
        if recipe.parameters or recipe.base_model or any(e["parameters"] for e in entries):
            raise RecipeError(
                "merge_method is not given, so there is nothing for parameters or base_model to "
                "set: name an operator, as in merge_method: ties"
            )
        return {"name": AUTO}, [{} for _ in entries]
    given = METHODS.get(spec) if isinstance(spec, str) else None
    if isinstance(spec, str) and given is None and "(" not in spec and spec not in OPERATORS:
        known = sorted({*OPERATORS, *METHODS})
        raise RecipeError(f"unknown merge_method {shortened(spec)}: {nearest(spec, known)}")
    made = OPERATORS.spec(given or spec)
    known = settings_of(made.name)
    settings = {**made.arguments, **{_ours(k, known): v for k, v in recipe.parameters.items()}}
    if recipe.base_model is not None:
        if "base" not in known:
            raise RecipeError(
                f"base_model is {shortened(recipe.base_model)}, but {made.name} measures from no "
                "base: "
                "leave it out, or take one that does, such as task_arithmetic, ties or dare"
            )
        settings["base"] = recipe.base_model
    each: list[dict[str, Any]] = []
    for entry in entries:
        own = {_ours(key, known): value for key, value in entry["parameters"].items()}
        each.append({key: own[key] for key in own if key == "weights"})
        OPERATORS.spec({"name": made.name, **own})
    settings |= _for_all(entries, recipe.parameters, known)
    if isinstance(settings.get("weights"), Mapping):  # YAML reads the name 3 as a number
        settings["weights"] = {str(name): w for name, w in settings["weights"].items()}
    checked = OPERATORS.spec({"name": made.name, **settings})
    return {"name": checked.name, **checked.arguments}, each


def _for_all(
    entries: Sequence[Mapping[str, Any]], common: Mapping[str, Any], known: list[str]
) -> dict[str, Any]:
    """What every model is given alike is a setting of the operator; weights alone may differ."""
    settings: dict[str, Any] = {}
    for key in dict.fromkeys(k for entry in entries for k in entry["parameters"]):
        if _ours(key, known) == "weights":
            continue
        values = [entry["parameters"].get(key, common.get(key)) for entry in entries]
        if any(value != values[0] for value in values):
            raise RecipeError(
                f"the models have {key} {', '.join(map(str, values))}: it is one for all here, "
                "give it once under parameters"
            )
        settings[_ours(key, known)] = values[0]
    return settings


def settings_of(operator: str) -> list[str]:
    """The names of the settings that a user can give an operator."""
    return list(OPERATORS.parameters(operator))


def _ours(key: Any, known: list[str]) -> str:
    """A setting by our name, where it is called otherwise in mergekit."""
    return WORDS[key] if key not in known and WORDS.get(key) in known else str(key)


def _entries(recipe: MergeRecipe) -> list[dict[str, Any]]:
    """The models as mappings, checked; a bare path has no parameters."""
    models = recipe.models
    if isinstance(models, str) or not isinstance(models, Sequence) or not models:
        raise RecipeError(f"models is {shortened(models)}: expected a list of paths, at least one")
    entries = []
    for given in models:
        entry = {"model": given} if isinstance(given, str | Path) else given
        if not isinstance(entry, Mapping) or not isinstance(entry.get("model"), str | Path):
            raise RecipeError(
                f"models has {shortened(given)}: expected a path, or "
                f"{{model: path, parameters: ...}}"
            )
        check_keys("a model", entry, MODEL)
        parameters = entry.get("parameters") or {}
        if not isinstance(parameters, Mapping):
            raise RecipeError(f"parameters of {entry['model']} must be a mapping")
        entries.append({"model": str(entry["model"]), "parameters": dict(parameters)})
    return entries


def _check(recipe: MergeRecipe) -> None:
    _entries(recipe)
    if not isinstance(recipe.parameters, Mapping):
        raise RecipeError(f"parameters is {shortened(recipe.parameters)}: expected a mapping")
    if recipe.base_model is not None and recipe.base_model not in BASES:
        raise RecipeError(
            f"base_model is {shortened(recipe.base_model)}: expected origin (the initial weights, "
            "which "
            "modules know by their seed) or zero"
        )
    if recipe.seed is not None and type(recipe.seed) is not int:
        raise RecipeError(f"seed is {shortened(recipe.seed)}: expected a whole number")
    if isinstance(recipe.without, str) or not isinstance(recipe.without, Sequence):
        raise RecipeError(
            f"without is {shortened(recipe.without)}: expected a list of names or classes"
        )
    if not isinstance(recipe.grow, bool):
        raise RecipeError(f"grow is {shortened(recipe.grow)}: expected true or false")
    MergeOptions(recipe.align, recipe.recalibrate, recipe.calibrate)


def read_samples(given: Any) -> dict[str, Any] | None:
    """{data, split, rows, options}, from a name or from some of them; by default validation."""
    if given is None:
        return None
    named = {"data": given} if isinstance(given, str) else given
    if not isinstance(named, Mapping) or not isinstance(named.get("data"), str):
        raise RecipeError(
            f"samples is {shortened(given)}: expected a data set, or "
            f"{{data: mnist, split: validation, "
            "rows: 512}"
        )
    check_keys("samples", named, SAMPLES)
    samples = {"split": "validation", "rows": None, "options": {}, **named}
    if samples["split"] not in SPLITS:
        raise RecipeError(
            f"samples: unknown split {shortened(samples['split'])}: expected one of {SPLITS}"
        )
    if samples["rows"] is not None and (type(samples["rows"]) is not int or samples["rows"] < 1):
        raise RecipeError(
            f"samples: rows is {shortened(samples['rows'])}: expected a number of at least 1"
        )
    if not isinstance(samples["options"], Mapping):
        raise RecipeError(
            f"samples: options is {shortened(samples['options'])}: expected a mapping"
        )
    check_options(samples["options"])
    return samples


def load_samples(samples: Mapping[str, Any] | None, parts: Sequence[Module]) -> Split | None:
    """The samples with labels by name, -1 for a class that the modules do not know."""
    if samples is None:
        return None
    data = parts[0].own_data(samples["data"], samples["options"]) if parts else None
    if data is None:
        before = options_for(samples["data"], parts[0].provenance if parts else {})
        data = load_data(samples["data"], **{**before, **samples["options"]})
    if parts:
        check_columns(data, parts[0].columns)
    split = getattr(data, samples["split"])
    if not len(split):
        raise DataError(f"{data.name} has no samples in its {samples['split']} part: name another")
    rows = evenly_spaced(len(split), samples["rows"] or len(split))
    return Split(split.x[rows], data.labels_in(parts[0].catalogue)[split.y[rows]])
