"""Which unit of one network plays the part of which unit of another, read off their weights."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from intarsia.models.axes import (
    INPUT,
    OUTPUT,
    TensorAxes,
    UnitRun,
    Wiring,
    axis_sizes,
    hidden_axes,
    names_in,
    runs,
)

Orders = dict[str, Tensor]
"""Hidden axis -> the unit to take to each place, as `take_units` reads it."""

# Below these fractions of the largest value everything is rounding.
NO_GAIN, NO_SPREAD, STAY = 1e-9, 1e-6, 1e-9


def match_weights(
    reference: Mapping[str, Tensor], other: Mapping[str, Tensor], wiring: Wiring, seed: int = 0
) -> Orders:
    """The orders of the other's units that bring its weights nearest to the reference's.

    Weight matching of Git Re-Basin (https://arxiv.org/abs/2209.04836): one linear assignment per
    axis from all tensors that carry it, axis after axis in a seeded order, until none gains. Every
    tensor that has units counts, biases and running statistics too, each in units of its own
    spread, so that none drowns another by its scale. Two starts, the better end is taken: all units
    stay (modules of one origin begin aligned), and outward from the input and the output, which are
    fixed, to the axes next to them and on. Planted in noise as large as the weights, either of the
    two alone is sometimes caught in a worse end, both together were not.
    """
    pairs = _pairs(reference, other, wiring)
    sizes = axis_sizes(wiring, reference)
    axes = {axis: sizes[axis] for axis in hidden_axes(wiring)}
    starts = ({axis: _stay(size) for axis, size in axes.items()}, _outward(pairs, axes))
    generator = torch.Generator().manual_seed(seed)
    ends = [_descend(pairs, start, generator) for start in starts]
    scores = [_agreement(pairs, end) for end in ends]
    return ends[1] if _gains(scores[1], scores[0]) else ends[0]


def assign(similarity: Tensor) -> Tensor:
    """The column for every row that makes the sum largest; of equally good ones, units that stay.

    Dead units are like any other dead unit: they would move for nothing.
    """
    from scipy.optimize import linear_sum_assignment  # a quarter of the time that starting takes

    stay = STAY * float(similarity.abs().max()) if similarity.numel() else 0.0
    weighed = similarity.double() + stay * torch.eye(len(similarity), dtype=torch.float64)
    _, columns = linear_sum_assignment(weighed.numpy(), maximize=True)
    return torch.from_numpy(np.asarray(columns, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class _Pair:
    """One tensor of both networks; the reference's is divided by the square of their spread."""

    entry: TensorAxes
    runs: list[UnitRun]
    reference: Tensor
    other: Tensor

    def names(self, leave: int | None = None) -> set[str]:
        """The axes that can move, without those of dimension `leave`."""
        entry = tuple(axis for d, axis in enumerate(self.entry) if d != leave)
        return names_in(entry) - {INPUT, OUTPUT}

    def moved(self, orders: Mapping[str, Tensor], leave: int | None = None) -> Tensor:
        """The other's tensor with its units in the orders given, but for dimension `leave`."""
        moved = self.other
        for run in self.runs:
            order = orders.get(run.axis.name)
            if run.dimension == leave or order is None or torch.equal(order, _stay(len(order))):
                continue
            block = torch.arange(run.axis.block)
            entries = (order[:, None] * run.axis.block + block).flatten()
            taken = run.of(moved).index_select(run.dimension, entries)
            if run.length == moved.shape[run.dimension]:
                moved = taken
            else:
                moved = moved.clone()
                run.of(moved).copy_(taken)
        return moved


def _stay(size: int) -> Tensor:
    return torch.arange(size)


def _pairs(
    reference: Mapping[str, Tensor], other: Mapping[str, Tensor], wiring: Wiring
) -> list[_Pair]:
    pairs, sizes = [], axis_sizes(wiring, reference)
    for name, entry in wiring.items():
        if not reference[name].is_floating_point() or not any(entry):
            continue
        one, two = (state[name].detach().cpu().double() for state in (reference, other))
        spread = max(float(one.std(correction=0)), float(two.std(correction=0)))
        if spread > NO_SPREAD * max(float(one.abs().max()), float(two.abs().max())):
            own = runs(entry, one.shape, sizes)
            pairs.append(_Pair(entry, own, one / spread**2, two))
    return pairs


def _outward(pairs: list[_Pair], axes: Mapping[str, int]) -> Orders:
    """Match the axis of which most is known, by the tensors whose other axes are all matched."""
    orders: Orders = {}
    while waiting := [axis for axis in axes if axis not in orders]:
        axis = max(waiting, key=lambda axis: _evidence(pairs, axis, orders))
        orders[axis] = assign(_similarity(pairs, axis, axes[axis], orders, known=orders))
    return {axis: orders[axis] for axis in axes}


def _descend(pairs: list[_Pair], start: Orders, generator: torch.Generator) -> Orders:
    """Assign axis after axis until none gains; one whose neighbours have stayed is left out."""
    orders, axes = dict(start), list(start)
    carriers = {axis: [pair for pair in pairs if axis in pair.names()] for axis in axes}
    current: set[str] = set()  # assigned, and no neighbour has moved since
    gained = True
    while gained:
        gained = False
        for place in torch.randperm(len(axes), generator=generator).tolist():
            axis = axes[place]
            if axis in current:
                continue
            own = carriers[axis]
            similarity = _similarity(own, axis, len(orders[axis]), orders)
            moved = orders | {axis: assign(similarity)}
            twice = [pair for pair in own if len(_places([pair], axis, None)) > 1]
            if twice:  # which makes the assignment an approximation
                after, before = _agreement(own, moved), _agreement(own, orders)
            else:
                after, before = (_along(similarity, each[axis]) for each in (moved, orders))
            current.add(axis)
            if _gains(after, before):
                orders, gained = moved, True
                neighbours = set().union(*(pair.names() for pair in own))
                current -= neighbours if twice else neighbours - {axis}
    return orders


def _similarity(
    pairs: list[_Pair],
    axis: str,
    size: int,
    orders: Mapping[str, Tensor],
    known: Iterable[str] | None = None,
) -> Tensor:
    """Units of the reference x units of the other, summed over the tensors that carry the axis."""
    total = torch.zeros(size, size, dtype=torch.float64)
    for pair, run in _places(pairs, axis, known):
        total += run.by_unit(pair.reference) @ run.by_unit(pair.moved(orders, run.dimension)).T
    return total


def _evidence(pairs: list[_Pair], axis: str, known: Iterable[str]) -> int:
    """How many numbers can be compared for all units of an axis at once."""
    return sum(
        pair.reference.numel() // pair.reference.shape[run.dimension]
        for pair, run in _places(pairs, axis, known)
    )


def _places(
    pairs: list[_Pair], axis: str, known: Iterable[str] | None
) -> list[tuple[_Pair, UnitRun]]:
    """Where an axis is carried; with `known`, only by tensors whose other axes are known."""
    return [
        (pair, run)
        for pair in pairs
        for run in pair.runs
        if run.axis.name == axis and (known is None or pair.names(run.dimension) <= set(known))
    ]


def _agreement(pairs: list[_Pair], orders: Mapping[str, Tensor]) -> float:
    return sum(float((pair.reference * pair.moved(orders)).sum()) for pair in pairs)


def _along(similarity: Tensor, order: Tensor) -> float:
    """What all units agree in, each with the one that is taken to its place."""
    return float(similarity.gather(1, order[:, None]).sum())


def _gains(after: float, before: float) -> bool:
    return after - before > NO_GAIN * max(abs(after), abs(before))
