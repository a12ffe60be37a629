"""Engine: trains the K modules of a bank, one epoch at a time; what is common to all engines."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from intarsia.files import stream
from intarsia.training.job import BatchGroup, Job
from intarsia.training.settings.optimisers import OPTIMISERS, Optimiser, OptimiserState
from intarsia.training.settings.schedules import LearningRates
from intarsia.training.tasks import Task


@dataclass
class Start:
    """Where a module begins a round: rewound weights, its mask, and moments if they live on."""

    state: dict[str, Tensor]  # parameters and buffers, pruned entries 0, or a base's
    mask: dict[str, Tensor] = field(default_factory=dict)
    optimiser: OptimiserState | None = None
    changes: bool = False  # of a base: what the mask takes is not 0, it stays where it is

    def kept(self, name: str) -> Tensor:
        """What survives of a parameter: all of it where it has no mask."""
        return self.mask.get(name, torch.ones_like(self.state[name], dtype=torch.bool))


@dataclass
class Slot:
    """The tensors of one module while it trains."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    optimiser: OptimiserState
    best: dict[str, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.best = {n: t.detach().clone() for n, t in self.current.items()}

    @property
    def current(self) -> dict[str, Tensor]:
        return {**self.parameters, **self.buffers}

    def tensors(self) -> dict[str, Tensor]:
        """All of it under one flat set of names."""
        parts = {
            "now": self.current,
            **self.optimiser.moments,
            "best": self.best,
        }
        flat = {f"{part}/{n}": t for part, values in parts.items() for n, t in values.items()}
        return {**flat, "step": self.optimiser.steps[0]}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over some or all of what `tensors` gave at another time."""
        with torch.no_grad():
            for name, own in self.tensors().items():
                if name in tensors:
                    own.copy_(tensors[name])
            for step in self.optimiser.steps if "step" in tensors else ():
                step.copy_(tensors["step"])


def slots_of(
    parameters: dict[str, Tensor],
    buffers: dict[str, Tensor],
    state: OptimiserState,
    steps: Sequence[list[Tensor]],
) -> list[Slot]:
    """The slots of modules that are stacked on a leading axis, as views; `steps` of each."""

    def row(values: dict[str, Tensor], k: int) -> dict[str, Tensor]:
        return {n: t.detach()[k] for n, t in values.items()}

    return [
        Slot(
            row(parameters, k),
            row(buffers, k),
            OptimiserState({name: row(m, k) for name, m in state.moments.items()}, own),
        )
        for k, own in enumerate(steps)
    ]


class Scores(NamedTuple):
    """What validation measures of K modules."""

    accuracy: Tensor  # K, rewarded
    entropy: Tensor  # K, non-rewarded; nan where it sees no other class
    loss: Tensor  # K

    def row(self, k: int) -> dict[str, float]:
        return {name: float(values[k]) for name, values in self._asdict().items()}


class Engine(ABC):
    """Trains K modules; subclasses say how an epoch runs and how logits are made."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.slots: list[Slot] = []
        self.optimiser: Optimiser = OPTIMISERS.call(job.optimiser)
        self.parameter_names = [n for n, _ in job.network.named_parameters()]
        # neither biases nor normalisations
        self.decayed = [n for n, p in job.network.named_parameters() if p.dim() > 1]
        self.objectives = ObjectiveStack(job.tasks, job.x, len(job.pools), job.sample_weight)

    def begin(self, starts: Sequence[Start], epochs: int = 1) -> None:
        """Take up a round of so many epochs from these states and masks."""
        self.starts = list(starts)
        self.slots = self._slots(self.starts)

    @abstractmethod
    def _slots(self, starts: list[Start]) -> list[Slot]:
        """The tensors of all modules, as this engine wants them."""

    @abstractmethod
    def epoch(
        self, round_: int, epoch: int, learning_rates: LearningRates, active: Sequence[bool]
    ) -> Tensor:
        """Run one epoch; returns each module's mean training loss. Inactive modules stand still."""

    @abstractmethod
    def validate(self) -> Scores:
        """Scores of all modules on the validation samples."""

    def _scores(self, logits: Callable[[Tensor], Tensor], x: Tensor, rows: slice) -> Scores:
        """Of the modules in `rows`, whose `logits` map the validation samples x to G, N, O."""
        samples = (x, self.job.y_validation)
        return self.objectives.scores(logits, samples, self.job.temperature, rows)

    def keep(self, which: Sequence[int]) -> None:
        """Make the current weights of these modules their checkpoint."""
        with torch.no_grad():
            for k in which:
                slot = self.slots[k]
                for name, value in slot.current.items():
                    slot.best[name].copy_(value)

    def best(self, k: int) -> dict[str, Tensor]:
        """The checkpoint of module k as a full state, on the CPU."""
        start = self.starts[k]
        full = self._full(k, self.slots[k].best, start.state)
        best = {n: _plain(t) for n, t in full.items()}
        if start.changes:  # to the last bit, whatever an engine does to numbers next to 0
            for name, mask in start.mask.items():
                best[name] = torch.where(mask.cpu(), best[name], start.state[name].cpu())
        return best

    def moments(self, k: int) -> OptimiserState:
        """The optimiser's state of module k on the CPU, for a round that keeps it."""
        state = self.slots[k].optimiser
        zeros = {n: torch.zeros_like(self.starts[k].state[n]) for n in self.parameter_names}
        moments = {
            name: {n: _plain(t) for n, t in self._full(k, values, zeros).items()}
            for name, values in state.moments.items()
        }
        return OptimiserState(moments, [state.steps[0].cpu().clone()])

    def _full(
        self, k: int, values: dict[str, Tensor], base: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Values in the network's own shapes; engines that compact put them into the base."""
        return values

    def orders(self, round_: int, epoch: int) -> dict[BatchGroup, Tensor]:
        """Sample order of every group in the bank, on the device."""
        return self.job.orders(sorted({self.job.group(t) for t in self.job.tasks}), round_, epoch)

    def numbers(self, round_: int, epoch: int) -> dict[int, Tensor | None]:
        """The random numbers of every seed's epoch, to augment its samples; None where none are."""
        seeds = dict.fromkeys(task.seed for task in self.job.tasks)
        return {seed: self.job.numbers(seed, round_, epoch) for seed in seeds}

    def dropout_stream(self, k: int, round_: int, epoch: int) -> int:
        task = self.job.tasks[k]
        return stream("dropout", task.seed, *task.rewarded, round_, epoch)

    def seed_dropout(self, k: int, round_: int, epoch: int) -> None:
        """What dropout draws from here on is that of this module in this epoch."""
        seed = self.dropout_stream(k, round_, epoch)
        if self.job.device.type == "cpu":
            # torch.manual_seed would keep a printed stack for every accelerator that is not in use.
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def close(self) -> None:  # noqa: B027 (most engines hold nothing)
        """Give back what the engine holds beyond tensors."""


def _plain(tensor: Tensor) -> Tensor:
    """A copy on the CPU, in the usual order whatever the engine's."""
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


class ObjectiveStack:
    """The objectives of K modules, stacked, and the sums that their scores are made of."""

    def __init__(
        self,
        tasks: Sequence[Task],
        like: Tensor,
        pools: int = 0,
        sample_weight: Tensor | None = None,
    ) -> None:
        """`like` has the device and the precision of the training data.

        With `pools` the tables have a row for each pool of negatives without a class.
        """
        if not like.is_floating_point():
            like = like.new_zeros((), dtype=torch.get_default_dtype())
        self.classes = tasks[0].objective.classes
        self.sample_weight = sample_weight  # one per training sample, times the label's
        objectives = [t.training_objective.with_classless(pools) for t in tasks]
        self.table = torch.stack([g.table for g in objectives]).to(like)  # K, C, O
        self.weight = torch.stack([g.weight for g in objectives]).to(like)  # K, C; of batches
        scored = [t.objective.with_classless(pools).weight for t in tasks]
        self.scored_weight = torch.stack(scored).to(like)  # K, C; of samples that nobody drew
        self.bonus = torch.stack([g.bonus for g in objectives]).to(like)  # K, C
        self.has_bonus = bool(self.bonus.any())
        self.rewarded = torch.zeros(self.weight.shape, dtype=torch.bool, device=like.device)  # K, C
        self.seen = torch.ones_like(self.rewarded)  # K, C; samples of other labels are not asked
        for k, task in enumerate(tasks):
            self.rewarded[k, list(task.indices)] = True
            self.seen[k, list(task.unseen)] = False

    def losses(
        self,
        logits: Tensor,
        labels: Tensor,
        temperature: float,
        rows: slice,
        indices: Tensor | None = None,
    ) -> Tensor:
        """Weighted mean loss per module; logits G, N, O for the modules in `rows`.

        Labels are N, or G, N where each module has samples of its own. `indices` are their places
        among the training samples, for weights of their own.
        """
        log_p = torch.log_softmax(logits / temperature, -1)
        losses = self._sample_losses(log_p, labels, rows)
        weights = _of_labels(self.weight[rows], labels)
        if self.sample_weight is not None and indices is not None:
            weights = weights * self.sample_weight[indices]
        total = weights.sum(-1).clamp_min(torch.finfo(weights.dtype).tiny)
        return (losses * weights).sum(-1) / total

    def _sample_losses(self, log_p: Tensor, labels: Tensor, rows: slice) -> Tensor:
        losses = -(_of_labels(self.table[rows], labels) * log_p).sum(-1)  # G, N
        if self.has_bonus:
            bonus = _of_labels(self.bonus[rows], labels)
            losses = losses + bonus * (log_p.exp() * log_p).sum(-1)
        return losses

    def scores(
        self,
        logits: Callable[[Tensor], Tensor],
        samples: tuple[Tensor, Tensor],
        temperature: float,
        rows: slice,
    ) -> Scores:
        """Scores on samples (x, y) of the modules in `rows`; `logits` maps x to G, N, O."""
        classes = self.classes
        sums = torch.zeros(
            6, self.table[rows].shape[0], dtype=torch.float64, device=samples[1].device
        )
        most = 4096 if samples[0].dim() == 2 else 512
        size = max(1, samples[0][0].numel())  # inputs that are constant are left out, maybe all
        chunk = max(64, min(most, 2**28 // (sums.shape[1] * size)))
        for x, y in zip(*(s.split(chunk) for s in samples), strict=True):
            log_p = torch.log_softmax(logits(x) / temperature, -1)
            losses = self._sample_losses(log_p, y, rows)
            if log_p.shape[-1] > classes:  # the mass of "other" spreads evenly over the catalogue
                p = log_p.exp()
                log_p = (p[..., :classes] + p[..., classes:] / classes).log()
            entropy = -(log_p.exp() * log_p.clamp_min(-1e4)).sum(-1)
            right = (log_p.argmax(-1) == y).double()
            mine = self.rewarded[rows][:, y].double()
            weight = self.scored_weight[rows][:, y].double()
            others = (self.seen & ~self.rewarded)[rows][:, y].double()
            sums += torch.stack(
                [
                    (right * mine).sum(-1),
                    mine.sum(-1),
                    (entropy * others).sum(-1),
                    others.sum(-1),
                    (losses * weight).sum(-1),
                    weight.sum(-1),
                ]
            )
        means = (sums[::2] / sums[1::2]).cpu()
        return Scores(*means)


def _of_labels(values: Tensor, labels: Tensor) -> Tensor:
    """Rows of G, C, ... for labels N, or G, N."""
    if labels.dim() == 1:
        return values[:, labels]
    modules = torch.arange(len(values), device=values.device)
    return values[modules[:, None], labels]


def join_scores(parts: Sequence[Scores]) -> Scores:
    """The scores of several parts of a bank as one."""
    return Scores(*map(torch.cat, zip(*parts, strict=True)))
