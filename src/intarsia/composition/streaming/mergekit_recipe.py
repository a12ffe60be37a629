"""MergekitRecipe: a merge of model folders as mergekit's YAML has it, where its methods are ours.

Sources: mergekit 0.1.5, whose results the methods equal up to rounding; those that draw at random
(dare, della) draw other numbers. What means more than we do is refused with its reason.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intarsia.composition.merge_recipe import BASES
from intarsia.composition.streaming.file_merge import SHARD_SIZE, FileMerge, merge_files
from intarsia.composition.streaming.tensor_files import is_model
from intarsia.errors import FileError, RecipeError, nearest, shortened
from intarsia.files import is_no_file
from intarsia.parsing import parse_json, read_settings
from intarsia.specs import check_keys, is_number

KEYS = (
    "merge_method", "models", "slices", "modules", "base_model", "dtype", "out_dtype",
    "parameters", "tokenizer_source", "tokenizer", "chat_template",
)  # fmt: skip
# Keys that a recipe for modules has not.
THEIRS = ("slices", "modules", "dtype", "out_dtype", "tokenizer_source", "tokenizer")
LARGEST_TOKENIZER = 2**28  # bytes

Settings = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A method of mergekit's as an operator of ours.

    operator   with the settings that make it equal
    shared     what may be given, and its default; None for what has none
    own        what every model may have of its own; None for what must be given
    origin     whether base_model is what changes are measured from, or a model like the others
    translate  settings of theirs, defaults included, to those of ours
    """

    operator: Settings
    shared: Settings = field(default_factory=dict)
    own: Settings = field(default_factory=dict)
    origin: str = "required"  # or optional, or a model
    translate: Callable[[Settings], Settings] = dict


def _no_more_than(default: Settings, why: str) -> Callable[[Settings], None]:
    def check(given: Settings) -> None:
        for key, value in default.items():
            if given[key] != value:
                raise RecipeError(f"{key} is {shortened(given[key])}: {why}")

    return check


def _task_arithmetic(given: Settings) -> Settings:
    _sparse_only(given)
    return {"scale": given["lambda"], "weights": _divided(given)}


def _ties(given: Settings) -> Settings:
    _unscaled(given)
    reduce = "weighted_mean" if given["normalize"] else "sum"
    return {**_common(given), "weights": given["weight"], "reduce": reduce}


def _dare(given: Settings) -> Settings:
    return {**_common(given), "weights": _divided(given), "rescale": given["rescale"]}


def _dare_ties(given: Settings) -> Settings:
    _plain_sum(given)
    return {**_common(given), "weights": given["weight"], "rescale": given["rescale"]}


def _breadcrumbs(given: Settings) -> Settings:
    _unscaled(given)
    return {**_common(given), "weights": _divided(given), "gamma": given["gamma"]}


def _breadcrumbs_ties(given: Settings) -> Settings:
    _unscaled(given)
    _plain_sum(given)
    return {**_common(given), "weights": given["weight"], "gamma": given["gamma"]}


def _della(given: Settings) -> Settings:
    _no_more_than({"normalize": True}, "della is normalised here")(given)
    return {**_della_linear({**given, "normalize": False})}


def _della_linear(given: Settings) -> Settings:
    _no_more_than({"rescale": True}, "della rescales here")(given)
    spread = {} if given["density"] == 1 else {"epsilon": given["epsilon"]}
    return {**_common(given), "weights": _divided(given), **spread}


def _linear(given: Settings) -> Settings:
    return {"weights": given["weight"], "normalise": given["normalize"]}


def _multislerp(given: Settings) -> Settings:
    _no_more_than({"normalize_weights": True}, "weights are normalised here")(given)
    return {"weights": given["weight"]}


def _common(given: Settings) -> Settings:
    return {"density": given["density"], "scale": given["lambda"]}


def _divided(given: Settings) -> Any:
    """The weights, divided by their sum where that is asked for."""
    weights = given["weight"]
    total = sum(weights.values())
    if not given["normalize"] or abs(total) < 1e-8:
        return weights
    return {name: weight / total for name, weight in weights.items()}


_unscaled = _no_more_than({"rescale": False}, "it is not rescaled here: leave it out")
_plain_sum = _no_more_than({"normalize": False}, "it is not normalised here: leave it out")
_sparse_only = _no_more_than({"rescale": False}, "nothing is dropped that could be made up for")

