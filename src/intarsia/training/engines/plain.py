"""Plain engine: one module after another, the usual way. Slow; the oracle of all others."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call

from intarsia.objectives import loss
from intarsia.training.engines.adam import AdamState, torch_adam
from intarsia.training.engines.base import Engine, Scores, Slot, Start, join_scores
from intarsia.training.job import Job


class PlainEngine(Engine):
    """Autograd, unfused Adam, and what the mask takes put back where it was after every step."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.on_device = [
            task.objective.with_classless(len(job.pools)).to(job.device) for task in job.tasks
        ]

    def _slots(self, starts: list[Start]) -> list[Slot]:
        self.optimisers: list[torch.optim.Adam] = []
        slots = []
        for start in starts:
            values = {n: t.to(self.job.device).clone() for n, t in start.state.items()}
            parameters = {n: values.pop(n).requires_grad_() for n in self.parameter_names}
            adam = AdamState.begin(parameters, start.mask, start.adam)
            self.optimisers.append(torch_adam(parameters, adam, fused=False))
            slots.append(Slot(parameters, values, adam))
        self.masks = [
            {
                n: (m.to(self.job.device), start.state[n].to(self.job.device).clone())
                for n, m in start.mask.items()
            }
            for start in starts
        ]
        return slots

    def epoch(
        self, round_: int, epoch: int, learning_rates: Sequence[float], active: Sequence[bool]
    ) -> Tensor:
        orders = self.orders(round_, epoch)
        numbers = self.numbers(round_, epoch)
        totals = torch.zeros(len(self.slots))
        for k, slot in enumerate(self.slots):
            if not active[k]:
                continue
            torch.manual_seed(self.dropout_stream(k, round_, epoch))
            task = self.job.tasks[k]
            steps = self.job.steps(task)
            for indices in orders[self.job.group(task)].split(self.job.batch)[:steps]:
                x = self.job.inputs(indices, numbers[task.seed])
                totals[k] += self._step(k, slot, x, indices, learning_rates[k])
            totals[k] /= steps
        return totals

    def _step(self, k: int, slot: Slot, x: Tensor, indices: Tensor, learning_rate: float) -> float:
        job, optimiser = self.job, self.optimisers[k]
        optimiser.param_groups[0]["lr"] = learning_rate
        job.training_mode()
        optimiser.zero_grad()
        with job.autocast():
            logits = functional_call(job.network, slot.current, (x,)).to(job.dtype)
        own = None if job.sample_weight is None else job.sample_weight[indices]
        value = loss(logits, job.y[indices], self.on_device[k], job.temperature, own)
        value.backward()
        optimiser.step()
        with torch.no_grad():
            for name, (mask, first) in self.masks[k].items():
                slot.parameters[name].copy_(torch.where(mask, slot.parameters[name], first))
        return float(value.detach())

    def validate(self) -> Scores:
        self.job.network.eval()
        x = self.job.x_validation
        with torch.no_grad():
            rows = [
                self._scores(partial(self._logits, slot.current), x, slice(k, k + 1))
                for k, slot in enumerate(self.slots)
            ]
        return join_scores(rows)

    def _logits(self, state: dict[str, Tensor], x: Tensor) -> Tensor:
        with self.job.autocast():
            logits: Tensor = functional_call(self.job.network, state, (x,))
        return logits.to(self.job.dtype)[None]
