"""Tasks: what workers do, each on a store that lasts for one task."""

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import ray
import torch

from intarsia.data import Data
from intarsia.errors import HealthWarning, StudyError
from intarsia.studies.cells import Cell
from intarsia.studies.context import StudyContext, options_text
from intarsia.studies.plans import Plan
from intarsia.studies.records import device_name, versions
from intarsia.studies.runners.bank_training import train_plans
from intarsia.studies.store import Store

Key = tuple[str, str, str, str]  # of data: name, preset, options as text, and digest
Sent = Mapping[Key, Any]


def train_banks(plans: Sequence[Plan], setting: Mapping[str, Any]) -> list[Any]:
    """On a worker: a note, then the files of each bank."""
    with _on_worker(setting) as (context, store):
        began = time.perf_counter()
        digest = plans[0].data_digest
        (key,) = {key[3]: key for key in setting["data"] if key[3] == digest}.values()
        banks = train_plans(plans, _received(setting["data"], key), context.device)
        for plan, bank in zip(plans, banks, strict=True):
            store.add_bank(plan, bank)
        return [_note(context, began), *map(store.files, plans)]


def measure_cell(
    cell: Cell,
    measure: Callable[[Cell, StudyContext], dict[str, Any]],
    setting: Mapping[str, Any],
    *banks: Mapping[str, bytes],
) -> list[Any]:
    """On a worker: a note, then the cell's result; the banks come in the order of the cell's."""
    with _on_worker(setting) as (context, store):
        for plan, files in zip(cell.banks.values(), banks, strict=True):
            store.add_files(plan, files)
        began = time.perf_counter()
        with warnings.catch_warnings(action="ignore", category=HealthWarning):
            result = measure(cell, context.of_cell(cell))
        return [_note(context, began), result]


@contextmanager
def _on_worker(setting: Mapping[str, Any]) -> Iterator[tuple[StudyContext, Store]]:
    """A context on a store that lasts for one task."""
    if setting["versions"] != versions():
        raise StudyError(
            f"a worker of the cluster has {versions()}, the run {setting['versions']}: "
            "install the same versions on all machines, or bytes would differ"
        )
    torch.set_num_threads(setting["threads"])
    with tempfile.TemporaryDirectory(prefix="intarsia-") as folder:
        store = Store(folder)
        yield (
            StudyContext(store, setting["device"], partial(_data, setting["data"])),
            store,
        )


_here: dict[str, Data] = {}  # what this worker has received, by digest


def _received(sent: Sent, key: Key) -> Data:
    *_, digest = key
    if digest not in _here:
        result: Any = ray.get(sent[key])
        _here[digest] = result
    return _here[digest]


def _data(sent: Sent, name: str, preset: str, options: Mapping[str, Any]) -> Data:
    for key in sent:
        if key[:3] == (name, preset, options_text(options)):
            return _received(sent, key)
    raise StudyError(
        f"the study measures on {name!r} with preset {preset!r}, but its cells were planned "
        "without it: ask the context for the data where the cells are made"
    )


def _note(context: StudyContext, began: float) -> dict[str, Any]:
    """For the record of the run: where, and how long it took there."""
    seconds = round(time.perf_counter() - began, 3)
    return {"seconds": seconds, "device": device_name(context.device), "kind": context.device.type}
