"""Weights averaged by how much each module's answers depend on them."""

import warnings
from collections.abc import Callable, Collection, Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from intarsia.composition.layer_calls import Layer, LayerCall, read_elsewhere, run
from intarsia.composition.merge_context import MergeContext, StatsCache
from intarsia.composition.operators.arithmetic import Weights, combination
from intarsia.composition.operators.registry import States, operator
from intarsia.composition.operators.weights import join_states
from intarsia.errors import RecipeError

CHUNK = 16  # samples whose gradients, or patches, are held at once
MANY = 256  # samples at once where no layer makes patches
ENTRIES = 2**24  # of the gradients of samples, held at once
_CACHE = StatsCache()


@operator(
    "fisher",
    on="weights",
    paper="https://arxiv.org/abs/2111.09832",
    samples=True,
    colour="#d0570f",
    memory=lambda context: 4 * context.nbytes + 2 * context.read_nbytes(MANY),
)
def fisher(
    states: States, context: MergeContext, weights: Weights = 1.0, floor: float = 1e-6
) -> dict[str, Tensor]:
    """theta = sum of w_i F_i theta_i / sum of w_i F_i, entry by entry, F_i at least `floor`.

    F_i is the diagonal Fisher information of part i on the samples. A pruned entry has none: the
    modules that keep an entry decide its value among themselves.
    """
    given = context.weights(weights)
    if min(given) <= 0:
        raise RecipeError(f"fisher: the weights are {given}: expected numbers above 0")
    if floor <= 0:
        raise RecipeError(f"fisher: floor is {floor}: expected a number above 0")
    inputs = context.scaled("fisher")
    information = list(
        _CACHE.each(context, inputs, lambda network: diagonal(network, inputs, context.temperature))
    )

    def join(name: str, tensors: list[Tensor]) -> Tensor:
        kept = [
            own[name].clamp_min(floor) * mask
            for own, mask in zip(information, context.kept(name), strict=True)
        ]
        weight = combination(given, kept)
        value = combination(given, [f * t for f, t in zip(kept, tensors, strict=True)])
        return torch.where(weight > 0, value / weight, 0).to(tensors[0].dtype)

    return join_states(states, context.plan, join)


def diagonal(network: nn.Module, inputs: Tensor, temperature: float) -> dict[str, Tensor]:
    """F = mean over x of sum over c of p_c (d log p_c / d theta)^2, with p = softmax(z(x) / t).

    The expectation over the network's own answers is exact, no label is drawn or looked at.
    sqrt(p_c) d log p_c = 2 d sqrt(p_c), so the gradients that are squared are those of 2 sqrt(p_c).
    """
    sums = {
        name: torch.zeros_like(p, dtype=torch.float64, requires_grad=False)
        for name, p in network.named_parameters()
    }
    patches = any(isinstance(m, Layer) and not isinstance(m, nn.Linear) for m in network.modules())
    network.requires_grad_()  # frozen parameters inform, too
    apart = read_elsewhere(network, inputs)
    few = patches and not inputs.is_cuda  # a GPU has the memory, and waits for launches
    for chunk in inputs.split(CHUNK if few else MANY):
        done = _add_layers(sums, network, chunk, temperature, apart)
        others = {n: p.detach() for n, p in network.named_parameters() if n not in done}
        for subsample in chunk.split(CHUNK) if others else ():
            _add_others(sums, network, others, subsample, temperature)
    return {name: value / len(inputs) for name, value in sums.items()}


