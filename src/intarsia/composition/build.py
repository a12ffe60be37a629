"""From parts to one network: align, join, recalibrate, calibrate; the same bits each time."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor

from intarsia.composition.alignment.align import How, align, disjoint_units
from intarsia.composition.batchnorm import has_batchnorm, recalibrate
from intarsia.composition.calibration import (
    Calibration,
    calibrate,
    check_scaled,
    offset_of,
    scaled,
    scales_of,
)
from intarsia.composition.merge_context import Ground
from intarsia.composition.operators.inlay import TOLERANCE, laid_mask
from intarsia.composition.operators.registry import OPERATORS, Operator, total
from intarsia.data import Split
from intarsia.errors import CompositionError, RecipeError, nearest
from intarsia.files import digest_of
from intarsia.models.custom.trial import trial_inputs
from intarsia.models.wiring import hidden_axes
from intarsia.modules import Module, logits_of
from intarsia.modules.statistics import beside
from intarsia.specs import Spec

Parts = tuple[Module, ...]


@dataclass(frozen=True)
class Options:
    """What is done around the operator; see `compose`."""

    align: str | None = None
    recalibrate: bool = True
    calibrate: bool = False

    def __post_init__(self) -> None:
        hows = get_args(How)
        if self.align is not None and self.align not in hows:
            raise RecipeError(f"unknown alignment {self.align!r}: {nearest(str(self.align), hows)}")
        for key in ("recalibrate", "calibrate"):
            if not isinstance(getattr(self, key), bool):
                raise RecipeError(f"{key} is {getattr(self, key)!r}: expected true or false")


@dataclass(frozen=True, eq=False)
class Laid:
    """What is run: the joined network, or the parts where logits are joined."""

    held: Parts
    ground: Ground
    rewarded: tuple[str, ...]
    notes: tuple[str, ...]
    scales: Tensor | None = None  # one a part, its logits' factor; in one network in its weights
    offset: Tensor | None = None  # C, added to the logits
    calibration: Calibration | None = None


def lay(parts: Parts, operator: Spec, options: Options, samples: Split | None) -> Laid:
    """Join parts that fit."""
    how: Operator = OPERATORS[operator.name]  # type: ignore[assignment]
    classes = {c for module in parts for c in module.rewarded}
    rewarded = tuple(c for c in parts[0].catalogue if c in classes)
    ground = _ground(parts, how, options, samples)
    if how.samples and samples is None:
        raise CompositionError(
            f"{operator.name} looks at samples and has none: compose(..., samples=data), or "
            "--samples in a shell"
        )
    if how.on == "logits":
        # Tried out, so that a setting it cannot use shows here and not at the first input.
        how([torch.zeros(1, ground.classes) for _ in parts], ground, **operator.arguments)
    calibration = _calibration(ground, how, operator) if options.calibrate else None
    offset = None if calibration is None else offset_of(calibration, parts)
    if how.on == "logits":
        scales = None if calibration is None else scales_of(calibration, parts)
        return Laid(parts, ground, rewarded, (), scales, offset, calibration)
    if calibration is not None:
        louder = tuple(scaled(part, calibration.scales[part.name]) for part in ground.parts)
        ground = replace(ground, parts=louder)
    joined = _joined(ground, how, operator, rewarded)
    joined, notes = _settled(joined, ground, how, options)
    if how.on == "weights":
        notes += _foreign_buffers(ground)
    if operator.name == "sum":
        notes += _apart(joined, ground)
    if calibration is not None and samples is not None:
        check_scaled(joined, parts, calibration, samples.x)
    return Laid((joined,), ground, rewarded, notes, None, offset, calibration)


def _ground(parts: Parts, how: Operator, options: Options, samples: Split | None) -> Ground:
    if options.align is None:
        return Ground(parts, samples)
    if how.on != "weights":
        raise CompositionError(
            f"align={options.align!r} permutes units so that weights can be joined, but this "
            f"operator works on {how.on}: leave align out"
        )
    inputs = None
    if options.align == "activations":
        inputs = Ground(parts, samples).scaled("align='activations'")
    aligned = tuple(align(parts, options.align, inputs))  # type: ignore[arg-type]
    return Ground(aligned, samples, aligned=len(parts) > 1)


def _joined(ground: Ground, how: Operator, operator: Spec, rewarded: tuple[str, ...]) -> Module:
    parts, first = ground.parts, ground.parts[0]
    state = how([part.state for part in parts], ground, **operator.arguments)
    for key, tensor in state.items():
        if not bool(torch.isfinite(tensor).all()):
            raise CompositionError(
                f"{operator} makes values of {key!r} that are not finite, because its weights or "
                "those of the parts are too large: give smaller ones"
            )
    architecture, origin = first.architecture, first.origin
    if how.on == "units":
        architecture = architecture.fitted(state, first.factory)
        # Its units lie elsewhere than those of any part or of another inlay.
        origin = digest_of([operator.name, [[part.name, part.origin] for part in parts]])
        mask = laid_mask(ground) if operator.name == "inlay" else _nonzero(state, ground)
    else:
        mask = _union(parts, state)
    return Module(
        name="+".join(module.name for module in parts),
        state=state,
        mask=mask,
        rewarded=rewarded,
        catalogue=first.catalogue,
        architecture=architecture,
        scaling=first.scaling,
        temperature=first.temperature,
        origin=origin,
        factory=first.factory,
    )


def _settled(
    joined: Module, ground: Ground, how: Operator, options: Options
) -> tuple[Module, tuple[str, ...]]:
    """BatchNorm statistics that fit the joined network, and what is to be said about them."""
    if how.on != "weights" or len(ground.parts) == 1:
        return joined, ()
    network = joined.architecture.network(joined.state, joined.factory)
    if not has_batchnorm(network):
        return joined, ()
    if ground.has_wiring and _keeps_units(joined, ground) and _is_disjoint(ground):
        return joined, (
            "no two parts share a unit, so their BatchNorm statistics hold as they are",
        )
    if not options.recalibrate:
        return joined, ("BatchNorm statistics are averages over the parts, as was asked for",)
    if ground.samples is None:
        return joined, (
            "BatchNorm statistics are averages over the parts and do not fit the joined network: "
            "give samples to recompute them, as in compose(..., samples=data)",
        )
    recalibrate(network, ground.scaled("recalibration"))
    state = {name: tensor.detach() for name, tensor in network.state_dict().items()}
    note = f"BatchNorm statistics were recomputed from {len(ground.samples)} samples"
    return replace(joined, state=state), (note,)


def _is_disjoint(ground: Ground) -> bool:
    return ground.has_wiring and disjoint_units(ground.parts, ground.wiring)


def _apart(joined: Module, ground: Ground) -> tuple[str, ...]:
    """What is to be said where territories do not give what they are for, the sum of logits.

    A stranger's forward may do to the outputs what is not additive, such as log_softmax, and an
    explicit other is shared out after the network.
    """
    first = ground.parts[0]
    adds = not first.architecture.is_foreign and first.architecture.outputs == ground.classes
    if adds or len(ground.parts) == 1 or not _is_disjoint(ground):
        return ()
    whole, *each = (module.to_module() for module in (joined, *ground.parts))
    x = trial_inputs(each[0], first.architecture.shape)
    with torch.no_grad():
        logits = [part(x) for part in each]
        off = float((whole(x) - total(logits)).abs().max())
    if off <= TOLERANCE * max(float(total([z.abs() for z in logits]).max()), TOLERANCE):
        return ()
    note = (
        f"no two parts share a unit, and yet the sum of their weights is {off:.3g} off the sum of "
        "their logits, because the network does more to its outputs than adding up weighted units: "
        'for the sum of logits join them by "logits"'
    )
    warnings.warn(note, stacklevel=2)
    return (note,)


def _foreign_buffers(ground: Ground) -> tuple[str, ...]:
    """What is to be said of buffers, other than BatchNorm's, that training has changed."""
    states, plan = [part.state for part in ground.parts], ground.plan
    for name, entry in plan.items():
        if entry.learned or not entry.dtype.is_floating_point:
            continue
        known = beside(name, "running_mean") in plan and beside(name, "running_var") in plan
        if known or all(torch.equal(state[name], states[0][name]) for state in states):
            continue
        note = (
            f"the buffer {name!r}, which no operator knows, differs from part to part and is "
            "averaged: that may not fit the joined weights, as the vectors of spectral norm do not"
        )
        warnings.warn(note, stacklevel=2)
        return (note,)
    return ()


