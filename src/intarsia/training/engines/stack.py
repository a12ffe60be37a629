"""Stack engine: any nn.Module, in stacks of modules with equal batches and one learning rate.

The batches of a stack hold the same samples, or equally many where modules draw theirs. torch.vmap
runs the forward of a whole stack at once; a stack of one is the network itself.
On CUDA a step is captured once as a graph and replayed.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call

from intarsia.training.engines.base import Engine, Scores, Slot, Start, join_scores, slots_of
from intarsia.training.job import BatchGroup, Job
from intarsia.training.settings.optimisers import OptimiserState, StackedStep
from intarsia.training.settings.schedules import LearningRate, LearningRates, each_batch
from intarsia.training.tasks import Task

Values = dict[str, Tensor]


@dataclass
class Stack:
    """Modules `rows` of the bank on a leading axis."""

    rows: slice
    parameters: Values  # G, ...
    buffers: Values
    masks: Values  # of the parameters that have one
    grads: Values
    optimiser: StackedStep
    learning_rate: Tensor
    total: Tensor  # G, sum of the losses of an epoch
    indices: Tensor  # batch in hand: B, or G, B where each module has one of its own
    numbers: Tensor | None  # of this epoch, to augment its samples; one set, or G of them
    leaves: list[Values] = field(default_factory=list)  # of each module, where they run apart
    rows_of_grads: list[Tensor] = field(default_factory=list)  # likewise, one module after another
    graph: "torch.cuda.CUDAGraph | None" = None


class StackEngine(Engine):
    """Stacked forward, one backward, a fused step on masked gradients."""

    def __init__(self, job: Job, width: int) -> None:
        """`width` is the largest stack; 1 trains one module at a time."""
        super().__init__(job)
        self.width = width
        self.stacks: list[Stack] = []

    def _slots(self, starts: list[Start]) -> list[Slot]:
        self.stacks = []
        slots: list[Slot] = []
        for rows in self._runs():
            slots += self._stack(starts[rows], rows)
        return slots

    def _runs(self) -> list[slice]:
        """Neighbouring tasks whose batches and learning rates are alike, cut to the width."""
        runs: list[slice] = []
        before = None
        for k, task in enumerate(self.job.tasks):
            key = (self._alike(task), task.learning_rate)
            if key == before and k - runs[-1].start < self.width:
                runs[-1] = slice(runs[-1].start, k + 1)
            else:
                runs.append(slice(k, k + 1))
            before = key
        return runs

    def _alike(self, task: Task) -> Hashable:
        """What tasks of one stack share: the order of samples, or how many they draw of their own.

        Modules that train apart are kept apart: what one sees must not reach the rounding of
        another.
        """
        group = self.job.group(task)
        if self.job.apart or not group.own:
            return group
        return (task.seed, self.job.size(task), self.job.steps(task))

    def _stack(self, starts: list[Start], rows: slice) -> list[Slot]:
        device = self.job.device
        mask = _stacked_masks(starts, device)
        buffers = self._stacked([s.state for s in starts])
        parameters = {n: buffers.pop(n).requires_grad_() for n in self.parameter_names}
        kept = self._stacked_state(starts)
        state = OptimiserState.begin(self.optimiser.moments, parameters, mask, kept)
        task = self.job.tasks[rows.start]
        learning_rate = torch.tensor(task.learning_rate, device=device)
        grads = {n: torch.zeros_like(p, requires_grad=False) for n, p in parameters.items()}
        total = torch.zeros(len(starts), device=device)
        groups = {self.job.group(t) for t in self.job.tasks[rows]}
        size = (self.job.size(task),) if len(groups) == 1 else (len(starts), self.job.size(task))
        indices = torch.zeros(size, dtype=torch.long, device=device)
        masks = {n: m.to(torch.float32) for n, m in mask.items()}
        decayed = {n: masks.get(n) for n in self.decayed}
        optimiser = StackedStep(self.optimiser, parameters, grads, state, learning_rate, decayed)
        seeds = {t.seed for t in self.job.tasks[rows]}
        numbers = self._numbers(rows, {seed: self.job.numbers(seed, 0, 0) for seed in seeds})
        self.stacks.append(
            Stack(
                *(rows, parameters, buffers, masks, grads),
                *(optimiser, learning_rate, total, indices, numbers),
            )
        )
        return slots_of(parameters, buffers, state, [state.steps] * len(starts))

    def _stacked(self, values: list[Values]) -> Values:
        """The values of several modules on a leading axis, on the device."""
        return {n: torch.stack([v[n] for v in values]).to(self.job.device) for n in values[0]}

    def _stacked_state(self, starts: list[Start]) -> OptimiserState | None:
        kept = [s.optimiser for s in starts if s.optimiser is not None]
        if len(kept) < len(starts):
            return None
        moments = {
            name: self._stacked([state.moments[name] for state in kept]) for name in kept[0].moments
        }
        return OptimiserState(moments, kept[0].steps)

    def epoch(
        self, round_: int, epoch: int, learning_rates: LearningRates, active: Sequence[bool]
    ) -> Tensor:
        orders = self.orders(round_, epoch)
        numbers = self.numbers(round_, epoch)
        self.job.training_mode()
        running = [stack for stack in self.stacks if any(active[stack.rows])]
        for stack in running:
            rates = learning_rates[stack.rows.start]
            self._run_epoch(stack, orders, numbers, (round_, epoch), rates, active)
        totals = torch.zeros(len(self.slots))
        for stack in running:
            steps = self.job.steps(self.job.tasks[stack.rows.start])
            totals[stack.rows] = stack.total.cpu() / steps
        return totals

    def _run_epoch(
        self,
        stack: Stack,
        orders: dict[BatchGroup, Tensor],
        numbers: dict[int, Tensor | None],
        when: tuple[int, int],
        learning_rate: LearningRate,
        active: Sequence[bool],
    ) -> None:
        """All steps of a stack; on a GPU they are asked for, and may still run afterwards."""
        self.seed_dropout(stack.rows.start, *when)
        still = [k for k in range(len(active))[stack.rows] if not active[k]]
        frozen = {k: _copy(self.slots[k], but="step") for k in still}
        stack.total.zero_()
        drawn = self._numbers(stack.rows, numbers)
        if stack.numbers is not None and drawn is not None:
            stack.numbers.copy_(drawn)  # in place: a recorded step reads them there
        batches = self._batches(stack, orders)
        rates = each_batch(learning_rate, len(batches))
        for step, (indices, rate) in enumerate(zip(batches, rates, strict=True)):
            if step == 0 or rate != rates[step - 1]:
                stack.learning_rate.fill_(rate)
            self._advance(stack, indices)
        for k, tensors in frozen.items():
            self.slots[k].load(tensors)

    def _numbers(self, rows: slice, numbers: dict[int, Tensor | None]) -> Tensor | None:
        """The numbers of an epoch's augmentation: one set for all of a stack, or one each."""
        seeds = [task.seed for task in self.job.tasks[rows]]
        if len(set(seeds)) == 1:
            return numbers[seeds[0]]
        drawn = [given for seed in seeds if (given := numbers[seed]) is not None]
        return torch.stack(drawn) if drawn else None

    def _batches(self, stack: Stack, orders: dict[BatchGroup, Tensor]) -> Sequence[Tensor]:
        """The batches of an epoch: B, or G, B where each module has one of its own."""
        tasks = self.job.tasks[stack.rows]
        steps, batch = self.job.steps(tasks[0]), self.job.batch
        if stack.indices.dim() == 1:
            return orders[self.job.group(tasks[0])].split(batch)[:steps]
        own = [orders[self.job.group(task)][: steps * batch] for task in tasks]
        return torch.stack(own).split(batch, dim=1)

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
        apart = stack.indices.dim() == 2
        logits = self._forward(stack, x.unflatten(0, y.shape) if apart else x, apart)
        losses = self.objectives.losses(logits, y, self.job.temperature, stack.rows, stack.indices)
        self._gradients(stack, losses.sum())
        with torch.no_grad():
            stack.optimiser.step()
            stack.total += losses

    def _gradients(self, stack: Stack, loss: Tensor) -> None:
        """Leave the gradients of the loss, masked, where the optimiser reads them."""
        weights = list(stack.parameters.values())
        grads = torch.autograd.grad(loss, weights, materialize_grads=True)
        with torch.no_grad():
            for (name, kept), grad in zip(stack.grads.items(), grads, strict=True):
                if name in stack.masks:
                    torch.mul(grad, stack.masks[name], out=kept)
                else:
                    kept.copy_(grad)

    def _forward(self, stack: Stack, x: Tensor, apart: bool = False) -> Tensor:
        """Logits G, B, O; with `apart` x has samples for each module."""

        def one(module: Values, x: Tensor) -> Tensor:
            with self.job.autocast():
                logits: Tensor = functional_call(self.job.network, module, (x,))
            return logits.to(self.job.dtype)

        values = {**stack.parameters, **stack.buffers}
        if len(stack.total) == 1:
            # views, so that BatchNorm's running statistics are updated in place
            return one({n: v[0] for n, v in values.items()}, x)[None]
        places = (0, 0 if apart else None)
        return torch.vmap(one, places, randomness="different")(values, x)

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


def _copy(slot: Slot, but: str = "") -> Values:
    return {n: t.detach().clone() for n, t in slot.tensors().items() if n != but}


def _stacked_masks(starts: list[Start], device: torch.device) -> Values:
    names = {n for s in starts for n in s.mask}
    return {n: torch.stack([s.kept(n) for s in starts]).to(device) for n in sorted(names)}
