"""Chunk worker: trains chunks of a plan somewhere, and sends what comes of them."""

import copy
import dataclasses
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from intarsia.data.dataset import Split
from intarsia.errors import IntarsiaError, TrainingError
from intarsia.training.chunk_training import Chunk, ChunkTrainer, Survey, memory_told
from intarsia.training.engines.base import Scores
from intarsia.training.job import device_of
from intarsia.training.loop import RoundProgress
from intarsia.training.plan import TrainingPlan
from intarsia.training.rounds import Outcome
from intarsia.training.run_folder import Checkpoint


@dataclass(frozen=True)
class ChunkRequest:
    """A chunk as it is sent to a worker, which finds the tasks by their names."""

    label: str
    names: tuple[str, ...]
    rounds: tuple[int, ...]
    key: str  # of its checkpoint
    every: float | None  # seconds between checkpoints; None: none are wanted
    checkpoint: bytes | None  # to go on from

    @classmethod
    def of(cls, chunk: Chunk) -> "ChunkRequest":
        """With the checkpoint that is there now, if it is sound."""
        kept, names = chunk.checkpoint, tuple(task.name for task in chunk.tasks)
        kept.load(len(names))  # which says what is wrong with it, and drops it
        sound = kept.path is not None and kept.path.exists()
        content = kept.path.read_bytes() if kept.path is not None and sound else None
        every = None if kept.path is None else kept.every
        return cls(chunk.label, names, tuple(chunk.rounds), kept.key, every, content)


@dataclass(frozen=True)
class Ready:
    """The worker has the plan, and waits for chunks."""

    survey: Survey


@dataclass(frozen=True)
class EpochDone:
    progress: dict[str, Any]
    scores: Scores
    epochs: int  # of the round


@dataclass(frozen=True)
class CheckpointDone:
    content: bytes


@dataclass(frozen=True)
class RoundDone:
    round: int
    outcomes: list[Outcome]


@dataclass(frozen=True)
class ChunkDone:
    """The worker is free again."""


@dataclass(frozen=True)
class Failed:
    """What it was asked for cannot be done, here or elsewhere."""

    error: IntarsiaError


@dataclass(frozen=True)
class Lost:
    """The worker is gone; whoever watches it says so."""

    how: str


Message = Ready | EpochDone | CheckpointDone | RoundDone | ChunkDone | Failed | Lost
Send = Callable[[Message], None]


@dataclass(frozen=True)
class WorkerSetting:
    """Where and how a worker trains."""

    device: str
    engine: str
    threads: int


class ChunkWorker:
    """A plan on a worker's device."""

    def __init__(self, plan: TrainingPlan, setting: WorkerSetting) -> None:
        self.plan, self.setting = plan, setting
        torch.set_num_threads(setting.threads)
        self.trainer = ChunkTrainer(plan, device_of(setting.device), setting.engine)

    @property
    def survey(self) -> Survey:
        return self.trainer.survey

    def train(self, asked: ChunkRequest, send: Send) -> None:
        """Train a chunk; everything that comes of it is sent."""
        torch.set_num_threads(self.setting.threads)  # of this thread, which may be another
        by_name = {task.name: task for task in self.plan.tasks}
        with tempfile.TemporaryDirectory(prefix="intarsia-") as folder:
            chunk = Chunk(
                asked.label,
                [by_name[name] for name in asked.names],  # outcomes are told apart by their place
                asked.rounds,
                _SentCheckpoint(asked, Path(folder), send),
                lambda progress, scores, epochs: send(
                    EpochDone(copy.deepcopy(progress.to_json()), scores, epochs)
                ),
                lambda round_, outcomes: send(RoundDone(round_, outcomes)),
            )
            self.trainer.train([chunk])
        send(ChunkDone())


class _SentCheckpoint(Checkpoint):
    """A checkpoint that is written elsewhere; what there was of it lies in a folder here."""

    def __init__(self, asked: ChunkRequest, folder: Path, send: Send) -> None:
        path = None if asked.every is None else folder / "checkpoint.safetensors"
        super().__init__(path, asked.every or 0.0, asked.key)
        self.send = send
        if path is not None and asked.checkpoint is not None:
            path.write_bytes(asked.checkpoint)

    def write(self, content: bytes) -> None:
        self.send(CheckpointDone(content))


@contextmanager
def failures_sent(send: Send) -> Iterator[None]:
    """Errors are sent, as ours: those of training by their own kind and words."""
    try:
        with memory_told():
            yield
    except IntarsiaError as error:
        send(Failed(error))
    except Exception:
        send(Failed(TrainingError(f"a worker failed:\n{traceback.format_exc()}")))


def to_send(plan: TrainingPlan) -> TrainingPlan:
    """A plan with what workers need: not the test samples, not the encoder of features."""
    empty = Split(plan.data.test.x[:0].clone(), plan.data.test.y[:0].clone())
    sent = dataclasses.replace(plan, data=dataclasses.replace(plan.data, test=empty, encoder=None))
    vars(sent)["origins"] = plan.origins  # computed once, the same for all
    return sent


def heard(chunk: Chunk, message: EpochDone) -> None:
    """Show an epoch of a worker as one of ours."""
    progress = RoundProgress.from_json(message.progress, len(chunk.tasks))
    chunk.watch(progress, message.scores, message.epochs)
