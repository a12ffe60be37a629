"""Chunk driver: hands chunks to workers, hears what comes of them, and replaces lost workers."""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Generic, TypeVar

from intarsia.errors import TrainingError
from intarsia.files import write_whole
from intarsia.training.chunk_training import Chunk, Survey
from intarsia.training.distributed.chunk_worker import (
    CheckpointDone,
    ChunkDone,
    ChunkRequest,
    EpochDone,
    Failed,
    Lost,
    Message,
    Ready,
    RoundDone,
    heard,
)

RETRIES = 3  # of a chunk whose worker is lost

Worker = TypeVar("Worker", bound=Hashable)


class WorkerPool(ABC, Generic[Worker]):
    """Where workers are and how messages reach them."""

    @abstractmethod
    def start(self, number: int) -> Worker:
        """Begin to start the worker of this number; its first message says that it is ready."""

    @abstractmethod
    def ask(self, worker: Worker, request: ChunkRequest) -> None:
        """Give a chunk to a worker that waits for one."""

    @abstractmethod
    def wait(self, workers: Sequence[Worker]) -> list[tuple[Worker, Message]]:
        """Messages of these workers, as soon as there are any."""

    @abstractmethod
    def stop(self, workers: Sequence[Worker]) -> None:
        """End workers, whatever they do; some may be gone."""


class ChunkDriver(Generic[Worker]):
    """Trains chunks by the workers of a pool: an Executor."""

    def __init__(self, pool: WorkerPool[Worker], size: int) -> None:
        self.pool, self.size = pool, size
        self.numbers: dict[Worker, int] = {}  # of all workers there are
        self.free: deque[Worker] = deque()
        self.busy: dict[Worker, Chunk] = {}
        self.waiting: deque[Chunk] = deque()
        self.losses: Counter[str] = Counter()  # by chunk; "" is before a worker had any
        self.first: Survey | None = None

    @cached_property
    def survey(self) -> Survey:
        """That of the first worker to be ready; the others must be of its kind."""
        for number in range(self.size):
            self._start(number)
        while self.first is None:
            self._listen()
        return self.first

    def train(self, chunks: Iterable[Chunk]) -> None:
        self.waiting.extend(chunks)
        while self.waiting or self.busy:
            while self.waiting and self.free:
                worker, chunk = self.free.popleft(), self.waiting.popleft()
                self.busy[worker] = chunk
                self.pool.ask(worker, ChunkRequest.of(chunk))
            self._listen()

    def close(self) -> None:
        """End all workers."""
        self.pool.stop([*self.numbers])
        self.numbers.clear()

    def _start(self, number: int) -> None:
        self.numbers[self.pool.start(number)] = number

    def _listen(self) -> None:
        for worker, message in self.pool.wait(list(self.numbers)):
            self._hear(worker, message)

    def _hear(self, worker: Worker, message: Message) -> None:
        match message:
            case Ready(survey):
                self._check(survey)
                self.free.append(worker)
            case Failed(error):
                raise error
            case Lost(how):
                self._replace(worker, how)
            case ChunkDone():
                self.busy.pop(worker).checkpoint.clear()
                self.free.append(worker)
            case EpochDone():
                heard(self.busy[worker], message)
            case RoundDone(round_, outcomes):
                self.busy[worker].keep(round_, outcomes)
            case CheckpointDone(content):
                path = self.busy[worker].checkpoint.path
                assert path is not None
                write_whole(path, content)

    def _check(self, survey: Survey) -> None:
        """Workers of another kind would give other bytes."""
        self.first = self.first or survey
        if survey.report != self.first.report or survey.threads != self.first.threads:
            ours, theirs = ({**s.report, "threads": s.threads} for s in (self.first, survey))
            raise TrainingError(
                f"workers differ, and so would their modules: one has {ours}, another {theirs}; "
                "install the same versions on machines of one kind"
            )

    def _replace(self, worker: Worker, how: str) -> None:
        """Start another worker for one that is gone, and give its chunk to the next."""
        number, chunk = self.numbers.pop(worker), self.busy.pop(worker, None)
        if worker in self.free:
            self.free.remove(worker)
        self.pool.stop([worker])
        label = "" if chunk is None else chunk.label
        self.losses[label] += 1
        if self.losses[label] > RETRIES:
            names = "no module yet" if chunk is None else _names(chunk)
            raise TrainingError(
                f"the worker that had {names} was lost {self.losses[label]} times, the last time "
                f"{how}: perhaps its memory is too small, then give it fewer modules by more "
                "workers or machines; a run with a folder goes on where it was"
            )
        if chunk is not None:
            chunk.checkpoint.say(f"a worker was lost {how}: another goes on with {_names(chunk)}")
            self.waiting.appendleft(chunk)
        self._start(number)


def _names(chunk: Chunk) -> str:
    names = [task.name for task in chunk.tasks]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"module{'s' if len(names) > 1 else ''} {', '.join(map(repr, names[:3]))}{more}"
