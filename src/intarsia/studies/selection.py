"""Selection: the options that somebody asks of a study, and the finished cells that have them.

Options come as a command line reads them: numbers where the study has text, one value where it has
a list. Cells come out of a store, or out of an archive, whose cells are picked by their settings.
"""

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any

from intarsia.errors import DataError, FileError, IntarsiaError, StudyError, nearest, shortened
from intarsia.parsing import parse_yaml
from intarsia.studies.archive import check_cells, load_archive
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext, load_here
from intarsia.studies.options import picked, variant_label, without_cell
from intarsia.studies.runners.estimate import Estimate, estimate
from intarsia.studies.runners.local import StudyProgress, progress
from intarsia.studies.store import Store
from intarsia.studies.study import OWN, Study, seeds_of
from intarsia.studies.verdict import Findings, Verdict, missing_cells
from intarsia.studies.wording import several
from intarsia.training import Recipe

TYPES = {bool: "truth", int: "number", float: "number", str: "text", list: "list", dict: "mapping"}


@dataclass(frozen=True)
class StudySelection:
    """The finished cells of a study, how many others are missing or damaged, and remarks.

    `missing_cells` names the missing ones, group by group.
    """

    study: Study
    options: Mapping[str, Any]
    measured: Sequence[Measured]
    missing: int
    damaged: int = 0
    remarks: Sequence[str] = ()
    missing_cells: Sequence[str] = ()

    def verdict(self) -> Verdict:
        """What these cells say."""
        label = variant_label(self.study, self.options)
        return self.study.judge(Findings(self.measured, label), self.missing_cells)


def default_scale(study: Study) -> str:
    """The paper's scale where the study has it, else its first."""
    return "paper" if "paper" in study.scales else next(iter(study.scales))


def read_options(study: Study, given: Mapping[str, Any], scale: str | None) -> dict[str, Any]:
    """The options given, each of the type that the study has; an unknown one is an error."""
    known = study.options(scale or default_scale(study))
    for key in given:
        if key not in known:
            raise StudyError(f"study {study.name!r} has no option {key!r}: {_hint(key, known)}")
    return {key: _read_option(value, known[key], key) for key, value in given.items()}


