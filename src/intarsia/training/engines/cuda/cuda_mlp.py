"""Mlp engine for CUDA: all modules at once by the kernels, compacted, whole epochs as graphs."""

import torch
from torch import Tensor

from intarsia.files import stream
from intarsia.models import Mlp
from intarsia.training.engines.base import Scores, Start
from intarsia.training.engines.compaction import Compaction, compaction_of, inputs_in_use
from intarsia.training.engines.cuda.cuda_engine import CudaEngine, Values, twice
from intarsia.training.job import Job

LANE = 16  # axes are padded to this, so that rows start where wide loads can


class CudaMlpEngine(CudaEngine):
    """Trains K `models.Mlp` networks with one read of each weight forward and one update back."""

    def __init__(self, job: Job, precision: str = "tf32x3", graphs: bool = True) -> None:
        super().__init__(job, precision, graphs)
        assert isinstance(job.network, Mlp)
        self.dropout, self.layers = job.network.dropout, len(job.network.layers)
        weights = [job.network.layers[i].weight for i in range(self.layers - 1)]
        self.widths = [_lane(len(w)) for w in weights]  # type: ignore[arg-type]
        self.x, self.x_validation = job.x.flatten(1), job.x_validation.flatten(1)
        self.in_use = inputs_in_use(job)
        shape = (self.layers - 1, len(job.tasks))
        self.draws = torch.zeros(shape, dtype=torch.int64, device=job.device)

    # layout

    def _prepare(self, starts: list[Start]) -> None:
        assert self.job.wiring is not None
        self.compactions = [
            compaction_of(self.job.wiring, start, in_use)
            for start, in_use in zip(starts, self.in_use, strict=True)
        ]
        small = [c.take(s.state) for c, s in zip(self.compactions, starts, strict=True)]
        self.forms = [{n: tuple(t.shape) for n, t in state.items()} for state in small]
        names = [f"layers.{i}.weight" for i in range(self.layers)]
        widths = [_lane(max(form[n][1] for form in self.forms)) for n in names]
        self._inputs(widths[0])
        self._workspace(widths)

    def _layout(self, values: list[Values]) -> Values:
        """Compacted, and filled up with zeros where modules differ in size."""
        small = [c.take(v) for c, v in zip(self.compactions, values, strict=True)]
        stacks = {}
        for name in self.parameter_names:
            tensors = [s[name] for s in small]
            sizes = [_lane(max(t.shape[d] for t in tensors)) for d in range(tensors[0].ndim)]
            if name == f"layers.{self.layers - 1}.weight":
                sizes[0] = tensors[0].shape[0]  # the outputs stay as they are
            stacked = torch.zeros(len(tensors), *sizes, dtype=tensors[0].dtype)
            for k, t in enumerate(tensors):
                stacked[k][tuple(slice(size) for size in t.shape)] = t
            stacks[name] = stacked.to(self.job.device)
        return stacks

    def _inputs(self, width: int) -> None:
        """Samples with only the columns in use: one set for all modules, or one each."""
        keeps = [c.keep["input"] for c in self.compactions]
        self.columns: Tensor | None = None
        if all(torch.equal(k, keeps[0]) for k in keeps):
            self.samples, self.held_out = (
                _columns(x, keeps[0].to(x.device), width) for x in (self.x, self.x_validation)
            )
        else:
            self.samples, self.held_out = self.x, self.x_validation
            columns = torch.full((len(keeps), width), -1, dtype=torch.int32)
            for k, keep in enumerate(keeps):
                columns[k, : len(keep)] = keep
            self.columns = columns.to(self.job.device)

    def _workspace(self, widths: list[int]) -> None:
        modules, batch, device = len(self.job.tasks), self.job.batch, self.job.device
        sets = len(self.groups) if self.columns is None else modules
        self.batch_x = twice(sets, batch, widths[0], device)
        self.batch_y = torch.zeros(sets, batch, dtype=torch.int32, device=device)
        self.hidden = [twice(modules, batch, w, device) for w in widths[1:]]
        outputs = self.objectives.table.shape[2]
        self.down = [twice(modules, batch, w, device) for w in (*widths[1:], outputs)]

    def _full(self, k: int, values: Values, base: Values) -> Values:
        cut = {
            n: t.cpu()[tuple(slice(size) for size in self.forms[k][n])] for n, t in values.items()
        }
        compaction: Compaction = self.compactions[k]
        return compaction.put(cut, base)

    # training

    def _draw(self, round_: int, epoch: int) -> None:
        streams = [self.dropout_stream(k, round_, epoch) for k in range(len(self.job.tasks))]
        rows = [[stream(s, i) for s in streams] for i in range(self.layers - 1)]
        self.draws.copy_(torch.tensor(rows))

    def _step(self) -> None:
        self._advance()
        self._gather(self.samples, self.batch_x, self.batch_y, self.columns)
        groups = self.group_of if self.columns is None else self.alone
        below, last = [self.batch_x, *self.hidden], self.layers - 1
        for i, h in enumerate(self.hidden):
            self._forward(
                f"layers.{i}",
                below[i][0],
                h,
                self.job.batch,
                None if i else groups,
                self.draws[i],
                self.widths[i],
            )
        self._head(f"layers.{last}", below[last][0], self.down[last], self.batch_y, groups)
        for i in range(last, -1, -1):
            if i:
                self._back(f"layers.{i}", self.down[i][0], below[i][0], self.down[i - 1])
            self._update(f"layers.{i}", self.down[i][1], below[i][1], None if i else groups)

    # validation

    def validate(self) -> Scores:
        return self._scores(self._logits, self.held_out, slice(None))

    def _logits(self, x: Tensor) -> Tensor:
        if self.columns is not None:
            x = x[:, self.columns.clamp_min(0).long()].transpose(0, 1)  # K, N, I
        for i in range(self.layers - 1):
            weight = self.parameters[f"layers.{i}.weight"]
            bias = self.parameters[f"layers.{i}.bias"]
            x = torch.relu_(torch.matmul(x, weight.transpose(1, 2)) + bias[:, None])
        return torch.matmul(x, self.parameters[f"layers.{self.layers - 1}.weight"].transpose(1, 2))


def _lane(size: int) -> int:
    return -(-size // LANE) * LANE


def _columns(x: Tensor, keep: Tensor, width: int) -> Tensor:
    columns = torch.zeros(len(x), width, device=x.device)
    columns[:, : len(keep)] = x.index_select(1, keep)
    return columns
