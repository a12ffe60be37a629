"""Runner: do what is missing of a study, bank by bank and cell by cell, in this process."""

import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from intarsia.data import Data
from intarsia.errors import (
    DamagedError,
    HealthWarning,
    IntarsiaError,
    StoppedError,
    StudyError,
    shortened,
)
from intarsia.limits import out_of_memory
from intarsia.locks import holder_of, is_locked
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.plans import Plan
from intarsia.studies.records import Record
from intarsia.studies.runners.bank_training import train_plans, training_groups, work_of
from intarsia.studies.store import Store
from intarsia.studies.study import Study, find_study
from intarsia.studies.wording import several
from intarsia.training.run_folder import PROGRESS, spent

KEEP_BANKS = "keep_banks"  # the option that says whether banks stay once their cells are measured
WAIT = 0.1  # seconds between looks at what other processes have finished
LONG_WAIT = 50  # looks after which a run says for whom it waits

Say = Callable[[str], None]


@dataclass
class StudyProgress:
    """What a store has of a study."""

    cells: list[Cell]
    finished: dict[str, Measured] = field(default_factory=dict)  # by key
    damaged: dict[str, str] = field(default_factory=dict)  # by key, what is wrong

    @property
    def missing(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.key not in self.finished]

    @property
    def measured(self) -> list[Measured]:
        return [self.finished[c.key] for c in self.cells if c.key in self.finished]


def progress(cells: Sequence[Cell], store: Store) -> StudyProgress:
    """Which cells are finished, missing or damaged."""
    result = StudyProgress(list(cells))
    for cell in result.cells:
        try:
            measured = store.read(cell)
        except DamagedError as error:
            result.damaged[cell.key] = str(error)
        else:
            if measured is not None:
                result.finished[cell.key] = measured
    return result


def missing_plans(cells: Sequence[Cell], store: Store) -> list[Plan]:
    """The banks that these cells need and the store has not, each once, in order."""
    plans = {plan.key: plan for cell in cells for plan in cell.banks.values()}
    return [plan for plan in plans.values() if not store.has_bank(plan)]


def run(
    study: Study | str,
    options: Mapping[str, Any],
    store: Store,
    *,
    device: str = "auto",
    context: StudyContext | None = None,
    say: Say = lambda line: None,
    minutes: float | None = None,
    workers: int = 1,
) -> list[Measured]:
    """Measure what is missing of a study; several processes may do so on one store at once.

    After so many `minutes` it stops between two epochs or cells with a StoppedError. What is done
    by then is kept, half a bank too, and the same call goes on, also in a copy of the store.
    `workers` is how many processes were started together: each leaves the others their banks.
    """
    study = find_study(study) if isinstance(study, str) else study
    deadline = Deadline(minutes)
    context = context or StudyContext(store, device)
    result = progress(study.plan(options, context), store)
    if not result.missing:
        return result.measured  # nothing is written, so a store may be read-only
    with store.in_use():
        asked = RunRequest(study, options, store, device, workers=workers, say=say, minutes=minutes)
        return _Here(asked, context, deadline).work()


class Deadline:
    """The moment at which a run stops; without minutes there is none."""

    def __init__(self, minutes: float | None) -> None:
        if minutes is not None and not (isinstance(minutes, int | float) and minutes >= 0):
            raise StudyError(f"minutes is {shortened(minutes)}: expected a number from 0")
        self.minutes = minutes
        self.ends = None if minutes is None else time.monotonic() + 60 * minutes

    def passed(self) -> bool:
        return self.ends is not None and time.monotonic() >= self.ends

    def stopped(self, progress: StudyProgress) -> StoppedError:
        """What is said of a run that did not come to its end."""
        return StoppedError(
            f"stopped after {self.minutes:g} minutes: {len(progress.missing)} of "
            f"{len(progress.cells)} cells are missing; the same command goes on"
        )


@dataclass(frozen=True)
class RunRequest:
    """What an engine is asked for: a study, where it is kept and measured, and by how many."""

    study: Study
    options: Mapping[str, Any]
    store: Store
    device: str = "auto"
    workers: int | None = None  # an engine's own number if None
    say: Say = lambda line: None
    minutes: float | None = None  # after which it stops

    def progress(self, context: StudyContext | None = None) -> StudyProgress:
        """What the store has of it."""
        context = context or StudyContext(self.store, "cpu")
        return progress(self.study.plan(self.options, context), self.store)


