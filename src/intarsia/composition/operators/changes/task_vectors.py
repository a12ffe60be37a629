"""What training changed, joined: task arithmetic, TIES and DARE on task vectors.

A part's task vector is tau_i = theta_i - m_i theta0, with m_i its mask: the change in the weights
that survive. Joined vectors are added to the origin of all survivors, u theta0 with u the union of
the masks: parts with disjoint masks give their sum. The arithmetic is in float64, so that
theta0 + (theta_i - theta0) is theta_i again. With base="zero" theta0 is taken as 0 and
tau_i = theta_i. Changes of a base are task vectors already, and whoever joins them adds the base.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.arithmetic import (
    Density,
    Weights,
    check_density,
    combination,
    combination_,
)
from intarsia.composition.operators.changes import ties as steps
from intarsia.composition.operators.changes.dare import DARE, draw, drop, drop_pieces
from intarsia.composition.operators.pieces import PieceJoin, TensorPieces
from intarsia.composition.operators.registry import States, copies, operator
from intarsia.composition.operators.weights import join_states

Base = Literal["origin", "zero"]
Preset = Literal["paper", "peft", "mergekit", "fusion_bench"]


@operator(
    "task_arithmetic",
    on="weights",
    paper="https://arxiv.org/abs/2212.04089",
    colour="#4f7a1f",
    tensorwise=True,
    entrywise=True,
    pieces=lambda tensor, context, settings: _arithmetic_pieces(context, settings),
    memory=copies(7),
)
def task_arithmetic(
    states: States,
    context: MergeContext,
    scale: float = 1.0,
    weights: Weights = 1.0,
    base: Base = "origin",
) -> dict[str, Tensor]:
    """theta = u theta0 + scale * sum of w_i tau_i."""
    vectors = task_vectors(states, context, base)
    return vectors.added(scale * combination(context.weights(weights), vectors.each))


def _arithmetic_pieces(context: MergeContext, settings: Mapping[str, Any]) -> PieceJoin:
    given, scale = context.weights(settings["weights"]), settings["scale"]

    def joined(changes: list[Tensor], start: int) -> Tensor:
        vector = combination_(given, changes)
        # -0.0 becomes 0.0, as where the vector is added to a base
        return (vector if scale == 1 else vector.mul_(scale)).add_(0.0)

    return joined


@operator(
    "ties",
    on="weights",
    paper="https://arxiv.org/abs/2306.01708",
    colour="#9d2a6b",
    tensorwise=lambda settings: _sees_tensors_alone(_ties_of(settings)),
    entrywise=lambda settings: _density_of(settings) == 1,
    pieces=lambda tensor, context, settings: steps.join_pieces(
        tensor,
        context.weights(settings["weights"]),
        _ties_of(settings),
        context.densities(_density_of(settings)),
    ),
    memory=copies(11),
)
def ties(
    states: States,
    context: MergeContext,
    preset: Preset = "paper",
    density: Density | None = None,
    weights: Weights = 1.0,
    scale: float | None = None,
    trim: steps.Trim | None = None,
    elect: steps.Elect | None = None,
    reduce: steps.Reduce | None = None,
    base: Base = "origin",
) -> dict[str, Tensor]:
    """Trim each tau_i, elect a sign for every entry, reduce the entries that have it, scale.

    A preset equals the library it is named after (see operators/ties.py); what is given with it
    replaces its own setting. `density` is a fraction of all entries, those pruned included:
    0.2 trims nothing from a module of which a tenth survives. preset="peft" with elect="none" and
    reduce="sum" is peft's magnitude_prune.
    """
    given = {"density": density, "scale": scale, "trim": trim, "elect": elect, "reduce": reduce}
    settings = {"preset": preset, **given}
    how, densities = _ties_of(settings), context.densities(_density_of(settings))
    vectors, factors = task_vectors(states, context, base), context.weights(weights)
    return vectors.added(steps.join(vectors.each, factors, vectors.sizes, how, densities))


@operator(
    "dare",
    on="weights",
    paper="https://arxiv.org/abs/2311.03099",
    colour="#8c7f74",
    tensorwise=lambda settings: (
        settings["consensus"] == "sum" or _sees_tensors_alone(DARE[settings["preset"]].ties)
    ),
    entrywise=lambda settings: (
        settings["consensus"] == "sum"
        and (not settings["rescale"] or DARE[settings["preset"]].rescale == "density")
    ),
    pieces=lambda tensor, context, settings: _dare_pieces(tensor, context, settings),
    memory=copies(13),
)
def dare(
    states: States,
    context: MergeContext,
    density: Density = 0.5,
    seed: int = 0,
    rescale: bool = True,
    consensus: Literal["sum", "ties"] = "sum",
    preset: Preset = "paper",
    weights: Weights = 1.0,
    scale: float = 1.0,
    base: Base = "origin",
) -> dict[str, Tensor]:
    """Drop entries of each tau_i at random, rescale the others, and join by sum or by TIES.

    Each part's draw depends on the seed and its name alone, not on the parts it is joined with.
    `scale` replaces the preset's own.
    """
    check_density("dare", density)
    densities = context.densities(density)
    how = DARE[preset]
    vectors = task_vectors(states, context, base)
    left = []
    for part, vector, own in zip(context.parts, vectors.each, densities, strict=True):
        kept = draw(part.name, vector.numel(), own, seed, context.first_entry)
        kept = kept.to(vector.device)
        way = how.rescale if rescale else "none"
        left.append(drop(vector, kept, own, way, vectors.sizes))
    given = context.weights(weights)
    if consensus == "sum":
        return vectors.added(scale * combination(given, left))
    return vectors.added(steps.join(left, given, vectors.sizes, replace(how.ties, scale=scale)))


def _dare_pieces(
    tensor: TensorPieces, context: MergeContext, settings: Mapping[str, Any]
) -> PieceJoin:
    how, scale = DARE[settings["preset"]], settings["scale"]
    names, given = [part.name for part in context.parts], context.weights(settings["weights"])
    way = how.rescale if settings["rescale"] else "none"
    densities = context.densities(settings["density"])
    left = drop_pieces(tensor, names, densities, settings["seed"], way)
    if settings["consensus"] == "sum":
        return lambda changes, start: scale * combination(given, left(changes, start))
    ties_after = replace(how.ties, scale=scale)
    return lambda changes, start: steps.consensus(left(changes, start), given, ties_after)


@dataclass(frozen=True)
class TaskVectors:
    """The parts' task vectors, each one flat float64 tensor, and what they are added to."""

    base: Tensor
    each: list[Tensor]
    sizes: list[int]
    states: States
    context: MergeContext

    def added(self, joined: Tensor) -> dict[str, Tensor]:
        """The state that the base and a joined vector make; buffers as in a sum of weights."""
        plan, split = self.context.plan, torch.split(self.base + joined, self.sizes)
        pieces = dict(zip(self.context.learned, split, strict=True))
        return join_states(
            self.states,
            plan,
            lambda name, tensors: pieces[name].reshape(plan[name].shape).to(tensors[0].dtype),
        )


