"""Job: a training plan on a device, and which samples each module of the bank sees there."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from intarsia.data import Data, Scaling
from intarsia.data.augmentations import (
    augmented,
    check_augmentations,
    draw_numbers,
    read_augmentations,
)
from intarsia.data.negatives import (
    Pool,
    look_at_own,
    make_pools,
    pools_of,
    read_negatives,
    weigh_pools,
)
from intarsia.errors import DataError, RecipeError, TrainingError
from intarsia.files import stream
from intarsia.models import Lenet, Mlp
from intarsia.models.custom.trial import input_dtype
from intarsia.models.unit_activations import unit_activations
from intarsia.models.wiring import Wiring
from intarsia.specs import Spec
from intarsia.training.plan import TrainingPlan
from intarsia.training.settings.batches import read_batches
from intarsia.training.settings.optimisers import OPTIMISERS
from intarsia.training.settings.schedules import SCHEDULES
from intarsia.training.settings.trainable import still_layers
from intarsia.training.tasks import Task, drawn_others, order_of

LOOKED_AT = 512  # samples whose activations a pruning may compare
ADAM, CONSTANT = Spec("adam"), Spec("constant")  # what a recipe has if it says nothing


class BatchGroup(NamedTuple):
    """Modules of one group see the same batches: one seed, one set of hidden labels, one pool."""

    seed: int
    hidden: tuple[int, ...]  # labels whose samples are passed over
    pool: int = 0  # of negatives without a class
    own: tuple[int, ...] = ()  # the rewarded labels, where modules have orders of their own
    others: float = math.inf  # samples of other labels in an epoch, for each of its own


@dataclass(frozen=True, eq=False)
class Job:
    """What a bank trains on: the network's form, the tasks, and data that lie on the device.

    Behind the N rows of the data lie the pools of made negatives, one for every set of labels that
    is hidden from some module; the rows of pool p have label C + p. All pools have equally many
    rows, unless modules train `apart`: then each has a pool and an order of samples of its own,
    which depend on nothing that it does not see.
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
    pools: tuple[Pool, ...] = ()  # what each was made from
    sample_weight: Tensor | None = None  # N and the pools; multiplies the label's
    optimiser: Spec = ADAM
    schedule: Spec = CONSTANT  # of the learning rate, which comes with every epoch
    augment: tuple[Spec, ...] = ()
    changes: bool = False  # of a base: what a mask takes stays where it starts, and is not 0
    frozen: tuple[str, ...] = ()  # parameters that stay where they start, from the first round on
    still: tuple[str, ...] = ()  # normalisations that keep their running statistics
    apart: bool = False  # no module's samples or their order depend on what it does not see
    precision: str = "float32"  # of products; weights, losses and statistics stay float32
    scaling: Scaling | None = None  # of x, where it holds raw bytes; None where x is scaled

    @classmethod
    def of(cls, plan: TrainingPlan, device: torch.device) -> "Job":
        """Put what a plan asks for on a device, and make the negatives that it wants."""
        recipe, data = plan.recipe, plan.data
        assert recipe.temperature is not None and recipe.batch is not None
        wiring, network = plan.wiring, plan.network.to(device)
        dtype = _input_dtype(network, data)
        still = still_layers(network, recipe.trainable, plan.frozen) if plan.frozen else ()
        frozen = plan.frozen
        if plan.low_rank is not None:  # whose frozen parameters are none, and which is not pruned
            network, wiring, frozen = plan.low_rank.to(device), None, ()
            still = tuple(f"network.{path}" for path in still)
        sources = read_negatives(recipe.negatives)
        bytes_ = data.train.x.dtype == torch.uint8 and dtype == torch.float32
        raw = bytes_ and not sources and reads_batches(network)
        rows = data.train.x if raw else data.scaling(data.train.x).to(dtype=dtype)
        x, y = rows.to(device), data.train.y.to(device)
        weight = None if plan.sample_weight is None else plan.sample_weight.to(device)
        augment = tuple(read_augmentations(recipe.augment))
        check_augmentations(augment, data.shape)
        hides = recipe.visibility is not None
        apart = hides or look_at_own(sources)
        pools = pools_of(_pool(t, apart) for t in plan.tasks) if sources else ()
        if sources:
            given = None if data.public is None else data.scaling(data.public).to(device, dtype)
            made, labels = make_pools(sources, x, y, pools, data.classes, given, apart=hides)
            if weight is not None:
                more = weigh_pools(weight, y, pools, labels, data.classes)
                weight = torch.cat([weight, more])
            x, y = torch.cat([x, made]), torch.cat([y, labels])
        job = cls(
            network=network,
            wiring=wiring,
            tasks=plan.tasks,
            x=x,
            y=y,
            x_validation=data.scaling(data.validation.x).to(device, dtype),
            y_validation=data.validation.y.to(device),
            batch=min(recipe.batch, len(data.train)),
            temperature=recipe.temperature,
            batches="all" if read_batches(recipe.batches).hidden else "shown",
            pools=pools,
            sample_weight=weight,
            optimiser=OPTIMISERS.spec(recipe.optimiser or ADAM),
            schedule=SCHEDULES.spec(recipe.schedule or CONSTANT),
            augment=augment,
            changes=plan.base is not None,
            frozen=frozen,
            still=still,
            apart=apart,
            precision=recipe.precision or "float32",
            scaling=data.scaling.to(device) if raw else None,
        )
        job._check_batches()
        return job

    def _check_batches(self) -> None:
        """BatchNorm needs more than one sample to compare."""
        if not any(isinstance(layer, _BatchNorm) for layer in self.network.modules()):
            return
        for task in self.tasks:
            if self.size(task) < 2:
                raise RecipeError(
                    "a network with BatchNorm needs batches of at least 2 samples, got 1 "
                    f"for module {task.name!r}"
                )

    @property
    def device(self) -> torch.device:
        return self.x.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the losses: the inputs' precision, or float32 where they are whole numbers."""
        return self.x.dtype if self.x.is_floating_point() else torch.float32

    def autocast(self) -> AbstractContextManager[Any]:
        """Runs the network in the job's precision. Nothing is kept: a recorded step casts anew."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def training_mode(self) -> None:
        """The network as it trains: only what stands still is in evaluation mode."""
        self.network.train()
        self.in_same_mode(self.network)

    def in_same_mode(self, network: nn.Module) -> None:
        """Another form of the network as it trains, or as it answers, whichever this one does."""
        network.train(self.network.training)
        for path in self.still:
            network.get_submodule(path).eval()

    def first_mask(self) -> dict[str, Tensor]:
        """The mask before any pruning: nothing of what is frozen, on the CPU."""
        shapes = {name: p.shape for name, p in self.network.named_parameters()}
        return {name: torch.zeros(shapes[name], dtype=torch.bool) for name in self.frozen}

    @cached_property
    def rows(self) -> int:
        """Rows of the data, without made negatives."""
        return int((self.y < self.tasks[0].objective.classes).sum()) if self.pools else len(self.y)

    @cached_property
    def sizes(self) -> list[int]:
        """Rows of each pool."""
        return self.counts[self.tasks[0].objective.classes :]

    @cached_property
    def counts(self) -> list[int]:
        """Samples of each label."""
        labels = self.tasks[0].objective.classes + len(self.pools)
        counts: list[int] = torch.bincount(self.y, minlength=labels).tolist()
        return counts

    def group(self, task: Task) -> BatchGroup:
        hidden = task.hidden if self.batches == "shown" else ()
        pool = self.pools.index(_pool(task, self.apart)) if self.pools else 0
        if not self.pools and sum(self.counts[label] for label in hidden) == len(self.y):
            hidden = ()  # no sample counts: the epoch moves nothing, whatever it passes over
        if self.apart or math.isfinite(task.others):
            return BatchGroup(task.seed, hidden, pool, task.indices, task.others)
        return BatchGroup(task.seed, hidden, pool)

    def order(self, task: Task, round_: int, epoch: int) -> Tensor:
        """The samples of a module's epoch, in order, on the device."""
        group = self.group(task)
        return self.orders([group], round_, epoch)[group]

    def orders(
        self, groups: Sequence[BatchGroup], round_: int, epoch: int
    ) -> dict[BatchGroup, Tensor]:
        """The samples of an epoch in order, by group; those of one seed are drawn as one."""
        seeds = dict.fromkeys(group.seed for group in groups if not group.own)
        drawn = {seed: self.drawn(seed, round_, epoch) for seed in seeds}
        return {
            group: self._drawn_apart(group, round_, epoch)
            if group.own
            else self.seen(drawn[group.seed], group)
            for group in groups
        }

    def drawn(self, seed: int, round_: int, epoch: int) -> Tensor:
        """An epoch's order of the rows of the data and of one pool, whichever it is."""
        order = order_of(seed, round_, epoch, self.rows + max(self.sizes, default=0))
        return order.to(self.device)

    def numbers(self, seed: int, round_: int, epoch: int) -> Tensor | None:
        """An epoch's random numbers for the rows of the data and of one pool, to augment them."""
        if not self.augment:
            return None
        rows = self.rows + max(self.sizes, default=0)
        return draw_numbers(self.augment, rows, seed, round_, epoch).to(self.device)

    def inputs(self, indices: Tensor, numbers: Tensor | None) -> Tensor:
        """The rows of a batch, augmented with their `numbers` of this epoch.

        Indices G, B give G * B rows, one batch after another; each has the same numbers, or there
        are G sets of them.
        """
        x = self.x[indices.flatten()]
        if self.scaling is not None:
            x = self.scaling(x)
        if numbers is None:
            return x
        places = self._numbered[indices]
        if numbers.dim() == 2:
            random = numbers[places.flatten()]
        else:
            each = torch.arange(len(numbers), device=places.device)[:, None]
            random = numbers[each, places].flatten(0, 1)
        return augmented(x, self.augment, random)

    @cached_property
    def _numbered(self) -> Tensor:
        """Where the numbers of every row lie; all pools share those behind the data's."""
        pools = [self.rows + torch.arange(size) for size in self.sizes]
        return torch.cat([torch.arange(self.rows), *pools]).to(self.device)

    def activations(self, task: Task, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the hidden units of a module answer to samples that it may see, evenly spaced."""
        assert self.wiring is not None
        group = self.group(task)._replace(hidden=task.hidden, pool=0)
        rows = self.seen(torch.arange(self.rows, device=self.device), group)
        count = min(len(rows), LOOKED_AT)
        some = rows[torch.arange(count, device=self.device) * len(rows) // max(1, count)]
        values = {name: tensor.to(self.device) for name, tensor in state.items()}
        return unit_activations(self.network, values, self.inputs(some, None), self.wiring)

    def _drawn_apart(self, group: BatchGroup, round_: int, epoch: int) -> Tensor:
        """An epoch's order of what a group sees, which nothing else has a part in."""
        first = self.rows + sum(self.sizes[: group.pool])
        size = self.sizes[group.pool] if self.pools else 0
        pool = torch.arange(first, first + size, device=self.device)
        rows = self.seen(torch.arange(self.rows, device=self.device), group._replace(pool=0))
        mine = torch.isin(self.y[rows], torch.tensor(group.own, device=self.device))
        own, others = rows[mine], rows[~mine]
        most = drawn_others(group.others, len(own), len(others))
        if most < len(others):
            draw = torch.Generator().manual_seed(stream("others", group.seed, round_, epoch))
            some = torch.randperm(len(others), generator=draw)[:most]
            others = others[some.to(self.device)]
        places = torch.cat([own, others, pool])
        return places[order_of(group.seed, round_, epoch, len(places)).to(self.device)]

    def samples(self, task: Task) -> int:
        """How many samples an epoch of this module has in its order."""
        group = self.group(task)
        made = self.sizes[group.pool] if self.pools else 0
        seen = self.rows - sum(self.counts[label] for label in group.hidden)
        own = sum(self.counts[label] for label in group.own if label not in group.hidden)
        return made + own + drawn_others(group.others, own, seen - own)

    def size(self, task: Task) -> int:
        """Samples in a batch: fewer than `batch` only where there are no more."""
        return min(self.batch, self.samples(task))

    def steps(self, task: Task) -> int:
        """Batches in an epoch; what is left over of the shuffled samples waits for another."""
        return max(1, self.samples(task) // self.batch)

    def seen(self, order: Tensor, group: BatchGroup) -> Tensor:
        """The samples of a drawn order, on its device, that are not hidden from a group."""
        if group.pool:
            order = torch.where(order < self.rows, order, order + group.pool * self.sizes[0])
        if not group.hidden:
            return order
        shown = torch.ones(len(self.counts), dtype=torch.bool)
        shown[list(group.hidden)] = False
        return order[shown.to(order.device)[self.y[order]]]


def reads_batches(network: nn.Module) -> bool:
    """Whether engines ask for its inputs batch by batch; those of an Mlp and a Lenet hold x."""
    return not isinstance(network, Mlp | Lenet)


def _pool(task: Task, apart: bool) -> Pool:
    return Pool(task.hidden, task.indices if apart else ())


def device_of(name: str) -> torch.device:
    """The device of this name, tried out; `auto` is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        first = str(error).splitlines()[0]
        if "device type" in first or isinstance(error, TypeError):  # torch lists all that it knows
            first = "expected auto, cpu, cuda, or one GPU, such as cuda:1"
        raise TrainingError(f"device {name!r} cannot be used here: {first}") from error
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def _input_dtype(network: nn.Module, data: Data) -> torch.dtype:
    """What the network reads: float32, or whole numbers, which no scaling may have touched."""
    dtype = input_dtype(network, data.shape)
    if dtype == torch.int64 and data.scaling.kind != "none":
        raise DataError(
            f"{type(network).__name__} reads whole numbers, such as token ids, but {data.name!r} "
            f"is scaled ({data.scaling.kind!r}): load it with scale='none'"
        )
    return dtype