class Run:
    """What is missing of a study and what becomes of it; engines differ in who does the work."""

    def __init__(self, asked: RunRequest, context: StudyContext) -> None:
        self.store, self.say, self.context = asked.store, asked.say, context
        self.record = Record(self.store.path / "runs", asked.study.name, context.device)
        self.progress = asked.progress(context)
        self.waits = 0
        self.doubtful: set[str] = set()  # cells that saw damage in banks that are well
        self.keeps_banks = bool(asked.options.get(KEEP_BANKS, True))
        context.keeps_banks = self.keeps_banks
        for line in self.progress.damaged.values():
            self.say(f"{line}: it is measured again")

    def look(self, cells: Sequence[Cell]) -> None:
        """Take over what other processes have finished."""
        self.progress.finished.update(progress(cells, self.store).finished)

    def wait(self, missing: Sequence[Cell]) -> None:
        """Others do all that is left: look again in a moment; who they are is said once."""
        time.sleep(WAIT)
        self.look(missing)
        self.waits += 1
        if self.waits != LONG_WAIT:
            return
        keys = [cell.key for cell in missing]
        keys += [plan.key for plan in missing_plans(missing, self.store)]
        locked = [path for path in map(self.store.lock_file, keys) if is_locked(path)]
        holders = sorted({holder_of(path) for path in locked})
        self.say(f"waiting for other processes that work on missing cells: {', '.join(holders)}")

    def ready(self, cell: Cell) -> bool:
        """Whether the banks that the cell needs are there."""
        return all(map(self.store.has_bank, cell.banks.values()))

    def keep(self, cell: Cell, result: dict[str, Any]) -> None:
        """A cell is measured: write it down."""
        self.progress.finished[cell.key] = self.store.write(cell, result)
        if not self.keeps_banks:
            self.drop_measured()
        self.say(f"cell {self._count()} of {len(self.progress.cells)}: {cell}")

    def drop_measured(self) -> None:
        """Take the banks away that no missing cell needs."""
        needed = {plan.key for cell in self.progress.missing for plan in cell.banks.values()}
        for cell in self.progress.cells:
            for plan in cell.banks.values():
                if plan.key not in needed and self.store.has_bank(plan):
                    self.store.drop_bank(plan)

    def drop(self, cell: Cell, why: DamagedError) -> None:
        """A bank of this cell cannot be read: train it again.

        If all can, another process has done so, or something else is damaged, time and again.
        """
        self.context.forget()
        dropped = False
        for plan in cell.banks.values():
            try:
                self.store.bank(plan)
            except DamagedError as error:
                self.say(f"{error}: it is trained again")
                self.store.drop_bank(plan)
                dropped = True
        if not dropped and cell.key in self.doubtful:
            raise StudyError(f"cell {cell}: {why}") from why
        self.doubtful.add(cell.key)

    def about(self, plans: Sequence[Plan]) -> dict[str, Any]:
        """Banks that are to be trained together, for the record."""
        recipe, count = plans[0].recipe, sum(plan.modules for plan in plans)
        self.say(f"training {several(count, 'module')} of {recipe.data}, {recipe.model}")
        work = sum(work_of(plan, self.data(plan)) for plan in plans)
        keys = [plan.key for plan in plans]
        return {"event": "banks", "keys": keys, "modules": count, "work": work}

    def data(self, plan: Plan) -> Data:
        return self.context.data_of(plan)

    def _count(self) -> int:
        """Cells that are finished, whoever finished them."""
        there = self.store.keys({cell.study for cell in self.progress.cells})
        return sum(cell.key in there for cell in self.progress.cells)


class _Here(Run):
    """The work is done in this process."""

    def __init__(self, asked: RunRequest, context: StudyContext, deadline: Deadline) -> None:
        super().__init__(asked, context)
        self.deadline, self.workers = deadline, asked.workers or 1
        context.stop = None if deadline.ends is None else deadline.passed

    def work(self) -> list[Measured]:
        """First what can be measured now, then the next banks; wait only for other processes."""
        while missing := self.progress.missing:
            if self.deadline.passed():
                raise self.deadline.stopped(self.progress)
            done = [
                self._measure(cell)
                for cell in missing
                if not self.deadline.passed() and self.ready(cell)
            ]
            if any(done) or self._train(missing):
                continue
            self.wait(missing)
        if not self.keeps_banks:
            self.drop_measured()
        return self.progress.measured

    def _measure(self, cell: Cell) -> bool:
        with self.store.lock([cell.key]) as held:
            if not held:
                return False
            self.look([cell])
            if cell.key in self.progress.finished:
                return True
            try:
                timed = self.record.timed(event="cell", study=cell.study, key=cell.key)
                # Some groups are dead, and the verdict says so: studies/maxent/shared/dead.py.
                quiet = warnings.catch_warnings(action="ignore", category=HealthWarning)
                with timed, quiet:
                    self.keep(
                        cell, find_study(cell.study).measure(cell, self.context.of_cell(cell))
                    )
            except StoppedError:
                raise self.deadline.stopped(self.progress) from None
            except DamagedError as error:
                self.drop(cell, error)
                return True
            except IntarsiaError as error:
                raise StudyError(f"cell {cell}: {error}") from error
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                raise StudyError(
                    f"cell {cell}: memory ran out: run the study again with fewer workers or on a "
                    "larger machine; it resumes where it stopped"
                ) from error
            return True

    def _train(self, missing: Sequence[Cell]) -> bool:
        """Train the next banks that no other process trains; False if there are none."""
        limited = self.deadline.ends is not None
        device, wanted = self.context.device, missing_plans(missing, self.store)
        for plans in training_groups(wanted, device, limited, workers=self.workers):
            with self.store.lock([plan.key for plan in plans]) as held:
                mine = [p for p in plans if p.key in held and not self.store.has_bank(p)]
                if mine:
                    self._train_together(mine)
                    return True
        return False

    def _train_together(self, plans: list[Plan]) -> None:
        device = self.context.device
        stop = None if self.deadline.ends is None else self.deadline.passed
        work = self.store.work_folder(plans, device.type)
        earlier = spent(work / PROGRESS)
        before = 0.0 if earlier is None else earlier.seconds
        with self.record.timed(before, **self.about(plans)):
            what = (plans, self.data(plans[0]), device, work, stop)
            try:
                banks = train_plans(*what)
            except StoppedError:
                raise self.deadline.stopped(self.progress) from None
            except DamagedError as error:
                self.say(f"{error}: the banks are trained again")
                shutil.rmtree(work, ignore_errors=True)
                banks = train_plans(*what)
            for plan, bank in zip(plans, banks, strict=True):
                self.store.add_bank(plan, bank)
        shutil.rmtree(work, ignore_errors=True)  # checkpoints of banks that are kept now
