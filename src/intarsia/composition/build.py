"""From parts to one classifier: align, join, recalibrate, calibrate; the same bits each time."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, get_args

import torch
from torch import Tensor, nn

from intarsia.composition.alignment.align import (
    How,
    align,
    disjoint_hidden_units,
    disjoint_units,
    held_units,
)
from intarsia.composition.batchnorm import has_batchnorm, recalibrate
from intarsia.composition.calibration import (
    Calibration,
    calibrate,
    check_scaled,
    offset_of,
    scaled,
    scales_of,
)
from intarsia.composition.merge_context import MergeContext
from intarsia.composition.merge_memory import count_merge
from intarsia.composition.operators.arithmetic import louder, off_the_sum
from intarsia.composition.operators.inlay_network import BlockNetwork
from intarsia.composition.operators.registry import OPERATORS, Operator, State, searched
from intarsia.composition.scale_search import (
    ScaleSearch,
    Settings,
    grid,
    labelled,
    search_settings,
    with_settings,
)
from intarsia.data import Split
from intarsia.errors import CompositionError, RecipeError, nearest, shortened
from intarsia.files import digest_of
from intarsia.limits import allocating
from intarsia.models.axes import hidden_axes, names_in
from intarsia.models.custom.trial import trial_inputs
from intarsia.models.units import unit_mask
from intarsia.modules import Base, Classifier, Module, logits_of
from intarsia.modules.bases.base_weights import changes_of
from intarsia.modules.statistics import joint_buffer, mean_where, sibling_name, total
from intarsia.specs import Spec

Parts = tuple[Module, ...]


@dataclass(frozen=True)
class MergeOptions:
    """What is done around the operator; see `compose`."""

    align: str | None = None
    recalibrate: bool = True
    calibrate: bool = False

    def __post_init__(self) -> None:
        hows = get_args(How)
        if self.align is not None and self.align not in hows:
            raise RecipeError(
                f"unknown alignment {shortened(self.align)}: {nearest(str(self.align), hows)}"
            )
        for key in ("recalibrate", "calibrate"):
            if not isinstance(getattr(self, key), bool):
                raise RecipeError(
                    f"{key} is {shortened(getattr(self, key))}: expected true or false"
                )


@dataclass(frozen=True, eq=False)
class MergeResult:
    """What a composition runs: the joined module, or the parts where logits are joined.

    `blocks` run instead of the joined module, which `join` then makes when it is asked for.
    """

    held: Parts
    context: MergeContext
    rewarded: tuple[str, ...]
    notes: tuple[str, ...]
    scales: Tensor | None = None  # one per part, its logits' factor; in one network in its weights
    offset: Tensor | None = None  # C, added to the logits
    calibration: Calibration | None = None
    blocks: BlockNetwork | None = None
    router: nn.Module | None = None  # from raw inputs to what the operator chooses parts by
    join: Callable[[], Module] | None = None
    search: ScaleSearch | None = None  # of the operator's settings, where they were to be found

    @cached_property
    def modules(self) -> Parts:
        """The joined module, or the parts."""
        return (self.join(),) if self.join else self.held

    @property
    def parameters(self) -> int:
        """How many parameters these have, zeros between blocks included."""
        return self.blocks.parameters if self.blocks else sum(m.parameters for m in self.modules)

    @property
    def nonzero(self) -> int:
        """How many of them survive."""
        return self.blocks.nonzero if self.blocks else sum(m.nonzero for m in self.modules)

    def networks(self) -> list[Classifier]:
        """What runs, from raw inputs to logits; the blocks are there once."""
        if self.blocks is None:
            return [module.to_module() for module in self.modules]
        first = self.context.parts[0]
        return [first.classifier(self.blocks.network, self.rewarded)]


def build_merge(
    parts: Parts,
    operator: Spec,
    options: MergeOptions,
    samples: Split | None,
    search: ScaleSearch | None = None,
) -> MergeResult:
    """Join parts that fit, which `check_fit` says.

    A `search` is what one has found for these parts and samples before.
    """
    how: Operator = OPERATORS[operator.name]
    classes = {c for module in parts for c in module.rewarded}
    rewarded = tuple(c for c in parts[0].catalogue if c in classes)
    _check_count(parts, how)
    count_merge(MergeContext(parts, samples), how, options.align)
    context = _context(parts, how, options, samples)
    if how.samples and samples is None:
        raise CompositionError(
            f"{operator.name} looks at samples and has none: compose(..., samples=data), or "
            "--samples in a shell"
        )
    wanted = searched(operator)
    if wanted and how.on != "weights":
        raise CompositionError(
            f"{operator} works on {how.on}: a {wanted[0]} is searched for operators on weights "
            "alone"
        )
    if how.on == "logits":
        # Tried out, so that a setting it cannot use shows here and not at the first input.
        tried = replace(context, similarities=torch.zeros(1, len(parts))) if how.router else context
        given = [torch.zeros(1, context.classes) for _ in parts]
        answer = how(given, tried, **operator.arguments)
        if getattr(answer, "shape", None) != given[0].shape:
            raise CompositionError(
                f"{operator} gives {_described(answer)} for logits of shape "
                f"{tuple(given[0].shape)}: an operator on logits returns N x C"
            )
    if how.modules:
        context = replace(context, parts=how.modules(context, **operator.arguments))
    calibration = _calibration(context, how, operator) if options.calibrate else None
    notes = _calibration_notes(calibration)
    offset = None if calibration is None else offset_of(calibration, parts)
    if how.on == "logits":
        scales = None if calibration is None else scales_of(calibration, parts)
        router = how.router(context, **operator.arguments) if how.router else None
        held = context.parts
        return MergeResult(
            held, context, rewarded, notes, scales, offset, calibration, router=router
        )
    if calibration is not None:
        louder = tuple(scaled(part, calibration.scales[part.name]) for part in context.parts)
        context = replace(context, parts=louder)
    blocks = how.blocks(context) if how.blocks else None
    if blocks is not None:
        join = partial(_joined_later, context, how, operator, rewarded)
        return MergeResult(
            (), context, rewarded, notes, None, offset, calibration, blocks, join=join
        )
    if not wanted:
        search = None
    else:
        search = search or _search(context, how, operator, options, rewarded)
        operator = with_settings(operator, search.settings)
    joined = _joined(context, how, operator, rewarded)
    buffers = _buffers_of_owners(context) if how.weight_sum else {}
    if buffers:
        joined = replace(joined, state={**joined.state, **buffers})
    if how.on == "weights":
        joined, more = _recalibrated(joined, context, options)
        notes += more + _buffer_notes(context, buffers)
    if how.weight_sum:
        notes += _territory_notes(joined, context)
    if calibration is not None and samples is not None:
        check_scaled(joined, parts, calibration, samples.x)
    return MergeResult(
        (joined,), context, rewarded, notes, None, offset, calibration, search=search
    )


def _check_count(parts: Parts, how: Operator) -> None:
    if how.most is not None and len(parts) > how.most:
        raise CompositionError(
            f"{how.name} joins {how.most} modules at most, and there are {len(parts)}: leave some "
            'out, or join them by another operator, such as "karcher"'
        )


def _search(
    context: MergeContext,
    how: Operator,
    operator: Spec,
    options: MergeOptions,
    rewarded: tuple[str, ...],
) -> ScaleSearch:
    """The settings at which the joined network, as it would be used, answers best."""
    split = labelled(context.samples, operator)

    def accuracy(settings: Settings) -> float:
        joined = _joined(context, how, with_settings(operator, settings), rewarded)
        network = _recalibrated(joined, context, options)[0].to_module()
        return float((logits_of(network, split.x).argmax(1) == split.y).double().mean())

    return search_settings(grid(operator, len(context.parts)), accuracy, len(split))


def _context(
    parts: Parts, how: Operator, options: MergeOptions, samples: Split | None
) -> MergeContext:
    """What the operator is given beside the parts, which are aligned first if asked for."""
    if options.align is None:
        return MergeContext(parts, samples)
    if how.on != "weights":
        raise CompositionError(
            f"align={options.align!r} permutes units so that weights can be joined, but this "
            f"operator works on {how.on}: leave align out"
        )
    inputs = None
    if options.align == "activations":
        inputs = MergeContext(parts, samples).scaled("align='activations'")
    aligned = tuple(align(parts, options.align, inputs))  # type: ignore[arg-type]
    return MergeContext(aligned, samples, aligned=len(parts) > 1)


def _calibration(context: MergeContext, how: Operator, operator: Spec) -> Calibration:
    """Fitted through the operator where it joins logits; else logits must add up by themselves."""
    one = context.parts[0].architecture.outputs == context.classes  # else other is divided after
    adds_up = how.on == "units" or (how.weight_sum and one and _is_disjoint(context))
    if how.on != "logits" and not adds_up:
        raise CompositionError(
            f"{operator} mixes the units of its parts, so that they have no scales of their own "
            'to calibrate: join them by "inlay" or "logits", or train territories'
        )
    if how.chooses:
        raise CompositionError(
            f"{operator.name} weighs the modules for each input by itself, so that one scale for "
            "all inputs is not fitted: leave calibrate out"
        )
    if context.samples is None or not bool((context.samples.y >= 0).any()):
        raise CompositionError("calibrate needs labelled samples: compose(..., samples=data)")
    logits = [logits_of(part.to_module(), context.samples.x) for part in context.parts]

    def join(scaled_logits: Sequence[Tensor]) -> Tensor:
        if how.on != "logits":
            return total(scaled_logits)
        joined: Tensor = how(scaled_logits, context, **operator.arguments)
        return joined

    return calibrate(logits, context.samples.y, context.parts, join)


def _calibration_notes(calibration: Calibration | None) -> tuple[str, ...]:
    """Few samples that are nearly separable fit scales that are too sure of others."""
    if calibration is None:
        return ()
    scores = calibration.scores
    before, after = scores["loss_without"], scores["loss_with"]
    if after <= before:
        return ()
    return (
        f"calibration makes the loss on samples that it was not fitted on larger, {before:.3g} to "
        f"{after:.3g}: leave it out, or give more samples than {scores['samples']}",
    )


def _joined_later(
    context: MergeContext, how: Operator, operator: Spec, rewarded: tuple[str, ...]
) -> Module:
    """The module of what runs in blocks, which takes more memory than these."""
    count_merge(context, how, None, whole=True)
    with allocating("joining them into one state"):
        return _joined(context, how, operator, rewarded)


def _joined(
    context: MergeContext, how: Operator, operator: Spec, rewarded: tuple[str, ...]
) -> Module:
    """One module of the state that the operator makes of the parts' states."""
    parts, first = context.parts, context.parts[0]
    base = context.base if how.on == "weights" else None
    if base is None:
        state = _called(how, [part.state for part in parts], context, operator)
    else:
        state = _changed(base, how, context, operator)
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
        mask = how.mask(context) if how.mask else {n: state[n] != 0 for n in context.learned}
    else:
        mask = _union(state, context, base)
    return replace(
        first,
        name="+".join(module.name for module in parts),
        state=state,
        mask=mask,
        rewarded=rewarded,
        architecture=architecture,
        origin=origin,
        provenance=_place_of_graph(parts),
        base=base,
        low_rank={},
    )