def task_vectors(states: States, context: MergeContext, base: Base) -> TaskVectors:
    """tau_i = theta_i - m_i theta0 of every part, over all learned tensors in their order."""
    names = context.learned
    sizes = [prod(context.plan[name].shape) for name in names]
    flat = [_flat(state[name] for name in names).double() for state in states]
    changes = context.base is not None
    if changes != (base == "zero"):
        return TaskVectors(torch.zeros_like(flat[0]), flat, sizes, states, context)
    origin = context.origin()
    start = _flat(origin[name] for name in names).to(flat[0])
    if changes:
        return TaskVectors(-start, [vector + start for vector in flat], sizes, states, context)
    masks = [_flat(own) for own in zip(*map(context.kept, names), strict=True)]
    union = torch.stack(masks).any(dim=0)
    each = [vector - torch.where(m, start, 0) for vector, m in zip(flat, masks, strict=True)]
    return TaskVectors(torch.where(union, start, 0), each, sizes, states, context)


def _density_of(settings: Mapping[str, Any]) -> Density:
    """That of all parts, or by name; without one the preset's."""
    given: Density | None = settings["density"]
    if given is None:
        return steps.PRESETS[settings["preset"]].density
    check_density("ties", given, zero=True)
    return given


def _ties_of(settings: Mapping[str, Any]) -> steps.Ties:
    """The steps of a preset, with what is given in the place of its own, but densities by name."""
    own = ("scale", "trim", "elect", "reduce")
    given = {key: settings[key] for key in own if settings[key] is not None}
    density = _density_of(settings)
    given |= {} if isinstance(density, Mapping) else {"density": density}
    return replace(steps.PRESETS[settings["preset"]], **given)


def _sees_tensors_alone(how: steps.Ties) -> bool:
    """Whether TIES looks at one tensor at a time: neither trim nor majority of the whole vector."""
    return how.trim == "tensor" and how.zero != "majority"


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    flat = [tensor.flatten() for tensor in tensors]
    return flat[0] if len(flat) == 1 else torch.cat(flat)  # one is large enough without a copy
