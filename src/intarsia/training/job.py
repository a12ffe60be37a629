"""Job: what a bank trains on, and which samples each of its modules sees."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from intarsia.models.wiring import Wiring
from intarsia.training.tasks import Task


class Group(NamedTuple):
    """Modules of one group see the same batches: one seed, and one set of hidden labels."""

    seed: int
    hidden: tuple[int, ...]  # labels whose samples are passed over


@dataclass(frozen=True, eq=False)
class Job:
    """What a bank trains on: the network's form, the tasks, and data resident on the device."""

    network: nn.Module
    wiring: Wiring | None
    tasks: Sequence[Task]
    x: Tensor  # N, *shape; scaled
    y: Tensor  # N
    x_validation: Tensor
    y_validation: Tensor
    batch: int
    temperature: float
    batches: str = "all"  # of all samples, or of the `shown` ones of each module

    @property
    def device(self) -> torch.device:
        return self.x.device

    @cached_property
    def counts(self) -> list[int]:
        """Samples of each label."""
        classes = len(self.tasks[0].objective.weight)
        counts: list[int] = torch.bincount(self.y, minlength=classes).tolist()
        return counts

    def group(self, task: Task) -> Group:
        hidden = task.hidden if self.batches == "shown" else ()
        if sum(self.counts[label] for label in hidden) == len(self.y):
            hidden = ()  # no sample counts: the epoch moves nothing, whatever it passes over
        return Group(task.seed, hidden)

    def samples(self, task: Task) -> int:
        """How many samples an epoch of this module has in its order."""
        return len(self.y) - sum(self.counts[label] for label in self.group(task).hidden)

    def size(self, task: Task) -> int:
        """Samples in a batch: fewer than `batch` only where there are no more."""
        return min(self.batch, self.samples(task))

    def steps(self, task: Task) -> int:
        """Batches in an epoch; what is left over of the shuffled samples waits for another."""
        return max(1, self.samples(task) // self.batch)

    def seen(self, order: Tensor, group: Group) -> Tensor:
        """The samples of an order, on its device, that are not hidden from a group."""
        if not group.hidden:
            return order
        shown = torch.ones(len(self.counts), dtype=torch.bool)
        shown[list(group.hidden)] = False
        return order[shown.to(order.device)[self.y[order]]]
