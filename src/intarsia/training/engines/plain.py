"""Plain engine: one module after another, the usual way. Slow; the oracle of all others."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call

from intarsia.objectives import loss
from intarsia.training.engines.base import Engine, Scores, Slot, Start, join_scores
from intarsia.training.job import Job
from intarsia.training.settings.optimisers import OptimiserState
from intarsia.training.settings.schedules import LearningRates, each_batch


class PlainEngine(Engine):
    """Autograd, torch's optimisers, and what the mask takes put back after every step."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.on_device = [
            task.training_objective.with_classless(len(job.pools)).to(job.device)
            for task in job.tasks
        ]

    def _slots(self, starts: list[Start]) -> list[Slot]:
        self.optimisers: list[torch.optim.Optimizer] = []
        slots = []
        for start in starts:
            values = {n: t.to(self.job.device).clone() for n, t in start.state.items()}
            parameters = {n: values.pop(n).requires_grad_() for n in self.parameter_names}
            moments = self.optimiser.moments
            state = OptimiserState.begin(moments, parameters, start.mask, start.optimiser)
            self.optimisers.append(self.optimiser.reference(parameters, state))
            slots.append(Slot(parameters, values, state))
        self.masks = [
            {
                n: (m.to(self.job.device), start.state[n].to(self.job.device).clone())
                for n, m in start.mask.items()
            }
            for start in starts
        ]
        return slots

    def epoch(
        self, round_: int, epoch: int, learning_rates: LearningRates, active: Sequence[bool]
    ) -> Tensor:
        orders = self.orders(round_, epoch)
        numbers = self.numbers(round_, epoch)
        totals = torch.zeros(len(self.slots))
        for k, slot in enumerate(self.slots):
            if not active[k]:
                continue
            self.seed_dropout(k, round_, epoch)
            task = self.job.tasks[k]
            steps = self.job.steps(task)
            batches = orders[self.job.group(task)].split(self.job.batch)[:steps]
            rates = each_batch(learning_rates[k], len(batches))
            for indices, rate in zip(batches, rates, strict=True):
                x = self.job.inputs(indices, numbers[task.seed])
                totals[k] += self._step(k, slot, x, indices, rate)
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
        with torch.no_grad():
            for name in self.decayed if self.optimiser.decay else ():
                weight = slot.parameters[name]
                weight.sub_(learning_rate * self.optimiser.decay * weight)
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
