"""Parts of a study's report: finished cells of one set of options, of an archive or a store.

A store does not say which options its cells were asked with. They are worked out: of every scale,
options take the values that cells have, and the scale that plans most of the cells is the one.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from intarsia.errors import FileError, IntarsiaError, StudyError
from intarsia.files import canonical
from intarsia.studies import (
    STUDIES,
    Cell,
    Findings,
    Measured,
    Store,
    Study,
    StudyContext,
    Verdict,
    find_study,
    progress,
)
from intarsia.studies.archive import Archive, load_archive, make_archive, own_events
from intarsia.studies.context import load_here
from intarsia.studies.options import inferred, signature, variant_label
from intarsia.studies.store import read_cell
from intarsia.studies.verdict import missing_cells
from intarsia.studies.wording import several


def cells_in(store: Store, folders: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The cells of some folders as their files have them, and what is wrong with the others."""
    result, damaged = [], []
    paths = [p for name in folders for p in (store.path / "cells" / name).glob("*.json")]
    for path in sorted(paths):
        try:
            result.append(read_cell(path))
        except FileError as error:
            if isinstance(error.__cause__, OSError):
                raise
            damaged.append(f"{path.name} is damaged, its digest does not fit its content.")
    return result, damaged


def known_in(store: Store) -> list[str]:
    """The studies that have a cell in the store, in the order in which they are registered."""
    there = sorted({path.parent.name for path in store.path.glob("cells/*/*.json")})
    return [name for name in STUDIES if name in there]


def nothing_in(store: Store, study: str | None) -> StudyError:
    if study is None:
        unknown = sorted({path.parent.name for path in store.path.glob("cells/*/*.json")})
        own = f" ({', '.join(unknown)}: import the module of your own study)" if unknown else ""
        return StudyError(f"no cell of a known study is finished in {store.path}{own}: run one")
    known = known_in(store)
    advice = f"it has {', '.join(known)}" if known else "run it first"
    return StudyError(f"no cell of the study {study!r} is finished in {store.path}: {advice}")


@dataclass(frozen=True)
class Part:
    """What there is of a study, and what is known of it besides."""

    study: Study
    archive: Archive
    source: str  # the file or folder, as commands name it
    archived: bool  # out of an archive, not a store
    planned: Sequence[Cell] = ()  # all cells of these options; none where the data are not here
    notes: Sequence[str] = ()

    @property
    def lacking(self) -> list[Cell]:
        """The missing cells, by their settings: keys change with every default."""
        there = {canonical(m.settings) for m in self.archive.measured}
        return [cell for cell in self.planned if canonical(cell.settings) not in there]

    @property
    def missing(self) -> list[str]:
        """The missing cells in words; their number where that is all that is known."""
        if self.archive.missing and not self.planned:
            return [several(self.archive.missing, "cell")]
        return missing_cells(self.planned, {cell.key for cell in self.lacking})

    def verdict(self) -> Verdict:
        label = variant_label(self.study, self.archive.options)
        return self.study.judge(Findings(self.archive.measured, label), self.missing)


def parts_of(
    source: str | Path | Archive | Store, study: str | None, options: Mapping[str, Any] | None
) -> list[Part]:
    """The parts of an archive (one), of a study in a store, or of every study in it."""
    where = "ARCHIVE.json"
    if isinstance(source, str | Path):
        where, path = str(source), Path(source)
        source = Store(path, make=False) if path.is_dir() else load_archive(path)
    if options is not None and (study is None or isinstance(source, Archive)):
        raise StudyError("options are for one study of a store: name it; an archive has its own")
    if isinstance(source, Archive):
        return [_of_archive(source, where, study)]
    names = [study] if study else known_in(source)
    parts = [part for name in names for part in _of_store(source, name, options)]
    if not parts:
        raise nothing_in(source, study)
    return parts


