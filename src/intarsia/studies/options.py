"""Options: what a study is asked for, checked, compared with cells, and as a command.

An option names a setting of cells: `sizes` the setting `size`, `sparsities` the setting `sparsity`.
"""

import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import yaml

from intarsia.composition import OPERATORS
from intarsia.composition.operators.registry import looks_at_samples
from intarsia.errors import ModelError, RecipeError, StudyError, nearest, shortened
from intarsia.measure.probe import HeadTraining
from intarsia.models import build
from intarsia.studies.cells import Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.plans import HIDDEN
from intarsia.studies.study import Study, seeds_of

CNN = "cnn"
OF_HEADS = ("epochs", "learning_rate", "weight_decay", "batch")
NATURE = ("data", "models", "recipe")  # what tells scales apart
FLAGS = ("data", "models", "seeds", "preset")  # options of the command line that need no --set
VARIANT = (
    "preset",
    "recipe",
    "objective",
    "sparsity",
    "data_options",
)  # what makes other cells, not more of them

Settings = Mapping[str, Any]


def readable(
    options: Mapping[str, Any], context: StudyContext, models: str = "models"
) -> Iterator[tuple[str, str]]:
    """Every data set, as it was named, with every model that can read it.

    The paper's CNN reads pictures only and falls out elsewhere. `models` is the option that names
    them.
    """
    for data in options["data"]:
        for model in options[models]:
            if model != CNN or len(context.data(data, options["preset"]).shape) == 3:
                _check_model(options, context, data, model, models)
                yield data, model


def fitting(options: Mapping[str, Any], key: str, classes: int) -> list[int]:
    """The sizes of class sets of which two fit side by side."""
    return [size for size in check_counts(options, key) if 2 * size <= classes]


def check_operators(
    options: Mapping[str, Any], key: str = "operators", *, samples: bool = True
) -> list[str]:
    """The operators that are asked for, all of them known.

    Without `samples` there are none to give, so that operators that need them are refused.
    """
    if not options[key]:
        raise StudyError(f"option {key!r} is empty: expected at least one operator, such as sum")
    for text in options[key]:
        operator_name(text, key)
        if looks_at_samples(text) and not samples:
            others = ", ".join(n for n in OPERATORS if not getattr(OPERATORS[n], "samples", False))
            raise StudyError(
                f"option {key!r} has {shortened(text)}, which needs samples that this study does "
                "not give: "
                f"expected one of {others}"
            )
    return list(options[key])


def operator_name(text: Any, key: str = "operators") -> str:
    """The registered name of an operator that may be given with settings."""
    try:
        return OPERATORS.spec(text).name
    except RecipeError as error:
        raise StudyError(
            f"option {key!r} has {shortened(text)}: expected an operator: {error}"
        ) from None


def check_count(options: Mapping[str, Any], key: str, least: int = 1, odd: bool = False) -> int:
    """A whole number from `least` on."""
    return _whole(key, "is", options[key], least, odd)


def check_counts(options: Mapping[str, Any], key: str) -> list[int]:
    """Whole numbers from 1 on."""
    return [_whole(key, "has", value, 1) for value in options[key]]


def check_numbers(options: Mapping[str, Any], key: str) -> list[float]:
    """Numbers above 0."""
    for value in options[key]:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise StudyError(f"option {key!r} has {shortened(value)}: expected numbers above 0")
    return list(map(float, options[key]))


def check_names(options: Mapping[str, Any], key: str, known: Collection[str]) -> list[str]:
    """Names, all of them known."""
    for name in options[key]:
        if name not in known:
            raise StudyError(f"option {key!r} has {shortened(name)}: {nearest(str(name), known)}")
    return list(options[key])


def check_flags(options: Mapping[str, Any], key: str) -> list[bool]:
    """True, False, or both."""
    for value in options[key]:
        if not isinstance(value, bool):
            raise StudyError(
                f"option {key!r} has {shortened(value)}: expected true, false, or both"
            )
    return list(options[key])


