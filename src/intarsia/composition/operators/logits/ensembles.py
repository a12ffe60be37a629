"""Logits joined sample by sample: each module keeps its own network."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.arithmetic import Weights, combination, mean, normalised
from intarsia.composition.operators.registry import operator
from intarsia.modules.statistics import total
from intarsia.objectives import arrivals

EXPERTS = "https://doi.org/10.1162/089976602760128018"  # products of experts
LEAST = 1e-3  # of a part's own probability: what it claims at least, so that ties are rare
TINY = 1e-300  # of a probability, so that its logarithm is a number


@operator(
    "logits", on="logits", paper=EXPERTS, colour="#0a3a8c", label="logits added", logit_sum=True
)
def sum_of_logits(logits: Sequence[Tensor], context: MergeContext) -> Tensor:
    """z = sum of z_i, a product of experts: those that are uniform drop out."""
    return total(logits)


@operator("logit_mean", on="logits", paper=EXPERTS)
def mean_of_logits(logits: Sequence[Tensor], context: MergeContext) -> Tensor:
    """z = sum of z_i / K: the answers of the sum, as unsure as at K times its temperature."""
    return mean(logits)


@operator("logit_weighted", on="logits", paper=EXPERTS)
def weighted_logits(
    logits: Sequence[Tensor], context: MergeContext, weights: Weights = 1.0, normalise: bool = False
) -> Tensor:
    """z = sum of w_i z_i, or that divided by the sum of w_i: experts with exponents."""
    given = context.weights(weights)
    return combination(normalised(given, "logit_weighted") if normalise else given, logits)


@operator("probabilities", on="logits", paper="https://arxiv.org/abs/1612.01474")
def mean_of_probabilities(logits: Sequence[Tensor], context: MergeContext) -> Tensor:
    """z = t log p with p the mean of softmax(z_i / t), so that predict_proba gives p itself."""
    t = context.temperature
    each = torch.stack([torch.log_softmax(z / t, dim=1) for z in logits])  # K, N, C
    return t * (torch.logsumexp(each, dim=0) - math.log(len(logits)))


@operator("own", on="logits", paper="https://openreview.net/forum?id=Z0j9NJt08I", colour="#b58fd0")
def own_scores(logits: Sequence[Tensor], context: MergeContext) -> Tensor:
    """z_c = t (log p_i(c) + log C) by the module i that rewards c: its evidence against uniform.

    p_i = softmax(z_i / t). What a module says of classes that it does not reward is not asked. Of
    several modules that reward c the mean is taken, so that a class gains nothing by having more
    of them; a class that no module rewards scores 0, as one would of which its module is uniform.
    """
    t = context.temperature
    each = [t * (torch.log_softmax(z / t, dim=1) + math.log(context.classes)) for z in logits]
    scores = []
    for c in range(context.classes):
        owners = [
            e[:, c] for e, rewarded in zip(each, context.rewarded, strict=True) if c in rewarded
        ]
        scores.append(mean(owners) if owners else torch.zeros_like(each[0][:, c]))
    return torch.stack(scores, dim=1)


@operator("stick_breaking", on="logits", paper="https://arxiv.org/abs/1506.05843")
def latest_claims(
    logits: Sequence[Tensor], context: MergeContext, order: Sequence[int] | None = None
) -> Tensor:
    """p(c) = r_k p_k(c) times the product of 1 - r_j over all later parts j: the latest claim wins.

    For parts that have seen no class that comes after theirs, in the catalogue or in `order`: what
    they were trained with under `visibility="past"`. Such a part is sure of later classes, too, and
    a sum of logits believes it; here a later part, which has seen both, takes the sample away from
    it. r_k is how probable it is that a sample is of a class that part k
    rewards: with q_k its probability of these S of C classes, r_k = (q_k - S/C) / (1 - S/C), since
    a part that is sure of the contrary is uniform. What no part claims is shared by all classes.
    """
    t, classes = context.temperature, context.classes
    arrived = arrivals("stick_breaking", classes, order)
    last = [
        (max(arrived[c] for c in rewarded), place)
        for place, rewarded in enumerate(context.rewarded)
    ]
    left = torch.ones_like(logits[0][:, 0], dtype=torch.float64)
    shares = [torch.zeros_like(left)] * classes
    for _, place in sorted(last, reverse=True):
        own = context.rewarded[place]
        others = [c for c in range(classes) if c not in own]
        each = torch.softmax(logits[place].double() / t, dim=1)
        claimed = each[:, list(own)].sum(dim=1)
        denied = each[:, others].sum(dim=1)  # exact where the part is sure
        if others:
            denied = torch.minimum(denied * classes / len(others), 1 - LEAST * claimed)
        claimed = claimed.clamp_min(TINY)  # where nothing at all is claimed, 0 of it is shared out
        for c in own:
            shares[c] = shares[c] + left * (1 - denied) * each[:, c] / claimed
        left = left * denied
    joined = torch.stack([share + left / classes for share in shares], dim=1)
    return t * torch.log(joined.clamp_min(TINY)).to(logits[0].dtype)
