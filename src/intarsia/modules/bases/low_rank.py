"""Low rank: the change of a weight as a product of two thin matrices, kept and stored as these."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from intarsia.errors import ModelError, shortened
from intarsia.modules.architecture import Plan
from intarsia.modules.bases.base_weights import Base

TYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, eq=False)
class LowRank:
    """A change of scale * up @ down; kernels of a convolution lie in the columns of `down`."""

    up: Tensor  # outputs, rank
    down: Tensor  # rank, inputs (of a convolution: times the entries of a kernel)
    scale: float = 1.0

    def __post_init__(self) -> None:
        for key in ("up", "down"):
            own = getattr(self, key).detach().cpu()
            object.__setattr__(self, key, own.clone(memory_format=torch.contiguous_format))
        object.__setattr__(self, "scale", float(self.scale))

    @property
    def rank(self) -> int:
        return int(self.down.shape[0])

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise ModelError unless it can be a change of a weight of this shape."""
        rows, columns = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (0, 0)
        seen = (tuple(self.up.shape), tuple(self.down.shape))
        rank = seen[0][-1] if seen[0] else 0
        if not rows or rank < 1 or seen != ((rows, rank), (rank, columns)):
            raise ModelError(
                f"the low-rank change of {name!r} has the factors {seen[0]} and {seen[1]}: a "
                f"weight of shape {shape} needs ({rows}, r) and (r, {columns})"
            )
        if self.up.dtype not in TYPES or self.down.dtype not in TYPES:
            raise ModelError(
                f"the low-rank change of {name!r} is {self.up.dtype} and {self.down.dtype}: "
                "expected float32, float16 or bfloat16"
            )
        finite = bool(torch.isfinite(self.up).all() and torch.isfinite(self.down).all())
        if not finite or not math.isfinite(self.scale):
            raise ModelError(
                f"the low-rank change of {name!r} holds values that are not finite: it diverged; "
                "train it again with a lower learning rate"
            )

    def added_to(self, base: Tensor) -> Tensor:
        """base + scale * up @ down, with the same bits on every machine.

        In float64 the product of two float32 is exact, and the `rank` products of an entry are
        added one after another: no library chooses an order of its own.
        """
        up, down = self.up.double(), self.down.double()
        change = torch.zeros(len(up), down.shape[1], dtype=torch.float64)
        for column, row in zip(up.unbind(1), down.unbind(0), strict=True):
            change += column[:, None] * row
        change *= self.scale
        change += base.reshape(len(up), -1).double()
        return change.to(base.dtype).reshape(base.shape)


def with_low_rank(
    module: str,
    state: Mapping[str, Tensor],
    mask: Mapping[str, Tensor],
    low_rank: Mapping[str, LowRank],
    base: Base | None,
    plan: Plan,
) -> dict[str, Tensor]:
    """The state with every weight that changed by a low rank; one that is given must be it."""
    if low_rank and base is None:
        raise ModelError(
            f"module {shortened(module)} has changes of low rank and no base: give what they change"
        )
    full = dict(state)
    for name, change in low_rank.items():
        assert base is not None
        if name not in plan or not plan[name].learned or name in mask:
            what = "a mask too" if name in mask else "no such parameter"
            raise ModelError(
                f"module {shortened(module)} has a low-rank change of {shortened(name)} and {what}"
            )
        change.check(name, plan[name].shape)
        merged = change.added_to(base.state[name])
        if name in state and not torch.equal(state[name].detach().cpu(), merged):
            raise ModelError(
                f"module {shortened(module)}: {name!r} is not its base plus its low-rank change: "
                "leave it out of the state, or leave the low-rank change out"
            )
        full[name] = merged
    return full
