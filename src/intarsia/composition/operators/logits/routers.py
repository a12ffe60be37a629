"""Routers: for each input a few modules are chosen, which answer for their own classes alone.

A router scores every module. The `top` of the scores are chosen, and their softmax are the weights
w_i of the modules' logits; what a module says of classes that it does not reward is not asked:

    z_c = sum of w_i z_i(c) over the chosen modules i that reward c

A class that no chosen module rewards has the logit UNCOVERED.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.composition.merge_context import MergeContext
from intarsia.composition.operators.registry import operator
from intarsia.data import Scaling
from intarsia.encoders import ENCODERS, Encoder
from intarsia.errors import CompositionError, ModelError, RecipeError, nearest, shortened
from intarsia.models.custom.trial import evaluation_mode, readout_factor
from intarsia.modules import Module
from intarsia.modules.classifier import Inputs, network_inputs
from intarsia.modules.statistics import total

UNCOVERED = -1e9
"""The logit of a class that none of the chosen modules rewards."""

GATES = "https://arxiv.org/abs/1701.06538"  # top k of a softmax over experts, for each input
MAXENT = "https://openreview.net/forum?id=Z0j9NJt08I"
READOUT, INPUTS = "readout", "inputs"
PIECE = 256  # samples whose features are computed at a time


def similarity_router(context: MergeContext, features: str = READOUT, **_: Any) -> "Router":
    """What gives the cosine of an input's features to each part's centroid.

    A centroid is the mean feature of the samples that have a class which the part rewards.
    """
    reader = _reader(context, features)
    assert context.samples is not None  # the trait `samples` says so
    x, y = context.samples.x, context.samples.y
    with evaluation_mode(reader), torch.no_grad():
        read = torch.cat([reader(rows).double() for rows in x.split(PIECE)])  # N, D
    centroids = []
    for part, rewarded in zip(context.parts, context.rewarded, strict=True):
        own = torch.isin(y, torch.tensor(rewarded, dtype=y.dtype))
        if not bool(own.any()):
            raise CompositionError(
                f"no sample has a class of module {part.name!r}, so that it has no centroid: give "
                "labelled samples of every module, as in compose(..., samples=data), or take "
                '"entropy_router", which needs none'
            )
        centroids.append(read[own].mean(dim=0))
    return Router(Similarities(reader, torch.stack(centroids).float()), x.shape[1:])


_similarity_operator = partial(
    operator, on="logits", paper=GATES, samples=True, chooses=True, router=similarity_router
)


@_similarity_operator("centroid")
def by_centroids(
    logits: Sequence[Tensor],
    context: MergeContext,
    top: int = 3,
    temperature: float = 1.0,
    features: str = READOUT,
) -> Tensor:
    """The `top` modules whose samples are most like the input, by softmax(cosine / temperature).

    `features` are compared: what the last linear layer of the modules' common base reads, or of
    the first module; "inputs", as the modules read them; or those of an encoder, by its name.
    """
    _check_features(features)
    scores = _similarities("centroid", context) / _positive("centroid", "temperature", temperature)
    return routed(logits, context, scores, _at_least_one("centroid", top))


@operator("entropy_router", on="logits", paper=MAXENT, chooses=True)
def by_entropy(
    logits: Sequence[Tensor], context: MergeContext, top: int = 1, temperature: float = 1.0
) -> Tensor:
    """The `top` modules of the least entropy H, by softmax(-H / temperature).

    H is that of the module's own answer, as a fraction of log C. By default the surest takes all.
    """
    scores = -entropies(logits, context) / _positive("entropy_router", "temperature", temperature)
    return routed(logits, context, scores, _at_least_one("entropy_router", top))


@_similarity_operator("centroid_entropy")
def by_both(
    logits: Sequence[Tensor],
    context: MergeContext,
    top: int = 3,
    temperature: float = 1.0,
    exponent: float = 1.0,
    features: str = READOUT,
) -> Tensor:
    """The product of both weights, that of entropies to the power `exponent`, over its `top`.

    Weights are proportional to exp(cosine / temperature) exp(-H / temperature)^exponent.
    """
    name = "centroid_entropy"
    _check_features(features)
    if exponent < 0:
        raise CompositionError(f"{name}: exponent is {exponent:g}: expected 0 or more")
    scores = _similarities(name, context) - exponent * entropies(logits, context)
    scores = scores / _positive(name, "temperature", temperature)
    return routed(logits, context, scores, _at_least_one(name, top))


def routed(logits: Sequence[Tensor], context: MergeContext, scores: Tensor, top: int) -> Tensor:
    """Logits by the scores of the parts, N x K, of which the `top` count in every row."""
    best, places = torch.topk(scores, min(top, len(logits)), dim=1)
    none = torch.zeros_like(scores)
    weights = none.scatter(1, places, torch.softmax(best, dim=1)).type_as(logits[0])
    chosen = none.scatter(1, places, torch.ones_like(best)).type_as(logits[0])
    masks = [[float(c in own) for c in range(context.classes)] for own in context.rewarded]
    mask = logits[0].new_tensor(masks)  # K, C
    joined = total([z * mask[i] * weights[:, i : i + 1] for i, z in enumerate(logits)])
    return joined.masked_fill(chosen @ mask == 0, UNCOVERED)


def entropies(logits: Sequence[Tensor], context: MergeContext) -> Tensor:
    """The entropy of each part's own answer as a fraction of log C, N x K in float64."""
    each = []
    for z in logits:
        log_p = torch.log_softmax(z.double() / context.temperature, dim=1)
        each.append(-(log_p.exp() * log_p).sum(dim=1))
    return torch.stack(each, dim=1) / math.log(max(context.classes, 2))


