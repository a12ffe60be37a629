"""Chunk training: an engine trains part of a bank, in this process or in a worker's."""

import dataclasses
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from intarsia.errors import TrainingError
from intarsia.limits import out_of_memory
from intarsia.training.engines.select import ENGINES, EngineChoice, choose, limit_of, threads_of
from intarsia.training.job import Job
from intarsia.training.loop import Watch
from intarsia.training.plan import TrainingPlan
from intarsia.training.rounds import Outcome, train_rounds
from intarsia.training.run_folder import Checkpoint
from intarsia.training.tasks import Task


@dataclass(frozen=True)
class Chunk:
    """Tasks that an engine trains together, and what becomes of them.

    `watch` is called after every epoch, `keep` after the rounds that are wanted.
    """

    label: str
    tasks: Sequence[Task]
    rounds: Sequence[int]  # whose modules are wanted
    checkpoint: Checkpoint
    watch: Watch
    keep: Callable[[int, list[Outcome]], None]


@dataclass(frozen=True)
class Survey:
    """What trains a plan where it is to be trained, and how many modules fit there at a time."""

    choice: EngineChoice
    device: str
    threads: int
    limit: int
    versions: dict[str, str]

    @property
    def report(self) -> dict[str, Any]:
        """What the modules were trained by, as they remember it."""
        device = torch.device(self.device).type
        return {"engine": self.choice.engine, "device": device, "versions": self.versions}


class Executor(Protocol):
    """Whoever trains chunks: this process, or workers that this process hands them to."""

    size: int  # chunks at a time

    @property
    def survey(self) -> Survey: ...

    def train(self, chunks: Iterable[Chunk]) -> None: ...


class ChunkTrainer:
    """A plan on a device and the engine that trains it there, one chunk after another."""

    size = 1

    def __init__(self, plan: TrainingPlan, device: torch.device, engine: str) -> None:
        with current_device(device):
            self.plan, self.job = plan, Job.of(plan, device)
            self.choice = choose(self.job, engine, plan.recipe.patience is not None)

    @cached_property
    def survey(self) -> Survey:
        threads, limit = threads_of(self.choice, self.job), limit_of(self.job, self.choice)
        return Survey(self.choice, str(self.job.device), threads, limit, versions())

    def train(self, chunks: Iterable[Chunk]) -> None:
        device = self.job.device
        devices = [device] if device.type == "cuda" else []
        tuned = self.job.precision != "float32"
        with current_device(device), torch.random.fork_rng(devices), same_bytes(tuned):
            for chunk in chunks:
                self._train(chunk)

    def _train(self, chunk: Chunk) -> None:
        def keep(round_: int, outcomes: list[Outcome]) -> None:
            if round_ in chunk.rounds:
                chunk.keep(round_, outcomes)

        engine = ENGINES[self.choice.engine](dataclasses.replace(self.job, tasks=chunk.tasks))
        origins = [self.plan.start(task.seed) for task in chunk.tasks]
        try:
            train_rounds(engine, origins, self.plan.recipe, chunk.checkpoint, chunk.watch, keep)
        finally:
            engine.close()
        chunk.checkpoint.clear()


def current_device(device: torch.device) -> AbstractContextManager[Any]:
    """Kernels and graphs of an engine run on the current GPU, which is else the first one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def memory_told() -> Iterator[None]:
    """Memory that runs out is an error of ours, which says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise TrainingError(
            "memory ran out: train fewer classes or seeds at a time, or a smaller batch; "
            "a run with a folder goes on where it was"
        ) from error


def versions() -> dict[str, str]:
    """Of what numbers depend on."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": str(np.__version__),
    }


def same_bytes(tuned: bool = False) -> Any:
    """cuDNN may else choose among algorithms that add in different orders.

    `tuned` lets it try which of those that repeat themselves is fastest: a process repeats itself,
    another one may find another one fastest.
    """
    allow_tf32 = torch.backends.cudnn.allow_tf32
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=tuned, deterministic=True, allow_tf32=allow_tf32
    )
