"""Archives: the finished cells of a study in one file, to send and to keep with a paper."""

import json
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from intarsia.errors import DamagedError, FileError, IntarsiaError
from intarsia.files import digest_of, plain, read_bytes, write_whole
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.records import by_line, is_sound, keep_events, read_records
from intarsia.studies.runners.local import progress
from intarsia.studies.store import Store
from intarsia.studies.study import Study, find_study

FORMAT = {"format": "intarsia-study", "version": 1}
EVERY = 30.0  # seconds between two writings of an archive that a run keeps


@dataclass(frozen=True)
class Archive:
    """A study as it was measured: its options, its cells, and what was done for them when."""

    study: str
    options: Mapping[str, Any]
    measured: Sequence[Measured]
    missing: int  # cells that were not finished when it was archived
    events: Sequence[Mapping[str, Any]]  # banks trained and cells measured, as runs noted them

    @cached_property
    def runs(self) -> dict[str, Any]:
        """Dates, devices, versions, modules trained and seconds; what was done twice counts once.

        Banks that were trained as one share their seconds and modules evenly.
        """
        done: set[str] = set()
        seconds = {"banks": 0.0, "cell": 0.0}
        modules = 0.0
        for event in self.events:
            keys = event.get("keys") or [event["key"]]
            fraction = sum(key not in done for key in keys) / len(keys)
            done.update(keys)
            seconds[event["event"]] += fraction * event["seconds"]
            modules += fraction * event.get("modules", 0)
        versions = {json.dumps(e["versions"], sort_keys=True) for e in self.events}
        return {
            "dates": sorted({e["date"] for e in self.events}),
            "devices": sorted({e["device"] for e in self.events}),
            "versions": [json.loads(v) for v in sorted(versions)],
            "modules": round(modules),
            "training_seconds": round(seconds["banks"], 1),
            "measuring_seconds": round(seconds["cell"], 1),
        }

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = plain(
            {
                **FORMAT,
                "study": self.study,
                "options": self.options,
                "missing": self.missing,
                "events": self.events,
                "measured": [
                    {"key": m.key, "settings": m.settings, "result": m.result}
                    for m in self.measured
                ],
            },
            "archive",
        )
        return content


def make_archive(
    study: Study, options: Mapping[str, Any], cells: Sequence[Cell], store: Store
) -> Archive:
    """What the store has of a study, and its own part of what the runs noted."""
    result = progress(cells, store)
    banks = {plan.key: plan.modules for cell in cells for plan in cell.banks.values()}
    events = own_events(store, {cell.key for cell in cells}, banks)
    return Archive(study.name, options, result.measured, len(result.missing), events)


def own_events(
    store: Store, cells: Collection[str], banks: Mapping[str, int | None]
) -> list[Mapping[str, Any]]:
    """What the store's runs noted of these cells, by key, and banks, with their modules.

    Banks that were trained as one have an event each. Seconds of a training call go by modules;
    banks of unknown size share them evenly.
    """
    events: list[Mapping[str, Any]] = []
    for event in read_records(store.path / "runs"):
        if event["event"] == "cell" and event["key"] in cells:
            events.append(event)
        for key in event["keys"] if event["event"] == "banks" else ():
            if key not in banks:
                continue
            modules = banks[key] or event["modules"] / len(event["keys"])
            part = modules / event["modules"]
            numbers = {"seconds": round(part * event["seconds"], 3), "work": part * event["work"]}
            events.append({**event, "keys": [key], "modules": modules, **numbers})
    return list(by_line(events).values())


def restore(what: Archive, store: Store, context: StudyContext) -> tuple[int, int]:
    """Put an archive's cells into a store, so that a run measures only what they leave out.

    Returns how many were taken, and how many were not, since today the study defines no cell with
    their key: a default has changed, or the data are others.
    """
    study = find_study(what.study)
    options = study.options(next(iter(study.scales)), **what.options)
    cells = {cell.key: cell for cell in study.plan(options, context)}
    known = [m for m in what.measured if m.key in cells]
    with store.in_use():
        for measured in known:
            if progress([cells[measured.key]], store).missing:
                store.write(cells[measured.key], dict(measured.result))
        keep_events(store.path / "runs", what.events)
    return len(known), len(what.measured) - len(known)