def load_module(source: str) -> None:
    """Import a module that registers studies, by its file or by its name.

    A file's folder is added to the import path, so that worker processes find it too.
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
    except IntarsiaError:
        raise
    except Exception as error:  # it is the user's code that fails
        frames = extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if Path(frame.filename).resolve() == path.resolve()]
        place = (theirs or frames)[-1]
        raise StudyError(
            f"--module {source}: importing it fails in line {place.lineno} of "
            f"{Path(place.filename).name}: {type(error).__name__}: {error}"
        ) from error
    if path.is_file() and Path(module.__file__ or "").resolve() != path.resolve():
        raise StudyError(
            f"--module {source}: another module is called {path.stem!r}: rename the file"
        )


def stored_progress(
    study: Study, options: Mapping[str, Any], folder: Path
) -> tuple[Store, StudyProgress]:
    """An existing store, and which cells of a study it has."""
    store = Store(folder, make=False)
    return store, progress(study.plan(options, StudyContext(store, "cpu")), store)


def select_stored(study: Study, options: Mapping[str, Any], folder: Path) -> StudySelection:
    """The finished cells of a store; an error where there are none."""
    _, stored = stored_progress(study, options, folder)
    damaged = list(stored.damaged.values())
    if not stored.finished:
        raise nothing_finished(study, folder, damaged)
    missing = len(stored.missing) - len(damaged)
    remarks = progress_remarks(options, stored)
    lacking = missing_cells(stored.cells, {cell.key for cell in stored.missing})
    return StudySelection(study, options, stored.measured, missing, len(damaged), remarks, lacking)


def select_archived(study: Study, given: Mapping[str, Any], path: Path) -> StudySelection:
    """The cells of an archive that have the options given; an error where there are none."""
    archive = load_archive(path)
    if archive.study != study.name:
        raise StudyError(f"{path} is of the study {archive.study!r}, not of {study.name!r}")
    check_cells(archive, study, path)
    wanted = {key: seeds_of(v) if key == "seeds" else v for key, v in given.items()}
    measured = picked(archive.measured, wanted, archive.options)
    if not measured:
        raise nothing_finished(study, path, [])
    remarks = unmatched_values(wanted, measured)
    if archive.missing:
        total = len(archive.measured) + archive.missing
        cells = "cells of the whole archive" if given else "cells"
        remarks.append(f"{archive.missing} of {total} {cells} are missing")
    if outdated := _outdated(study, archive.options, measured):
        remarks.append(
            f"{outdated} of {len(measured)} cells of {path} are not among {study.name}'s today: "
            "a default, the data or the way of measuring has changed since"
        )
    options = {**archive.options, **given}
    lacking = [several(archive.missing, "cell")] if archive.missing else []
    return StudySelection(study, options, measured, archive.missing, 0, remarks, lacking)


def progress_remarks(options: Mapping[str, Any], stored: StudyProgress) -> list[str]:
    """Cells that are damaged, values that give no cell, and how many cells are missing."""
    damaged = list(stored.damaged.values())
    remarks = [*damaged, *unmatched_values(options, stored.cells)]
    if stored.missing:
        missing = len(stored.missing) - len(damaged)
        more = f", {len(damaged)} damaged" if damaged else ""
        remarks.append(f"{missing} of {len(stored.cells)} cells are missing{more}")
    return remarks


def nothing_finished(study: Study, where: Path, damaged: Sequence[str]) -> StudyError:
    """The error where no cell is finished."""
    why = f" ({len(damaged)} are damaged: {damaged[0]})" if damaged else ""
    return StudyError(
        f"no cell of the study {study.name!r} with these options is finished in {where}{why}: "
        "run it first, or give the options that it was run with"
    )


def count_others(store: Store, stored: StudyProgress) -> int:
    """How many cells of the same studies the store has beyond these."""
    own = {cell.key for cell in stored.cells}
    return len(store.keys({cell.study for cell in stored.cells}) - own)


def preview(
    study: Study, options: Mapping[str, Any], folder: Path, device: str, *, cost: bool
) -> tuple[list[str], Estimate | None]:
    """Before a run: remarks on its options and, if asked for, an estimate of its cost."""
    with _existing_or_empty(folder) as store:
        context = StudyContext(store, device)
        cells = study.plan(options, context)
        expected = estimate(cells, store, context) if cost else None
        return unmatched_values(options, cells), expected


def unmatched_values(
    options: Mapping[str, Any], cells: Sequence[Cell] | Sequence[Measured]
) -> list[str]:
    """A remark for each option with values that no cell has."""
    absent = without_cell(options, [cell.settings for cell in cells])
    return [f"no cell has {name}={','.join(map(str, v))}" for name, v in absent.items()]


def _hint(key: str, known: Mapping[str, Any]) -> str:
    if "recipe" in known and key in {f.name for f in fields(Recipe)} - set(OWN):
        return f"it is a setting of the recipe, as in --set 'recipe={{{key}: ...}}'"
    close = nearest(key, known)
    every = f"known: {', '.join(sorted(known))}"
    return every if close == every else f"{close} {every}"


def _read_option(value: Any, example: Any, key: str) -> Any:
    """A value of the example's type: commas make a list, and numbers text where text stands."""
    if isinstance(value, str) and not isinstance(example, str) and "," in value:
        parts = re.split(r",\s*(?![^(]*\))", value)  # not inside mlp(512, 256)
        value = [parse_yaml(part, f"option {key!r}") for part in parts if part]
    if key == "seeds":
        return _read_seeds(value)
    if isinstance(example, list):
        values = value if isinstance(value, list) else [value]
        types = {_type(one) for one in example}
        return [_convert(one, types, example, key) for one in values]
    return _convert(value, {_type(example)}, example, key)


def _convert(value: Any, types: set[str], example: Any, key: str) -> Any:
    if types == {"text"} and _type(value) in ("number", "truth"):
        return str(value)
    if types == {"number"} and isinstance(value, str):
        with suppress(ValueError):
            return float(value)  # YAML takes 1e-3 for text
    if len(types) == 1 and types != {"nothing"} and _type(value) not in types:
        raise StudyError(
            f"option {key!r} is {shortened(value)}: expected something like {shortened(example)}"
        )
    return value


def _read_seeds(value: Any) -> Any:
    seeds = value if isinstance(value, list) else [value]
    if not seeds or not all(type(s) is int and s >= 0 for s in seeds) or value == 0:
        raise StudyError(
            f"option 'seeds' is {shortened(value)}: expected a count such as 5, or 0,1,2"
        )
    return value


def _type(value: Any) -> str:
    return TYPES.get(type(value), "nothing")


def _outdated(study: Study, options: Mapping[str, Any], measured: Sequence[Measured]) -> int:
    """How many cells the study no longer defines; 0 where that takes data that are not here."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            context = StudyContext(Store(folder), "cpu", load_here)
            today = study.options(next(iter(study.scales)), **options)
            keys = {cell.key for cell in study.plan(today, context)}
    except (DataError, FileError):
        return 0
    except IntarsiaError:  # options or settings that no longer exist
        keys = set()
    return sum(m.key not in keys for m in measured)


@contextmanager
def _existing_or_empty(folder: Path) -> Iterator[Store]:
    """The store, or an empty one for the moment where there is none."""
    if folder.exists():
        yield Store(folder)
    else:
        with tempfile.TemporaryDirectory() as empty:
            yield Store(empty)
