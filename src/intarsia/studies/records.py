"""Records: what a run of a study did, when, on what, and how long it took; one file for each."""

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from intarsia import __version__
from intarsia.errors import FileError
from intarsia.files import write_whole

ABOUT = ("device", "kind", "date", "versions")  # of a run, and so of all its events


class Record:
    """Lines of JSON, one for each event; a line that a killed run left open is not counted."""

    def __init__(self, folder: Path, study: str, device: torch.device) -> None:
        now = datetime.now(UTC)
        self.file = folder / f"{now:%Y%m%d-%H%M%S-%f}-{os.getpid()}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot write {folder}: {error.strerror}") from error
        self.note(
            event="begin",
            study=study,
            date=f"{now:%Y-%m-%d}",
            device=device_name(device),
            kind=device.type,
            versions=versions(),
        )

    def note(self, **what: Any) -> None:
        try:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(what, sort_keys=True) + "\n")
        except OSError as error:
            raise FileError(f"cannot write {self.file}: {error.strerror}") from error

    @contextmanager
    def timed(self, before: float = 0.0, **what: Any) -> Iterator[None]:
        """Note what the block did, with its seconds, if it came to its end.

        `before` are the seconds that earlier runs spent on the same.
        """
        began = time.perf_counter()
        yield
        self.note(**what, seconds=round(before + time.perf_counter() - began, 3))


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Every event of every run, in order, each with the device, date and versions of its run."""
    events = []
    for path in sorted(filter(Path.is_file, folder.glob("*.jsonl"))):
        run: dict[str, Any] = {}
        for line in _lines(path):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(event, dict):
                continue
            if event.get("event") == "begin":
                run = {k: event[k] for k in ABOUT if k in event}
            if is_sound({**run, **event}):
                events.append({**run, **event})
    return events


def is_sound(event: Any) -> bool:
    """Whether an event says what it should: which kind it is, of what, where, when and how long."""
    if not isinstance(event, dict):
        return False
    versions = event.get("versions")
    texts = [event.get(name) for name in ("event", "device", "kind", "date")]
    if not isinstance(versions, dict) or not _all_texts([*texts, *versions.values()]):
        return False
    if event["event"] == "cell":
        return _all_texts([event.get("key")]) and _is_number(event.get("seconds"))
    if event["event"] == "banks":
        keys, numbers = event.get("keys"), [event.get(n) for n in ("modules", "work", "seconds")]
        listed = isinstance(keys, list) and bool(keys) and _all_texts(keys)
        return listed and all(map(_is_number, numbers)) and event["modules"] > 0
    return event["event"] == "begin"


def _all_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e18


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error


def keep_events(folder: Path, events: Sequence[Mapping[str, Any]]) -> None:
    """Note what other stores' runs did; the same events are kept once."""
    known = by_line(read_records(folder))
    fresh = [line for line in by_line(events) if line not in known]
    if not fresh:
        return
    content = "".join(f"{line}\n" for line in fresh).encode()
    name = hashlib.sha256(content).hexdigest()[:16]
    write_whole(folder / f"taken-{name}.jsonl", content)


def by_line(events: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Events by the line that they are noted as, those that are alike once."""
    return {json.dumps(event, sort_keys=True): event for event in events}


def versions() -> dict[str, str]:
    """Of what results depend on."""
    return {
        "intarsia": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def device_name(device: torch.device) -> str:
    """The GPU by its name, or the CPU by its kind and cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {platform.machine()}, {os.cpu_count()} cores"
