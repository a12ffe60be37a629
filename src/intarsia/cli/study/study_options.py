"""Options that the verbs of `study` have."""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from intarsia.cli import completion
from intarsia.cli.arguments import assignments
from intarsia.errors import StudyError, nearest
from intarsia.studies import Study, find_study
from intarsia.studies.study import OWN
from intarsia.training import Recipe

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A study, as `study list` has it.",
        autocompletion=completion.one_of(completion.STUDIES),
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="Data sets, such as mnist,har.",
        autocompletion=completion.some_of(completion.DATASETS),
    ),
]
Models = Annotated[str | None, typer.Option(help="shallow, deep, cnn, or models such as mlp(32).")]
Seeds = Annotated[str | None, typer.Option(help="How many, or which: 5, or 0,1,2.")]
Preset = Annotated[
    str | None,
    typer.Option(help="paper or released.", autocompletion=completion.one_of(completion.PRESETS)),
]
Scale = Annotated[
    str | None, typer.Option(help="Where options that are not given come from: paper or small.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other option, such as sizes=1,2."),
]
Module = Annotated[
    str | None,
    typer.Option(metavar="FILE.py|PACKAGE", help="Where a study of your own is registered."),
]
StoreFolder = Annotated[Path, typer.Option(help="The folder of cells and modules.")]
From = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="ARCHIVE.json", help="An archive, not a store; options pick its cells."
    ),
]
STORE = Path("studies")
STDOUT = Path("-")  # as -o


KINDS = {bool: "truth", int: "number", float: "number", str: "text", list: "list", dict: "mapping"}


def study_and_options(
    name: str,
    scale: str | None,
    flags: Mapping[str, str | None],
    words: Sequence[str] | None,
    module: str | None,
) -> tuple[Study, dict[str, Any]]:
    """The study of this name, and its scale's options with those of the command in their place."""
    study, given = study_and_given(name, scale, flags, words, module)
    return study, study.options(scale or study.default_scale, **given)


def study_and_given(
    name: str,
    scale: str | None,
    flags: Mapping[str, str | None],
    words: Sequence[str] | None,
    module: str | None,
) -> tuple[Study, dict[str, Any]]:
    """The study of this name, and the options of the command alone, as its scale has them."""
    if module is not None:
        load_module(module)
    study = find_study(name)
    known = study.options(scale or study.default_scale)
    given = assignments([*(f"{k}={v}" for k, v in flags.items() if v is not None), *(words or [])])
    for key in given:
        if key not in known:
            raise StudyError(f"study {name!r} has no option {key!r}: {_hint(key, known)}")
    return study, {key: _fit(value, known[key], key) for key, value in given.items()}


def load_module(source: str) -> None:
    """Import the module of a user's studies, by its file or by its name.

    A file's folder joins the places that are searched, so that worker processes find it too.
    """
    path = Path(source)
    if path.suffix == ".py" and not path.is_file():
        raise StudyError(f"--module {source}: there is no such file")
    if path.is_file() and str(path.resolve().parent) not in sys.path:
        sys.path.append(str(path.resolve().parent))
    try:
        module = import_module(path.stem if path.is_file() else source)
    except (ImportError, SyntaxError) as error:
        raise StudyError(f"--module {source}: cannot be imported: {error}") from error
    if path.is_file() and Path(module.__file__ or "").resolve() != path.resolve():
        raise StudyError(
            f"--module {source}: another module is called {path.stem!r}: rename the file"
        )


def check_folder(out: Path) -> None:
    """A folder that is not there is more often a slip than a wish."""
    if not out.parent.is_dir():
        raise StudyError(f"cannot write {out}: there is no folder {out.parent}: make it first")


def _hint(key: str, known: Mapping[str, Any]) -> str:
    if "recipe" in known and key in {f.name for f in fields(Recipe)} - set(OWN):
        return f"it is a setting of the recipe, as in --set 'recipe={{{key}: ...}}'"
    close = nearest(key, known)
    every = f"known: {', '.join(sorted(known))}"
    return every if close == every else f"{close} {every}"


def _fit(value: Any, example: Any, key: str) -> Any:
    """A value of the kind that the scale has: commas make lists, numbers text where it has text."""
    if isinstance(value, str) and not isinstance(example, str) and "," in value:
        parts = re.split(r",\s*(?![^(]*\))", value)  # not inside mlp(512, 256)
        value = [yaml.safe_load(part) for part in parts if part]
    if key == "seeds":
        return _seeds(value)
    if isinstance(example, list):
        kinds = {_kind(v) for v in example}
        return [
            _of(v, kinds, example, key) for v in (value if isinstance(value, list) else [value])
        ]
    return _of(value, {_kind(example)}, example, key)


def _of(value: Any, kinds: set[str], example: Any, key: str) -> Any:
    if kinds == {"text"} and _kind(value) in ("number", "truth"):
        return str(value)
    if kinds == {"number"} and isinstance(value, str):
        with suppress(ValueError):
            return float(value)  # YAML takes 1e-3 for text
    if len(kinds) == 1 and kinds != {"nothing"} and _kind(value) not in kinds:
        raise StudyError(f"option {key!r} is {value!r}: expected something like {example!r}")
    return value


def _seeds(value: Any) -> Any:
    seeds = value if isinstance(value, list) else [value]
    if not seeds or not all(type(s) is int and s >= 0 for s in seeds) or value == 0:
        raise StudyError(f"option 'seeds' is {value!r}: expected a count such as 5, or 0,1,2")
    return value


def _kind(value: Any) -> str:
    return KINDS.get(type(value), "nothing")