class Similarities(nn.Module):
    """From inputs of the modules' shape to their cosines with K centroids, N x K."""

    centroids: Tensor

    def __init__(self, reader: nn.Module, centroids: Tensor) -> None:
        super().__init__()
        self.reader = reader
        self.register_buffer("centroids", F.normalize(centroids, dim=1))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.reader(x).type_as(self.centroids), dim=1) @ self.centroids.T


class Router(nn.Module):
    """Similarities of raw inputs, numpy or tensors; never in training mode, and never trained."""

    def __init__(self, similarities: Similarities, shape: Sequence[int]) -> None:
        super().__init__()
        self.similarities = similarities
        self.shape = tuple(shape)
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "Router":
        """It stays in evaluation mode, where the same input goes the same way."""
        return super().train(False)

    def forward(self, x: Inputs) -> Tensor:
        rows = network_inputs(x, self.shape).to(self.similarities.centroids.device)
        similarities: Tensor = self.similarities(rows)
        return similarities


class ScaledInputs(nn.Module):
    """What a network gives for raw inputs, flat; without a network the scaled inputs themselves."""

    shift: Tensor
    scale: Tensor

    def __init__(self, network: nn.Module, scaling: Scaling, reads: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self.reads_integers = not reads.is_floating_point
        self.register_buffer("shift", scaling.shift.clone())
        self.register_buffer("scale", scaling.scale.clone())

    def forward(self, x: Tensor) -> Tensor:
        x = x.long() if self.reads_integers else (x.to(self.scale) - self.shift) * self.scale
        features: Tensor = self.network(x).flatten(1)
        return features


class EncodedInputs(nn.Module):
    """What an encoder gives for raw inputs, wherever they are."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x, x.device).to(x.device)


def _reader(context: MergeContext, features: str) -> nn.Module:
    """What gives the features, N x D, for inputs of the modules' shape."""
    first = context.parts[0]
    if features == INPUTS:
        return ScaledInputs(nn.Identity(), first.scaling, torch.float32)
    if features != READOUT:
        if first.encoder is not None:
            raise CompositionError(
                f"the modules read features of {first.encoder}, which another encoder, "
                f'{features!r}, cannot read: take features="inputs", which are these'
            )
        return EncodedInputs(Encoder.of(features, first.architecture.shape))
    state = first.state if context.base is None else context.base.state
    network = first.architecture.network(state, first.factory)
    inputs = context.scaled("a router")
    return ScaledInputs(_without_readout(network, first, inputs[:2]), first.scaling, inputs.dtype)


def _without_readout(network: nn.Module, module: Module, inputs: Tensor) -> nn.Module:
    """A network that gives what the linear layer reads which makes its logits."""
    with evaluation_mode(network), torch.no_grad():
        shape = network(inputs.clone()).shape
        for name, layer in reversed(list(network.named_modules())):
            if not isinstance(layer, nn.Linear):
                continue
            if readout_factor(layer, lambda: network(inputs.clone()), shape):
                if not name:
                    return nn.Identity()
                network.set_submodule(name, nn.Identity())
                return network
    raise ModelError(
        f"the network of module {module.name!r} does not answer with what a linear layer gives, "
        'whose inputs a router could compare: take features="inputs", the name of an encoder, or '
        '"entropy_router"'
    )


def _similarities(name: str, context: MergeContext) -> Tensor:
    if context.similarities is None:
        raise CompositionError(
            f"{name} needs samples: it compares inputs with them, and was given logits alone: run "
            "it in a composition, compose(..., samples=data)"
        )
    return context.similarities.double()


def _check_features(features: Any) -> None:
    """Text that names them, so that a composition's file can; else how a function gets a name."""
    if not isinstance(features, str):
        raise CompositionError(
            f"features is {shortened(features)}: expected {READOUT!r}, {INPUTS!r} or the name of "
            'an encoder; a function gets one by @ia.ENCODERS.register("mine")'
        )
    known = [READOUT, INPUTS, *ENCODERS]
    if features not in known and features.partition("(")[0].partition("/")[0] not in ENCODERS:
        raise RecipeError(f"unknown features {shortened(features)}: {nearest(features, known)}")


def _positive(name: str, key: str, value: float) -> float:
    if value <= 0:
        raise CompositionError(f"{name}: {key} is {value:g}: expected more than 0")
    return value


def _at_least_one(name: str, top: int) -> int:
    if top < 1:
        raise CompositionError(f"{name}: top is {top}: expected at least 1 module for each input")
    return top