def _of_archive(what: Archive, source: str, study: str | None) -> Part:
    if study is not None and study != what.study:
        raise StudyError(f"{source} is of the study {what.study!r}, not of {study!r}")
    if not what.measured:
        raise StudyError(f"{source} has no finished cell: run the study {what.study!r} first")
    result = find_study(what.study)
    with tempfile.TemporaryDirectory() as folder:
        planned = _plan(result, what.options, Store(folder))
    part = Part(result, what, source, True, planned)
    others = len(what.measured) - (len(planned) - len(part.lacking))
    if planned and others > 0:
        note = f"{others} of the cells are not this study's any more: its options have changed."
        return replace(part, planned=(), notes=[note])
    if what.missing and not planned:
        note = "Which cells are missing cannot be told here: the data are not on this machine."
        return replace(part, notes=[note])
    return part


def _of_store(store: Store, name: str, options: Mapping[str, Any] | None) -> list[Part]:
    """One part for the options given, else one for each kind of cells that there are."""
    study = find_study(name)
    if options is not None:
        cells = study.plan(options, StudyContext(store, "cpu"))
        return [_exact(study, options, cells, store)] if progress(cells, store).finished else []
    result, damaged = cells_in(store, _folders(study, store))
    kinds: dict[str, list[dict[str, Any]]] = {}
    for cell in result:
        kinds.setdefault(canonical(signature(study, cell["settings"])), []).append(cell)
    parts = [_kind(study, own, store) for own in kinds.values()]
    parts.sort(key=lambda part: -len(part.archive.measured))
    if parts and damaged:
        parts[0] = replace(parts[0], notes=[*parts[0].notes, *damaged])
    return parts


def _kind(study: Study, result: Sequence[Mapping[str, Any]], store: Store) -> Part:
    """Cells of one kind under the options that plan most of them."""
    settings = [cell["settings"] for cell in result]
    keys = {cell["key"] for cell in result}
    tried = [(options, _plan(study, options, store)) for options in inferred(study, settings)]
    options, cells = max(tried, key=lambda one: sum(cell.key in keys for cell in one[1]))
    known = sum(cell.key in keys for cell in cells)
    if not known:
        return _as_they_are(study, options, result, store, bool(cells))
    part = _exact(study, options, cells, store)
    if known == len(keys):
        return part
    others = (
        f"{len(keys) - known} more cells in this store have other options, or were made before a "
        f"default, the data or the way of measuring changed: `intarsia study archive {study.name}` "
        "with their options puts them into a file of their own, for a report of their own."
    )
    return replace(part, notes=[*part.notes, others])


def _exact(study: Study, options: Mapping[str, Any], cells: Sequence[Cell], store: Store) -> Part:
    return Part(study, make_archive(study, options, cells, store), str(store.path), False, cells)


def _as_they_are(
    study: Study,
    options: Mapping[str, Any],
    result: Sequence[Mapping[str, Any]],
    store: Store,
    planned: bool,
) -> Part:
    """Cells that cannot be compared with a plan."""
    banks = {key: None for cell in result for key in cell.get("banks", {}).values()}
    events = own_events(store, {cell["key"] for cell in result}, banks)
    measured = [Measured(cell["settings"], cell["result"], cell["key"]) for cell in result]
    why = (
        "their options are not known, or a default, the data or the way of measuring has changed"
        if planned
        else "the data are not on this machine"
    )
    note = f"How many cells are missing cannot be told: {why}."
    archive = Archive(study.name, options, measured, 0, events)
    return Part(study, archive, str(store.path), False, notes=[note])


def _plan(study: Study, options: Mapping[str, Any], store: Store) -> list[Cell]:
    """All cells of the options; none where the data are not here, or an option is no more."""
    try:
        known = study.options(next(iter(study.scales)), **options)
        return study.plan(known, StudyContext(store, "cpu", load_here))
    except IntarsiaError:
        return []


def _folders(study: Study, store: Store) -> list[str]:
    """Where cells of a study lie: some studies show another one's."""
    if store.keys([study.name]):
        return [study.name]
    # The smallest scale comes last, and is planned fastest.
    plans = (_plan(study, study.options(scale), store) for scale in reversed(list(study.scales)))
    return sorted({cell.study for cell in next(filter(None, plans), [])})