def save_archive(path: str | Path, what: Archive) -> None:
    """Write an archive: one cell or event per line, so that changes show line by line."""
    result = what.to_json()
    digest = digest_of(result)
    parts = [f'"{key}": [\n{_lines(result.pop(key))}\n]' for key in ("events", "measured")]
    head = json.dumps({**result, "digest": digest}, sort_keys=True, indent=1)
    write_whole(path, (",\n ".join([head[:-2], *parts]) + "\n}\n").encode())


@contextmanager
def kept_archive(
    path: str | Path,
    study: Study,
    options: Mapping[str, Any],
    store: Store,
    every: float = EVERY,
) -> Iterator[None]:
    """An archive of what is finished, written anew while the block runs and when it ends.

    A machine that is taken away in between leaves the archive of at most `every` seconds before.
    What hinders a writing in between is no reason to stop; at the end it is an error.
    """
    cells = study.plan(options, StudyContext(store, "cpu"))
    ended = threading.Event()
    written = -1  # cells in the archive

    def write() -> None:
        nonlocal written
        gathered = make_archive(study, options, cells, store)
        if len(gathered.measured) != written:
            save_archive(path, gathered)
            written = len(gathered.measured)

    def keep() -> None:
        while not ended.wait(every):
            with suppress(IntarsiaError, OSError):
                write()

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()
        write()


def load_archive(path: str | Path) -> Archive:
    """Read an archive and check its digest, and that it has what an archive has."""
    try:
        result = json.loads(read_bytes(path, "give the one that study archive wrote"))
        digest = result.pop("digest")
        if {k: result[k] for k in FORMAT} != FORMAT:
            raise FileError(f"{path}: is not an archive that this version reads, expected {FORMAT}")
        if digest != digest_of(result):
            raise DamagedError(f"{path}: was altered or damaged, its digest does not fit it")
        return _archive(result)
    except FileNotFoundError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    except KeyError as error:
        raise FileError(f"{path}: is not an archive of a study: it has no {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        raise FileError(
            f"{path}: is not an archive of a study: expected what study archive writes ({error})"
        ) from None


def check_cells(what: Archive, study: Study, path: str | Path) -> None:
    """An error unless the study can show these cells: anyone can make a digest."""
    try:
        study.tables(what.measured)
        study.judge(what.measured)
    except IntarsiaError:
        raise
    except Exception as error:  # whatever a study's code says to cells that it did not measure
        raise FileError(
            f"{path}: its cells are not such as the study {study.name!r} measures "
            f"({type(error).__name__}: {error})"
        ) from error


def _archive(content: Mapping[str, Any]) -> Archive:
    """An archive of plain values; KeyError, TypeError or ValueError if they are none."""
    cells = [Measured(m["settings"], m["result"], m["key"]) for m in content["measured"]]
    texts = [content["study"], *(cell.key for cell in cells)]
    mappings = [content["options"], *(part for c in cells for part in (c.settings, c.result))]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name or a key is not text")
    if not all(isinstance(mapping, dict) for mapping in mappings):
        raise ValueError("options, settings or a result are not a mapping")
    if type(content["missing"]) is not int or not 0 <= content["missing"] < 2**63:
        raise ValueError("the number of missing cells is not one")
    kinds = ("banks", "cell")
    if not all(is_sound(event) and event["event"] in kinds for event in content["events"]):
        raise ValueError("an event does not say what was done, where, when and how long")
    missing, events = content["missing"], content["events"]
    return Archive(content["study"], content["options"], cells, missing, events)


def _lines(values: Sequence[Any]) -> str:
    return ",\n".join(json.dumps(value, separators=(",", ":")) for value in values)
