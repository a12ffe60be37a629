"""What there is of a study, in a store or in an archive, and what is to be said of it."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intarsia.data import Data, load_data
from intarsia.errors import DataError, FileError, IntarsiaError, StudyError
from intarsia.studies import (
    Cell,
    Findings,
    Measured,
    Store,
    Study,
    StudyContext,
    Verdict,
    progress,
    seeds_of,
)
from intarsia.studies.archive import load_archive
from intarsia.studies.options import picked, variant_label, without_cell
from intarsia.studies.runners.estimate import estimate
from intarsia.studies.runners.local import StudyProgress
from intarsia.studies.verdict import missing_cells, several
from intarsia.training import Recipe


@dataclass(frozen=True)
class Shown:
    """What there is to show of a study, what is missing of it, and what is to be said of it."""

    study: Study
    options: Mapping[str, Any]
    measured: Sequence[Measured]
    missing: int
    damaged: int = 0
    notes: Sequence[str] = ()
    missing_cells: Sequence[str] = ()

    def verdict(self) -> Verdict:
        label = variant_label(self.study, self.options)
        return self.study.judge(Findings(self.measured, label), self.missing_cells)


def look(study: Study, options: Mapping[str, Any], store: Path) -> tuple[Store, StudyProgress]:
    """An existing store, and what it has of a study."""
    result = Store(store, make=False)
    cells: list[Cell] = study.plan(options, StudyContext(result, "cpu"))
    return result, progress(cells, result)


def shown(study: Study, options: Mapping[str, Any], store: Path) -> Shown:
    """The finished cells of a store; an error where there are none."""
    result = look(study, options, store)[1]
    damaged = list(result.damaged.values())
    if not result.finished:
        raise nothing(study, store, damaged)
    missing = len(result.missing) - len(damaged)
    notes = [*damaged, *remarks(options, result)]
    lacking = missing_cells(result.cells, {cell.key for cell in result.missing})
    return Shown(study, options, result.measured, missing, len(damaged), notes, lacking)


def shown_archive(study: Study, given: Mapping[str, Any], path: Path) -> Shown:
    """The cells of an archive that have the settings given; an error where there are none."""
    archived = load_archive(path)
    if archived.study != study.name:
        raise StudyError(f"{path} is of the study {archived.study!r}, not of {study.name!r}")
    wanted = {key: seeds_of(v) if key == "seeds" else v for key, v in given.items()}
    measured = picked(archived.measured, wanted, archived.options)
    if not measured:
        raise nothing(study, path, [])
    notes = unused_values(wanted, measured)
    if archived.missing:
        merged = len(archived.measured) + archived.missing
        of = "cells of the whole archive" if given else "cells"
        notes.append(f"note: {archived.missing} of {merged} {of} are missing")
    if others := _others(study, archived.options, measured):
        notes.append(
            f"note: {others} of {len(measured)} cells of {path} are none of {study.name}'s today: "
            "a default, the data or the way of measuring has changed since"
        )
    lacking = [several(archived.missing, "cell")] if archived.missing else []
    options = {**archived.options, **given}
    return Shown(study, options, measured, archived.missing, 0, notes, lacking)


def remarks(options: Mapping[str, Any], result: StudyProgress) -> list[str]:
    """Values that give no cell, and how much is missing or damaged."""
    lines = unused_values(options, result.cells)
    damaged = len(result.damaged)
    if result.missing:
        count = f"note: {len(result.missing) - damaged} of {len(result.cells)} cells are missing"
        lines.append(count + (f", {damaged} damaged" if damaged else ""))
    return lines


def unused_values(
    options: Mapping[str, Any], cells: Sequence[Cell] | Sequence[Measured]
) -> list[str]:
    """A note for each option with values that no cell has."""
    absent = without_cell(options, [cell.settings for cell in cells])
    return [f"note: no cell has {name}={','.join(map(str, v))}" for name, v in absent.items()]


def others_in(store: Store, result: StudyProgress) -> int:
    """How many cells the store has that are none of these, though of the same studies."""
    return len(store.keys({c.study for c in result.cells}) - {c.key for c in result.cells})


def nothing(study: Study, where: Path, damaged: Sequence[str]) -> StudyError:
    """What to say where no cell is finished."""
    broken = f" ({len(damaged)} are damaged: {damaged[0]})" if damaged else ""
    return StudyError(
        f"no cell of the study {study.name!r} with these options is finished in {where}{broken}: "
        "run it first, or give the options that it was run with"
    )


def planned(
    study: Study, options: Mapping[str, Any], store: Path, device: str, guess: bool
) -> tuple[list[str], dict[str, Any] | None]:
    """Before a run: notes on its options and, if wanted, a guess of what it takes."""
    with _store_to_look_at(store) as looked:
        context = StudyContext(looked, device)
        cells = study.plan(options, context)
        takes = vars(estimate(cells, looked, context)) if guess else None
        return unused_values(options, cells), takes


@contextmanager
def _store_to_look_at(path: Path) -> Iterator[Store]:
    """The store, or an empty one for the time being where there is none."""
    if path.exists():
        yield Store(path)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Store(folder)


def _others(study: Study, options: Mapping[str, Any], measured: Sequence[Measured]) -> int:
    """How many cells the study does not define today; 0 where that cannot be told without data."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            context = StudyContext(Store(folder), "cpu", _load_here)
            today = study.options(next(iter(study.scales)), **options)
            keys = {cell.key for cell in study.plan(today, context)}
    except (DataError, FileError):
        return 0
    except IntarsiaError:  # options or settings that are no more
        keys = set()
    return sum(m.key not in keys for m in measured)


def _load_here(name: str, preset: str) -> Data:
    """Data of this machine: to show an archive nothing is fetched."""
    options = Recipe(preset=preset, data=name).resolve().data_options
    return load_data(name, **options, download=False)
