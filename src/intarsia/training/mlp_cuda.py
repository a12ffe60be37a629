"""Mlp engine for CUDA: all modules at once by the kernels, compacted, whole epochs as graphs."""

from collections.abc import Sequence
from math import log

import torch
import triton
from torch import Tensor

from intarsia.models import Mlp
from intarsia.training import kernels
from intarsia.training.compaction import Compaction, compaction_of, used_inputs
from intarsia.training.engine import BETAS, EPSILON, Engine, Job, Scores, Slot, Start
from intarsia.training.tasks import stream

Values = dict[str, Tensor]

LANE = 16  # axes are padded to this, so that rows start where wide loads can
GRAPH = 50  # steps in a graph, at most
TILE = (64, 64, 4)  # outputs, inputs and warps of a weight update, by measurement


class CudaMlpEngine(Engine):
    """Trains K `models.Mlp` networks with one read of each weight forward and one update back."""

    name = "mlp"

    def __init__(self, job: Job, precision: str = "tf32x3", graphs: bool = True) -> None:
        """`precision` is how products are made: tf32x3 (as good as float32), tf32 or ieee."""
        super().__init__(job)
        assert isinstance(job.network, Mlp)
        self.dropout, self.layers = job.network.dropout, len(job.network.layers)
        weights = [job.network.layers[i].weight for i in range(self.layers - 1)]
        self.widths = [_lane(len(w)) for w in weights]  # type: ignore[arg-type]
        self.precision, self.graphs = precision, graphs
        self.x, self.x_validation = job.x.flatten(1), job.x_validation.flatten(1)
        self.used = used_inputs(self.x, self.x_validation).cpu()
        self.seeds = sorted({t.seed for t in job.tasks})
        modules, device = len(job.tasks), job.device
        groups = [self.seeds.index(t.seed) for t in job.tasks]
        self.seed_of = torch.tensor(groups, dtype=torch.int32, device=device)
        self.alone = torch.arange(modules, dtype=torch.int32, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int32, device=device)
        self.active = torch.ones(modules, dtype=torch.int32, device=device)
        self.rate, self.step_size, self.root, self.loss = torch.zeros(4, modules, device=device)
        self.order = torch.zeros(len(self.seeds), len(job.y), dtype=torch.int32, device=device)
        self.draws = torch.zeros(self.layers - 1, modules, dtype=torch.int64, device=device)
        self.labels_all = job.y.to(torch.int32)

    # laying out

    def _slots(self, starts: list[Start]) -> list[Slot]:
        assert self.job.wiring is not None
        wiring, device = self.job.wiring, self.job.device
        self.compactions = [compaction_of(wiring, s, self.used) for s in starts]
        self.graph: torch.cuda.CUDAGraph | None = None
        small = [c.take(s.state) for c, s in zip(self.compactions, starts, strict=True)]
        self.parameters = self._padded(small)
        self.first = self._moments([s.first for s in starts], starts)
        self.second = self._moments([s.second for s in starts], starts)
        self.masks = self._masks(starts)
        self.steps = torch.tensor([float(s.step) for s in starts], device=device)
        self._inputs()
        self._workspace()
        self.forms = [{n: tuple(t.shape) for n, t in state.items()} for state in small]
        return [
            Slot(
                {n: t[k] for n, t in self.parameters.items()},
                {},
                {n: t[k] for n, t in self.first.items()},
                {n: t[k] for n, t in self.second.items()},
                [self.steps[k]],
            )
            for k in range(len(starts))
        ]

    def _padded(self, states: list[Values]) -> Values:
        """States of different sizes on a leading axis, filled up with zeros."""
        result = {}
        for name in self.parameter_names:
            tensors = [s[name] for s in states]
            sizes = [_lane(max(t.shape[d] for t in tensors)) for d in range(tensors[0].ndim)]
            if name == f"layers.{self.layers - 1}.weight":
                sizes[0] = tensors[0].shape[0]  # the outputs stay as they are
            stacked = torch.zeros(len(tensors), *sizes)
            for k, t in enumerate(tensors):
                stacked[k][tuple(slice(size) for size in t.shape)] = t
            result[name] = stacked.to(self.job.device)
        return result

    def _moments(self, given: list[Values | None], starts: list[Start]) -> Values:
        if any(g is None for g in given):
            return {n: torch.zeros_like(p) for n, p in self.parameters.items()}
        kept = [
            {n: torch.where(s.mask[n], t, 0) if n in s.mask else t for n, t in (g or {}).items()}
            for g, s in zip(given, starts, strict=True)
        ]
        return self._padded([c.take(g) for c, g in zip(self.compactions, kept, strict=True)])

    def _masks(self, starts: list[Start]) -> Values:
        """Masks of the parameters that are pruned in any module, as bytes."""
        names = {n for s in starts for n in s.mask}
        filled = [
            {
                n: s.mask.get(n, torch.ones_like(s.state[n], dtype=torch.bool)).float()
                for n in self.parameter_names
            }
            for s in starts
        ]
        small = [c.take(f) for c, f in zip(self.compactions, filled, strict=True)]
        return {n: t.to(torch.uint8) for n, t in self._padded(small).items() if n in names}

    def _inputs(self) -> None:
        """Samples with only the columns in use: one set for all modules, or one each."""
        keeps = [c.keep["input"] for c in self.compactions]
        width = self.parameters["layers.0.weight"].shape[2]
        self.shared = all(torch.equal(k, keeps[0]) for k in keeps)
        if self.shared:
            self.samples, self.held_out = (
                _columns(x, keeps[0].to(x.device), width) for x in (self.x, self.x_validation)
            )
            self.columns = self.alone  # not read
        else:
            self.samples, self.held_out = self.x, self.x_validation
            columns = torch.full((len(keeps), width), -1, dtype=torch.int32)
            for k, keep in enumerate(keeps):
                columns[k, : len(keep)] = keep
            self.columns = columns.to(self.job.device)

    def _workspace(self) -> None:
        modules, batch, device = len(self.job.tasks), self.job.batch, self.job.device
        sets = len(self.seeds) if self.shared else modules
        widths = [self.parameters[f"layers.{i}.weight"].shape[2] for i in range(self.layers)]
        self.batch_x = _twice(sets, batch, widths[0], device)
        self.batch_y = torch.zeros(sets, batch, dtype=torch.int32, device=device)
        self.hidden = [_twice(modules, batch, w, device) for w in widths[1:]]
        outputs = self.objectives.table.shape[2]
        self.down = [_twice(modules, batch, w, device) for w in (*widths[1:], outputs)]

    def _full(self, k: int, values: Values, base: Values) -> Values:
        cut = {
            n: t.cpu()[tuple(slice(size) for size in self.forms[k][n])] for n, t in values.items()
        }
        compaction: Compaction = self.compactions[k]
        return compaction.put(cut, base)

    # training

    def epoch(
        self, round_: int, epoch: int, rates: Sequence[float], active: Sequence[bool]
    ) -> Tensor:
        for row, order in enumerate(self.orders(round_, epoch).values()):
            self.order[row].copy_(order)
        self.draws.copy_(
            torch.tensor(
                [
                    [stream(self.dropout_stream(k, round_, epoch), i) for k in range(len(rates))]
                    for i in range(self.layers - 1)
                ]
            )
        )
        self.rate.copy_(torch.tensor(rates))
        self.loss.zero_()
        steps = self.job.steps
        unit = max(n for n in range(1, min(GRAPH, steps) + 1) if steps % n == 0)
        if self.graphs and self.graph is None:
            self.graph = self._capture(unit)
        self.cursor.fill_(-self.job.batch)
        self.active.copy_(torch.tensor(active, dtype=torch.int32))
        for _ in range(steps // unit if self.graph else steps):
            if self.graph:
                self.graph.replay()
            else:
                self._step()
        return self.loss.cpu() / steps

    def _capture(self, unit: int) -> torch.cuda.CUDAGraph:
        self.active.zero_()  # warm up without moving a weight
        self.cursor.fill_(-self.job.batch)
        self._step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(unit):
                self._step()
        return graph

    def _step(self) -> None:
        modules, batch = len(self.job.tasks), self.job.batch
        tall = triton.next_power_of_2(max(16, batch))
        sets, _, width = self.batch_x[0].shape
        kernels.advance[(triton.cdiv(modules, 128),)](
            self.steps, self.active, self.cursor, self.rate, self.step_size, self.root,
            batch, modules, LOG_BETA1=log(BETAS[0]), LOG_BETA2=log(BETAS[1]), BLOCK=128,
        )  # fmt: skip
        kernels.gather[(sets, triton.cdiv(width, 64))](
            self.samples, self.labels_all, self.order, self.columns, self.cursor, self.seed_of,
            *self.batch_x, self.batch_y, self.order.shape[1], self.samples.shape[1], batch, width,
            COLUMNS=not self.shared, GROUPED=not self.shared, B=tall, BI=64,
        )  # fmt: skip
        groups = self.seed_of if self.shared else self.alone
        for i, h in enumerate(self.hidden):
            weight, bias = self._layer(i)
            below = self.hidden[i - 1] if i else self.batch_x
            kernels.forward[(modules, triton.cdiv(weight.shape[1], 32))](
                below[0], weight, bias, *h, groups, self.draws[i], self.cursor,
                batch, weight.shape[2], weight.shape[1], self.dropout, self.widths[i],
                GROUPED=i == 0, DROP=self.dropout > 0, PRECISION=self.precision,
                B=tall, BO=32, BI=32, num_warps=4, num_stages=4,
            )  # fmt: skip
        self._head(tall, groups)
        for i in range(self.layers - 1, -1, -1):
            if i:
                self._back(i, tall)
            self._update(i, tall, groups)

    def _layer(self, i: int) -> tuple[Tensor, Tensor]:
        return self.parameters[f"layers.{i}.weight"], self.parameters[f"layers.{i}.bias"]

    def _head(self, tall: int, groups: Tensor) -> None:
        weight, objectives = self.parameters[f"layers.{self.layers - 1}.weight"], self.objectives
        modules, outputs, inputs = weight.shape
        kernels.head[(modules,)](
            self.hidden[-1][0], weight, *self.down[-1], self.batch_y, groups,
            objectives.table, objectives.weight, objectives.bonus, self.active, self.loss,
            self.job.batch, inputs, outputs, objectives.table.shape[1], self.job.temperature,
            BONUS=objectives.has_bonus, PRECISION=self.precision,
            B=tall, C=triton.next_power_of_2(max(16, outputs)), BI=64, num_warps=4, num_stages=3,
        )  # fmt: skip

    def _back(self, i: int, tall: int) -> None:
        """The gradient at the sums of layer i - 1."""
        weight = self.parameters[f"layers.{i}.weight"]
        modules, outputs, inputs = weight.shape
        kernels.back[(modules, triton.cdiv(inputs, 64))](
            self.down[i][0], weight, self.hidden[i - 1][0], *self.down[i - 1],
            self.job.batch, inputs, outputs, self.dropout, PRECISION=self.precision,
            B=tall, BO=16 if outputs <= 16 else 32, BI=64, num_warps=4, num_stages=3,
        )  # fmt: skip

    def _update(self, i: int, tall: int, groups: Tensor) -> None:
        name, bias_name = f"layers.{i}.weight", f"layers.{i}.bias"
        weight = self.parameters[name]
        biased = bias_name in self.parameters
        bias = bias_name if biased else name  # not read where there is none
        below = self.hidden[i - 1] if i else self.batch_x
        modules, outputs, inputs = weight.shape
        high, wide, warps = TILE
        kernels.update[(triton.cdiv(inputs, wide), triton.cdiv(outputs, high), modules)](
            self.down[i][1], below[1], weight, self.first[name], self.second[name],
            self.masks.get(name, self.active), self.parameters[bias], self.first[bias],
            self.second[bias], self.masks.get(bias, self.active),
            groups, self.step_size, self.root, self.active, self.job.batch, inputs, outputs,
            BETA1=BETAS[0], BETA2=BETAS[1], EPSILON=EPSILON, GROUPED=i == 0,
            MASKED=name in self.masks, BIAS=biased, BIAS_MASKED=bias_name in self.masks,
            PRECISION=self.precision, B=tall, BO=high, BI=wide, num_warps=warps, num_stages=1,
        )  # fmt: skip

    # validation

    def validate(self) -> Scores:
        return self.objectives.scores(
            self._logits,
            (self.held_out, self.job.y_validation),
            self.job.temperature,
            slice(None),
        )

    def _logits(self, x: Tensor) -> Tensor:
        if not self.shared:
            x = x[:, self.columns.clamp_min(0).long()].transpose(0, 1)  # K, N, I
        for i in range(self.layers - 1):
            weight, bias = self._layer(i)
            x = torch.relu_(torch.matmul(x, weight.transpose(1, 2)) + bias[:, None])
        return torch.matmul(x, self.parameters[f"layers.{self.layers - 1}.weight"].transpose(1, 2))


def _twice(modules: int, batch: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Room for values batch first and batch last."""
    return (
        torch.zeros(modules, batch, width, device=device),
        torch.zeros(modules, width, batch, device=device),
    )


def _lane(size: int) -> int:
    return -(-size // LANE) * LANE


def _columns(x: Tensor, keep: Tensor, width: int) -> Tensor:
    result = torch.zeros(len(x), width, device=x.device)
    result[:, : len(keep)] = x.index_select(1, keep)
    return result
