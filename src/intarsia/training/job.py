"""Job: what a bank trains on, and which samples each of its modules sees."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from intarsia.models.wiring import Wiring
from intarsia.training.tasks import Task, order_of


class Group(NamedTuple):
    """Modules of one group see the same batches: one seed, one set of hidden labels, one pool."""

    seed: int
    hidden: tuple[int, ...]  # labels whose samples are passed over
    pool: int = 0  # of negatives without a class


@dataclass(frozen=True, eq=False)
class Job:
    """What a bank trains on: the network's form, the tasks, and data resident on the device.

    Behind the N rows of the data lie the pools of made negatives, one for every set of labels that
    is hidden from some module, equally many rows in each; the rows of pool p have label C + p.
    """

    network: nn.Module
    wiring: Wiring | None
    tasks: Sequence[Task]
    x: Tensor  # N and the pools, *shape; scaled
    y: Tensor  # N and the pools
    x_validation: Tensor
    y_validation: Tensor
    batch: int
    temperature: float
    batches: str = "all"  # of all samples, or of the `shown` ones of each module
    pools: tuple[tuple[int, ...], ...] = ()  # the hidden labels that each pool was made without
    sample_weight: Tensor | None = None  # N and the pools; multiplies the label's

    @property
    def device(self) -> torch.device:
        return self.x.device

    @cached_property
    def rows(self) -> int:
        """Rows of the data, without made negatives."""
        return int((self.y < self.tasks[0].objective.classes).sum()) if self.pools else len(self.y)

    @cached_property
    def size_of_pool(self) -> int:
        return (len(self.y) - self.rows) // len(self.pools) if self.pools else 0

    @cached_property
    def counts(self) -> list[int]:
        """Samples of each label."""
        labels = self.tasks[0].objective.classes + len(self.pools)
        counts: list[int] = torch.bincount(self.y, minlength=labels).tolist()
        return counts

    def group(self, task: Task) -> Group:
        hidden = task.hidden if self.batches == "shown" else ()
        pool = self.pools.index(task.hidden) if self.pools else 0
        if not self.pools and sum(self.counts[label] for label in hidden) == len(self.y):
            hidden = ()  # no sample counts: the epoch moves nothing, whatever it passes over
        return Group(task.seed, hidden, pool)

    def order(self, task: Task, round_: int, epoch: int) -> Tensor:
        """The samples of a module's epoch, in order, on the device."""
        return self.seen(self.drawn(task.seed, round_, epoch), self.group(task))

    def drawn(self, seed: int, round_: int, epoch: int) -> Tensor:
        """An epoch's order of the rows of the data and of one pool, whichever it is."""
        order = order_of(seed, round_, epoch, self.rows + self.size_of_pool)
        return order.to(self.device)

    def samples(self, task: Task) -> int:
        """How many samples an epoch of this module has in its order."""
        hidden = self.group(task).hidden
        return self.rows + self.size_of_pool - sum(self.counts[label] for label in hidden)

    def size(self, task: Task) -> int:
        """Samples in a batch: fewer than `batch` only where there are no more."""
        return min(self.batch, self.samples(task))

    def steps(self, task: Task) -> int:
        """Batches in an epoch; what is left over of the shuffled samples waits for another."""
        return max(1, self.samples(task) // self.batch)

    def seen(self, order: Tensor, group: Group) -> Tensor:
        """The samples of a drawn order, on its device, that are not hidden from a group."""
        if group.pool:
            order = torch.where(order < self.rows, order, order + group.pool * self.size_of_pool)
        if not group.hidden:
            return order
        shown = torch.ones(len(self.counts), dtype=torch.bool)
        shown[list(group.hidden)] = False
        return order[shown.to(order.device)[self.y[order]]]
