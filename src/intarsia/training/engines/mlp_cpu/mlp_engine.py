"""Mlp engine for the CPU: gradients written out by hand, one module per core, compacted."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from intarsia.models import Mlp, Wiring
from intarsia.training.engines.base import Engine, Scores, Slot, Start, join_scores
from intarsia.training.engines.compaction import Compaction, compaction_of, inputs_in_use
from intarsia.training.engines.mlp_cpu.hand_mlp import HandMlp
from intarsia.training.engines.mlp_cpu.workers import WORTH, Arena, Workers
from intarsia.training.job import Job
from intarsia.training.settings.optimisers import OptimiserState
from intarsia.training.settings.schedules import LearningRate, LearningRates

Values = dict[str, Tensor]

FEWER = 0.75  # fraction of the inputs in use below which a module gets samples of its own


class MlpEngine(Engine):
    """Trains `models.Mlp` networks, as many at a time as torch has threads."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        assert isinstance(job.network, Mlp)
        self.dropout = job.network.dropout
        self.x, self.x_validation = job.x.flatten(1), job.x_validation.flatten(1)
        self.in_use = inputs_in_use(job)
        self.threads = threads_each()
        self.workers: Workers | None = None

    def begin(self, starts: Sequence[Start], epochs: int = 1) -> None:
        self.close()
        super().begin(starts, epochs)
        count = min(torch.get_num_threads(), len(starts))
        size = sum(t.numel() for slot in self.slots for t in slot.parameters.values())
        if count > 1 and size * len(self.job.y) * epochs > WORTH and Workers.possible():
            self.workers = Workers(count, self._serve)

    def close(self) -> None:
        if self.workers is not None:
            self.workers.close()
            self.workers = None

    def _slots(self, starts: list[Start]) -> list[Slot]:
        assert self.job.wiring is not None
        wiring = self.job.wiring
        self.compactions = [
            _compaction(wiring, start, in_use)
            for start, in_use in zip(starts, self.in_use, strict=True)
        ]
        small = [_take(c, start) for c, start in zip(self.compactions, starts, strict=True)]
        step = torch.zeros(1)
        copies = 1 + len(self.optimiser.moments)
        arena = Arena(sum(Arena.room([*s.state.values()] * copies + [step]) for s in small))
        slots = [self._slot(start, arena) for start in small]
        self.networks = [
            HandMlp(slot, start.mask, self.dropout, self.job.temperature)
            for slot, start in zip(slots, small, strict=True)
        ]
        self.inputs = self._inputs()
        return slots

    def _slot(self, start: Start, arena: Arena) -> Slot:
        """The tensors of a module in memory that workers share; one count of steps is enough."""

        def copied(values: Values) -> Values:
            return {n: arena.copy(t) for n, t in values.items()}

        moments = self.optimiser.moments
        own = OptimiserState.begin(moments, start.state, start.mask, start.optimiser)
        steps = [arena.copy(own.steps[0].reshape(1))[0]]
        shared = {name: copied(values) for name, values in own.moments.items()}
        return Slot(copied(start.state), {}, OptimiserState(shared, steps))

    def _inputs(self) -> list[tuple[Tensor, Tensor]]:
        """Samples with the columns that each module reads; shared where these are the same."""
        shared: dict[bytes, tuple[Tensor, Tensor]] = {}
        inputs = []
        for compaction in self.compactions:
            columns = compaction.keep["input"]
            key = columns.numpy().tobytes()
            if key not in shared:
                shared[key] = (_columns(self.x, columns), _columns(self.x_validation, columns))
            inputs.append(shared[key])
        return inputs

    def _full(self, k: int, values: Values, base: Values) -> Values:
        return self.compactions[k].put(values, base)

    def epoch(
        self, round_: int, epoch: int, learning_rates: LearningRates, active: Sequence[bool]
    ) -> Tensor:
        calls = [
            ("train", k, round_, epoch, learning_rate)
            for k, learning_rate in enumerate(learning_rates)
            if active[k]
        ]
        losses = torch.zeros(len(learning_rates))
        for call, loss in zip(calls, self._call(calls), strict=True):
            losses[call[1]] = loss
        return losses

    def validate(self) -> Scores:
        return join_scores(self._call([("validate", k) for k in range(len(self.slots))]))

    def _call(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        if self.workers is not None:
            return self.workers.map(calls)
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        torch.set_flush_denormal(True)  # as the workers do
        try:
            return [self._serve(*call) for call in calls]
        finally:
            torch.set_flush_denormal(False)
            torch.set_num_threads(before)

    def _serve(self, what: str, k: int, *arguments: Any) -> Any:
        """What a worker does for one module."""
        return self._train(k, *arguments) if what == "train" else self._validate(k)

    def _train(self, k: int, round_: int, epoch: int, learning_rate: LearningRate) -> float:
        job, task = self.job, self.job.tasks[k]
        order = job.order(task, round_, epoch)
        batches = order[: job.steps(task) * job.batch].split(job.batch)
        draw = torch.Generator().manual_seed(self.dropout_stream(k, round_, epoch))
        return self.networks[k].epoch(
            self.inputs[k][0], job.y, batches, self.objectives, k, learning_rate, draw
        )

    def _validate(self, k: int) -> Scores:
        return self._scores(self.networks[k].logits, self.inputs[k][1], slice(k, k + 1))


def threads_each() -> int:
    """How many threads share the work on one module.

    One wherever modules can be spread over cores by processes, also for a module alone, so that it
    has the same bits in every bank and with any number of threads.
    """
    return 1 if Workers.possible() else torch.get_num_threads()


def _compaction(wiring: Wiring, start: Start, in_use: Tensor) -> Compaction:
    """Units always go; inputs only in numbers that pay for a copy of the samples."""
    compaction = compaction_of(wiring, start, in_use)
    if start.optimiser is None and len(compaction.keep["input"]) > FEWER * int(in_use.sum()):
        compaction.keep["input"] = in_use.nonzero().flatten()
    return compaction


def _take(compaction: Compaction, start: Start) -> Start:
    """The part of a start that trains; kept moments come with all units, see `compaction_of`."""
    state, mask = compaction.take(start.state), compaction.take(start.mask)
    return Start(state, mask, start.optimiser)


def _columns(x: Tensor, columns: Tensor) -> Tensor:
    return x if len(columns) == x.shape[1] else x.index_select(1, columns)