def _place_of_graph(parts: Sequence[Module]) -> dict[str, Any]:
    """What of the parts' provenance is needed to make their network: where its graph lies."""
    first, *others = (part.provenance.get("graph") for part in parts)
    return {"graph": first} if first and all(other == first for other in others) else {}


def _called(
    how: Operator, states: Sequence[State], context: MergeContext, operator: Spec
) -> dict[str, Tensor]:
    """What an operator makes of states, which it must leave as they are."""
    before = _versions(states)
    made = how(states, context, **operator.arguments)
    if before != _versions(states):
        raise CompositionError(
            f"{operator} writes into the states it is given, which are the modules' own: load or "
            "train these anew, and have the operator make new tensors"
        )
    if not isinstance(made, Mapping):
        raise CompositionError(
            f"{operator} gives {_described(made)}: an operator on {how.on} returns a state dict"
        )
    for name, entry in context.plan.items():
        fits = name in made and (how.on == "units" or made[name].shape == entry.shape)
        if not fits:
            seen = _described(made[name]) if name in made else "nothing"
            raise CompositionError(
                f"{operator} gives {seen} for the tensor {name!r}: expected one of shape "
                f"{tuple(entry.shape)}"
            )
    return dict(made)


def _versions(states: Sequence[State]) -> list[int]:
    """How often every tensor was written to; those made in inference mode do not count it."""
    tensors = [tensor for state in states for tensor in state.values()]
    return [tensor._version for tensor in tensors if not tensor.is_inference()]


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"


