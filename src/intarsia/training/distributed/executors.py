"""Executor: which workers train a bank, by what `engine`, `workers`, `device` and `address` say."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import torch

from intarsia.errors import RecipeError, TrainingError, nearest
from intarsia.pruning import PRUNINGS
from intarsia.training.chunk_training import Executor
from intarsia.training.distributed.chunk_driver import ChunkDriver
from intarsia.training.distributed.chunk_worker import WorkerSetting
from intarsia.training.engines.select import AUTO, ENGINES, EXECUTORS
from intarsia.training.plan import TrainingPlan


@dataclass(frozen=True)
class ExecutorChoice:
    """Where chunks are trained, and by which engine there."""

    kind: str | None  # one of EXECUTORS; None is this process
    engine: str
    workers: int | None = None
    address: str | None = None

    @classmethod
    def of(cls, engine: str, workers: int | None, address: str | None) -> "ExecutorChoice":
        """Read `ray`, `ray(stack)`, `processes`, or the engine of this process, and check."""
        match = re.fullmatch(rf"\s*({'|'.join(EXECUTORS)})\s*(?:\(\s*(\w*)\s*\))?\s*", str(engine))
        where = cls(match[1], match[2] or AUTO, workers, address) if match else cls(None, engine)
        if where.engine not in (AUTO, *ENGINES) and match:
            advice = nearest(where.engine, [AUTO, *ENGINES])
            raise RecipeError(f"unknown engine {where.engine!r} in {engine!r}: {advice}")
        if workers is not None and (type(workers) is not int or workers < 1):
            raise RecipeError(f"workers is {workers!r}: give 1 or more")
        if workers is not None and where.kind is None:
            raise RecipeError(
                f"engine {engine!r} trains in this process: for workers choose 'processes' or 'ray'"
            )
        if address is not None and where.kind != "ray":
            raise RecipeError(f"an address is for engine 'ray', not for {engine!r}")
        return where


@contextmanager
def start_workers(where: ExecutorChoice, plan: TrainingPlan, device: str) -> Iterator[Executor]:
    """Workers for a plan, which end with the block, however it ends."""
    make = _on_ray if where.kind == "ray" else _processes
    with make(where, plan, device) as executor:
        yield executor


@contextmanager
def _processes(where: ExecutorChoice, plan: TrainingPlan, device: str) -> Iterator[Executor]:
    from intarsia.training.distributed.process_pool import ProcessPool

    size = min(where.workers or usual_workers(device), _most(plan))
    threads = max(1, torch.get_num_threads() // size)
    settings = [
        WorkerSetting(device_of_worker(device, number), where.engine, threads)
        for number in range(size)
    ]
    with closing(ChunkDriver(ProcessPool(plan, settings), size)) as executor:
        yield executor


@contextmanager
def _on_ray(where: ExecutorChoice, plan: TrainingPlan, device: str) -> Iterator[Executor]:
    try:
        from intarsia.training.distributed.ray_connection import joined, place_of
        from intarsia.training.distributed.ray_pool import RayPool
    except ImportError as error:
        raise TrainingError(
            f"engine 'ray' needs ray, which is not here ({error}): pip install 'intarsia[cluster]'"
        ) from error
    with joined(where.address, where.workers, 1):
        place = place_of(device, where.workers, cpus=1, gpus=1.0)
        pool = RayPool(plan, where.engine, place)
        with closing(ChunkDriver(pool, min(place.room, _most(plan)))) as executor:
            yield executor


def _most(plan: TrainingPlan) -> int:
    """Workers that can have a chunk: one for each module, or seed where these stay together."""
    whole = PRUNINGS.entry(plan.recipe.pruning or "magnitude").whole_group
    return len({task.seed if whole else task.name for task in plan.tasks})


def usual_workers(device: str) -> int:
    """How many processes of this machine train on a device: one per GPU, or per core without."""
    if device.startswith("cuda:"):
        return 1
    return _gpus(device) or cores()


def device_of_worker(device: str, number: int) -> str:
    """One GPU after the other, unless one is named."""
    gpus = _gpus(device)
    return f"cuda:{number % gpus}" if gpus else device


def cores() -> int:
    """Of this machine, as many as this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _gpus(device: str) -> int:
    return torch.cuda.device_count() if device in ("auto", "cuda") else 0
