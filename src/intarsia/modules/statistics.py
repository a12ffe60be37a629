"""Several states in one: means of what each unit has, over the states that did not prune it."""

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor


def joint_buffer(
    name: str, states: Sequence[Mapping[str, Tensor]], weights: Sequence[float]
) -> Tensor:
    """A normalisation's running statistic: the weighted mean; of counts the largest.

    A state counts for the units whose normalisation weight is not 0 in it. Half precision is
    averaged in float64.
    """
    tensors = [state[name] for state in states]
    dtype = tensors[0].dtype
    if not dtype.is_floating_point:
        return reduce(torch.maximum, tensors)
    if is_half(tensors[0]):
        tensors = [tensor.double() for tensor in tensors]
    gain = sibling_name(name, "weight")
    kept = [torch.ones_like(t, dtype=torch.bool) for t in tensors]
    if gain in states[0] and states[0][gain].shape == tensors[0].shape:
        kept = [state[gain] != 0 for state in states]
    return mean_where(tensors, kept, weights).to(dtype)


def mean_where(
    tensors: Sequence[Tensor], kept: Sequence[Tensor], weights: Sequence[float]
) -> Tensor:
    """Each entry's weighted mean over the tensors that keep it, or over all where none does."""
    own = [weight * k.to(t.dtype) for weight, k, t in zip(weights, kept, tensors, strict=True)]
    nobody = total(own) == 0
    own = [torch.where(nobody, weight, o) for weight, o in zip(weights, own, strict=True)]
    return total([t * o for t, o in zip(tensors, own, strict=True)]) / total(own)


def is_half(tensor: Tensor) -> bool:
    """Whether these are numbers of two bytes or fewer, whose sums round more than is needed."""
    return tensor.is_floating_point() and tensor.dtype.itemsize < 4


def sibling_name(name: str, other: str) -> str:
    """The name of another tensor of the same layer."""
    layer, dot, _ = name.rpartition(".")
    return layer + dot + other


def is_finite(tensor: Tensor) -> bool:
    """Whether it holds neither NaN nor infinity; integers never do."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    tensor = tensor.detach()
    # what is not finite stays so in a sum, which is the quickest look; sums may also overflow
    if tensor.dtype.itemsize > 2 and math.isfinite(float(tensor.sum())):
        return True
    return all(math.isfinite(float(edge)) for edge in tensor.aminmax())  # NaN reaches both


def total(tensors: Sequence[Tensor]) -> Tensor:
    """The sum, one after another: the order of a reduction over an axis is not ours to know."""
    return reduce(torch.add, tensors)
