"""Ray pool: workers are actors of a Ray cluster, on its machines and GPUs."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import ray
from ray.exceptions import RayError

from intarsia.data.augmentations import AUGMENTATIONS
from intarsia.data.negatives import NEGATIVES
from intarsia.models import MODELS
from intarsia.pruning import PRUNINGS
from intarsia.training.distributed.chunk_driver import WorkerPool
from intarsia.training.distributed.chunk_worker import (
    ChunkRequest,
    ChunkWorker,
    Lost,
    Message,
    Ready,
    Send,
    WorkerSetting,
    failures_sent,
    to_send,
)
from intarsia.training.distributed.ray_connection import Place
from intarsia.training.engines.select import ENGINES
from intarsia.training.plan import TrainingPlan
from intarsia.training.settings.batches import BATCHES
from intarsia.training.settings.optimisers import OPTIMISERS
from intarsia.training.settings.schedules import SCHEDULES

REGISTRIES = (  # that training asks
    *(MODELS, PRUNINGS, NEGATIVES, AUGMENTATIONS, ENGINES),
    *(OPTIMISERS, SCHEDULES, BATCHES),
)
LOOK = 1.0  # seconds that a wait for messages takes at most


@dataclass(eq=False)
class RayWorker:
    actor: Any
    stream: Any  # of its messages; None while it has nothing to do


class RayPool(WorkerPool[RayWorker]):
    """Actors, each with the CPUs and GPUs that a place says; the plan goes over by Ray's store."""

    def __init__(self, plan: TrainingPlan, engine: str, place: Place) -> None:
        self.place = place
        self.setting = WorkerSetting(place.device, engine, place.cpus)
        self.plan = ray.put((to_send(plan), additions(plan, engine)))

    def start(self, number: int) -> RayWorker:
        place = self.place
        kind: Any = ray.remote(num_cpus=place.cpus, num_gpus=place.gpus)(ChunkActor)
        actor = kind.remote()
        return RayWorker(actor, actor.begin.remote([self.plan], self.setting))

    def ask(self, worker: RayWorker, request: ChunkRequest) -> None:
        worker.stream = worker.actor.train.remote(request)

    def wait(self, workers: Sequence[RayWorker]) -> list[tuple[RayWorker, Message]]:
        streams = {worker: worker.stream for worker in workers if worker.stream is not None}
        speaking: dict[Any, RayWorker] = {stream: worker for worker, stream in streams.items()}
        ready: list[Any] = ray.wait([*speaking], timeout=LOOK, fetch_local=False)[0]
        messages: list[tuple[RayWorker, Message]] = []
        for stream in ready:
            worker = speaking[stream]
            try:
                message: Any = ray.get(next(stream))
                messages.append((worker, message))
            except StopIteration:
                if worker.stream is stream:
                    worker.stream = None
            except RayError as error:
                lines = str(error).split("\n")
                messages.append((worker, Lost(f"({lines[0]})")))
        return messages

    def stop(self, workers: Sequence[RayWorker]) -> None:
        for worker in workers:
            ray.kill(worker.actor)


def additions(plan: TrainingPlan, engine: str) -> list[dict[str, Any]]:
    """What the user has registered and the plan may name, for each of REGISTRIES."""
    named = f"{plan.recipe.as_dict()} {engine}"
    return [
        {
            name: entry
            for name, entry in registry.items()
            if name in named and not entry.__module__.startswith("intarsia.")
        }
        for registry in REGISTRIES
    ]


class ChunkActor:
    """A worker on the cluster; each call is a stream of messages."""

    def begin(self, plan: list[Any], setting: WorkerSetting) -> Iterator[Message]:
        """Take the plan, which is sent as a reference, in a list so that Ray leaves it to us."""

        def begin(send: Send) -> None:
            own, added = ray.get(plan[0])
            for registry, entries in zip(REGISTRIES, added, strict=True):
                registry.update(entries)
            self.worker = ChunkWorker(own, setting)
            send(Ready(self.worker.survey))

        yield from _streamed(begin)

    def train(self, asked: ChunkRequest) -> Iterator[Message]:
        yield from _streamed(lambda send: self.worker.train(asked, send))


def _streamed(work: Callable[[Send], None]) -> Iterator[Message]:
    """What `work` sends, while it runs in a thread."""
    messages: SimpleQueue[Message | None] = SimpleQueue()

    def run() -> None:
        with failures_sent(messages.put):
            work(messages.put)
        messages.put(None)

    threading.Thread(target=run, daemon=True).start()
    while (message := messages.get()) is not None:
        yield message
