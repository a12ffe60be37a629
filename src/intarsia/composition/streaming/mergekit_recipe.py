"""MergekitRecipe: a merge of model folders as mergekit's YAML has it, where its methods are ours.

Sources: mergekit 0.1.5, whose results the methods equal up to rounding; those that draw at random
(dare, della) draw other numbers. What means more than we do is refused with its reason.
"""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intarsia.composition.merge_recipe import BASES
from intarsia.composition.streaming.file_merge import (
    SHARD_SIZE,
    FileMerge,
    is_learned,
    merge_files,
)
from intarsia.composition.streaming.tensor_files import TensorFiles, is_model
from intarsia.composition.streaming.tensor_settings import (
    Span,
    TensorPlace,
    TensorSetting,
    tensor_places,
)
from intarsia.errors import FileError, RecipeError, RecipeWarning, nearest, shortened
from intarsia.files import is_no_file
from intarsia.parsing import parse_json, read_settings
from intarsia.specs import check_keys

KEYS = (
    "merge_method", "models", "slices", "modules", "base_model", "dtype", "out_dtype",
    "parameters", "tokenizer_source", "tokenizer", "chat_template",
)  # fmt: skip
# Keys that a recipe for modules has not.
THEIRS = ("slices", "modules", "dtype", "out_dtype", "tokenizer_source", "tokenizer")
LARGEST_TOKENIZER = 2**28  # bytes

# By which a config counts its layers.
COUNTED = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")

Settings = dict[str, Any]
Scope = Mapping[str, TensorSetting]  # settings that are given in one place, by name


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


def _karcher(given: Settings) -> Settings:
    steps = given["max_iter"]
    return {"steps": int(steps) if steps == int(steps) else steps, "tolerance": given["tol"]}


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
        translate=_karcher,
    ),
    "slerp": Method(
        {"name": "slerp"}, {"t": None}, origin="first", translate=lambda given: {"t": given["t"]}
    ),
}


@dataclass(frozen=True)
class MergekitRecipe:
    """Which models are joined and how, in our words: what `merge_files` is given.

    `operator` is how most tensors are joined, and `by_tensor` how the others are.
    """

    models: Mapping[str, Path]
    operator: Mapping[str, Any]
    base: Path | None = None
    dtype: str | None = None
    by_tensor: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> "MergekitRecipe":
        """Read mergekit's YAML; paths are relative to its folder, or else to the current one."""
        return cls.read(read_settings(path), Path(path).parent)

    @classmethod
    def read(cls, settings: Mapping[str, Any], folder: Path = Path()) -> "MergekitRecipe":
        """A recipe from plain values; what it asks for beyond our operators is refused."""
        check_keys("a merge", settings, KEYS)
        slices = _slices(settings)
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
        models = list(slices[0].models)
        # mergekit adds the base to models, but not to slices; slerp cannot do without it
        added = method.origin == "first" or (method.origin == "model" and not slices[0].layers)
        if added and base is not None and base not in models:
            models.append(base)
        if method.origin in ("required", "first") and base is None:
            raise RecipeError(f"{named} needs base_model, the model that changes are measured from")
        is_origin = method.origin in ("required", "optional")
        # a base among the models has no change of its own
        paths = {m: _place(m, folder) for m in models if not (is_origin and m == base)}
        if not paths:
            raise RecipeError("models names none besides the base")
        every = paths if base is None else paths | {base: _place(base, folder)}
        _check_apart(every)
        _check_slices(slices, every)
        names = _names(paths)
        scopes = [_Scopes.of(named, method, settings.get("parameters"), s, names) for s in slices]
        stored = every[base] if base is not None and is_origin else min(paths.values())
        operators = {
            place.name: _operator(method, _given(method, scopes, place, names), names, base)
            for place in _places(stored, slices, scopes)
        }
        ((usual, _),) = Counter(map(str, operators.values())).most_common(1)
        recipe = cls(
            models={names[model]: path for model, path in paths.items()},
            operator=next(each for each in operators.values() if str(each) == usual),
            base=every[base] if base is not None and is_origin else None,
            dtype=_dtype(settings),
            by_tensor={name: each for name, each in operators.items() if str(each) != usual},
        )
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
            by_tensor=self.by_tensor,
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


