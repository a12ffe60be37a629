"""Whether a wiring is true: units may change places, and one that is not read does not matter."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from intarsia.errors import WiringError
from intarsia.models.axes import Wiring, axis_sizes, hidden_axes
from intarsia.models.custom.trial import Trial, filled
from intarsia.models.units import live_units, take_units

TOLERANCE = 1e-8  # of the answers' size, in float64: above rounding, below any other function


def check_units(network: nn.Module, wiring: Wiring, shape: tuple[int, ...]) -> None:
    """Raise WiringError, naming the axis, unless the network's answers bear the wiring out.

    Tried with fixed weights and inputs, in float64. A network that answers by chance, or not in
    float64, cannot be tried and passes.
    """
    axes = hidden_axes(wiring)
    if not axes or any(tensor.is_meta for tensor in network.state_dict().values()):
        return
    try:
        trial = Trial(network, shape)
        if not trial.repeats():
            return
    except Exception:  # whatever custom code says to float64
        return
    kind = type(network).__name__
    _check_reading(kind, wiring, trial)
    wrong = _wrong(axes, lambda some: _moved(some, wiring, trial))
    if wrong:
        raise WiringError(
            f"the wiring of {kind} is wrong: when the units of axis {wrong!r} change places, the "
            "network answers otherwise, so some tensor has them in another order, or is left out; "
            "correct the entries of that axis, or put None for them"
        )
    joint = {axis.name for entry in wiring.values() for axis in entry if axis and axis.joint}
    wrong = _wrong([a for a in axes if a not in joint], lambda some: _unread(some, wiring, trial))
    if wrong:
        raise WiringError(
            f"the wiring of {kind} is wrong: a unit of axis {wrong!r} that no weight reads still "
            "changes the answers; mark the axis joint if its units meet outside the weights, as in "
            "LayerNorm: Axis(name, joint=True)"
        )


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
    one: dict[str, Tensor] = dict(before)
    other: dict[str, Tensor] = dict(before)
    for name, entry in wiring.items():
        reads = torch.ones_like(before[name], dtype=torch.bool)
        gives = torch.zeros_like(reads)
        for dimension, axis in enumerate(entry):
            if axis is None or axis.name not in axes:
                continue
            last = slice(before[name].shape[dimension] - axis.block, None)
            if dimension:
                reads.movedim(dimension, 0)[last] = False
            else:
                gives[last] = True
        one[name] = torch.where(reads, before[name], 0)
        other[name] = torch.where(reads, torch.where(gives, after[name], before[name]), 0)
    return _apart(trial, one, other)


def _apart(trial: Trial, one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    first, second = trial.answers(dict(one)), trial.answers(dict(other))
    off = (first - second).abs().amax() / first.abs().amax().clamp_min(1e-30)
    return float(off) if bool(torch.isfinite(off)) else float("inf")