def _add_layers(
    sums: dict[str, Tensor],
    network: nn.Module,
    inputs: Tensor,
    temperature: float,
    apart: Collection[str],
) -> set[str]:
    """Add the squares for the layers that were called, but for some, and say for which tensors.

    The gradient of a weight is d x^T summed over the places of a sample, with x what the layer
    reads there and d the gradient of what it gives. With one place its square is d^2 (x^2)^T, and
    x is the same for every class: one product of matrices for all of them.
    """
    with torch.enable_grad():
        given = inputs.detach().requires_grad_(inputs.is_floating_point())
        logits, calls = run(network, given, apart)
        roots = _roots(logits, temperature)
    calls = [call for call in calls if call.gave.requires_grad]
    if not calls:
        return set()
    uses: dict[str, list[int]] = {}
    for place, call in enumerate(calls):
        uses.setdefault(call.name, []).append(place)
    layers = {name: calls[places[0]] for name, places in uses.items()}
    reads = {n: torch.cat([calls[i].reads() for i in places], dim=1) for n, places in uses.items()}
    squares: dict[str, Tensor] = {}  # of d, summed over classes, for layers with one place
    for c in range(roots.shape[1]):
        slopes = torch.autograd.grad(
            roots[:, c].sum(),
            [call.gave for call in calls],
            retain_graph=True,
            materialize_grads=True,
        )
        for name, layer in layers.items():
            d = torch.cat([calls[i].by_place(slopes[i]) for i in uses[name]], dim=1)
            if d.shape[1] == 1:
                squares[name] = squares[name] + d.square() if name in squares else d.square()
                continue
            _add(sums, layer, _over_places(d, reads[name]), d.sum(dim=1).square())
    for name, d in squares.items():
        weight = torch.einsum("nlgu,nlgc->guc", d, reads[name].square())
        _add(sums, layers[name], weight, d)
    return {name for call in calls for name in (call.weight, call.bias)}


def _over_places(d: Tensor, x: Tensor) -> Tensor:
    """N x places x groups x units, ... x columns -> the squares, groups x units x columns."""
    squares = x.new_zeros(x.shape[2], d.shape[3], x.shape[3])
    step = max(1, ENTRIES // max(1, squares.numel()))
    for subsample, read in zip(d.split(step), x.split(step), strict=True):
        squares += torch.einsum("nlgu,nlgc->nguc", subsample, read).square().sum(dim=0)
    return squares


def _add(sums: dict[str, Tensor], layer: LayerCall, weight: Tensor, bias: Tensor) -> None:
    """Squares of a layer's gradients; those of the bias are still sample by sample."""
    sums[layer.weight] += weight.reshape(layer.layer.weight.shape)
    if layer.layer.bias is not None:
        sums[layer.bias] += bias.sum(dim=0).flatten()


def _add_others(
    sums: dict[str, Tensor],
    network: nn.Module,
    others: dict[str, Tensor],
    inputs: Tensor,
    temperature: float,
) -> None:
    """Add the squares for all other parameters, sample by sample."""

    def roots(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return _roots(functional_call(network, parameters, (x[None].clone(),)), temperature)[0]

    each = _mapped(roots, others, inputs)
    # torch's map is wrong for some layers (PReLU), so it is trusted where it agrees with a sample.
    if each is None or not _agrees(each, _one_by_one(network, others, inputs[:1], temperature)):
        each = _one_by_one(network, others, inputs, temperature)
    for name, gradients in each.items():
        sums[name] += gradients.square().sum(dim=(0, 1))


def _mapped(
    roots: Callable[[dict[str, Tensor], Tensor], Tensor], others: dict[str, Tensor], inputs: Tensor
) -> dict[str, Tensor] | None:
    """The gradients of all samples at once, N x C x *shape; None where torch cannot map a layer."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "There is a performance drop", UserWarning)
        try:
            gradients: dict[str, Tensor] = vmap(jacrev(roots), in_dims=(None, 0))(others, inputs)
        except (RuntimeError, UserWarning):
            return None
    return gradients


def _agrees(each: dict[str, Tensor], first: dict[str, Tensor]) -> bool:
    return all(
        not gradients.numel()
        or torch.allclose(
            each[name][:1], gradients, rtol=1e-3, atol=1e-5 + 1e-3 * float(gradients.abs().max())
        )
        for name, gradients in first.items()
    )


def _one_by_one(
    network: nn.Module, names: Iterable[str], inputs: Tensor, temperature: float
) -> dict[str, Tensor]:
    """The gradients of each sample's roots, N x C x *shape, by the usual backward passes."""
    own, names = dict(network.named_parameters()), list(names)
    rows = []
    for x in inputs:
        with torch.enable_grad():
            roots = _roots(network(x[None].clone()), temperature)[0]
        for root in roots:
            rows.append(
                torch.autograd.grad(
                    root,
                    [own[name] for name in names],
                    retain_graph=True,
                    materialize_grads=True,
                )
            )
    return {
        name: torch.stack(gradients).unflatten(0, (len(inputs), -1))
        for name, gradients in zip(names, zip(*rows, strict=True), strict=True)
    }


def _roots(logits: Tensor, temperature: float) -> Tensor:
    return 2 * torch.exp(torch.log_softmax(logits / temperature, dim=1) / 2)
