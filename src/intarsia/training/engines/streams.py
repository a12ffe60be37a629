"""Stream engine: the networks of a stack side by side, each on a CUDA stream of its own.

Every network keeps its own layers, and all of them are branches of the one graph that a step is
recorded as, so that what one leaves idle another takes: for networks that do not fit `grouped`, or
are so wide that each fills a GPU. Weights of convolutions lie channels last, where a GPU's matrix
units read them; in bf16 normalisations run by our kernels, with the ReLU and the residual that
follow.
"""

from collections.abc import Hashable

import torch
from torch import Tensor
from torch.func import functional_call

from intarsia.training.engines.base import Slot, Start
from intarsia.training.engines.grouped import channels_last, kernels_train, with_fused_norms
from intarsia.training.engines.stack import Stack, StackEngine, Values
from intarsia.training.job import Job
from intarsia.training.tasks import Task

MOST = 16  # streams; more modules take turns on them


class StreamEngine(StackEngine):
    """One backward for all networks, one fused step of the optimiser on their stacked weights."""

    def __init__(self, job: Job, width: int, compiled: bool = False) -> None:
        """`compiled` lets torch.compile fuse what lies between convolutions, once for all."""
        super().__init__(job, width)
        self.network = job.network
        if kernels_train(job) and not compiled:
            self.network = with_fused_norms(job.network)
        self._call = torch.compile(self._one) if compiled else self._one
        streams = MOST if job.device.type == "cuda" else 0
        self.streams = [torch.cuda.Stream(job.device) for _ in range(min(streams, width))]

    def _stack(self, starts: list[Start], rows: slice) -> list[Slot]:
        slots = super()._stack(starts, rows)
        stack = self.stacks[-1]
        count = range(len(starts))
        stack.leaves = [
            {n: p.detach()[k].requires_grad_() for n, p in stack.parameters.items()} for k in count
        ]
        stack.rows_of_grads = [stack.grads[n][k] for k in count for n in stack.parameters]
        return slots

    def _alike(self, task: Task) -> Hashable:
        """Batches of one size, equally many; each module has its own layers."""
        return (self.job.size(task), self.job.steps(task))

    def _stacked(self, values: list[Values]) -> Values:
        return {n: channels_last(t) for n, t in super()._stacked(values).items()}

    def _one(self, values: Values, x: Tensor) -> Tensor:
        with self.job.autocast():
            logits: Tensor = functional_call(self.network, values, (x,))
        return logits.to(self.job.dtype)

    def _gradients(self, stack: Stack, loss: Tensor) -> None:
        leaves = [p for module in stack.leaves for p in module.values()]
        grads = torch.autograd.grad(loss, leaves, materialize_grads=True)
        with torch.no_grad():
            torch._foreach_copy_(stack.rows_of_grads, list(grads))
            for name, mask in stack.masks.items():
                stack.grads[name].mul_(mask)

    def _forward(self, stack: Stack, x: Tensor, apart: bool = False) -> Tensor:
        if self.network is not self.job.network:
            self.job.in_same_mode(self.network)
        inputs = [_channels_last(given) for given in (x if apart else x[None])]
        modules = [
            {**leaves, **{n: b[k] for n, b in stack.buffers.items()}}
            for k, leaves in enumerate(stack.leaves)
        ]
        if not self.streams:
            return torch.stack(
                [self._call(values, inputs[k % len(inputs)]) for k, values in enumerate(modules)]
            )
        here = torch.cuda.current_stream()
        streams = self.streams[: len(modules)]
        for stream in streams:
            stream.wait_stream(here)
        logits = []
        for k, values in enumerate(modules):
            with torch.cuda.stream(streams[k % len(streams)]):
                logits.append(self._call(values, inputs[k % len(inputs)]))
        for stream in streams:
            here.wait_stream(stream)
        return torch.stack(logits)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
