"""From the words of `study` to values: a study, its options, its cells and what is finished."""

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from intarsia.arguments import assignments
from intarsia.errors import StudyError
from intarsia.studies import Bench, Cell, Measured, Store, Study, find_study, standing
from intarsia.studies.packs import load_pack
from intarsia.studies.runner import Standing

KINDS = {bool: "truth", int: "number", float: "number", str: "text", list: "list", dict: "mapping"}


@dataclass(frozen=True)
class Shown:
    """What there is to show of a study, and what is missing of it."""

    study: Study
    options: Mapping[str, Any]
    measured: Sequence[Measured]
    missing: int
    damaged: Sequence[str] = field(default_factory=list)

    @property
    def remark(self) -> str | None:
        whole = len(self.measured) + self.missing
        return f"note: {self.missing} of {whole} cells are missing" if self.missing else None


def study_and_options(
    name: str,
    form: str | None,
    flags: Mapping[str, str | None],
    words: Sequence[str] | None,
    module: str | None,
) -> tuple[Study, dict[str, Any]]:
    """The study of this name, and its form's options with those of the command in their place."""
    if module is not None:
        load_module(module)
    study = find_study(name)
    form = form or ("paper" if "paper" in study.forms else next(iter(study.forms)))
    given = assignments([*(f"{k}={v}" for k, v in flags.items() if v is not None), *(words or [])])
    known = study.options(form)
    fitted = {k: _fit(v, known[k], k) if k in known else v for k, v in given.items()}
    return study, study.options(form, **fitted)


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


def look(study: Study, options: Mapping[str, Any], store: Path) -> tuple[Store, Standing]:
    """An existing store, and what it has of a study."""
    found = Store(store, make=False)
    cells: list[Cell] = study.plan(options, Bench(found, "cpu"))
    return found, standing(cells, found)


def shown(study: Study, options: Mapping[str, Any], store: Path, pack: Path | None) -> Shown:
    """The finished cells of a store or a pack; an error where there are none."""
    if pack is None:
        found = look(study, options, store)[1]
        damaged = list(found.damaged.values())
        made = Shown(study, options, found.measured, len(found.missing), damaged)
    else:
        packed = load_pack(pack)
        if packed.study != study.name:
            raise StudyError(f"{pack} is of the study {packed.study!r}, not of {study.name!r}")
        made = Shown(study, packed.options, packed.measured, packed.missing)
    if not made.measured:
        raise StudyError(
            f"no cell of the study {study.name!r} with these options is finished in "
            f"{pack or store}: run it first, or give the options that it was run with"
        )
    return made


@contextmanager
def store_to_look_at(path: Path) -> Iterator[Store]:
    """The store, or an empty one for the time being where there is none."""
    if path.exists():
        yield Store(path)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Store(folder)


def _fit(value: Any, example: Any, key: str) -> Any:
    """A value of the kind that the form has: commas make a list, numbers text where text stands."""
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