@dataclass(frozen=True)
class _Slice:
    """All layers, or some that follow one another: the models with settings of their own."""

    models: Mapping[str, Settings]
    layers: Mapping[str, Any] = field(default_factory=dict)  # by model, as they are given
    parameters: Any = None

    @property
    def span(self) -> Span:
        start, end = next(iter(self.layers.values()))
        return start, end


def _slices(settings: Mapping[str, Any]) -> list[_Slice]:
    """The models with their parameters, of `models` or of slices."""
    if settings.get("modules") is not None:
        raise RecipeError("modules joins parts of a model by several methods: merge one by one")
    if settings.get("chat_template") is not None:
        raise RecipeError("chat_template makes another tokenizer: leave it out, it is copied")
    models, slices = settings.get("models"), settings.get("slices")
    if slices is None:
        return [_slice({"sources": models}, sliced=False)]
    if models is not None:
        raise RecipeError("slices are given beside models: give one of the two")
    if not isinstance(slices, list) or not slices:
        raise RecipeError(f"slices is {shortened(slices)}: expected a list of {{sources: [...]}}")
    return [_slice(each, sliced=True) for each in slices]


def _slice(given: Any, sliced: bool) -> _Slice:
    if not isinstance(given, Mapping):
        raise RecipeError(f"slices has {shortened(given)}: expected {{sources: [...]}}")
    check_keys("a slice", given, ("sources", "parameters"))
    sources = given.get("sources")
    if not isinstance(sources, list) or not sources:
        what = "sources" if sliced else "models"
        raise RecipeError(f"{what} is {shortened(sources)}: expected a list of folders")
    models, layers = {}, {}
    for source in sources:
        entry = source if isinstance(source, Mapping) else {"model": source}
        check_keys("a model", entry, ("model", "parameters", "layer_range"))
        model, parameters = entry.get("model"), entry.get("parameters") or {}
        if not isinstance(model, str) or not isinstance(parameters, Mapping):
            raise RecipeError(f"models has {shortened(source)}: expected {{model: path, ...}}")
        if "layer_range" in entry and not sliced:
            raise RecipeError("layer_range belongs into slices: leave it out of models")
        if model in models:
            raise RecipeError(f"models names one of them twice, {shortened(model)}")
        models[model], layers[model] = dict(parameters), entry.get("layer_range")
    return _Slice(models, layers if sliced else {}, given.get("parameters"))


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


@dataclass(frozen=True)
class _Scopes:
    """Where settings are given for a slice, the nearest first: for each model, and for all."""

    own: Mapping[str, Sequence[Scope]]  # by the model's name
    shared: Sequence[Scope]

    @classmethod
    def of(
        cls, named: str, method: Method, common: Any, part: _Slice, names: Mapping[str, str]
    ) -> "_Scopes":
        known = (*method.shared, *method.own)
        shared = [
            _scope(f"{named}'s parameters", part.parameters, method, known),
            _scope(f"{named}'s parameters", common, method, known),
        ]
        what = f"a model's parameters for {named}"
        own = {
            name: [_scope(what, part.models.get(model), method, tuple(method.own)), *shared]
            for model, name in names.items()
        }
        return cls(own, shared)

    def given(self, method: Method, place: TensorPlace, names: Iterable[str]) -> Settings:
        """A method's settings for a tensor: weights, and densities that differ, by model."""
        given = {k: _value_at(self.shared, k, d, place) for k, d in method.shared.items()}
        for key, default in method.own.items():
            values = {
                name: _value_at(self.own[name], key, default, place, f" of model {name!r}")
                for name in names
            }
            if key == "weight" or (key == "density" and len(set(values.values())) > 1):
                given[key] = values
            elif len(set(values.values())) > 1:
                raise RecipeError(
                    f"the models have {key} {', '.join(map(str, values.values()))}: it is one for "
                    "all here, give it once under parameters"
                )
            else:
                given[key] = next(iter(values.values()))
        return given

    @property
    def settings(self) -> list[TensorSetting]:
        scopes = [scope for scopes in (self.shared, *self.own.values()) for scope in scopes]
        return [setting for scope in scopes for setting in scope.values()]