def _changed(base: Base, how: Operator, context: MergeContext, operator: Spec) -> dict[str, Tensor]:
    """The base with the change that the operator makes of the parts' changes.

    In float64, in which base + (theta - base) is theta. Buffers are not changes: they follow the
    rule of all operators, from the parts as they are.
    """
    parts, plan = context.parts, context.plan
    states = [changes_of(part, base) for part in parts]
    joined = _called(how, states, context, operator)
    each = [part.state for part in parts]
    return {
        name: (base.state[name].double() + joined[name].double()).to(entry.dtype)
        if entry.learned
        else joint_buffer(name, each, [1.0] * len(each))
        for name, entry in plan.items()
    }


def _union(state: State, context: MergeContext, base: Base | None) -> dict[str, Tensor]:
    """An entry survives where it does in any part, unless the operator dropped what was there.

    With a base, so does what the operator itself has changed.
    """
    union = {}
    for name in context.learned:
        rest = 0 if base is None else base.state[name]
        kept = torch.stack(context.kept(name)).any(0)
        was_there = torch.stack([part.state[name] != rest for part in context.parts]).any(0)
        now = state[name] != rest
        union[name] = kept & (now | ~was_there) if base is None else now | (kept & ~was_there)
    return union


def _recalibrated(
    joined: Module, context: MergeContext, options: MergeOptions
) -> tuple[Module, tuple[str, ...]]:
    """BatchNorm statistics that fit the joined network, and what is to be said about them."""
    architecture, factory = joined.architecture, joined.factory
    if len(context.parts) == 1 or not has_batchnorm(architecture.skeleton(factory)):
        return joined, ()
    if context.has_wiring and _keeps_units(joined, context) and _is_disjoint(context):
        return joined, (
            "no two parts share a unit, so their BatchNorm statistics hold as they are",
        )
    if not options.recalibrate:
        return joined, ("BatchNorm statistics are averages over the parts, as was asked for",)
    if context.samples is None:
        return joined, (
            "BatchNorm statistics are averages over the parts and do not fit the joined network: "
            "give samples to recompute them, as in compose(..., samples=data)",
        )
    network = architecture.network(joined.state, factory)
    recalibrate(network, context.scaled("recalibration"))
    state = {name: tensor.detach() for name, tensor in network.state_dict().items()}
    note = f"BatchNorm statistics were recomputed from {len(context.samples)} samples"
    return replace(joined, state=state), (note,)


