"""Whether a wiring is true: units may change places, and one that is not read does not matter."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from intarsia.errors import WiringError
from intarsia.models.axes import (
    Dimension,
    Parts,
    Wiring,
    axis_sizes,
    hidden_axes,
    joint_axes,
    runs,
)
from intarsia.models.custom.trial import Trial, filled, trial_of
from intarsia.models.units import live_units, take_units

TOLERANCE = 1e-8  # of the answers' size, in float64: above rounding, below any other function
COARSE = 1e3  # times the rounding of a network that goes on in float32 by itself
SMALLEST = 1e-3  # of the largest answers: below it a row's own size may be rounding

# What is said of an axis that fails.
MOVED = (
    "when the units of axis {!r} change places, the network answers otherwise, so some tensor has "
    "them in another order, or is left out; correct the entries of that axis, or put None for them"
)
UNREAD = (
    "a unit of axis {!r} that no weight reads still changes the answers; mark the axis joint if "
    "its units meet outside the weights, as in LayerNorm: Axis(name, joint=True)"
)


def check_units(network: nn.Module, wiring: Wiring, shape: tuple[int, ...]) -> bool:
    """Raise WiringError, naming the axis, unless the network's answers bear the wiring out.

    Tried with fixed weights and inputs, in float64. False for a network that answers by chance, or
    not in float64, or that goes on in half precision by itself, and cannot be tried.
    """
    axes = hidden_axes(wiring)
    if not axes or any(tensor.is_meta for tensor in network.state_dict().values()):
        return True
    trial = trial_of(network, shape)
    if trial is None or not trial.repeats() or trial.rounding > torch.finfo(torch.float32).eps:
        return False
    kind, joint = type(network).__name__, joint_axes(wiring)
    _check_reading(kind, wiring, trial)
    others = [axis for axis in axes if axis not in joint]
    for some, change, fault in ((axes, _moved, MOVED), (others, _unread, UNREAD)):
        wrong = _wrong(some, trial, partial(change, wiring=wiring, trial=trial))
        if wrong:
            raise WiringError(f"the wiring of {kind} is wrong: {fault.format(wrong)}")
    return True


def with_joint(network: nn.Module, wiring: Wiring, shape: tuple[int, ...]) -> Wiring:
    """The wiring with those axes marked joint whose units cannot be left out alone.

    Units that are multiplied with one another, as queries and keys are, are read by no weight; in
    a matrix that is multiplied from the other side, dimension 0 reads. Neither can be told from
    the axes' names, so it is tried out.
    """
    axes, state = hidden_axes(wiring), network.state_dict()
    if not axes or any(tensor.is_meta for tensor in state.values()):
        return wiring
    live = live_units(wiring, state, {})
    wrong = {axis for axis in axes if not bool(live[axis].all())}
    try:
        trial = Trial(network, shape)
        others = [axis for axis in axes if axis not in joint_axes(wiring) | wrong]
        change = partial(_unread, wiring=wiring, trial=trial)
        while (axis := _wrong(others, trial, change)) is not None:
            wrong |= set(axis.split(", ")) if axis not in others else {axis}
            others = [axis for axis in others if axis not in wrong]
    except Exception:  # it will be said that it cannot be tried
        return wiring
    return {name: tuple(_joined(d, wrong) for d in entry) for name, entry in wiring.items()}


def unit_that_cannot_be_empty(
    network: nn.Module, wiring: Wiring, shape: tuple[int, ...]
) -> str | None:
    """The axis of which a unit whose weights are all 0 breaks the answers, where there is one.

    Weight norm divides by the size of a unit's weights.
    """
    trial = trial_of(network, shape)
    if trial is None:
        return None
    fixed, answers = trial.fixed, trial.answers
    sizes = axis_sizes(wiring, fixed)

    def is_broken(axis: str) -> bool:
        state = dict(fixed)
        for name, _ in network.named_parameters():
            state[name] = state[name].clone()
            for run in runs(wiring[name], state[name].shape, sizes):
                if run.axis.name == axis:
                    run.of(state[name]).narrow(run.dimension, 0, run.axis.block).zero_()
        return not bool(torch.isfinite(answers(state)).all())

    return next(filter(is_broken, hidden_axes(wiring)), None)


def _joined(dimension: Dimension, names: set[str]) -> Dimension:
    if isinstance(dimension, Parts):
        parts = (p if isinstance(p, int) else _joined(p, names) for p in dimension.parts)
        return Parts(
            tuple(part for part in parts if part is not None and not isinstance(part, Parts))
        )
    if dimension is None or dimension.name not in names:
        return dimension
    return replace(dimension, joint=True)


def _check_reading(kind: str, wiring: Wiring, trial: Trial) -> None:
    """With every weight there, every unit must have a way to the output."""
    state = {name: trial.own[name] for name in wiring}
    live = live_units(wiring, state, {})
    dead = next((axis for axis in hidden_axes(wiring) if not bool(live[axis].all())), None)
    if dead is not None:
        raise WiringError(
            f"the wiring of {kind} is wrong: no weight leads from axis {dead!r} to the output; "
            "dimension 0 of a weight gives units and dimension 1 reads them, as in torch.nn.Linear"
        )


def _wrong(
    axes: Sequence[str], trial: Trial, change: Callable[[Sequence[str]], float]
) -> str | None:
    """The first axis with which something changes, found in as many trials as axes have bits.

    Axis i takes part in the trials of the bits of i + 1, so that of any two axes one is tried
    without the other: two halves of one axis could else change places together unseen.
    """
    least = max(TOLERANCE, COARSE * trial.rounding)
    for bit in range(len(axes).bit_length()):
        some = [axis for i, axis in enumerate(axes, 1) if i >> bit & 1]
        if change(some) > least:
            return next((axis for axis in some if change([axis]) > least), ", ".join(some))
    return None


def _moved(axes: Sequence[str], wiring: Wiring, trial: Trial) -> float:
    """How much the answers change when the units of some axes change places.

    Two change places, then all move on by one: every other order follows from these two, while
    one order alone may be that of a network which treats its units by their places.
    """
    state = {name: trial.fixed[name] for name in wiring}
    sizes = axis_sizes(wiring, state)
    before = trial.answers(trial.fixed)
    off = 0.0
    for order in (_swapped, _rolled):
        orders = {axis: order(sizes[axis]) for axis in axes}
        after = trial.answers(trial.fixed | take_units(state, wiring, orders))
        off = max(off, _apart(before, after))
    return off


def _swapped(units: int) -> Tensor:
    order = torch.arange(units)
    order[:2] = order[:2].flip(0)
    return order


def _rolled(units: int) -> Tensor:
    return torch.arange(units).roll(1)


def _unread(axes: Sequence[str], wiring: Wiring, trial: Trial) -> float:
    """How much it changes the answers what the last unit of each axis computes, read by none."""
    before, after = trial.fixed, filled(trial.own, seed=1)
    sizes = axis_sizes(wiring, before)
    one: dict[str, Tensor] = dict(before)
    other: dict[str, Tensor] = dict(before)
    for name, entry in wiring.items():
        reads = torch.ones_like(before[name], dtype=torch.bool)
        gives = torch.zeros_like(reads)
        for run in runs(entry, before[name].shape, sizes):
            if run.axis.name not in axes:
                continue
            end, last = run.start + run.length, run.axis.block
            if run.dimension:
                reads.narrow(run.dimension, end - last, last).fill_(False)
            else:
                gives[end - last : end] = True
        if not before[name].is_floating_point():
            continue
        one[name] = torch.where(reads, before[name], 0)
        other[name] = torch.where(reads, torch.where(gives, after[name], before[name]), 0)
    return _apart(trial.answers(one), trial.answers(other))


def _apart(first: Tensor, second: Tensor) -> float:
    """How far answers are apart, of the size of their row: large ones would hide small ones."""
    rows = first.abs().flatten(1).amax(1)
    size = rows.maximum(SMALLEST * rows.amax()).clamp_min(1e-30)
    off = ((first - second).abs().flatten(1).amax(1) / size).amax()
    return float(off) if bool(torch.isfinite(off)) else float("inf")
