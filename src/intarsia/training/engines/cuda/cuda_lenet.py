"""Lenet engine for CUDA: all modules at once by the kernels, whole epochs as graphs."""

import torch
import triton
from torch import Tensor

from intarsia.models import Lenet
from intarsia.training.engines.adam import BETAS, EPSILON
from intarsia.training.engines.base import Scores
from intarsia.training.engines.cuda import lenet_kernels
from intarsia.training.engines.cuda.cuda_engine import CudaEngine, Values, tall, twice
from intarsia.training.job import Job

# Pooled positions that one program takes: of the convolution, of the sums of fc1, of the
# convolution's gradient. The last two say where sums are cut, so a change changes the last bits.
SPANS = (4, 13, 8)
HELD_OUT = 64  # validation samples at a time, at least


class CudaLenetEngine(CudaEngine):
    """Trains K `models.Lenet` networks; no gradient of theirs is ever written to memory.

    fc1 reads its inputs by position and then channel, the network's own order is the other way.
    """

    def __init__(self, job: Job, precision: str = "tf32x3", graphs: bool = True) -> None:
        super().__init__(job, precision, graphs)
        assert isinstance(job.network, Lenet)
        self.picture = tuple(job.x.shape[1:])  # channels, height, width
        self.channels = job.network.conv.out_channels
        self.positions = job.network.fc1.in_features // self.channels
        self.taps = 25 * self.picture[0]
        self.taps_tile = triton.next_power_of_2(max(32, self.taps + 1))  # one more for the bias
        self.samples, self.held_out = job.x.flatten(1), job.x_validation.flatten(1)
        # in validation: one set of samples for all, and nobody rests
        self.nobody, self.everyone = torch.zeros_like(self.alone), torch.ones_like(self.alone)
        self._workspace(job.network)

    # layout

    def _workspace(self, network: Lenet) -> None:
        job, modules, device = self.job, len(self.job.tasks), self.job.device
        self.images = twice(len(self.groups), job.batch, self.samples.shape[1], device)
        self.labels = torch.zeros(len(self.groups), job.batch, dtype=torch.int32, device=device)
        room, widths = max(HELD_OUT, job.batch), [network.fc1.in_features]
        widths += [network.fc1.out_features, network.fc2.out_features, network.fc3.out_features]
        self.hidden = [twice(modules, room, w, device) for w in widths[:3]]  # below fc1, fc2, fc3
        self.down = [twice(modules, job.batch, w, device) for w in widths[1:]]
        self.winner = torch.zeros(modules, widths[0], room, dtype=torch.int8, device=device)
        self.pieces = [triton.cdiv(self.positions, span) for span in SPANS]
        self.parts = torch.zeros(modules, self.pieces[1], widths[1], room, device=device)
        self.grads = torch.zeros(
            modules, self.pieces[2], self.channels, self.taps_tile, device=device
        )

    def _layout(self, values: list[Values]) -> Values:
        stacks = {}
        for name in self.parameter_names:
            one = self._inward(name, values[0][name])
            stacked = torch.empty(
                (len(values), *one.shape), dtype=one.dtype, device=self.job.device
            )
            for row, given in zip(stacked, values, strict=True):
                row.copy_(self._inward(name, given[name].to(self.job.device)))
            stacks[name] = stacked
        return stacks

    def _inward(self, name: str, value: Tensor) -> Tensor:
        if name == "conv.weight":
            return value.flatten(1)
        if name == "fc1.weight":
            return value.unflatten(1, (self.channels, -1)).transpose(1, 2).flatten(1)
        return value

    def _full(self, k: int, values: Values, base: Values) -> Values:
        full = dict(values)
        full["conv.weight"] = values["conv.weight"].unflatten(1, (-1, 5, 5))
        wide = values["fc1.weight"].unflatten(1, (-1, self.channels))
        full["fc1.weight"] = wide.transpose(1, 2).flatten(1)
        return full

    # training

    def _step(self) -> None:
        self._advance()
        self._gather(self.samples, self.images, self.labels)
        below_1, below_2, below_3 = self.hidden
        down_1, down_2, down_3 = self.down
        self._hidden(self.images[0], self.group_of, self.active, self.job.batch)
        self._head("fc3", below_3[0], down_3, self.labels, self.group_of)
        self._back("fc3", down_3[0], below_3[0], down_2)
        self._update("fc3", down_3[1], below_3[1])
        self._back("fc2", down_2[0], below_2[0], down_1)
        self._update("fc2", down_2[1], below_2[1])
        self._convolve_back()
        self._update("fc1", down_1[1], below_1[1])

    def _hidden(self, x: Tensor, groups: Tensor, active: Tensor, batch: int) -> None:
        """All but the last layer; the batch fills the front of rooms that may be larger."""
        modules, (_, height, width) = len(self.job.tasks), self.picture
        pooled, summed = self.hidden[:2]
        rows, taps = tall(batch), self.taps_tile
        high = min(rows, 32 if taps < 128 else 16)
        lenet_kernels.convolve[(self.pieces[0], triton.cdiv(batch, high), modules)](
            x, self.parameters["conv.weight"], self.parameters["conv.bias"], groups, active,
            *pooled, self.winner, batch, height, width, (width - 2) // 2, self.positions,
            UNEVEN=self.uneven, PRECISION=self.precision, TAPS=self.taps, T=taps, C=self.channels,
            B=high, SPAN=SPANS[0], num_warps=_warps(taps), num_stages=1,
        )  # fmt: skip
        weight, bias = self.parameters["fc1.weight"], self.parameters["fc1.bias"]
        _, outputs, inputs = weight.shape
        lenet_kernels.sums[(triton.cdiv(outputs, 64), self.pieces[1], modules)](
            pooled[0], weight, self.parts, active, batch, inputs, outputs,
            UNEVEN=self.uneven, PRECISION=self.precision,
            B=rows, BO=64, BI=32, SPAN=SPANS[1] * self.channels,
            num_warps=_warps(rows), num_stages=3,
        )  # fmt: skip
        lenet_kernels.join[(modules, triton.cdiv(outputs, 32))](
            self.parts, bias, *summed, active, batch, outputs, self.pieces[1],
            UNEVEN=self.uneven, B=rows, BO=32, num_warps=4,
        )  # fmt: skip
        self._forward("fc2", summed[0], self.hidden[2], batch, active=active)

    def _convolve_back(self) -> None:
        """The convolution's step; fc1, through which its gradient comes, must not have moved."""
        modules, (_, height, width) = len(self.job.tasks), self.picture
        weight = self.parameters["fc1.weight"]
        rows, taps = tall(self.job.batch), self.taps_tile
        lenet_kernels.convolve_back[(self.pieces[2], modules)](
            self.down[0][0], weight, self.winner, self.images[1], self.group_of, self.active,
            self.grads, self.job.batch, weight.shape[1], height, width, (width - 2) // 2,
            self.positions, UNEVEN=self.uneven, PRECISION=self.precision,
            TAPS=self.taps, T=taps, C=self.channels,
            B=rows, BO=64 if rows <= 64 else 32, SPAN=SPANS[2],
            num_warps=_warps(max(rows, taps)), num_stages=1,
        )  # fmt: skip
        lenet_kernels.convolve_update[(modules, triton.cdiv(self.channels, 16))](
            self.grads, *self._adam("conv.weight"), *self._adam("conv.bias"),
            self.step_size, self.root, self.active, self.pieces[2],
            BETA1=BETAS[0], BETA2=BETAS[1], EPSILON=EPSILON,
            MASKED="conv.weight" in self.masks, BIAS_MASKED="conv.bias" in self.masks,
            UNEVEN=self.uneven,
            TAPS=self.taps, T=taps, C=self.channels, BC=16, num_warps=4,
        )  # fmt: skip

    # validation

    def validate(self) -> Scores:
        return self._scores(self._logits, self.held_out, slice(None))

    def _logits(self, x: Tensor) -> Tensor:
        modules, room, width = self.hidden[2][0].shape
        weight, bias = self.parameters["fc3.weight"], self.parameters["fc3.bias"]
        logits = []
        for part in x.split(room):
            self._hidden(part, self.nobody, self.everyone, len(part))
            filled = self.hidden[2][0].view(-1)[: modules * len(part) * width]
            h = filled.view(modules, len(part), width)
            logits.append(torch.baddbmm(bias[:, None], h, weight.transpose(1, 2)))
        return torch.cat(logits, 1)  # K, N, O


def _warps(size: int) -> int:
    """Large tiles need the registers of more threads."""
    return 8 if size > 64 else 4
