"""Stack engine: any nn.Module, in stacks of modules with the same batches and learning rate.

torch.vmap runs the forward of a whole stack at once; a stack of one is the network itself.
On CUDA a step is captured once as a graph and replayed.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from intarsia.training.engines.adam import AdamState, torch_adam
from intarsia.training.engines.base import Engine, Scores, Slot, Start, join_scores, slots_of
from intarsia.training.job import BatchGroup, Job

Values = dict[str, Tensor]


@dataclass
class Stack:
    """Modules `rows` of the bank on a leading axis."""

    rows: slice
    parameters: Values  # G, ...
    buffers: Values
    masks: Values  # of the parameters that have one
    grads: Values
    optimiser: torch.optim.Adam
    learning_rate: Tensor
    total: Tensor  # G, sum of the losses of an epoch
    indices: Tensor  # batch in hand
    numbers: Tensor | None  # of this epoch, to augment its samples
    leaves: list[Values] = field(default_factory=list)  # of each module, where they run apart
    rows_of_grads: list[Tensor] = field(default_factory=list)  # likewise, one module after another
    graph: "torch.cuda.CUDAGraph | None" = None
    lane: "torch.cuda.Stream | None" = None  # on which its steps run beside those of other stacks


class StackEngine(Engine):
    """Stacked forward, one backward, fused Adam on masked gradients."""

    def __init__(self, job: Job, width: int) -> None:
        """`width` is the largest stack; 1 trains one module at a time."""
        super().__init__(job)
        self.width = width
        self.stacks: list[Stack] = []

    def _slots(self, starts: list[Start]) -> list[Slot]:
        self.stacks = []
        slots: list[Slot] = []
        for rows in _runs(self.job, self.width):
            slots += self._stack(starts[rows], rows)
        return slots

    def _stack(self, starts: list[Start], rows: slice) -> list[Slot]:
        device = self.job.device
        mask = _stacked_masks(starts, device)
        buffers = self._stacked([s.state for s in starts])
        parameters = {n: buffers.pop(n).requires_grad_() for n in self.parameter_names}
        adam = AdamState.begin(parameters, mask, self._stacked_adam(starts))
        task = self.job.tasks[rows.start]
        learning_rate = torch.tensor(task.learning_rate, device=device)
        optimiser = torch_adam(parameters, adam, fused=True, learning_rate=learning_rate)
        grads = {n: torch.zeros_like(p) for n, p in parameters.items()}
        for name, parameter in parameters.items():
            parameter.grad = grads[name]
        total = torch.zeros(len(starts), device=device)
        indices = torch.zeros(self.job.size(task), dtype=torch.long, device=device)
        masks = {n: m.to(torch.float32) for n, m in mask.items()}
        numbers = self.job.numbers(task.seed, 0, 0)
        self.stacks.append(
            Stack(
                *(rows, parameters, buffers, masks, grads),
                *(optimiser, learning_rate, total, indices, numbers),
            )
        )
        return slots_of(parameters, buffers, adam, [adam.steps] * len(starts))

    def _stacked(self, values: list[Values]) -> Values:
        """The values of several modules on a leading axis, on the device."""
        return {n: torch.stack([v[n] for v in values]).to(self.job.device) for n in values[0]}

    def _stacked_adam(self, starts: list[Start]) -> AdamState | None:
        kept = [s.adam for s in starts if s.adam is not None]
        if len(kept) < len(starts):
            return None
        first, second = (self._stacked([getattr(a, m) for a in kept]) for m in ("first", "second"))
        return AdamState(first, second, kept[0].steps)

    def epoch(
        self, round_: int, epoch: int, learning_rates: Sequence[float], active: Sequence[bool]
    ) -> Tensor:
        orders = self.orders(round_, epoch)
        numbers = self.numbers(round_, epoch)
        self.job.training_mode()
        running = [stack for stack in self.stacks if any(active[stack.rows])]
        for stack in running:
            with _lane(stack):
                self._run_epoch(stack, orders, numbers, (round_, epoch), learning_rates, active)
        totals = torch.zeros(len(self.slots))
        for stack in running:
            if stack.lane is not None:
                torch.cuda.current_stream().wait_stream(stack.lane)
            steps = self.job.steps(self.job.tasks[stack.rows.start])
            totals[stack.rows] = stack.total.cpu() / steps
        return totals

    def _run_epoch(
        self,
        stack: Stack,
        orders: dict[BatchGroup, Tensor],
        numbers: dict[int, Tensor | None],
        when: tuple[int, int],
        learning_rates: Sequence[float],
        active: Sequence[bool],
    ) -> None:
        """All steps of a stack; on a GPU they are asked for, and may still run afterwards."""
        torch.manual_seed(self.dropout_stream(stack.rows.start, *when))
        still = [k for k in range(len(active))[stack.rows] if not active[k]]
        frozen = {k: _copy(self.slots[k], but="step") for k in still}
        stack.learning_rate.fill_(learning_rates[stack.rows.start])
        stack.total.zero_()
        task = self.job.tasks[stack.rows.start]
        drawn = numbers[task.seed]
        if stack.numbers is not None and drawn is not None:
            stack.numbers.copy_(drawn)  # in place: a recorded step reads them there
        steps = self.job.steps(task)
        for indices in orders[self.job.group(task)].split(self.job.batch)[:steps]:
            self._advance(stack, indices)
        for k, tensors in frozen.items():
            self.slots[k].load(tensors)

    def _advance(self, stack: Stack, indices: Tensor) -> None:
        if not indices.is_cuda:
            stack.indices = indices
            self._step(stack)
            return
        stack.indices.copy_(indices)
        if stack.graph is None:
            stack.graph = self._capture(stack)
        stack.graph.replay()

    def _step(self, stack: Stack) -> None:
        x, y = self.job.inputs(stack.indices, stack.numbers), self.job.y[stack.indices]
        logits = self._forward(stack, x)
        losses = self.objectives.losses(logits, y, self.job.temperature, stack.rows, stack.indices)
        self._gradients(stack, losses.sum())
        with torch.no_grad():
            stack.optimiser.step()
            stack.total += losses

    def _gradients(self, stack: Stack, loss: Tensor) -> None:
        """Leave the gradients of the loss, masked, where the optimiser reads them."""
        grads = torch.autograd.grad(loss, list(stack.parameters.values()))
        with torch.no_grad():
            for (name, kept), grad in zip(stack.grads.items(), grads, strict=True):
                if name in stack.masks:
                    torch.mul(grad, stack.masks[name], out=kept)
                else:
                    kept.copy_(grad)

    def _forward(self, stack: Stack, x: Tensor) -> Tensor:
        def one(module: Values) -> Tensor:
            with self.job.autocast():
                logits: Tensor = functional_call(self.job.network, module, (x,))
            return logits.to(self.job.dtype)

        values = {**stack.parameters, **stack.buffers}
        if len(stack.total) == 1:
            # views, so that BatchNorm's running statistics are updated in place
            return one({n: v[0] for n, v in values.items()})[None]
        return torch.vmap(one, randomness="different")(values)

    def _capture(self, stack: Stack) -> torch.cuda.CUDAGraph:
        """Warm up on a side stream, put the state back as it was, then record one step."""
        slots = self.slots[stack.rows]
        before = [_copy(slot) for slot in slots]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        generator = torch.cuda.default_generators[self.job.device.index or 0]
        random_state = generator.get_state()
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step(stack)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(stack)
        generator.set_state(random_state)
        for slot, tensors in zip(slots, before, strict=True):
            slot.load(tensors)
        stack.total.zero_()
        return graph

    def validate(self) -> Scores:
        self.job.network.eval()
        x = self.job.x_validation
        with torch.no_grad():
            parts = [self._scores(partial(self._forward, s), x, s.rows) for s in self.stacks]
        return join_scores(parts)


def _runs(job: Job, width: int) -> list[slice]:
    """Neighbouring tasks with one order of samples and one learning rate, cut to the width."""
    runs: list[slice] = []
    before = None
    for k, task in enumerate(job.tasks):
        key = (job.group(task), task.learning_rate)
        if key == before and k - runs[-1].start < width:
            runs[-1] = slice(runs[-1].start, k + 1)
        else:
            runs.append(slice(k, k + 1))
        before = key
    return runs


def _lane(stack: Stack) -> AbstractContextManager[Any]:
    """The stream of a stack, after all that was asked for before; on a CPU there is none."""
    if not stack.total.is_cuda:
        return nullcontext()
    if stack.lane is None:
        stack.lane = torch.cuda.Stream(stack.total.device)
    stack.lane.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stack.lane)


def _copy(slot: Slot, but: str = "") -> Values:
    return {n: t.detach().clone() for n, t in slot.tensors().items() if n != but}


def _stacked_masks(starts: list[Start], device: torch.device) -> Values:
    names = {n for s in starts for n in s.mask}
    return {n: torch.stack([s.kept(n) for s in starts]).to(device) for n in sorted(names)}