def _is_disjoint(context: MergeContext) -> bool:
    return context.has_wiring and disjoint_units(context.parts, context.wiring)


def _keeps_units(joined: Module, context: MergeContext) -> bool:
    """Whether hidden units have the sum of the parts' weights: a mean, say, makes them smaller."""
    hidden = set(hidden_axes(context.wiring))
    return all(
        torch.allclose(joined.state[name], total([part.state[name] for part in context.parts]))
        for name in context.learned
        if names_in(context.wiring[name]) & hidden
    )


def _has_territories(context: MergeContext) -> bool:
    """Whether no two parts share a hidden unit, of which there are some."""
    return (
        context.has_wiring
        and bool(hidden_axes(context.wiring))
        and disjoint_hidden_units(context.parts, context.wiring)
    )


def _off_when_loud(joined: Module, context: MergeContext) -> float | None:
    """How far the sum of weights is off the sum of logits where these are large."""
    first, names = context.parts[0], context.output_weights
    states = louder([part.state for part in context.parts], names)
    merged = {**joined.state, **{name: total([s[name] for s in states]) for name in names}}
    one, *each = (first.architecture.network(state, first.factory) for state in (merged, *states))
    x = trial_inputs(one, first.architecture.shape)
    return off_the_sum(one(x), [network(x) for network in each])


