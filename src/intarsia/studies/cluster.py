"""Cluster: a study on the machines of a Ray cluster, which need no folder in common.

This process owns the store. Banks and cells are tasks: a worker gets what it needs, answers with
the files of banks or with a cell's result, and keeps nothing. What a lost worker had in hand is
done again. Workers on other machines need intarsia and the module of a study of your own; the data
come from here.
"""

import logging
import os
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from intarsia.data import Data
from intarsia.errors import IntarsiaError, StudyError
from intarsia.studies.bench import Bench
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.plans import Plan
from intarsia.studies.records import device_name, versions
from intarsia.studies.runner import WAIT, Run, Say, missing_plans
from intarsia.studies.store import DamagedError, Store
from intarsia.studies.study import Study, find_study
from intarsia.studies.training import companies, train_plans

RETRIES = 5  # of a task whose worker is lost
AHEAD = 2  # tasks for each one that can run, so that no worker waits
MOST = 400  # tasks at once: every claim is an open file
SENT = 32  # banks of the store that stay in the cluster's memory
QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}  # or Ray would report its use to its makers

Sent = Mapping[tuple[str, str, str], Any]  # data by name, preset and digest


def run_cluster(
    study: Study,
    options: Mapping[str, Any],
    store: Store,
    *,
    device: str = "auto",
    workers: int | None = None,
    say: Say = lambda line: None,
    address: str | None = None,
    cpus: int = 1,
    gpus: float = 1.0,
) -> list[Measured]:
    """Measure what is missing of a study on a Ray cluster, `workers` tasks at once.

    Without an address a cluster is started here, with one task per core; "auto" joins the one that
    this machine belongs to. A task takes `cpus`, and where the device is a GPU, `gpus` of them.
    """
    with store.in_use(), _joined(address, workers, cpus):
        place = _place(device, workers, cpus, gpus)
        return _OnCluster(study, options, store, place, say).work()


