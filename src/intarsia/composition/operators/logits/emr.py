"""EMR: one change elected for all parts, and for each a mask of it and a scale.

Source: the paper, https://arxiv.org/abs/2405.17461; fusion_bench 0.2.33. There is one network for
each part, as in the paper, where the task of an input is known: here their logits are joined. What
they have in common, the elected change, would be stored once, and a part is one bit per parameter
and one number.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.changes.task_vectors import Base, task_vectors
from intarsia.composition.operators.logits.ensembles import own_scores, sum_of_logits
from intarsia.composition.operators.logits.routers import by_entropy
from intarsia.composition.operators.registry import copies, operator
from intarsia.modules import Module
from intarsia.modules.bases.base_weights import changes_of
from intarsia.modules.statistics import total

JOINS = {"logits": sum_of_logits, "own": own_scores, "entropy_router": by_entropy}


def modulated(
    context: MergeContext,
    rescale: Literal["paper", "fusion_bench"] = "paper",
    base: Base = "origin",
    **_: Any,
) -> tuple[Module, ...]:
    """The parts with their mask and scale of the elected change instead of their own change."""
    changed = context.base
    states = [
        part.state if changed is None else changes_of(part, changed) for part in context.parts
    ]
    vectors = task_vectors(states, context, base)
    elected = elect(vectors.each)
    made = []
    for part, vector in zip(context.parts, vectors.each, strict=True):
        mask = agrees(vector, elected)
        sizes = vectors.sizes if rescale == "fusion_bench" else [vector.numel()]
        change = rescaling(vector, torch.where(mask, elected, 0), sizes) * elected
        pieces = torch.split(torch.where(mask, change, 0) - vector, vectors.sizes)
        new = dict(part.state)
        for name, piece in zip(context.learned, pieces, strict=True):
            start = part.state[name]
            new[name] = (start.double() + piece.reshape(start.shape)).to(start.dtype)
        # Against zero, weights that did not change get another value too.
        kept = {} if changed is not None and base == "zero" else part.mask
        made.append(replace(part, state=new, mask=kept, low_rank={}))
    return tuple(made)


@operator(
    "emr",
    on="logits",
    paper="https://arxiv.org/abs/2405.17461",
    modules=modulated,
    memory=copies(11),
)
def emr(
    logits: Sequence[Tensor],
    context: MergeContext,
    join: Literal["logits", "own", "entropy_router"] = "logits",
    rescale: Literal["paper", "fusion_bench"] = "paper",
    base: Base = "origin",
) -> Tensor:
    """z joined of the networks m_i theta0 + l_i M_i tau, each a part without its own change.

    tau has the sign of the sum of tau_i, or minus where that is 0, and the largest magnitude among
    the tau_i of that sign. M_i is where tau_i has that sign, and l_i = |tau_i| / |M_i tau|, sums of
    magnitudes over all entries; rescale="fusion_bench" adds up means over tensors instead. `join`
    is the operator that joins the logits: the paper is told the task of every input.
    """
    return JOINS[join](logits, context)


def elect(changes: Sequence[Tensor]) -> Tensor:
    """The sign of the sum, with the largest magnitude among the changes that have it."""
    sign = torch.where(total(changes) > 0, 1.0, -1.0)
    return sign * reduce(torch.maximum, [(change * sign).clamp_min(0) for change in changes])


def agrees(change: Tensor, elected: Tensor) -> Tensor:
    """Where a change has the sign of the elected one."""
    return change * elected > 0


def rescaling(change: Tensor, masked: Tensor, sizes: Sequence[int]) -> float:
    """How much larger a change is than its part of the elected one, by means over tensors."""
    own, other = (
        sum(float(piece.abs().mean()) for piece in torch.split(tensor, list(sizes)) if len(piece))
        for tensor in (change, masked)
    )
    return own / other if other else 0.0