def _scope(what: str, given: Any, method: Method, known: tuple[str, ...]) -> Scope:
    given = given or {}
    if not isinstance(given, Mapping):
        raise RecipeError(f"parameters is {shortened(given)}: expected a mapping")
    check_keys(what, given, known)
    return {
        key: TensorSetting.read(key, value, flag=isinstance(method.shared.get(key), bool))
        for key, value in given.items()
        if value is not None
    }


def _value_at(
    scopes: Sequence[Scope], key: str, default: Any, place: TensorPlace, of: str = ""
) -> Any:
    for scope in scopes:
        if key in scope and (value := scope[key].at(place)) is not None:
            return value
    if default is None:
        raise RecipeError(
            f"{key} is not given for tensor {place.name!r}{of}, and mergekit has no default for "
            f"it: give {key}, after filters as the last of them, as in - value: 0.5"
        )
    return default


def _places(
    path: Path, slices: Sequence[_Slice], scopes: Sequence[_Scopes]
) -> Iterable[TensorPlace]:
    """Those of all tensors that are joined; filters that fit none are warned of."""
    tensors = TensorFiles(path).tensors
    names = [name for name, tensor in tensors.items() if is_learned(name, tensor)]
    settings = {setting for each in scopes for setting in each.settings}
    idle = {(setting.key, part) for setting in settings for part in setting.idle_filters(names)}
    for key, part in sorted(idle):
        warnings.warn(
            f"the filter {shortened(part)} of {key} changes nothing: no tensor of {path} has it in "
            "its name, or an earlier condition counts first; names are such as "
            f"{shortened(names[len(names) // 2]) if names else 'none'}",
            RecipeWarning,
            stacklevel=4,
        )
    spans = [each.span for each in slices if each.layers]
    config = _config(path)
    counts = [n for key in COUNTED if type(n := config.get(key)) is int]
    places = list(tensor_places(names, spans, counts[0] if counts else None))
    # without any, the settings are still to be checked
    return places or [TensorPlace("", depth=None)]


def _given(
    method: Method, scopes: Sequence[_Scopes], place: TensorPlace, names: Mapping[str, str]
) -> Settings:
    """The settings for a tensor, which may have to be the same in several slices."""
    found = [scopes[index].given(method, place, names.values()) for index in place.slices]
    if found[0] != found[-1]:
        raise RecipeError(
            f"the slices have different settings, and tensor {place.name!r} is not in a layer, nor "
            "known to come before or after them: give it the same in all slices, by filter"
        )
    return found[0]


def _operator(
    method: Method, given: Settings, names: Mapping[str, str], base: str | None
) -> Settings:
    operator = {**method.operator, **method.translate(given)}
    if method.origin == "optional" and base is None:
        operator["base"] = "zero"
    if method.origin == "first":
        operator["t"] = _towards_other(operator["t"], names, str(base))
    return operator


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


def _check_slices(slices: Sequence[_Slice], paths: Mapping[str, Path]) -> None:
    """Together the slices are all layers that the configs count, each where it was."""
    start = 0
    for number, part in enumerate(slices):
        if part.models.keys() != slices[0].models.keys():
            raise RecipeError(
                "the slices are of different models, and here all layers are joined of the same: "
                f"give each slice {', '.join(map(shortened, slices[0].models))}"
            )
        ends = {}
        for model, seen in part.layers.items():
            layers = _config(paths.get(model)).get("num_hidden_layers")
            is_last = number == len(slices) - 1
            if type(layers) is not int or not _goes_on(seen, start, layers, is_last):
                whole = [0, layers] if type(layers) is int else "as its config counts them"
                raise RecipeError(
                    f"layer_range of {model} is {shortened(seen)}: only all layers can be joined, "
                    f"{whole}, in one slice, or in several of which each begins where the one "
                    "before ends; none is moved, left out or repeated"
                )
            ends[model] = seen[1]
        if len(set(ends.values())) > 1:
            raise RecipeError(
                f"the sources of a slice end at layers {', '.join(map(str, ends.values()))}: "
                "expected the same layers of all"
            )
        start = next(iter(ends.values()), 0)


def _goes_on(seen: Any, start: int, layers: int, is_last: bool) -> bool:
    """Whether layers are given as [start, end], within the model, and to its end if they must."""
    if not isinstance(seen, list) or len(seen) != 2 or any(type(n) is not int for n in seen):
        return False
    return bool(seen[0] == start < seen[1] <= layers and (not is_last or seen[1] == layers))


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
