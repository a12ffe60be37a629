"""Plain engine: one module after another, the usual way. Slow; the oracle of all others."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call

from intarsia.objectives import loss
from intarsia.training.engines.base import BETAS, EPSILON, Engine, Scores, Slot, Start
from intarsia.training.job import Job


class PlainEngine(Engine):
    """Autograd, unfused Adam, and the mask multiplied in after every step."""

    name = "plain"

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
            first, second, steps = adam_state(start, parameters, self.job.device)
            self.optimisers.append(adam(parameters, first, second, steps, fused=False))
            slots.append(Slot(parameters, values, first, second, steps))
        self.masks = [{n: m.to(self.job.device) for n, m in start.mask.items()} for start in starts]
        return slots

    def epoch(
        self, round_: int, epoch: int, rates: Sequence[float], active: Sequence[bool]
    ) -> Tensor:
        orders = self.orders(round_, epoch)
        totals = torch.zeros(len(self.slots))
        for k, slot in enumerate(self.slots):
            if not active[k]:
                continue
            torch.manual_seed(self.dropout_stream(k, round_, epoch))
            task = self.job.tasks[k]
            steps = self.job.steps(task)
            for indices in orders[self.job.group(task)].split(self.job.batch)[:steps]:
                totals[k] += self._step(k, slot, indices, rates[k])
            totals[k] /= steps
        return totals

    def _step(self, k: int, slot: Slot, indices: Tensor, rate: float) -> float:
        job, optimiser = self.job, self.optimisers[k]
        optimiser.param_groups[0]["lr"] = rate
        job.network.train()
        optimiser.zero_grad()
        logits = functional_call(job.network, slot.current, (job.x[indices],))
        own = None if job.sample_weight is None else job.sample_weight[indices]
        value = loss(logits, job.y[indices], self.on_device[k], job.temperature, own)
        value.backward()
        optimiser.step()
        with torch.no_grad():
            for name, mask in self.masks[k].items():
                slot.parameters[name] *= mask
        return float(value.detach())

    def validate(self) -> Scores:
        self.job.network.eval()
        with torch.no_grad():
            rows = [
                self.objectives.scores(
                    partial(self._logits, slot.current),
                    (self.job.x_validation, self.job.y_validation),
                    self.job.temperature,
                    slice(k, k + 1),
                )
                for k, slot in enumerate(self.slots)
            ]
        return join_scores(rows)

    def _logits(self, state: dict[str, Tensor], x: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.job.network, state, (x,))
        return logits[None]


def adam_state(
    start: Start, parameters: dict[str, Tensor], device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Tensor]]:
    """Adam's moments and step counts of a module at the start of a round."""

    def moments(given: dict[str, Tensor] | None) -> dict[str, Tensor]:
        if given is None:
            return {n: torch.zeros_like(p, requires_grad=False) for n, p in parameters.items()}
        values = {n: given[n].to(device).clone() for n in parameters}
        for name, mask in start.mask.items():  # a pruned weight must not be moved by old moments
            values[name].masked_fill_(~mask.to(device), 0)
        return values

    steps = [torch.tensor(float(start.step), device=device) for _ in parameters]
    return moments(start.first), moments(start.second), steps


def adam(
    parameters: dict[str, Tensor],
    first: dict[str, Tensor],
    second: dict[str, Tensor],
    steps: list[Tensor],
    *,
    fused: bool,
    rate: float | Tensor = 1e-3,
) -> torch.optim.Adam:
    """torch's Adam over these parameters, its state laid in our tensors."""
    optimiser = torch.optim.Adam(
        list(parameters.values()),
        lr=rate,
        betas=BETAS,
        eps=EPSILON,
        fused=fused,
        foreach=False,
        capturable=fused and steps[0].is_cuda,
    )
    for (name, parameter), step in zip(parameters.items(), steps, strict=True):
        optimiser.state[parameter] = {
            "step": step,
            "exp_avg": first[name],
            "exp_avg_sq": second[name],
        }
    return optimiser


def join_scores(rows: Sequence[Scores]) -> Scores:
    """The scores of several parts of a bank as one."""
    return Scores(
        accuracy=torch.cat([r.accuracy for r in rows]),
        entropy=torch.cat([r.entropy for r in rows]),
        loss=torch.cat([r.loss for r in rows]),
    )
