"""Packs: the finished cells of a study in one file, to send and to keep beside a paper."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intarsia.errors import FileError
from intarsia.files import digest_of, plain, write_whole
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.records import read_records
from intarsia.studies.runner import standing
from intarsia.studies.store import Store
from intarsia.studies.study import Study

FORMAT = {"format": "intarsia-study", "version": 1}


@dataclass(frozen=True)
class Pack:
    """A study as it was measured: its options, cells, and what it took."""

    study: str
    options: Mapping[str, Any]
    measured: Sequence[Measured]
    missing: int  # cells that were not finished when it was packed
    runs: Mapping[str, Any]  # dates, devices, versions, seconds

    def to_json(self) -> dict[str, Any]:
        cells = [{"settings": m.settings, "result": m.result} for m in self.measured]
        found: dict[str, Any] = plain(
            {**FORMAT, **vars(self), "measured": cells},
            "pack",
        )
        return found


def pack(study: Study, options: Mapping[str, Any], cells: Sequence[Cell], store: Store) -> Pack:
    """What the store has of a study; times are those of its own cells and banks."""
    found = standing(cells, store)
    keys = {cell.key for cell in cells}
    banks = {plan.key for cell in cells for plan in cell.banks.values()}
    return Pack(study.name, options, found.measured, len(found.missing), _runs(store, keys, banks))


def save_pack(path: str | Path, what: Pack) -> None:
    """Write a pack: one cell a line, so that changes show line by line."""
    found = what.to_json()
    cells = found.pop("measured")
    digest = digest_of([found, cells])
    head = json.dumps({**found, "digest": digest}, sort_keys=True, indent=1)
    lines = ",\n".join(json.dumps(cell, separators=(",", ":")) for cell in cells)
    write_whole(path, f'{head[:-2]},\n "measured": [\n{lines}\n]\n}}\n'.encode())


def load_pack(path: str | Path) -> Pack:
    """Read a pack and check its digest."""
    try:
        found = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FileError(f"{path}: is no pack of a study: {error}") from None
    try:
        digest, cells = found.pop("digest"), found.pop("measured")
        if {k: found[k] for k in FORMAT} != FORMAT:
            raise FileError(f"{path}: is no pack that this version reads, expected {FORMAT}")
        if digest != digest_of([found, cells]):
            raise FileError(f"{path}: was altered or damaged, its digest does not fit it")
        measured = [Measured(cell["settings"], cell["result"]) for cell in cells]
        return Pack(found["study"], found["options"], measured, found["missing"], found["runs"])
    except (KeyError, TypeError, AttributeError) as error:
        raise FileError(f"{path}: is no pack of a study: {error!r} is missing or wrong") from None


def _runs(store: Store, cells: set[str], banks: set[str]) -> dict[str, Any]:
    """Dates, devices, versions and seconds of what these cells took.

    Banks that were trained as one share their seconds by modules; a bank or cell that was done
    again after damage counts with both.
    """
    events = read_records(store.path / "runs")
    training = measuring = 0.0
    modules = 0
    mine = []
    for event in events:
        if event["event"] == "banks" and (hit := banks.intersection(event["keys"])):
            share = len(hit) / len(event["keys"])
            training += share * event["seconds"]
            modules += round(share * event["modules"])
            mine.append(event)
        elif event["event"] == "cell" and event["key"] in cells:
            measuring += event["seconds"]
            mine.append(event)
    versions = {json.dumps(e["versions"], sort_keys=True) for e in mine}
    return {
        "dates": sorted({e["date"] for e in mine}),
        "devices": sorted({e["device"] for e in mine}),
        "versions": [json.loads(v) for v in sorted(versions)],
        "modules": modules,
        "training_seconds": round(training, 1),
        "measuring_seconds": round(measuring, 1),
    }
