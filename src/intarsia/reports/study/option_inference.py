"""Options of a study: worked out from its cells, and as the command that asks for them."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from intarsia.studies import Study, seeds_of

NATURE = ("data", "models", "recipe")  # what tells forms apart
FLAGS = ("data", "models", "seeds", "preset")  # options of the command line that need no --set

Settings = Mapping[str, Any]


def nearest_form(study: Study, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The form that these options are nearest to, and those that it has otherwise."""
    others = {}
    for form in study.forms:
        known = study.options(form)
        others[form] = {key: value for key, value in options.items() if value != known.get(key)}
    form = min(others, key=lambda form: sum(key in NATURE for key in others[form]))
    return form, others[form]


def run_command(study: Study, options: Mapping[str, Any], verb: str = "run") -> str:
    """The command that measures these options, or shows them by another verb."""
    form, other = nearest_form(study, options)
    words = ["intarsia", "study", verb, study.name]
    words += ["--form", form] if form != "paper" else []
    for key, value in other.items():
        text = option_text(value)
        words += [f"--{key}", text] if key in FLAGS else ["--set", f"{key}={text}"]
    return " ".join(map(_quoted, words))


def option_text(value: Any) -> str:
    """A value as the command line takes it: plain ones parted by commas, YAML for the rest."""
    if isinstance(value, str):
        return value
    plain = isinstance(value, list) and all(isinstance(v, str | int | float) for v in value)
    if plain and value and (len(value) > 1 or isinstance(value[0], str)):  # 3 would be three seeds
        return ",".join(map(option_text, value))
    if isinstance(value, Mapping):
        lines = yaml.safe_dump(dict(value), default_flow_style=True, sort_keys=False, width=1e9)
        return str(lines).strip()
    return json.dumps(value)


def inferred(study: Study, settings: Sequence[Settings]) -> list[dict[str, Any]]:
    """Of every form, its options with the values that cells have in their place."""
    result = []
    for form in study.forms:
        options = study.options(form)
        for option, value in options.items():
            if option == "seeds":
                options[option] = _seeds(settings, value)
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
    options = next(iter(study.forms.values()))
    return {
        key: settings[key]
        for key, value in options.items()
        if key in settings and key != "seeds" and not isinstance(value, list | tuple)
        if isinstance(settings[key], Mapping) == isinstance(value, Mapping)
        if not isinstance(settings[key], list)
    }


def setting_of(option: str, settings: Sequence[Settings]) -> str | None:
    """The setting that an option or its singular names, where its values are text or numbers."""
    for name in (option, option.removesuffix("s"), option.removesuffix("ies") + "y"):
        values = [own[name] for own in settings if own.get(name) is not None]
        if values and all(isinstance(v, str | int | float) for v in values):
            return name
    return None


def _seeds(settings: Sequence[Settings], usual: Any) -> Any:
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