def check_flag(options: Mapping[str, Any], key: str) -> bool:
    """True or False."""
    if not isinstance(options[key], bool):
        raise StudyError(f"option {key!r} is {shortened(options[key])}: expected true or false")
    return bool(options[key])


def check_within(key: str, values: Iterable[Any], least: float, below: float) -> None:
    """Numbers from `least` on, all of them below another."""
    for value in values:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= value < below:
            upto = "" if below == float("inf") else f", below {below:g}"
            raise StudyError(
                f"option {key!r} has {shortened(value)}: expected a number from {least:g}{upto}"
            )


def check_head(head: Mapping[str, Any]) -> dict[str, Any]:
    """How heads are trained, as `fresh_head` takes it, with HeadTraining's own defaults."""
    for key in head:
        if key not in OF_HEADS:
            raise StudyError(f"option 'head' has {key!r}: {nearest(key, OF_HEADS)}")
    try:
        full = HeadTraining(**head)
    except RecipeError as error:
        raise StudyError(f"option 'head': {error}") from None
    return {key: getattr(full, key) for key in OF_HEADS}


def setting_of(option: str, settings: Sequence[Settings]) -> str | None:
    """The setting that an option or its singular names, where its values are text or numbers."""
    for name in (option, option.removesuffix("s"), option.removesuffix("ies") + "y"):
        values = [own[name] for own in settings if own.get(name) is not None]
        if values and all(isinstance(v, str | int | float) for v in values):
            return name
    return None


def without_cell(options: Mapping[str, Any], settings: Sequence[Settings]) -> dict[str, list[Any]]:
    """By option, the values that no cell has, where options and settings compare."""
    absent = {}
    for option, values in options.items():
        name = setting_of(option, settings)
        if name is None or not isinstance(values, list):
            continue
        seen = [own.get(name) for own in settings]
        unseen = [value for value in values if value not in seen]
        if 0 < len(unseen) < len(values):  # if all were, the study may write them in another way
            absent[option] = unseen
    return absent


def picked(
    measured: Sequence[Measured], given: Mapping[str, Any], known: Iterable[str]
) -> list[Measured]:
    """The cells that have one of the values of each option given, of those that are known.

    Cells without the setting stay: the option does not concern them.
    """
    settings = [m.settings for m in measured]
    kept = list(measured)
    for option, value in given.items():
        name = setting_of(option, settings)
        if name is None:
            able = [other for other in known if setting_of(other, settings)]
            raise StudyError(
                f"option {option!r} cannot pick cells of an archive: these can: {', '.join(able)}"
            )
        wanted = [*(value if isinstance(value, list) else [value]), None]
        kept = [m for m in kept if m.settings.get(name) in wanted]
    return kept


def inferred(study: Study, settings: Sequence[Settings]) -> list[dict[str, Any]]:
    """Of every scale, its options with the values that cells have instead."""
    result = []
    for scale in study.scales:
        options = study.options(scale)
        for option, value in options.items():
            if option == "seeds":
                options[option] = _seeds_seen(settings, value)
            elif isinstance(value, list) and (name := setting_of(option, settings)):
                seen = [own[name] for own in settings if own.get(name) is not None]
                first = [v for v in value if v in seen]
                options[option] = list(dict.fromkeys([*first, *seen]))
            elif option in signature(study, settings[0]):
                options[option] = settings[0][option]
        result.append(options)
    return result


def signature(study: Study, settings: Settings) -> dict[str, Any]:
    """The settings that are options of one value: cells that differ in them were asked apart."""
    options = next(iter(study.scales.values()))
    return {
        key: settings[key]
        for key, value in options.items()
        if key in settings and key != "seeds" and not isinstance(value, list | tuple)
        if isinstance(settings[key], Mapping) == isinstance(value, Mapping)
        if not isinstance(settings[key], list)
    }


