"""Process pool: workers are processes of this machine, on one device or one for each GPU."""

import copyreg
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from intarsia.errors import TrainingError
from intarsia.training.distributed.chunk_driver import WorkerPool
from intarsia.training.distributed.chunk_worker import (
    ChunkRequest,
    ChunkWorker,
    Lost,
    Message,
    Ready,
    WorkerSetting,
    failures_sent,
    to_send,
)
from intarsia.training.plan import TrainingPlan

PATIENCE = 5.0  # seconds for a worker to end when it is told to


@dataclass(frozen=True, eq=False)
class ProcessWorker:
    process: SpawnProcess
    pipe: Connection


class ProcessPool(WorkerPool[ProcessWorker]):
    """Processes that this one starts, each with a pipe; they end with it."""

    def __init__(self, plan: TrainingPlan, settings: Sequence[WorkerSetting]) -> None:
        """`settings` are those of the workers by their numbers."""
        self.settings = settings
        self.plan = _packed(plan)

    def start(self, number: int) -> ProcessWorker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        setting = self.settings[number]
        # Not daemons, which could not train modules in processes of their own.
        process = context.Process(target=_work, args=(setting, theirs), daemon=False)
        with deaf():
            process.start()
        theirs.close()
        # A worker reads once it has imported torch, and others can start meanwhile.
        threading.Thread(target=_deliver, args=(ours, self.plan), daemon=True).start()
        return ProcessWorker(process, ours)

    def ask(self, worker: ProcessWorker, request: ChunkRequest) -> None:
        with suppress(OSError):  # it is gone, which `wait` will find
            worker.pipe.send_bytes(Copies.dumps(request))

    def wait(self, workers: Sequence[ProcessWorker]) -> list[tuple[ProcessWorker, Message]]:
        speaking: dict[Any, ProcessWorker] = {worker.pipe: worker for worker in workers}
        messages = []
        for pipe in wait(list(speaking)):
            worker, message = speaking[pipe], None
            with suppress(EOFError, OSError):
                message = Copies.loads(worker.pipe.recv_bytes())
            messages.append((worker, message or Lost(_how(worker.process))))
        return messages

    def stop(self, workers: Sequence[ProcessWorker]) -> None:
        end_processes([(worker.process, worker.pipe) for worker in workers])


def end_processes(workers: Sequence[tuple[SpawnProcess, Connection]]) -> None:
    """End processes with their pipes; they have a moment to let go of what they hold."""
    for process, _ in workers:
        process.terminate()
    for process, pipe in workers:
        process.join(PATIENCE)
        process.kill()
        process.join()
        process.close()
        pipe.close()


class Copies(ForkingPickler):
    """Messages between our own processes, tensors in them by value.

    Torch would put these into shared memory, of which containers have little.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.dispatch_table = dict(copyreg.dispatch_table)


def _packed(plan: TrainingPlan) -> bytes:
    try:
        return bytes(Copies.dumps(to_send(plan)))
    except Exception as error:  # whatever an object of a user's says when it is asked
        raise TrainingError(
            f"the network or the tasks cannot be sent to other processes ({error}): define them "
            "at the top of a module or script, or use engine 'ray', which sends what is defined "
            "anywhere"
        ) from error


def _deliver(pipe: Connection, content: bytes) -> None:
    with suppress(OSError):  # the worker is gone, which others notice
        pipe.send_bytes(content)


def _work(setting: WorkerSetting, pipe: Connection) -> None:
    """A worker's life: take the plan, train chunk after chunk, end with the parent."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of every `finally`
    threading.Thread(target=end_with_parent, daemon=True).start()

    def send(message: Message) -> None:
        pipe.send_bytes(Copies.dumps(message))

    with suppress(OSError), failures_sent(send):  # without a parent there is nobody to tell
        worker = ChunkWorker(_unpacked(pipe.recv_bytes()), setting)
        send(Ready(worker.survey))
        while True:
            worker.train(Copies.loads(pipe.recv_bytes()), send)


def _unpacked(content: bytes) -> TrainingPlan:
    try:
        plan: TrainingPlan = Copies.loads(content)
    except Exception as error:
        raise TrainingError(
            f"a worker cannot make the network or the tasks ({error}): define them at the top of "
            "a module or script, not in a notebook or a shell, or use engine 'ray'"
        ) from error
    return plan


def end_with_parent() -> None:
    """To be run in a thread: no worker outlives who started it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def deaf() -> Iterator[None]:
    """Processes that start now do not hear Ctrl-C, which is the parent's to handle."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _how(process: SpawnProcess) -> str:
    process.join(PATIENCE)
    code = process.exitcode or 0
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"
