"""What there is of a study, in a store or in a pack, and what is to be said of it."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.data import Data, load_data
from intarsia.errors import DataError, FileError, IntarsiaError, StudyError
from intarsia.studies import Cell, Measured, Store, Study, StudyContext, seeds_of, standing
from intarsia.studies.archive import load_pack
from intarsia.studies.runners.estimate import estimate
from intarsia.studies.runners.local import Standing
from intarsia.training import Recipe

if TYPE_CHECKING:
    from intarsia.studies import Cell, Measured


@dataclass(frozen=True)
class Shown:
    """What there is to show of a study, what is missing of it, and what is to be said of it."""

    study: Study
    options: Mapping[str, Any]
    measured: Sequence[Measured]
    missing: int
    damaged: int = 0
    notes: Sequence[str] = ()


def look(study: Study, options: Mapping[str, Any], store: Path) -> tuple[Store, Standing]:
    """An existing store, and what it has of a study."""
    result = Store(store, make=False)
    cells: list[Cell] = study.plan(options, StudyContext(result, "cpu"))
    return result, standing(cells, result)


def shown(study: Study, options: Mapping[str, Any], store: Path) -> Shown:
    """The finished cells of a store; an error where there are none."""
    result = look(study, options, store)[1]
    damaged = list(result.damaged.values())
    if not result.finished:
        raise nothing(study, store, damaged)
    missing = len(result.missing) - len(damaged)
    notes = [*damaged, *remarks(options, result)]
    return Shown(study, options, result.measured, missing, len(damaged), notes)


def shown_pack(study: Study, given: Mapping[str, Any], path: Path) -> Shown:
    """The cells of a pack that have the settings given; an error where there are none."""
    packed = load_pack(path)
    if packed.study != study.name:
        raise StudyError(f"{path} is of the study {packed.study!r}, not of {study.name!r}")
    wanted = {key: seeds_of(v) if key == "seeds" else v for key, v in given.items()}
    measured = picked(packed.measured, wanted, packed.options)
    if not measured:
        raise nothing(study, path, [])
    notes = without_cell(wanted, measured)
    if packed.missing:
        merged = len(packed.measured) + packed.missing
        of = "cells of the whole pack" if given else "cells"
        notes.append(f"note: {packed.missing} of {merged} {of} are missing")
    if others := _others(study, packed.options, measured):
        notes.append(
            f"note: {others} of {len(measured)} cells of {path} are none of {study.name}'s today: "
            "a default, the data or the way of measuring has changed since"
        )
    return Shown(study, {**packed.options, **given}, measured, packed.missing, 0, notes)


def remarks(options: Mapping[str, Any], result: Standing) -> list[str]:
    """Values that give no cell, and how much is missing or damaged."""
    lines = without_cell(options, result.cells)
    damaged = len(result.damaged)
    if result.missing:
        told = f"note: {len(result.missing) - damaged} of {len(result.cells)} cells are missing"
        lines.append(told + (f", {damaged} damaged" if damaged else ""))
    return lines


def others_in(store: Store, result: Standing) -> int:
    """How many cells the store has that are none of these, though of the same studies."""
    return len(store.keys({c.study for c in result.cells}) - {c.key for c in result.cells})


def nothing(study: Study, where: Path, damaged: Sequence[str]) -> StudyError:
    """What to say where no cell is finished."""
    told = f" ({len(damaged)} are damaged: {damaged[0]})" if damaged else ""
    return StudyError(
        f"no cell of the study {study.name!r} with these options is finished in {where}{told}: "
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
        return without_cell(options, cells), takes


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
            today = study.options(next(iter(study.forms)), **options)
            keys = {cell.key for cell in study.plan(today, context)}
    except (DataError, FileError):
        return 0
    except IntarsiaError:  # options or settings that are no more
        keys = set()
    return sum(m.key not in keys for m in measured)


def _load_here(name: str, preset: str) -> Data:
    """Data of this machine: to show a pack nothing is fetched."""
    options = Recipe(preset=preset, data=name).resolve().data_options
    return load_data(name, **options, download=False)


NAMED = 12  # missing cells, or groups of them, that are named
ALWAYS = ("data", "model")  # named in a group although all cells may have the same
Settings = Mapping[str, Any]


def picked(
    measured: "Sequence[Measured]", given: Mapping[str, Any], known: Iterable[str]
) -> "list[Measured]":
    """The cells that have one of the values of each option given, of those that are known.

    Cells without the setting stay: the option does not concern them.
    """
    settings = [m.settings for m in measured]
    kept = list(measured)
    for option, value in given.items():
        name = _setting_of(option, settings)
        if name is None:
            able = [other for other in known if _setting_of(other, settings)]
            raise StudyError(
                f"option {option!r} cannot pick cells of a pack: these can: {', '.join(able)}"
            )
        wanted = [*(value if isinstance(value, list) else [value]), None]
        kept = [m for m in kept if m.settings.get(name) in wanted]
    return kept


def without_cell(
    options: Mapping[str, Any], cells: "Iterable[Cell] | Iterable[Measured]"
) -> list[str]:
    """A note for each option with values that no cell has, where options and settings compare."""
    result, settings = [], [cell.settings for cell in cells]
    for option, values in options.items():
        name = _setting_of(option, settings)
        if name is None or not isinstance(values, list):
            continue
        seen = [own.get(name) for own in settings]
        absent = [value for value in values if value not in seen]
        if 0 < len(absent) < len(values):  # if all were, the study may write them in another way
            result.append(f"note: no cell has {option}={','.join(map(str, absent))}")
    return result


def missing_lines(missing: "Sequence[Cell]", cells: "Sequence[Cell]") -> list[str]:
    """Each missing cell while they are few; else how many there are by their settings but the seed.

    Settings that all cells share tell nothing; of the others the last go while groups are many.
    """
    if len(missing) <= NAMED:
        return [f"missing: {cell}" for cell in missing]
    names = [
        name
        for name in dict.fromkeys(key for cell in cells for key in cell.settings)
        if name != "seed" and (values := _plain_values(name, [cell.settings for cell in cells]))
        if name in ALWAYS or len(values) > 1
    ]
    counts = Counter(_label(cell, names) for cell in missing)
    while len(counts) > NAMED and len(names) > 1:
        names.pop()
        counts = Counter(_label(cell, names) for cell in missing)
    lines = [f"missing: {label}: {count}" for label, count in list(counts.items())[:NAMED]]
    rest = sum(counts.values()) - sum(list(counts.values())[:NAMED])
    return [*lines, *([f"and {rest} more; --json names them all"] if rest else [])]


def dead(measured: "Sequence[Measured]") -> int:
    """In how many cells a group of modules has no hidden unit alive, as results tell by `live`."""
    groups = [[v for v in m.result.values() if isinstance(v, Mapping)] for m in measured]
    lives = [[group.get("live") or [] for group in own] for own in groups]
    return sum(any(0 in live and not any(live) for live in own) for own in lives)


def _setting_of(option: str, settings: Sequence[Settings]) -> str | None:
    """The setting that an option or its singular names, where its values are text or numbers."""
    names = (option, option.removesuffix("s"), option.removesuffix("ies") + "y")
    return next((name for name in names if _plain_values(name, settings)), None)


def _plain_values(name: str, settings: Sequence[Settings]) -> set[Any]:
    """The different values of a setting; none if one of them is longer than text or a number."""
    values = [own[name] for own in settings if own.get(name) is not None]
    return set(values) if all(isinstance(v, str | int | float) for v in values) else set()


def _label(cell: "Cell", names: Sequence[str]) -> str:
    own = [(name, cell.settings[name]) for name in names if cell.settings.get(name) is not None]
    parts = [v if isinstance(v, str) else f"{name}={v}" for name, v in own]
    return " ".join(parts) or cell.study
