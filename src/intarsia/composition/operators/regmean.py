"""Layers that answer best, in least squares, like each module's own layer on its own inputs."""

from collections import Counter
from math import prod

import torch
from torch import Tensor, nn

from intarsia.composition.layer_calls import Mixing, is_plain, read_elsewhere, run
from intarsia.composition.merge_context import MergeContext, StatsCache
from intarsia.composition.operators.arithmetic import check_fraction, mean
from intarsia.composition.operators.registry import States, operator
from intarsia.composition.operators.weights import join_states
from intarsia.errors import CompositionError
from intarsia.models.custom.adapting import sharing_layers

CHUNK = 64  # samples whose patches are held at once
STEPS = 500  # of a solution, at most
TOLERANCE = 1e-7  # of its residual, relative to the right side
_CACHE = StatsCache()


@operator(
    "regmean",
    on="weights",
    paper="https://arxiv.org/abs/2212.09849",
    samples=True,
    colour="#2fa894",
    memory=lambda context: regmean_nbytes(context),
)
def regmean(states: States, context: MergeContext, alpha: float = 0.9) -> dict[str, Tensor]:
    """W = argmin of sum over i of |X_i W - X_i W_i|^2 for every linear and convolution layer.

    X_i is what the layer reads in part i on the samples (of a convolution: its patches), W has the
    entries that any part keeps and no others. `alpha` scales the off-diagonals of the Gram matrices
    G_i = X_i^T X_i / N; all other parameters are averaged.
    """
    check_fraction("regmean", "alpha", alpha, zero=True)
    network = context.networks()[0]
    _check_layers(network)
    inputs = context.scaled("regmean")
    _check_uses(network.to(inputs.device), inputs)
    left: dict[str, Tensor] = {}  # sum of G_i, groups x columns x columns
    right: dict[str, Tensor] = {}  # sum of W_i G_i, groups x units x columns
    grams = _CACHE.each(context, inputs, lambda network: gram_matrices(network, inputs))
    for state, own in zip(states, grams, strict=True):
        for name, gram in own.items():
            gram = alpha * gram + (1 - alpha) * torch.diag_embed(gram.diagonal(dim1=1, dim2=2))
            answer = _rows(state[name], len(gram)) @ gram
            left[name] = left[name] + gram if name in left else gram
            right[name] = right[name] + answer if name in right else answer

    def join(name: str, tensors: list[Tensor]) -> Tensor:
        if name not in left:
            return mean(tensors)
        groups, first = len(left[name]), tensors[0]
        kept = torch.stack(context.kept(name)).any(dim=0)
        start = mean([_rows(tensor, groups) for tensor in tensors])
        solved = _solve(left[name], right[name], start, kept.reshape(start.shape))
        return solved.reshape(first.shape).to(first.dtype)

    return join_states(states, context.plan, join)


def regmean_nbytes(context: MergeContext) -> int:
    """Bytes for the Gram matrices of a part, of their sum, and of what becomes of them in between.

    Besides those that are cached, and the samples' patches.
    """
    grams = 8 * sum(prod(shape[1:]) ** 2 for shape in context.weight_shapes)
    return 5 * grams + 4 * context.nbytes + 2 * context.read_nbytes(CHUNK)


def gram_matrices(network: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """Weight name -> mean of x x^T over all that the layer reads: groups x columns x columns."""
    sums: dict[str, Tensor] = {}
    counts: Counter[str] = Counter()
    with torch.no_grad():
        for chunk in inputs.split(CHUNK):
            for call in run(network, chunk)[1]:
                if not isinstance(call.layer, Mixing):
                    continue
                rows = call.reads().flatten(0, 1).movedim(1, 0).to(torch.float64)
                groups, places, columns = rows.shape
                if call.weight not in sums:
                    sums[call.weight] = rows.new_zeros(groups, columns, columns)
                sums[call.weight].baddbmm_(rows.mT, rows)
                counts[call.weight] += places
    return {name: value.div_(counts[name]) for name, value in sums.items()}


def _check_layers(network: nn.Module) -> None:
    sharing = sharing_layers(network)
    for name, layer in network.named_modules():
        if not isinstance(layer, Mixing) or is_plain(layer):
            continue
        if name in sharing:
            raise CompositionError(
                f"regmean solves for the weight of layer {name!r} ({type(layer).__name__}), which "
                "is tied to that of another layer, with inputs of its own: give each a weight of "
                "its own before training, or join by another operator"
            )
        raise CompositionError(
            f"regmean solves for the weight of layer {name!r} ({type(layer).__name__}), which "
            "is computed from other parameters, as in weight norm, or used in a forward of its "
            "own: remove the parametrisation before training, or join by another operator"
        )


def _check_uses(network: nn.Module, inputs: Tensor) -> None:
    for name in sorted(read_elsewhere(network.requires_grad_(), inputs)):
        raise CompositionError(
            f"regmean solves for the weight of layer {name!r}, which the network reads in another "
            "place too, with other inputs: give that place a weight of its own before training, or "
            "join by another operator"
        )


def _solve(left: Tensor, right: Tensor, start: Tensor, kept: Tensor) -> Tensor:
    """Rows w with w G = right over the columns kept in each: conjugate gradients for all at once.

    What the samples do not determine, such as inputs that are always 0, stays as it starts.
    """
    diagonal = left.diagonal(dim1=1, dim2=2)[:, None]
    scale = torch.where(diagonal > 0, 1 / diagonal, 1.0)
    rows = start
    rest = torch.where(kept, right - rows @ left, 0)
    step = rest * scale
    size = (rest * step).sum(-1, keepdim=True)
    goal = TOLERANCE**2 * (right.square() * scale).sum(-1, keepdim=True)
    for _ in range(STEPS):
        on_the_way = size > goal
        if not bool(on_the_way.any()):
            break
        turned = torch.where(kept, step @ left, 0)
        length = on_the_way * _ratio(size, (step * turned).sum(-1, keepdim=True))
        rows = rows + length * step
        rest = rest - length * turned
        before, size = size, (rest * rest * scale).sum(-1, keepdim=True)
        step = rest * scale + _ratio(size, before) * step
    return rows


def _ratio(one: Tensor, other: Tensor) -> Tensor:
    """0 for the rows of which nothing is left."""
    return torch.where(other > 0, one / other, 0)


def _rows(tensor: Tensor, groups: int) -> Tensor:
    """A weight as groups x units x columns."""
    return tensor.reshape(groups, len(tensor) // groups, -1).to(torch.float64)
