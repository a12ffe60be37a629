"""What will fit: how much two modules have in common, and what adding their weights will cost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.data import Data, Split
from intarsia.errors import CompositionError, DataError
from intarsia.files import plain
from intarsia.measure.evaluation import Renderable, format_number
from intarsia.measure.matrix import Matrix
from intarsia.measure.pair import blend, check_pair, inputs_of
from intarsia.modules import Bank, Classifier, Module, logits_of
from intarsia.modules.bases.base_weights import common_base
from intarsia.modules.compact import live_hidden_units

if TYPE_CHECKING:
    from rich.table import Table

Samples = Split | Data | np.ndarray | Tensor
MOST = 4096  # rows that the interference is read from; a loss of 1% shows in few of them
STEEPNESS = 20.0  # chosen on the design pairs of benchmarks/experiments/compatibility.py
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
MEASURES = {
    "interference": "expected accuracy lost by adding the weights, from unlabelled samples",
    "mask_jaccard": "weights that both keep, of those that either keeps",
    "unit_overlap": "hidden units that both use, of those that either uses",
    "sign_conflicts": "weights of opposite sign, of those that both keep",
    "cosine": "cosine between the weights",
}


@dataclass(frozen=True, eq=False)
class Compatibility(Renderable):
    """What `compatibility` measured between two modules; nan where there is nothing to measure."""

    modules: tuple[str, str]
    interference: float  # 0 is none; nan without samples
    mask_jaccard: float
    unit_overlap: float
    unit_overlap_per_axis: Mapping[str, float]
    sign_conflicts: float
    cosine: float
    same_origin: bool
    samples: int

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self), "compatibility")

    def __rich__(self) -> "Table":
        from rich.table import Table
        from rich.text import Text

        origin = "one origin" if self.same_origin else "two origins"
        title = f"{self.modules[0]} and {self.modules[1]}, {origin}, {self.samples} samples"
        table = Table(title=Text(title), title_justify="left")
        for heading in ("measure", "value", "meaning"):
            table.add_column(heading, justify="right" if heading == "value" else "left")
        for name, meaning in MEASURES.items():
            table.add_row(name.replace("_", " "), format_number(getattr(self, name)), meaning)
            axes = self.unit_overlap_per_axis if name == "unit_overlap" else {}
            for axis, overlap in axes.items() if len(axes) > 1 else ():
                table.add_row(Text(f"  {axis}"), format_number(overlap), "")
        return table


def compatibility(a: Module, b: Module, samples: Samples | None = None) -> Compatibility:
    """What two modules have in common, and how much accuracy the sum of their weights will lose.

    The interference needs unlabelled raw inputs that hold both modules' classes: an array, a split,
    or a data set, whose validation part is used; at most 4096 rows, evenly spaced. It is the
    accuracy over both modules' classes that the weight sum is expected to lose against the logit
    sum, where the modules themselves say which samples are theirs (see `interference`).

    Of changes of one base it is the changes whose masks, signs and directions are compared.

    Masks are compared over the tensors that either module pruned (1 if none). Modules of different
    origins can be compared, though not added; unit overlap is nan for networks without wiring.
    """
    check_pair(a, b)
    rows = _rows(samples, a)
    return _between(_Seen(a, rows), _Seen(b, rows))


def compatibility_matrix(
    modules: Bank | Iterable[Module], samples: Samples | None = None
) -> Matrix:
    """`compatibility` between every two modules of a bank."""
    modules = tuple(modules)
    if len(modules) < 2:
        raise CompositionError(f"{len(modules)} modules make no pair: give at least two")
    for module in modules[1:]:
        check_pair(modules[0], module)
    rows = _rows(samples, modules[0])
    seen = [_Seen(module, rows) for module in modules]
    measures = {name: np.full((len(seen), len(seen)), np.nan) for name in MEASURES}
    for i, j in combinations(range(len(seen)), 2):
        pair = _between(seen[i], seen[j])
        for name, values in measures.items():
            values[i, j] = values[j, i] = getattr(pair, name)
    return Matrix(tuple(m.name for m in modules), measures, len(rows))


def interference(
    apart: Tensor,
    joined: Tensor,
    posteriors: Iterable[tuple[int, Tensor]],
    temperature: float,
) -> float:
    """Expected loss of accuracy from the logit sum (N x C) to the logits of the weight sum.

    `posteriors` are classes with their P(c|x) over the N samples; a class that no sample can be of
    is left out; nan is a mean over none.
    """
    lost = []
    for c, weight in posteriors:
        fall = _right(apart, c, temperature) - _right(joined, c, temperature)
        if total := float(weight.sum()):
            lost.append(float((weight * fall).sum()) / total)
    return float(np.mean(lost)) if lost else math.nan


def posterior(logits: Tensor, rewarded: Sequence[int], temperature: float) -> dict[int, Tensor]:
    """P(c|x) for each rewarded class, from the logits of a module (N x C) alone."""
    p = torch.softmax(logits / temperature, 1)
    classes, own = p.shape[1], p[:, list(rewarded)]
    if len(rewarded) < classes:
        elsewhere = (1 - own.sum(1, keepdim=True)) / (1 - len(rewarded) / classes)
        own = (own - elsewhere / classes).clamp_min(0)
    return dict(zip(rewarded, own.T, strict=True))


def joined_logits(merged: Classifier, rows: Tensor) -> Tensor:
    """The logits of a weight sum, whose BatchNorm layers normalise by these rows.

    The statistics of neither part fit their sum. The classifier is left in this mode.
    """
    for layer in merged.modules():
        if isinstance(layer, NORMS):
            layer.train(len(rows) > 1)
    with torch.no_grad():
        return merged(rows)


class _Seen:
    """A module and what each of its pairs needs of it, computed once."""

    def __init__(self, module: Module, rows: Tensor) -> None:
        self.module, self.rows = module, rows

    @cached_property
    def logits(self) -> Tensor:
        return logits_of(self.module.to_module(), self.rows).double()  # N, C

    @cached_property
    def posterior(self) -> dict[int, Tensor]:
        """P(c|x) for each rewarded class, by the module's own word."""
        classes = [self.module.catalogue.index(name) for name in self.module.rewarded]
        return posterior(self.logits, classes, self.module.temperature)

    @cached_property
    def live(self) -> dict[str, Tensor]:
        return live_hidden_units(self.module)

    @cached_property
    def flat(self) -> Tensor:
        """All parameters, one after another."""
        return self._flattened(self.module.state)

    @cached_property
    def change(self) -> Tensor:
        """How far they are from the base's."""
        assert self.module.base is not None
        return self.flat - self._flattened(self.module.base.state)

    def _flattened(self, state: Mapping[str, Tensor]) -> Tensor:
        plan = self.module.plan
        return torch.cat([state[n].flatten() for n, e in plan.items() if e.learned]).double()

    @cached_property
    def kept(self) -> Tensor:
        """True where they survived."""
        return torch.cat([self.keeps(n) for n, e in self.module.plan.items() if e.learned])

    def keeps(self, name: str) -> Tensor:
        shape = self.module.plan[name].shape
        everything = torch.ones(shape, dtype=torch.bool)
        return self.module.mask.get(name, everything).flatten()


