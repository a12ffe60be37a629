"""Ray connection: a cluster to run on, and the room that it has for tasks."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
import torch

from intarsia.errors import IntarsiaError, TrainingError
from intarsia.process import environment

QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}  # or Ray would report its use to its makers


@dataclass(frozen=True)
class Place:
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


@contextmanager
def joined(
    address: str | None,
    workers: int | None,
    cpus: int,
    kind: type[IntarsiaError] = TrainingError,
) -> Iterator[None]:
    """Be part of a cluster: the one that this process is in already, another, or our own.

    Where there is none, the error is of this kind.
    """
    if ray.is_initialized():
        yield
        return
    own: dict[str, Any] = {} if address else {"include_dashboard": False}
    if workers and not address:
        own["num_cpus"] = workers * cpus
    # Where this process finds modules, the one with the study among them.
    path = {} if address else {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        try:
            with environment({**QUIET, **path}):
                ray.init(
                    address=address or "local", log_to_driver=False, logging_level=logging.ERROR,
                    **own,
                )  # fmt: skip
        except ConnectionError as error:  # of the block below it may be a pipe's
            raise kind(f"there is no Ray cluster at {address!r}: {error}") from error
        yield
    finally:
        ray.shutdown()


def place_of(
    device: str,
    workers: int | None,
    cpus: int,
    gpus: float,
    kind: type[IntarsiaError] = TrainingError,
) -> Place:
    """The device that tasks use, if the cluster has room for one of them."""
    there = ray.cluster_resources()
    if device == "auto":
        device = "cuda" if there.get("GPU", 0) >= gpus else "cpu"
    place = Place(device, workers, cpus, gpus if torch.device(device).type == "cuda" else 0.0)
    if place.room < 1:
        result = f"{there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs"
        raise kind(
            f"a task on {device!r} takes {cpus} CPUs and {place.gpus:g} GPUs, "
            f"but the cluster has {result}"
        )
    return place
