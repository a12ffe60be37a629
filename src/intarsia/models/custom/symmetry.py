"""Whether a wiring is true: units may change places, and one that is not read does not matter."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

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
from intarsia.models.custom.trial import Trial, filled
from intarsia.models.units import live_units, take_units

TOLERANCE = 1e-8  # of the answers' size, in float64: above rounding, below any other function


def check_units(network: nn.Module, wiring: Wiring, shape: tuple[int, ...]) -> bool:
    """Raise WiringError, naming the axis, unless the network's answers bear the wiring out.

    Tried with fixed weights and inputs, in float64. False for a network that answers by chance, or
    not in float64, and cannot be tried.
    """
    axes = hidden_axes(wiring)
    if not axes or any(tensor.is_meta for tensor in network.state_dict().values()):
        return True
    try:
        trial = Trial(network, shape)
        if not trial.repeats():
            return False
    except Exception:  # whatever custom code says to float64
        return False
    kind = type(network).__name__
    _check_reading(kind, wiring, trial)
    wrong = _wrong(axes, lambda some: _moved(some, wiring, trial))
    if wrong:
        raise WiringError(
            f"the wiring of {kind} is wrong: when the units of axis {wrong!r} change places, the "
            "network answers otherwise, so some tensor has them in another order, or is left out; "
            "correct the entries of that axis, or put None for them"
        )
    joint = joint_axes(wiring)
    wrong = _wrong([a for a in axes if a not in joint], lambda some: _unread(some, wiring, trial))
    if wrong:
        raise WiringError(
            f"the wiring of {kind} is wrong: a unit of axis {wrong!r} that no weight reads still "
            "changes the answers; mark the axis joint if its units meet outside the weights, as in "
            "LayerNorm: Axis(name, joint=True)"
        )
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
        while (axis := _wrong(others, lambda some: _unread(some, wiring, trial))) is not None:
            wrong |= set(axis.split(", ")) if axis not in others else {axis}
            others = [axis for axis in others if axis not in wrong]
    except Exception:  # it will be said that it cannot be tried
        return wiring
    return {name: tuple(_joined(d, wrong) for d in entry) for name, entry in wiring.items()}


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


def _wrong(axes: Sequence[str], change: Callable[[Sequence[str]], float]) -> str | None:
    """The first axis with which something changes, found in as many trials as axes have bits.

    Axis i takes part in the trials of the bits of i + 1, so that of any two axes one is tried
    without the other: two halves of one axis could else change places together unseen.
    """
    for bit in range(len(axes).bit_length()):
        some = [axis for i, axis in enumerate(axes, 1) if i >> bit & 1]
        if change(some) > TOLERANCE:
            return next((axis for axis in some if change([axis]) > TOLERANCE), ", ".join(some))
    return None


def _moved(axes: Sequence[str], wiring: Wiring, trial: Trial) -> float:
    """How much the answers change when the units of some axes change places."""
    state = {name: trial.fixed[name] for name in wiring}
    sizes = axis_sizes(wiring, state)
    orders = {axis: _order(sizes[axis], place) for place, axis in enumerate(axes)}
    return _apart(trial, trial.fixed, trial.fixed | take_units(state, wiring, orders))


def _order(units: int, place: int) -> Tensor:
    """Another order than the given one, and than that of other axes where there are several."""
    generator = torch.Generator().manual_seed(place)
    order = torch.randperm(units, generator=generator)
    return order.roll(1) if bool((order == torch.arange(units)).all()) else order


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
    return _apart(trial, one, other)


def _apart(trial: Trial, one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    first, second = trial.answers(dict(one)), trial.answers(dict(other))
    off = (first - second).abs().amax() / first.abs().amax().clamp_min(1e-30)
    return float(off) if bool(torch.isfinite(off)) else float("inf")