def _buffers_of_owners(context: MergeContext) -> dict[str, Tensor]:
    """Of territories, the buffers that no weight goes with: each unit's are those of its part.

    A BatchNorm without a weight has such statistics, which would else be averaged.
    """
    names = [n for n in _changed_buffers(context) if sibling_name(n, "weight") not in context.plan]
    if not names or not _is_disjoint(context):
        return {}
    states, wiring = [part.state for part in context.parts], context.wiring
    hidden = set(hidden_axes(wiring))
    held = [held_units(part, wiring) for part in context.parts]
    owned = [{axis: units[axis] for axis in hidden} for units in held]
    buffers = {}
    for name in (name for name in names if names_in(wiring[name]) & hidden):
        tensors = [state[name] for state in states]
        kept = [unit_mask(wiring[name], tuple(tensors[0].shape), units) for units in owned]
        buffers[name] = mean_where(tensors, kept, [1.0] * len(tensors))
    return buffers


def _changed_buffers(context: MergeContext, floating: bool = True) -> list[str]:
    """Buffers of real numbers, or of whole ones and truths, that differ from part to part."""
    states = [part.state for part in context.parts]
    return [
        name
        for name, entry in context.plan.items()
        if not entry.learned
        and entry.dtype.is_floating_point == floating
        and any(not torch.equal(state[name], states[0][name]) for state in states)
    ]


def _buffer_notes(context: MergeContext, known: State) -> tuple[str, ...]:
    """What is to be said of buffers, other than BatchNorm's, that training has changed."""
    for name in _changed_buffers(context):
        norm = (sibling_name(name, key) in context.plan for key in ("running_mean", "running_var"))
        if name in known or all(norm):
            continue
        note = (
            f"the buffer {name!r}, which no operator knows, differs from part to part and is "
            "averaged: that may not fit the joined weights, as the vectors of spectral norm do not"
        )
        warnings.warn(note, stacklevel=2)
        return (note,)
    for name in _changed_buffers(context, floating=False):
        if not context.plan[name].shape:  # one number is a count
            continue
        note = (
            f"the buffer {name!r}, which no operator knows, differs from part to part, and of each "
            "entry the largest is taken: places and masks that differ do not fit any part then"
        )
        warnings.warn(note, stacklevel=2)
        return (note,)
    return ()


def _territory_notes(joined: Module, context: MergeContext) -> tuple[str, ...]:
    """What is to be said where territories do not give what they are for, the sum of logits.

    A custom forward may do to the outputs what is not additive, such as log_softmax, and an
    explicit other is divided among the classes after the network.
    """
    first = context.parts[0]
    one_each = first.architecture.outputs == context.classes
    adds = not first.architecture.is_foreign and one_each
    if adds or len(context.parts) == 1 or not _has_territories(context):
        return ()
    merged, *each = (module.to_module() for module in (joined, *context.parts))
    x = trial_inputs(each[0], first.architecture.shape)
    with torch.no_grad():
        off = off_the_sum(merged(x), [part(x) for part in each])
        if off is None and one_each:
            off = _off_when_loud(joined, context)
    if off is None:
        return ()
    note = (
        f"no two parts share a unit, and yet the sum of their weights is {off:.3g} off the sum of "
        "their logits, because the network has weights that are no unit's, or does more to its "
        'outputs than adding up weighted units: for the sum of logits join them by "logits"'
    )
    warnings.warn(note, stacklevel=2)
    return (note,)
