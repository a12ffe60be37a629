"""Archives and stores of studies: cells, notes and events that no run has written."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.attack import mutations
from benchmarks.attack.surface import Input, Maker, Surface
from intarsia.files import canonical, digest_of
from intarsia.studies import Store, find_study
from intarsia.studies.archive import Archive, check_cells, load_archive, save_archive
from intarsia.studies.cells import Measured
from intarsia.studies.records import read_records
from intarsia.studies.store import CELL, read_cell

ROOT = Path(__file__).resolve().parents[2]


def surfaces(folder: Path) -> list[Surface]:
    folder.mkdir(parents=True, exist_ok=True)
    return [Surface("archives and stores", _kinds(folder), weight=2)]


def _small_archive(path: Path) -> bytes:
    """A few cells of one that was measured."""
    known = load_archive(ROOT / "docs" / "results" / "study_temperature.json")
    some = [Measured(m.settings, m.result, m.key) for m in known.measured[:4]]
    events = [
        {
            "event": "cell",
            "key": some[0].key,
            "seconds": 1.5,
            "date": "2026-01-01",
            "device": "CPU",
            "kind": "cpu",
            "versions": {"python": "3"},
        },
        {
            "event": "banks",
            "keys": ["k"],
            "seconds": 2.5,
            "modules": 3,
            "work": 1.0,
            "date": "2026-01-01",
            "device": "CPU",
            "kind": "cpu",
            "versions": {"python": "3"},
        },
    ]
    save_archive(path, Archive(known.study, known.options, some, 1, events))
    return path.read_bytes()


def _kinds(folder: Path) -> dict[str, Maker]:
    content = _small_archive(folder / "archive.json")
    known = load_archive(folder / "archive.json")
    shown = _shown(known, folder / "archive.json")
    cell = {
        **CELL,
        "study": "toy",
        "key": "k",
        "settings": {"a": 1},
        "banks": {},
        "result": {"b": 2.5},
    }
    cell_content = canonical({**cell, "digest": digest_of(cell)}).encode()

    def reading(path: Path, sealed: bool) -> Input:
        return Input(
            lambda: _shown(load_archive(path), path),
            same=lambda result: result == shown,
            sealed=sealed,
        )

    def archive(change: Callable[[Random, bytes], bytes], sealed: bool = True) -> Maker:
        def make(chance: Random, place: Path) -> Input:
            path = place / "archive.json"
            path.write_bytes(change(chance, content))
            return reading(path, sealed)

        return make

    def kept_seal(chance: Random, old: bytes) -> bytes:
        return mutations.json_bytes(chance, mutations.mutated(chance, json.loads(old)))

    def sealed_anew(chance: Random, old: bytes) -> bytes:
        value = json.loads(old)
        value.pop("digest")
        return _sealed(chance, mutations.mutated(chance, value))

    def large(chance: Random, old: bytes) -> bytes:
        value = json.loads(old)
        value.pop("digest")
        kind = chance.randrange(4)
        if kind == 0:
            value["measured"] = value["measured"] * 1000
        elif kind == 1:
            value["events"] = value["events"] * 10_000
        elif kind == 2:
            value["options"] = mutations.nested(900)
        else:
            value["study"] = "x" * 5_000_000
        return _sealed(chance, value)

    def cells(chance: Random, place: Path) -> Input:
        path = place / "k.json"
        kind = chance.randrange(4)
        if kind == 0:
            path.write_bytes(mutations.flip(chance, cell_content))
        elif kind == 1:
            path.write_bytes(mutations.damage(chance, cell_content))
        elif kind == 2:
            path.write_bytes(
                mutations.json_bytes(chance, mutations.mutated(chance, json.loads(cell_content)))
            )
        else:
            path.write_bytes(mutations.raw(chance, (b"", b"{", b"[" * 4000)))
        return Input(lambda: read_cell(path, "k"), same=lambda result: result == cell, sealed=True)

    def notes(chance: Random, place: Path) -> Input:
        """What says that a folder is a store, and what runs wrote down."""
        store = place / "store"
        Store(store)
        (store / "runs").mkdir()
        events = [
            {"event": "begin", "date": "d", "device": "c", "kind": "k", "versions": {}},
            {"event": "cell", "key": "k", "seconds": 1},
        ]
        lines = [mutations.json_bytes(chance, mutations.mutated(chance, event)) for event in events]
        (store / "runs" / "a.jsonl").write_bytes(
            chance.choice([b"\n".join(lines), mutations.raw(chance)])
        )
        if chance.random() < 0.5:
            (store / "store.json").write_bytes(
                chance.choice([mutations.raw(chance), b"[" * 9000, b"9" * 5000])
            )
        if chance.random() < 0.4:
            mutations.odd_file_in(chance, store)
        return Input(lambda: (Store(store, make=False), read_records(store / "runs"))[1])

    def odd_path(chance: Random, place: Path) -> Input:
        path = mutations.odd_path(chance, place, "archive.json", content)
        return reading(path, True)

    return {
        "bits flipped": archive(mutations.flip),
        "bytes cut, added, moved": archive(mutations.damage),
        "raw bytes": archive(lambda chance, old: mutations.raw(chance, (b"", b"{", b"[" * 4000))),
        "content changed": archive(kept_seal),
        "content changed, sealed anew": archive(sealed_anew, sealed=False),
        "small file, big appetite": archive(large, sealed=False),
        "cells of a store": cells,
        "notes of a store": notes,
        "not an ordinary file": odd_path,
    }


def _sealed(chance: Random, value: Any) -> bytes:
    value = value if isinstance(value, dict) else {"value": value}
    try:
        digest = digest_of(value)
    except (ValueError, TypeError, RecursionError):
        digest = "0" * 64
    return mutations.json_bytes(chance, {**value, "digest": digest})


def _shown(archive: Archive, path: Path) -> Any:
    """What a study's table shows of it, as `study table --from`, and when it was measured."""
    study = find_study(archive.study)
    check_cells(archive, study, path)
    tables = [table.markdown() for table in study.tables(archive.measured)]
    return archive.to_json(), archive.runs, tables
