"""Processes: several of them on this machine run a study on one store; locks share the work."""

import multiprocessing
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from intarsia.errors import IntarsiaError, StoppedError, StudyError
from intarsia.studies.cells import Measured
from intarsia.studies.runners.local import Deadline, RunRequest, Say, progress, run
from intarsia.studies.store import Store
from intarsia.studies.study import find_study
from intarsia.training.distributed.executors import cores, device_of_worker, usual_workers
from intarsia.training.distributed.process_pool import deaf, end_processes, end_with_parent


@dataclass(frozen=True)
class _Worker:
    number: int
    process: SpawnProcess
    pipe: Connection


def run_processes(asked: RunRequest) -> list[Measured]:
    """Measure what is missing of a study in several processes, by default one per GPU or core.

    They find the study by its name, after importing the module (or script) that defines its cells.
    A worker that is lost leaves its work to the others; one that fails ends the run.
    """
    deadline, result = Deadline(asked.minutes), asked.progress()
    count = min(asked.workers or usual_workers(asked.device), len(result.missing))
    with _crew(asked, count) as crew:
        _listen(crew, asked.say)
    result = progress(result.cells, asked.store)
    if result.missing and deadline.passed():
        raise deadline.stopped(result)
    return result.measured


@contextmanager
def _crew(asked: RunRequest, count: int) -> Iterator[list[_Worker]]:
    """So many processes at work, which end with the block, however it ends."""
    crew: list[_Worker] = []
    study, path = asked.study, str(asked.store.path.resolve())
    try:
        for number in range(count):
            what = (study.cells.__module__, study.name, dict(asked.options), path)
            where = device_of_worker(asked.device, number)
            how = (where, max(1, cores() // count), asked.minutes, count)
            crew.append(_start(number + 1, (*what, *how)))
        yield crew
    finally:
        end_processes([(worker.process, worker.pipe) for worker in crew])


def _start(number: int, what: tuple[Any, ...]) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    # Not daemons, which could not train modules in processes of their own.
    process = context.Process(target=_work, args=(*what, theirs), daemon=False)
    with deaf():
        process.start()
    theirs.close()
    return _Worker(number, process, ours)


def _listen(crew: Sequence[_Worker], say: Say) -> None:
    """Pass on what the workers say until all have ended."""
    speaking = {worker.pipe: worker for worker in crew}
    finished = not crew
    while speaking:
        for pipe in wait(list(speaking)):
            worker = speaking[pipe]  # type: ignore[index]
            try:
                kind, text = worker.pipe.recv()
            except (EOFError, OSError):
                del speaking[worker.pipe]
                worker.process.join()
                if worker.process.exitcode != 0:
                    say(f"worker {worker.number} was lost{_how(worker)}: others take over its work")
                continue
            if kind == "failed":
                raise StudyError(text)
            if kind == "done":
                finished = True
            else:
                say(text)
    if not finished:
        raise StudyError(
            f"all {len(crew)} workers were lost, the last{_how(crew[-1])}, perhaps for lack of "
            "memory: run the study again with fewer workers; it resumes where it stopped"
        )


def _work(
    home: str,
    name: str,
    options: dict[str, Any],
    path: str,
    device: str,
    threads: int,
    minutes: float | None,
    workers: int,
    pipe: Connection,
) -> None:
    """A worker's life: run the study, tell what happens, end with the parent."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of every `finally`
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        import_module(home)
        run(
            find_study(name),
            options,
            Store(path),
            device=device,
            say=lambda line: pipe.send(("says", line)),
            minutes=minutes,
            workers=workers,
        )
    except StoppedError:
        pipe.send(("done", ""))  # the parent says what is missing
    except IntarsiaError as error:
        pipe.send(("failed", str(error)))
    except Exception:
        pipe.send(("failed", f"a worker failed:\n{traceback.format_exc()}"))
    else:
        pipe.send(("done", ""))


def _how(worker: _Worker) -> str:
    code = worker.process.exitcode or 0
    return f" by signal {-code}" if code < 0 else ""
