"""Mlp engine for the CPU: gradients written out by hand, one module per core, compacted."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from intarsia.models import Mlp
from intarsia.training.compaction import Compaction, compaction_of, used_inputs
from intarsia.training.engine import Engine, Job, Scores, Slot, Start
from intarsia.training.hand import HandMlp
from intarsia.training.plain import adam_state, join_scores

Result = TypeVar("Result")


class MlpEngine(Engine):
    """Trains `models.Mlp` networks, as many at a time as there are cores."""

    name = "mlp"

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        assert isinstance(job.network, Mlp)
        self.dropout = job.network.dropout
        self.x, self.x_validation = job.x.flatten(1), job.x_validation.flatten(1)
        self.used = used_inputs(self.x, self.x_validation)
        self.threads = torch.get_num_threads()
        self.workers = max(1, min(self.threads, len(job.tasks)))
        self.pool = ThreadPoolExecutor(self.workers, initializer=self._take_one_core)

    def _take_one_core(self) -> None:
        if self.workers > 1:  # cores are shared out among modules, not inside one
            torch.set_num_threads(1)

    def close(self) -> None:
        self.pool.shutdown()
        torch.set_num_threads(self.threads)

    def _slots(self, starts: list[Start]) -> list[Slot]:
        assert self.job.wiring is not None
        self.compactions: list[Compaction] = []
        self.networks: list[HandMlp] = []
        self.inputs: list[tuple[Tensor, Tensor]] = []
        shared: dict[bytes, tuple[Tensor, Tensor]] = {}
        slots = []
        for start in starts:
            small = compaction_of(self.job.wiring, start, self.used)
            parameters, mask = small.take(start.state), small.take(start.mask)
            kept = Start(parameters, mask, start.first, start.second, start.step)
            first, second, steps = adam_state(kept, parameters, self.job.device)
            slots.append(Slot(parameters, {}, first, second, steps[:1]))
            self.networks.append(HandMlp(slots[-1], mask, self.dropout, self.job.temperature))
            self.compactions.append(small)
            key = small.keep["input"].numpy().tobytes()
            if key not in shared:
                shared[key] = (
                    _columns(self.x, small.keep["input"]),
                    _columns(self.x_validation, small.keep["input"]),
                )
            self.inputs.append(shared[key])
        return slots

    def _full(
        self, k: int, values: dict[str, Tensor], base: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        return self.compactions[k].put(values, base)

    def epoch(
        self, round_: int, epoch: int, rates: Sequence[float], active: Sequence[bool]
    ) -> Tensor:
        orders = self.orders(round_, epoch)

        def one(k: int) -> float:
            if not active[k]:
                return 0.0
            job = self.job
            order = orders[job.tasks[k].seed][: job.steps * job.batch]
            draw = torch.Generator().manual_seed(self.dropout_stream(k, round_, epoch))
            return self.networks[k].epoch(
                self.inputs[k][0], job.y, order.split(job.batch), self.goals, k, rates[k], draw
            )

        return torch.tensor(self._each(one))

    def validate(self) -> Scores:
        def one(k: int) -> Scores:
            samples = (self.inputs[k][1], self.job.y_validation)
            logits = self.networks[k].logits
            return self.goals.scores(logits, samples, self.job.temperature, slice(k, k + 1))

        return join_scores(self._each(one))

    def _each(self, function: Callable[[int], Result]) -> list[Result]:
        return list(self.pool.map(function, range(len(self.slots))))


def _columns(x: Tensor, columns: Tensor) -> Tensor:
    return x if len(columns) == x.shape[1] else x.index_select(1, columns)