def _keeps_units(joined: Module, ground: Ground) -> bool:
    """Whether hidden units have the sum of the parts' weights: a mean, say, makes them smaller."""
    hidden = set(hidden_axes(ground.wiring))
    return all(
        torch.allclose(joined.state[name], total([part.state[name] for part in ground.parts]))
        for name, entry in ground.plan.items()
        if entry.learned and any(axis and axis.name in hidden for axis in ground.wiring[name])
    )


def _calibration(ground: Ground, how: Operator, operator: Spec) -> Calibration:
    """Fitted through the operator where it joins logits; else logits must add up by themselves."""
    one = ground.parts[0].architecture.outputs == ground.classes  # else other is shared out after
    adds_up = how.on == "units" or (operator.name == "sum" and one and _is_disjoint(ground))
    if how.on != "logits" and not adds_up:
        raise CompositionError(
            f"{operator} mixes the units of its parts, so that they have no scales of their own "
            'to calibrate: join them by "inlay" or "logits", or train territories'
        )
    if ground.samples is None or not bool((ground.samples.y >= 0).any()):
        raise CompositionError("calibrate needs labelled samples: compose(..., samples=data)")
    logits = [logits_of(part.to_module(), ground.samples.x) for part in ground.parts]

    def join(scaled_logits: Sequence[Tensor]) -> Tensor:
        if how.on != "logits":
            return total(scaled_logits)
        found: Tensor = how(scaled_logits, ground, **operator.arguments)
        return found

    return calibrate(logits, ground.samples.y, ground.parts, join)


def _union(parts: Parts, state: Any) -> dict[str, Tensor]:
    """An entry survives where it does in any part, unless the operator dropped what was there."""
    masks = [module.mask for module in parts]
    shared = {name for name in state if parts[0].plan[name].learned}
    union = {}
    for name in shared:
        kept = torch.stack(
            [m.get(name, torch.ones_like(state[name], dtype=torch.bool)) for m in masks]
        )
        was_there = torch.stack([part.state[name] != 0 for part in parts]).any(0)
        union[name] = kept.any(0) & ((state[name] != 0) | ~was_there)
    return union


def _nonzero(state: Any, ground: Ground) -> dict[str, Tensor]:
    return {name: state[name] != 0 for name, entry in ground.plan.items() if entry.learned}