@dataclass(frozen=True)
class _Place:
    """Where tasks run, and what one takes."""

    device: str
    workers: int | None
    cpus: int
    gpus: float

    @property
    def room(self) -> int:
        """Tasks that run at once; clusters grow and shrink."""
        there = ray.cluster_resources()
        room = there.get("CPU", 0) // self.cpus
        if self.gpus:
            room = min(room, there.get("GPU", 0) // self.gpus)
        return int(min(room, self.workers or room))


@dataclass(frozen=True)
class _Task:
    """What a worker was asked for, whose claim we hold, and what is done with the answer."""

    answer: list[ray.ObjectRef]
    claim: ExitStack
    name: str
    finish: Callable[[dict[str, Any], list[Any]], None]
    again: Callable[[], None]  # what was sent is damaged


class _OnCluster(Run):
    """The work is done by tasks; this process hands them out and writes what comes back."""

    def __init__(
        self, study: Study, options: Mapping[str, Any], store: Store, place: _Place, say: Say
    ) -> None:
        super().__init__(study, options, store, Bench(store, "cpu"), say)
        self.place = place
        self.tasks: dict[ray.ObjectRef, _Task] = {}
        self.sent: OrderedDict[str, ray.ObjectRef] = OrderedDict()  # banks, by key
        self.data_sent = {
            (*key, data.digest): ray.put(data) for key, data in self.bench.loaded.items()
        }

    def work(self) -> list[Measured]:
        """Cells as soon as their banks are there, banks beside them."""
        try:
            while missing := self.standing.missing:
                self._send(missing)
                if self.tasks:
                    done, _ = ray.wait(list(self.tasks), timeout=10 * WAIT)
                    for ref in done:
                        self._collect(self.tasks.pop(ref))
                else:
                    time.sleep(WAIT)
                    self.look(missing)
            return self.standing.measured
        finally:
            for ref, task in self.tasks.items():
                ray.cancel(ref)
                task.claim.close()

    def drop(self, cell: Cell) -> None:
        super().drop(cell)
        for plan in cell.banks.values():
            self.sent.pop(plan.key, None)

    def _send(self, missing: Sequence[Cell]) -> None:
        """Hand out what nobody works on, us included, while there is room."""
        room = min(AHEAD * self.place.room, MOST)
        for cell in missing:
            if len(self.tasks) >= room:
                return
            if self.ready(cell):
                self._send_cell(cell)
        device = torch.device(self.place.device)
        for plans in companies(missing_plans(missing, self.store), device):
            if len(self.tasks) >= room:
                return
            self._send_plans(plans)

    def _send_cell(self, cell: Cell) -> None:
        with ExitStack() as claim:
            if not claim.enter_context(self.store.claim([cell.key])):
                return
            self.look([cell])
            if cell.key in self.standing.finished:
                return
            try:
                banks = [self._bank(plan) for plan in cell.banks.values()]
            except DamagedError:
                self.drop(cell)
                return
            measure = find_study(cell.study).measure
            answer = self._ask(measure_cell, 2, cell, measure, self._setting(), *banks)

            def finish(note: dict[str, Any], results: list[Any]) -> None:
                self.keep(cell, results[0])
                self.record.note(event="cell", study=cell.study, key=cell.key, **note)

            self._wait_for(answer, claim, f"cell {cell}", finish, lambda: self.drop(cell))

    def _send_plans(self, plans: Sequence[Plan]) -> None:
        with ExitStack() as claim:
            held = claim.enter_context(self.store.claim([plan.key for plan in plans]))
            mine = [p for p in plans if p.key in held and not self.store.has_bank(p)]
            if not mine:
                return
            about = self.about(mine)
            answer = self._ask(train_banks, 1 + len(mine), mine, self._setting())

            def finish(note: dict[str, Any], banks: list[Any]) -> None:
                for plan, files, ref in zip(mine, banks, answer[1:], strict=True):
                    self.store.add_files(plan, files)
                    self._remember(plan, ref)
                self.record.note(**about, **note)

            self._wait_for(answer, claim, f"bank {mine[0].key[:16]}", finish, lambda: None)

    def _ask(self, work: Callable[..., Any], answers: int, *what: Any) -> list[ray.ObjectRef]:
        task: Any = ray.remote(
            num_returns=answers,
            num_cpus=self.place.cpus,
            num_gpus=self.place.gpus,
            max_retries=RETRIES,
        )(work)
        found: list[ray.ObjectRef] = task.remote(*what)
        return found

    def _wait_for(
        self,
        answer: list[ray.ObjectRef],
        claim: ExitStack,
        name: str,
        finish: Callable[[dict[str, Any], list[Any]], None],
        again: Callable[[], None],
    ) -> None:
        self.tasks[answer[0]] = _Task(answer, claim.pop_all(), name, finish, again)

    def _collect(self, task: _Task) -> None:
        with task.claim:
            try:
                note, *found = ray.get(task.answer)
            except RayTaskError as error:
                if isinstance(error.cause, DamagedError):
                    task.again()
                    return
                known = isinstance(error.cause, IntarsiaError)
                raise StudyError(f"{task.name}: {error.cause if known else error}") from error
            except RayError as error:
                raise StudyError(
                    f"{task.name}: the cluster lost it {RETRIES + 1} times, the last time because "
                    f"{str(error).splitlines()[0]}"
                ) from error
            task.finish(note, found)

    def _bank(self, plan: Plan) -> ray.ObjectRef:
        """A bank in the cluster's memory."""
        if plan.key not in self.sent:
            self._remember(plan, ray.put(self.store.files(plan)))
        self.sent.move_to_end(plan.key)
        return self.sent[plan.key]

    def _remember(self, plan: Plan, ref: ray.ObjectRef) -> None:
        self.sent[plan.key] = ref
        while len(self.sent) > SENT:
            self.sent.popitem(last=False)

    def _setting(self) -> dict[str, Any]:
        place = self.place
        known = {"data": self.data_sent, "versions": versions()}
        return {"device": place.device, "threads": place.cpus, **known}


def train_banks(plans: Sequence[Plan], setting: Mapping[str, Any]) -> list[Any]:
    """On a worker: a note, then the files of each bank."""
    with _bench(setting) as (bench, store):
        began = time.perf_counter()
        recipe = plans[0].recipe
        banks = train_plans(plans, bench.data(recipe.data, recipe.preset), bench.device)
        for plan, bank in zip(plans, banks, strict=True):
            store.add_bank(plan, bank)
        return [_note(bench, began), *map(store.files, plans)]


def measure_cell(
    cell: Cell,
    measure: Callable[[Cell, Bench], dict[str, Any]],
    setting: Mapping[str, Any],
    *banks: Mapping[str, bytes],
) -> list[Any]:
    """On a worker: a note, then the cell's result; the banks come in the order of the cell's."""
    with _bench(setting) as (bench, store):
        for plan, files in zip(cell.banks.values(), banks, strict=True):
            store.add_files(plan, files)
        began = time.perf_counter()
        result = measure(cell, bench)
        return [_note(bench, began), result]


@contextmanager
def _bench(setting: Mapping[str, Any]) -> Iterator[tuple[Bench, Store]]:
    """A bench on a store that lasts for one task."""
    if setting["versions"] != versions():
        raise StudyError(
            f"a worker of the cluster has {versions()}, the run {setting['versions']}: "
            "install the same versions on all machines, or bytes would differ"
        )
    torch.set_num_threads(setting["threads"])
    with tempfile.TemporaryDirectory(prefix="intarsia-") as folder:
        store = Store(folder)
        yield Bench(store, setting["device"], lambda *key: _data(setting["data"], *key)), store


_here: dict[tuple[str, str, str], Data] = {}  # what this worker has received


def _data(sent: Sent, name: str, preset: str) -> Data:
    for key, ref in sent.items():
        if key[:2] == (name, preset):
            if key not in _here:
                found: Any = ray.get(ref)
                _here[key] = found
            return _here[key]
    raise StudyError(
        f"the study measures on {name!r} with preset {preset!r}, but its cells were planned "
        "without it: ask the bench for the data where the cells are made"
    )


def _note(bench: Bench, began: float) -> dict[str, Any]:
    """For the record of the run: where, and how long it took there."""
    seconds = round(time.perf_counter() - began, 3)
    return {"seconds": seconds, "device": device_name(bench.device), "kind": bench.device.type}


@contextmanager
def _joined(address: str | None, workers: int | None, cpus: int) -> Iterator[None]:
    """Be part of a cluster: the one that this process is in already, another, or our own."""
    if ray.is_initialized():
        yield
        return
    own: dict[str, Any] = {} if address else {"include_dashboard": False}
    if workers and not address:
        own["num_cpus"] = workers * cpus
    try:
        with _environment(QUIET if address else {**QUIET, "PYTHONPATH": _path()}):
            ray.init(
                address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own
            )
        yield
    except ConnectionError as error:
        raise StudyError(f"there is no Ray cluster at {address!r}: {error}") from error
    finally:
        ray.shutdown()


@contextmanager
def _environment(given: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that are started in the block."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _path() -> str:
    """Where this process finds modules, the one with the study among them."""
    return os.pathsep.join(filter(None, sys.path))


def _place(device: str, workers: int | None, cpus: int, gpus: float) -> _Place:
    """The device that tasks use, if the cluster has room for one of them."""
    there = ray.cluster_resources()
    if device == "auto":
        device = "cuda" if there.get("GPU", 0) >= gpus else "cpu"
    place = _Place(device, workers, cpus, gpus if torch.device(device).type == "cuda" else 0.0)
    if place.room < 1:
        found = f"{there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs"
        raise StudyError(
            f"a task on {device!r} takes {cpus} CPUs and {place.gpus:g} GPUs, "
            f"but the cluster has {found}"
        )
    return place