def nearest_scale(study: Study, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The scale that these options are nearest to, and those that it has otherwise."""
    others = {}
    for scale in study.scales:
        known = study.options(scale)
        others[scale] = {key: value for key, value in options.items() if value != known.get(key)}
    scale = min(others, key=lambda scale: sum(key in NATURE for key in others[scale]))
    return scale, others[scale]


def variant_label(study: Study, options: Mapping[str, Any]) -> str:
    """What makes cells of these options others: the preset, and what is not the scale's."""
    usual = study.scales[nearest_scale(study, options)[0]]
    recipe = {
        k: v for k, v in options.get("recipe", {}).items() if usual.get("recipe", {}).get(k) != v
    }
    others = {k: options[k] for k in VARIANT[2:] if k in options and options[k] != usual.get(k)}
    parts = [f"{key}={option_text(value)}" for key, value in (recipe | others).items()]
    preset = f"preset `{options['preset']}`" if "preset" in options else "these options"
    return f"{preset} with `{', '.join(parts)}`" if parts else preset


def run_command(study: Study, options: Mapping[str, Any], verb: str = "run") -> str:
    """The command that measures these options, or shows them by another verb."""
    scale, other = nearest_scale(study, options)
    words = ["intarsia", "study", verb, study.name]
    words += ["--scale", scale] if scale != "paper" else []
    for key, value in other.items():
        text = option_text(value)
        words += [f"--{key}", text] if key in FLAGS else ["--set", f"{key}={text}"]
    return " ".join(map(_quoted, words))


def option_text(value: Any) -> str:
    """A value as the command line takes it: plain ones parted by commas, YAML for the rest."""
    if isinstance(value, str):
        return value
    plain = isinstance(value, list) and all(isinstance(v, str | int | float) for v in value)
    # "ME, public images" is one; the comma of mlp(32, dropout=0) is not taken for a parting one
    plain = plain and not any(isinstance(v, str) and "," in v and "(" not in v for v in value)
    if plain and value and (len(value) > 1 or isinstance(value[0], str)):  # 3 would be three seeds
        return ",".join(map(option_text, value))
    if isinstance(value, Mapping):
        lines = yaml.safe_dump(dict(value), default_flow_style=True, sort_keys=False, width=1e9)
        return str(lines).strip()
    return json.dumps(value)


def _check_model(
    options: Mapping[str, Any], context: StudyContext, name: str, model: Any, key: str
) -> None:
    """A model that is none of the paper's must be one that can be built for these data."""
    if model == CNN or model in HIDDEN:
        return
    data = context.data(name, options["preset"])
    try:
        with torch.device("meta"):  # its shapes alone
            build(model, data.shape, data.classes)
    except (ModelError, RecipeError) as error:
        known = ", ".join([*HIDDEN, CNN])
        raise StudyError(
            f"option {key!r} has {shortened(model)}: expected one of {known}, or a model that "
            f"reads {name}, "
            f"such as mlp(32): {error}"
        ) from None


def _whole(key: str, verb: str, value: Any, least: int, odd: bool = False) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (odd and value % 2 == 0):
        kind = "an odd" if odd else "a whole"
        raise StudyError(
            f"option {key!r} {verb} {shortened(value)}: expected {kind} number from {least}"
        )
    result: int = value
    return result


def _seeds_seen(settings: Sequence[Settings], usual: Any) -> Any:
    """As many as there are where they count from 0, else those seen."""
    seen = sorted({own["seed"] for own in settings if "seed" in own})
    if not seen:
        return usual
    return len(seen) if seen == seeds_of(len(seen)) else seen


def _quoted(word: str) -> str:
    """A word as a shell reads it, in double quotes where it has single ones."""
    if "'" in word and not set(word) & set('"$`\\!'):
        return f'"{word}"'
    return shlex.quote(word)