_SHARED = {"int8_mask": False, "lambda": 1.0, "normalize": False, "rescale": False}
_OWN = {"weight": None, "density": 1.0}
_MERGEKIT = {"preset": "mergekit"}
_RESCALED, _NORMALISED = {**_SHARED, "rescale": True}, {**_SHARED, "normalize": True}

METHODS = {
    "linear": Method({"name": "weighted"}, {"normalize": True}, {"weight": None}, "model", _linear),
    "task_arithmetic": Method(
        {"name": "task_arithmetic"}, _SHARED, _OWN, "required", _task_arithmetic
    ),
    "ties": Method({"name": "ties", **_MERGEKIT}, _NORMALISED, _OWN, "required", _ties),
    "dare_linear": Method({"name": "dare", **_MERGEKIT}, _RESCALED, _OWN, "required", _dare),
    "dare_ties": Method(
        {"name": "dare", **_MERGEKIT, "consensus": "ties"}, _RESCALED, _OWN, "required", _dare_ties
    ),
    "breadcrumbs": Method(
        {"name": "breadcrumbs"}, _SHARED, {**_OWN, "gamma": 0.01}, "required", _breadcrumbs
    ),
    "breadcrumbs_ties": Method(
        {"name": "breadcrumbs", "consensus": "ties"},
        *(_SHARED, {**_OWN, "gamma": 0.01}, "required", _breadcrumbs_ties),
    ),
    "della": Method(
        {"name": "della", **_MERGEKIT},
        *({**_RESCALED, "normalize": True}, {**_OWN, "epsilon": 0.15}, "required", _della),
    ),
    "della_linear": Method(
        {"name": "della", **_MERGEKIT, "consensus": "sum"},
        *(_RESCALED, {**_OWN, "epsilon": 0.15}, "required", _della_linear),
    ),
    "sce": Method(
        {"name": "sce"},
        {"int8_mask": False, "select_topk": 1.0},
        translate=lambda given: {"density": given["select_topk"]},
    ),
    "model_stock": Method(
        {"name": "model_stock"},
        {"filter_wise": False},
        translate=lambda given: {"by_unit": given["filter_wise"]},
    ),
    "multislerp": Method(
        {"name": "multislerp"},
        {"normalize_weights": True},
        {"weight": None},
        "optional",
        _multislerp,
    ),
    "karcher": Method(
        {"name": "karcher"},
        {"max_iter": 10, "tol": 1e-5},
        origin="model",
        translate=lambda given: {"steps": given["max_iter"], "tolerance": given["tol"]},
    ),
    "slerp": Method(
        {"name": "slerp"}, {"t": None}, origin="first", translate=lambda given: {"t": given["t"]}
    ),
}


@dataclass(frozen=True)
class MergekitRecipe:
    """Which models are joined and how, in our words: what `merge_files` is given."""

    models: Mapping[str, Path]
    operator: Mapping[str, Any]
    base: Path | None = None
    dtype: str | None = None

    @classmethod
    def load(cls, path: str | Path) -> "MergekitRecipe":
        """Read mergekit's YAML; paths are relative to its folder, or else to the current one."""
        return cls.read(read_settings(path), Path(path).parent)

    @classmethod
    def read(cls, settings: Mapping[str, Any], folder: Path = Path()) -> "MergekitRecipe":
        """A recipe from plain values; what it asks for beyond our operators is refused."""
        check_keys("a merge", settings, KEYS)
        entries = _entries(settings)
        named = settings.get("merge_method")
        if not isinstance(named, str) or named not in METHODS:
            raise RecipeError(
                f"merge_method is {shortened(named)}, which of mergekit's is not here: "
                f"{nearest(named, METHODS)}"
            )
        method = METHODS[named]
        base = settings.get("base_model")
        if base is not None and not isinstance(base, str):
            raise RecipeError(f"base_model is {shortened(base)}: expected a path")
        models = [entry["model"] for entry in entries]
        if method.origin in ("model", "first") and base is not None and base not in models:
            entries.append({"model": base, "parameters": {}})
        if method.origin in ("required", "first") and base is None:
            raise RecipeError(f"{named} needs base_model, the model that changes are measured from")
        is_origin = method.origin in ("required", "optional")
        # a base among the models has no change of its own
        entries = [e for e in entries if not (is_origin and e["model"] == base)]
        paths = {entry["model"]: _place(entry["model"], folder) for entry in entries}
        if len(paths) < len(entries) or not entries:
            raise RecipeError("models names one of them twice, or none besides the base")
        every = paths if base is None else paths | {base: _place(base, folder)}
        _check_apart(every)
        names = _names(paths)
        given = _parameters(named, method, settings.get("parameters"), entries, names)
        operator = {**method.operator, **method.translate(given)}
        if method.origin == "optional" and base is None:
            operator["base"] = "zero"
        if named == "slerp":
            operator["t"] = _towards_other(operator["t"], names, str(base))
        recipe = cls(
            models={names[model]: path for model, path in paths.items()},
            operator=operator,
            base=every[base] if base is not None and is_origin else None,
            dtype=_dtype(settings),
        )
        _check_slices(settings, every)
        _check_tokenizer(settings, list(every.values()))
        return recipe

    def merge(
        self,
        out: str | Path,
        *,
        shard_size: int | str = SHARD_SIZE,
        progress: bool | None = None,
    ) -> FileMerge:
        """Join the models into a folder; see `merge_files`."""
        return merge_files(
            self.models,
            out,
            self.operator,
            base=self.base,
            dtype=self.dtype,
            shard_size=shard_size,
            progress=progress,
        )


