"""What is common to the engines for CUDA: stacked modules, launches of kernels, graphs of steps."""

from abc import abstractmethod
from collections.abc import Sequence
from math import log

import torch
import triton
from torch import Tensor

from intarsia.training.engines.adam import BETAS, EPSILON, MOMENTS
from intarsia.training.engines.base import Engine, Slot, Start, slots_of
from intarsia.training.engines.cuda import linear_kernels as kernels
from intarsia.training.job import Job
from intarsia.training.settings.optimisers import OptimiserState
from intarsia.training.settings.schedules import LearningRates

Values = dict[str, Tensor]
Twice = tuple[Tensor, Tensor]  # the same values batch first (K, B, I) and batch last (K, I, B)

GRAPH = 50  # steps in a graph, at most
TILE = (64, 64, 4)  # outputs, inputs and warps of a weight update, by measurement


class CudaEngine(Engine):
    """Trains K modules in step; subclasses say what their layout and a step are."""

    dropout = 0.0

    def __init__(self, job: Job, precision: str = "tf32x3", graphs: bool = True) -> None:
        """`precision` is how products are made: tf32x3 (as good as float32), tf32 or ieee."""
        super().__init__(job)
        self.precision, self.graphs = precision, graphs
        modules, device = len(job.tasks), job.device
        mine = [job.group(t) for t in job.tasks]
        self.groups = sorted(set(mine))  # as `orders` has them
        self.counts = [job.steps(t) for t in job.tasks]
        sizes = [job.size(t) for t in job.tasks]
        self.uneven = len(set(self.counts)) > 1 or min(sizes) < job.batch
        ends = [job.batch * self.counts[mine.index(group)] for group in self.groups]
        self.group_of, self.sizes, self.ends = (
            torch.tensor(numbers, dtype=torch.int32, device=device)
            for numbers in ([self.groups.index(group) for group in mine], sizes, ends)
        )
        self.alone = torch.arange(modules, dtype=torch.int32, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int32, device=device)
        self.left, self.active = torch.zeros_like(self.alone), torch.zeros_like(self.alone)
        self.learning_rate, self.step_size, self.root, self.loss = torch.zeros(
            4, modules, device=device
        )
        self.order = torch.zeros(len(self.groups), len(job.y), dtype=torch.int32, device=device)
        self.labels_all = job.y.to(torch.int32)

    # layout

    def _prepare(self, starts: list[Start]) -> None:
        """Find the layout of a round, where it is not the same in all."""

    @abstractmethod
    def _layout(self, values: list[Values]) -> Values:
        """Values in the shapes of the network, one dict per module, as the kernels read them."""

    def _slots(self, starts: list[Start]) -> list[Slot]:
        self.graph: torch.cuda.CUDAGraph | None = None
        self.slots = []  # the last round's tensors go before this round's come
        self.parameters: Values = {}
        self.first: Values = {}
        self.second: Values = {}
        self._prepare(starts)
        self.parameters = self._layout([s.state for s in starts])
        kept = [s.optimiser.moments if s.optimiser else {} for s in starts]
        self.first, self.second = (
            self._moments([moments.get(name) for moments in kept], starts) for name in MOMENTS
        )
        self.masks = self._masks(starts)
        counts = [0.0 if s.optimiser is None else float(s.optimiser.steps[0]) for s in starts]
        self.steps = torch.tensor(counts, device=self.job.device)
        state = OptimiserState({"first": self.first, "second": self.second}, [self.steps])
        return slots_of(self.parameters, {}, state, [[self.steps[k]] for k in range(len(starts))])

    def _moments(self, given: list[Values | None], starts: list[Start]) -> Values:
        if any(g is None for g in given):
            return {n: torch.zeros_like(p) for n, p in self.parameters.items()}
        kept = [
            {n: torch.where(s.mask[n], t, 0) if n in s.mask else t for n, t in (g or {}).items()}
            for g, s in zip(given, starts, strict=True)
        ]
        return self._layout(kept)

    def _masks(self, starts: list[Start]) -> Values:
        """Masks of the parameters that are pruned in any module, as bytes."""
        names = {n for s in starts for n in s.mask}
        if not names:
            return {}
        filled = [{n: s.kept(n).to(torch.uint8) for n in self.parameter_names} for s in starts]
        return {n: t for n, t in self._layout(filled).items() if n in names}

    # training

    def epoch(
        self, round_: int, epoch: int, learning_rates: LearningRates, active: Sequence[bool]
    ) -> Tensor:
        for row, order in enumerate(self.orders(round_, epoch).values()):
            self.order[row, : len(order)].copy_(order)
        self._draw(round_, epoch)
        self.learning_rate.copy_(torch.tensor(learning_rates))
        self.loss.zero_()
        left = [count if on else 0 for count, on in zip(self.counts, active, strict=True)]
        unit = _unit(max(self.counts))
        if self.graphs and self.graph is None:
            self.graph = self._capture(unit)
        self.cursor.fill_(-self.job.batch)
        self.left.copy_(torch.tensor(left, dtype=torch.int32))
        for _ in range(triton.cdiv(max(left), unit) if self.graph else max(left)):
            if self.graph:
                self.graph.replay()
            else:
                self._step()
        return self.loss.cpu() / torch.tensor(self.counts)

    def _draw(self, round_: int, epoch: int) -> None:
        """Begin the epoch's streams of random numbers, for networks that draw any."""

    @abstractmethod
    def _step(self) -> None:
        """Launch the kernels of one batch."""

    def _capture(self, unit: int) -> torch.cuda.CUDAGraph:
        self.left.zero_()  # warm up without moving a weight
        self.cursor.fill_(-self.job.batch)
        self._step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(unit):
                self._step()
        return graph

    # launches

    def _advance(self) -> None:
        modules = len(self.job.tasks)
        kernels.advance[(triton.cdiv(modules, 128),)](
            self.steps, self.left, self.active, self.cursor, self.learning_rate, self.step_size,
            self.root, self.job.batch, modules,
            LOG_BETA1=log(BETAS[0]), LOG_BETA2=log(BETAS[1]), BLOCK=128,
        )  # fmt: skip

    def _gather(self, samples: Tensor, x: Twice, y: Tensor, columns: Tensor | None = None) -> None:
        """The batch of each group, or with only its own columns the batch of each module."""
        sets, batch, width = x[0].shape
        own = columns is not None
        kernels.gather[(sets, triton.cdiv(width, 64))](
            samples, self.labels_all, self.order, self.ends, columns if own else self.alone,
            self.cursor, self.group_of, *x, y, self.order.shape[1], samples.shape[1], batch, width,
            COLUMNS=own, GROUPED=own, UNEVEN=self.uneven, B=tall(batch), BI=64,
        )  # fmt: skip

    def _forward(
        self,
        layer: str,
        x: Tensor,
        h: Twice,
        batch: int,
        groups: Tensor | None = None,
        draws: Tensor | None = None,
        full_width: int = 0,
        active: Tensor | None = None,
    ) -> None:
        """A hidden layer; `groups` says which row of x a module reads, if not its own."""
        weight, bias = self.parameters[f"{layer}.weight"], self.parameters[f"{layer}.bias"]
        modules, outputs, inputs = weight.shape
        kernels.forward[(modules, triton.cdiv(outputs, 32))](
            x, weight, bias, *h, self.alone if groups is None else groups,
            self.alone if draws is None else draws, self.cursor,
            self.active if active is None else active,
            batch, inputs, outputs, self.dropout, full_width,
            GROUPED=groups is not None, DROP=self.dropout > 0, UNEVEN=self.uneven,
            PRECISION=self.precision, B=tall(batch), BO=32, BI=32, num_warps=4, num_stages=4,
        )  # fmt: skip

    def _head(self, layer: str, h: Tensor, d: Twice, labels: Tensor, groups: Tensor) -> None:
        """The last layer with the loss and its gradient."""
        weight, objectives = self.parameters[f"{layer}.weight"], self.objectives
        bias = self.parameters.get(f"{layer}.bias")
        modules, outputs, inputs = weight.shape
        kernels.head[(modules,)](
            h, weight, weight if bias is None else bias, *d, labels, groups,
            objectives.table, objectives.weight, objectives.bonus,
            self.active, self.sizes, self.loss,
            self.job.batch, inputs, outputs, objectives.table.shape[1], self.job.temperature,
            BIAS=bias is not None, BONUS=objectives.has_bonus, UNEVEN=self.uneven,
            PRECISION=self.precision, B=tall(self.job.batch),
            C=triton.next_power_of_2(max(16, outputs)), BI=64, num_warps=4, num_stages=3,
        )  # fmt: skip

    def _back(self, layer: str, d: Tensor, h: Tensor, out: Twice) -> None:
        """From the gradient d at a layer's sums to that at the sums below, where h was made."""
        weight = self.parameters[f"{layer}.weight"]
        modules, outputs, inputs = weight.shape
        kernels.back[(modules, triton.cdiv(inputs, 64))](
            d, weight, h, *out, self.active, self.job.batch, inputs, outputs, self.dropout,
            UNEVEN=self.uneven, PRECISION=self.precision,
            B=tall(self.job.batch), BO=16 if outputs <= 16 else 32, BI=64,
            num_warps=4, num_stages=3,
        )  # fmt: skip

    def _update(self, layer: str, d_t: Tensor, x_t: Tensor, groups: Tensor | None = None) -> None:
        """The gradient of a layer from d at its sums and x below, both batch last, and Adam."""
        name, bias_name = f"{layer}.weight", f"{layer}.bias"
        biased = bias_name in self.parameters
        bias = bias_name if biased else name  # not read where there is none
        modules, outputs, inputs = self.parameters[name].shape
        high, wide, warps = TILE
        kernels.update[(triton.cdiv(inputs, wide), triton.cdiv(outputs, high), modules)](
            d_t, x_t, *self._adam(name), *self._adam(bias),
            self.alone if groups is None else groups, self.step_size, self.root, self.active,
            self.job.batch, inputs, outputs,
            BETA1=BETAS[0], BETA2=BETAS[1], EPSILON=EPSILON, GROUPED=groups is not None,
            MASKED=name in self.masks, BIAS=biased, BIAS_MASKED=bias_name in self.masks,
            UNEVEN=self.uneven, PRECISION=self.precision,
            B=tall(self.job.batch), BO=high, BI=wide,
            num_warps=warps, num_stages=1,
        )  # fmt: skip

    def _adam(self, name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A parameter, its moments, and its mask or, where it has none, something to point at."""
        mask = self.masks.get(name, self.active)
        return self.parameters[name], self.first[name], self.second[name], mask


def _unit(steps: int) -> int:
    """Steps in a graph of which whole ones make up an epoch, so that none reads beyond its end."""
    return max(n for n in range(1, min(GRAPH, steps) + 1) if steps % n == 0)


def tall(batch: int) -> int:
    """Rows of a tile that holds a batch."""
    return int(triton.next_power_of_2(max(16, batch)))


def twice(modules: int, batch: int, width: int, device: torch.device) -> Twice:
    """Room for values batch first and batch last."""
    return (
        torch.zeros(modules, batch, width, device=device),
        torch.zeros(modules, width, batch, device=device),
    )
