"""Driver: hands out the tasks of a study, and writes what comes back."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from intarsia.errors import DamagedError, IntarsiaError, StudyError
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.plans import Plan
from intarsia.studies.records import versions
from intarsia.studies.runners.bank_training import training_groups
from intarsia.studies.runners.local import WAIT, Run, RunRequest, missing_plans
from intarsia.studies.runners.ray.ray_tasks import measure_cell, train_banks
from intarsia.studies.study import find_study
from intarsia.training.distributed.ray_connection import Place, joined, place_of

RETRIES = 5  # of a task whose worker is lost
AHEAD = 2  # tasks for each one that can run, so that no worker waits
MOST = 400  # tasks at once: every lock is an open file
SENT = 32  # banks of the store that stay in the cluster's memory


def run_cluster(
    asked: RunRequest, address: str | None = None, *, cpus: int = 1, gpus: float = 1.0
) -> list[Measured]:
    """Measure what is missing of a study on a Ray cluster, several tasks at once.

    Without an address a cluster is started here, with one task per core; "auto" joins the one that
    this machine belongs to. A task takes `cpus`, and where the device is a GPU, `gpus` of them.
    """
    result = asked.progress()
    if not result.missing:
        return result.measured
    with asked.store.in_use(), joined(address, asked.workers, cpus, StudyError):
        place = place_of(asked.device, asked.workers, cpus, gpus, StudyError)
        return _OnCluster(asked, place).work()


@dataclass(frozen=True)
class _Task:
    """What a worker was asked for, whose lock we hold, and what is done with the answer."""

    answer: list[ray.ObjectRef]
    lock: ExitStack
    name: str
    finish: Callable[[dict[str, Any], list[Any]], None]
    repeat: Callable[[DamagedError], None]  # what was sent is damaged


class _OnCluster(Run):
    """The work is done by tasks; this process hands them out and writes what comes back."""

    def __init__(self, asked: RunRequest, place: Place) -> None:
        super().__init__(asked, StudyContext(asked.store, "cpu"))
        self.place = place
        self.tasks: dict[ray.ObjectRef, _Task] = {}
        self.sent: OrderedDict[str, ray.ObjectRef] = OrderedDict()  # banks, by key
        self.data_sent = {
            (*key, data.digest): ray.put(data) for key, data in self.context.loaded.items()
        }

    def work(self) -> list[Measured]:
        """Cells as soon as their banks are there, banks meanwhile."""
        try:
            while missing := self.progress.missing:
                self._send(missing)
                if self.tasks:
                    done, _ = ray.wait(list(self.tasks), timeout=10 * WAIT)
                    for ref in done:
                        self._collect(self.tasks.pop(ref))
                else:
                    self.wait(missing)
            return self.progress.measured
        finally:
            for ref, task in self.tasks.items():
                ray.cancel(ref)
                task.lock.close()

    def drop(self, cell: Cell, why: DamagedError) -> None:
        for plan in cell.banks.values():
            self.sent.pop(plan.key, None)
        super().drop(cell, why)

    def _send(self, missing: Sequence[Cell]) -> None:
        """Hand out what nobody works on, us included, while there is room."""
        room = min(AHEAD * self.place.room, MOST)
        for cell in missing:
            if len(self.tasks) >= room:
                return
            if self.ready(cell):
                self._send_cell(cell)
        device = torch.device(self.place.device)
        wanted, workers = missing_plans(missing, self.store), max(1, self.place.room)
        for plans in training_groups(wanted, device, workers=workers):
            if len(self.tasks) >= room:
                return
            self._send_plans(plans)

    def _send_cell(self, cell: Cell) -> None:
        with ExitStack() as lock:
            if not lock.enter_context(self.store.lock([cell.key])):
                return
            self.look([cell])
            if cell.key in self.progress.finished:
                return
            try:
                banks = [self._bank(plan) for plan in cell.banks.values()]
            except DamagedError as error:
                self.drop(cell, error)
                return
            measure = find_study(cell.study).measure
            answer = self._ask(measure_cell, 2, cell, measure, self._setting(), *banks)

            def finish(note: dict[str, Any], results: list[Any]) -> None:
                self.keep(cell, results[0])
                self.record.note(event="cell", study=cell.study, key=cell.key, **note)

            held = lock.pop_all()
            task = _Task(answer, held, f"cell {cell}", finish, lambda why: self.drop(cell, why))
            self.tasks[answer[0]] = task

    def _send_plans(self, plans: Sequence[Plan]) -> None:
        with ExitStack() as lock:
            held = lock.enter_context(self.store.lock([plan.key for plan in plans]))
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

            name, kept = f"bank {mine[0].key[:16]}", lock.pop_all()
            self.tasks[answer[0]] = _Task(answer, kept, name, finish, lambda why: None)

    def _ask(self, work: Callable[..., Any], answers: int, *what: Any) -> list[ray.ObjectRef]:
        task: Any = ray.remote(
            num_returns=answers,
            num_cpus=self.place.cpus,
            num_gpus=self.place.gpus,
            max_retries=RETRIES,
        )(work)
        result: list[ray.ObjectRef] = task.remote(*what)
        return result

    def _collect(self, task: _Task) -> None:
        with task.lock:
            try:
                note, *result = ray.get(task.answer)
            except RayTaskError as error:
                if isinstance(error.cause, DamagedError):
                    task.repeat(error.cause)
                    return
                known = isinstance(error.cause, IntarsiaError)
                raise StudyError(f"{task.name}: {error.cause if known else error}") from error
            except RayError as error:
                raise StudyError(
                    f"{task.name}: the cluster lost it {RETRIES + 1} times, the last time because "
                    f"{str(error).splitlines()[0]}"
                ) from error
            task.finish(note, result)

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