def _between(one: _Seen, other: _Seen) -> Compatibility:
    a, b = one.module, other.module
    pruned = [name for name in a.plan if name in a.mask or name in b.mask]
    masks = [(one.keeps(name), other.keeps(name)) for name in pruned]
    both = one.kept & other.kept
    changes = common_base((a, b)) is not None
    mine, others = (one.change, other.change) if changes else (one.flat, other.flat)
    opposite = both & (mine * others < 0)
    units = {axis: (live, other.live[axis]) for axis, live in one.live.items()}
    length = float(mine.norm() * others.norm())
    return Compatibility(
        modules=(a.name, b.name),
        interference=_interference(one, other),
        mask_jaccard=_jaccard(masks) if masks else 1.0,
        unit_overlap=_jaccard(units.values()),
        unit_overlap_per_axis={axis: _jaccard([pair]) for axis, pair in units.items()},
        sign_conflicts=_ratio(int(opposite.sum()), int(both.sum())),
        cosine=float(mine @ others) / length if length else math.nan,
        same_origin=a.origin == b.origin,
        samples=len(one.rows),
    )


def _interference(one: _Seen, other: _Seen) -> float:
    """nan without samples."""
    if not len(one.rows):
        return math.nan
    a, b = one.module, other.module
    joined = joined_logits(blend(a, b, 1.0, 1.0), one.rows).double()
    posteriors = [*one.posterior.items(), *other.posterior.items()]
    return interference(one.logits + other.logits, joined, posteriors, a.temperature)


def _jaccard(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    pairs = list(pairs)
    return _ratio(
        sum(int((one & other).sum()) for one, other in pairs),
        sum(int((one | other).sum()) for one, other in pairs),
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _rows(samples: Samples | None, module: Module) -> Tensor:
    """None of them where no samples are given."""
    if samples is None:
        return torch.zeros(0, *module.architecture.shape)
    rows = inputs_of(samples, module, MOST)
    if not len(rows):
        raise DataError("there are no samples to read the interference from: give some, or None")
    return rows


def _right(logits: Tensor, c: int, temperature: float) -> Tensor:
    """1 where class c is answered, 0 where it is not, between them where it is close."""
    others = logits.index_fill(1, torch.tensor([c]), -math.inf).amax(1)
    return torch.sigmoid(STEEPNESS * (logits[:, c] - others) / temperature)