def is_mergekit(path: Path) -> bool:
    """Whether a recipe is for model folders, by its keys or by what its models are."""
    settings = read_settings(path)
    if any(settings.get(key) is not None for key in THEIRS):
        return True
    base = settings.get("base_model")
    if base is not None and base not in BASES:
        return True
    models = settings.get("models")
    for entry in models if isinstance(models, list) else ():
        model = entry.get("model") if isinstance(entry, Mapping) else entry
        # mergekit writes a model with an adapter as model+adapter, which `read` refuses
        names = (model, model.partition("+")[0]) if isinstance(model, str) else ()
        if any(is_model(path.parent / name) for name in names):
            return True
    return False


def _entries(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The models with their parameters, of `models` or of one slice that has all layers."""
    if settings.get("modules") is not None:
        raise RecipeError("modules joins parts of a model by several methods: merge one by one")
    if settings.get("chat_template") is not None:
        raise RecipeError("chat_template makes another tokenizer: leave it out, it is copied")
    models, slices = settings.get("models"), settings.get("slices")
    if slices is not None:
        if models is not None or not isinstance(slices, list) or len(slices) != 1:
            raise RecipeError(
                "slices puts layers of several models on one another, which no operator here does: "
                "give one slice of all layers, or models"
            )
        first = slices[0] if isinstance(slices[0], Mapping) else {}
        check_keys("a slice", first, ("sources", "parameters"))
        if first.get("parameters"):
            raise RecipeError("a slice has parameters of its own: give them under parameters")
        models = first.get("sources")
    if not isinstance(models, list) or not models:
        raise RecipeError(f"models is {shortened(models)}: expected a list of folders")
    entries = []
    for given in models:
        entry = given if isinstance(given, Mapping) else {"model": given}
        check_keys("a model", entry, ("model", "parameters", "layer_range"))
        parameters = entry.get("parameters") or {}
        if not isinstance(entry.get("model"), str) or not isinstance(parameters, Mapping):
            raise RecipeError(f"models has {shortened(given)}: expected {{model: path, ...}}")
        if "layer_range" in entry and slices is None:
            raise RecipeError("layer_range belongs into slices: leave it out of models")
        entries.append({"model": entry["model"], "parameters": dict(parameters)})
    return entries


def _place(model: str, folder: Path) -> Path:
    """The path of a model on this machine."""
    for path in (folder / model, Path(model)):
        if os.path.exists(path):  # False also of a name that no file can have
            return path
    why = "nothing is fetched: download it and give its folder"
    if "+" in model:
        why = (
            "what follows the + is an adapter, which a recipe cannot add here: merge it into the "
            "model first, as peft's merge_and_unload() does, or read it by Module.from_adapter"
        )
    raise RecipeError(f"there is no model {shortened(model)} on this machine: {why}")


def _check_apart(paths: Mapping[str, Path]) -> None:
    """Refuse one model by two names, which would count twice, or as a change of nothing."""
    seen: dict[Path, str] = {}
    for model, path in paths.items():
        other = seen.setdefault(path.resolve(), model)
        if other != model:
            raise RecipeError(
                f"{shortened(other)} and {shortened(model)} are one model: write its path alike "
                "everywhere, or leave one out"
            )


def _names(paths: Mapping[str, Path]) -> dict[str, str]:
    """A short name for every model: that of its folder, or where two share it, the whole path."""
    short = {model: path.resolve().name for model, path in paths.items()}
    unique = len(set(short.values())) == len(short)
    return short if unique else {model: model for model in paths}


def _parameters(
    named: str,
    method: Method,
    shared: Any,
    entries: Sequence[Mapping[str, Any]],
    names: Mapping[str, str],
) -> Settings:
    """All settings of a method: weights by model, and densities that differ; else one for all."""
    common = shared or {}
    if not isinstance(common, Mapping):
        raise RecipeError(f"parameters is {shortened(shared)}: expected a mapping")
    check_keys(f"{named}'s parameters", common, (*method.shared, *method.own))
    given = {**method.shared, **{k: v for k, v in common.items() if k in method.shared}}
    for key, default in method.own.items():
        values = {}
        for entry in entries:
            check_keys(f"a model's parameters for {named}", entry["parameters"], tuple(method.own))
            own = entry["parameters"].get(key, common.get(key, default))
            values[names[entry["model"]]] = _number(key, own)
        if key == "weight" or (key == "density" and len(set(values.values())) > 1):
            given[key] = values
        elif len(set(values.values())) > 1:
            raise RecipeError(
                f"the models have {key} {', '.join(map(str, values.values()))}: it is one for all "
                "here, give it once under parameters"
            )
        else:
            given[key] = next(iter(values.values()))
    for key, default in method.shared.items():
        if isinstance(default, bool) and not isinstance(given[key], bool):
            raise RecipeError(f"{key} is {shortened(given[key])}: expected true or false")
        if not isinstance(default, bool):
            given[key] = _number(key, given[key])
    return given


def _number(key: str, value: Any) -> float:
    if value is None:
        raise RecipeError(f"{key} is not given: mergekit has no default for it")
    if isinstance(value, list | Mapping):
        raise RecipeError(
            f"{key} is {shortened(value)}, which differs from layer to layer or by filter: here "
            f"it is one number for all tensors, as in {key}: 0.5; mergekit itself joins so"
        )
    if not is_number(value):
        raise RecipeError(f"{key} is {shortened(value)}: expected a number")
    number: float = value
    return number


def _towards_other(t: float, names: Mapping[str, str], base: str) -> float:
    """Their t leads from the base to the other model, ours from the first by name."""
    if len(names) != 2:
        raise RecipeError(f"slerp joins base_model and one other, got {len(names)} models")
    return t if min(names.values()) == names[base] else 1 - t


def _dtype(settings: Mapping[str, Any]) -> str | None:
    for key in ("out_dtype", "dtype"):
        value = settings.get(key)
        if value is not None:
            if not isinstance(value, str):
                raise RecipeError(f"{key} is {shortened(value)}: expected such as bfloat16")
            return value
    return None


def _check_slices(settings: Mapping[str, Any], paths: Mapping[str, Path]) -> None:
    """One slice is all of a model where it has all layers that the config counts."""
    for given in settings["slices"][0]["sources"] if settings.get("slices") else ():
        source = given if isinstance(given, Mapping) else {"model": given}
        layers = _config(paths.get(source["model"])).get("num_hidden_layers")
        seen = source.get("layer_range")
        if type(layers) is not int or seen != [0, layers]:
            raise RecipeError(
                f"layer_range of {source['model']} is {shortened(seen)}: only all layers can be "
                f"joined, {[0, layers] if type(layers) is int else 'as its config counts them'}"
            )


def _config(folder: Path | None) -> Mapping[str, Any]:
    path = None if folder is None else folder / "config.json"
    if path is None or not path.is_file() or path.stat().st_size > LARGEST_TOKENIZER:
        return {}
    try:
        config = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: is damaged ({error}): get it again") from error
    return config if isinstance(config, dict) else {}


def _check_tokenizer(settings: Mapping[str, Any], models: Sequence[Path]) -> None:
    """Another tokenizer moves rows of embeddings; where all have one, there is nothing to do."""
    for key in ("tokenizer_source", "tokenizer"):
        if settings.get(key) is None:
            continue
        contents = {_tokenizer(model) for model in models}
        if settings[key] not in ("base", "union") or len(contents) > 1 or None in contents:
            raise RecipeError(
                f"{key} is {shortened(settings[key])}: rows of embeddings are not moved from one "
                "tokenizer to another here, which 'base' and 'union' do not ask for where every "
                "model has the same tokenizer.json"
            )


def _tokenizer(model: Path) -> bytes | None:
    path = model / "tokenizer.json"
    if is_no_file(path) or not path.is_file() or path.stat().st_size > LARGEST_TOKENIZER:
        return None
    return path.read_bytes()
