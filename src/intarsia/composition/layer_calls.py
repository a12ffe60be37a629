"""What the layers of a network read and give while it runs."""

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call

from intarsia.models.custom.adapting import sharing_layers
from intarsia.models.custom.trial import noise

ROWS = 8  # of the inputs, on which it is tried whether calls explain the gradients
UNEXPLAINED = 1e-3  # of what calls add up: above rounding, below a second use of a weight

Mixing = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
"""Layers whose units each read many others."""

Layer = Mixing | nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
"""The former, and layers that scale and shift each unit alone: as many groups as units."""


@dataclass(frozen=True, eq=False)
class LayerCall:
    """One call of a layer: its name, and what it was given and gave, with N first."""

    name: str
    layer: Layer
    given: Tensor
    gave: Tensor

    @property
    def weight(self) -> str:
        return f"{self.name}.weight".lstrip(".")

    @property
    def bias(self) -> str:
        return f"{self.name}.bias".lstrip(".")

    def reads(self) -> Tensor:
        """The columns that meet the rows of the weight: N x places x groups x columns.

        They are what the layer would give if its weight were the identity, whatever its stride,
        padding, dilation or groups.
        """
        if isinstance(self.layer, nn.Linear):
            return self.by_place(self.given)
        weight = self.layer.weight
        groups, columns = _groups(self.layer), weight[0].numel()
        eye = torch.eye(columns, dtype=weight.dtype, device=weight.device).repeat(groups, 1)
        identity = {"weight": eye.reshape(-1, *weight.shape[1:])}
        if self.layer.bias is not None:
            identity["bias"] = weight.new_zeros(len(eye))
        with torch.no_grad():
            return self.by_place(functional_call(self.layer, identity, (self.given,)))

    def by_place(self, tensor: Tensor) -> Tensor:
        """Something of the shape that the layer gives: N x places x groups x units of a group."""
        if not isinstance(self.layer, nn.Linear):
            tensor = tensor.movedim(1, -1)
        groups = _groups(self.layer)
        return tensor.reshape(len(tensor), -1, groups, tensor.shape[-1] // groups)


_FORWARDS = {kind.forward for kind in get_args(Layer)}


def run(
    network: nn.Module, inputs: Tensor, without: Collection[str] = ()
) -> tuple[Tensor, list[LayerCall]]:
    """The network's logits, and every call of a layer on the way; a layer may be called twice.

    The inputs stay as they are, also where the network works on them in place. Layers `without`
    which it is to be done are not noted.
    """
    calls: list[LayerCall] = []

    def note(name: str, layer: Layer, args: tuple[Tensor, ...], gave: Tensor) -> Tensor:
        # Copies, because what follows a layer may work in place.
        calls.append(LayerCall(name, layer, args[0].detach().clone(), gave))
        return gave.clone()

    sharing = sharing_layers(network) | set(without)
    with ExitStack() as hooks:
        for name, layer in network.named_modules():
            if isinstance(layer, Layer) and is_plain(layer) and name not in sharing:
                hooks.enter_context(layer.register_forward_hook(partial(note, name)))
        return network(inputs.clone()), calls


def read_elsewhere(network: nn.Module, inputs: Tensor) -> set[str]:
    """The layers whose weight or bias the network reads outside their calls, too.

    Then their calls do not explain the gradients of these, tried on a few of the inputs.
    """
    some = inputs[:ROWS].detach()
    with torch.enable_grad():
        logits, calls = run(network, some.requires_grad_(some.is_floating_point()))
        calls = [call for call in calls if call.gave.requires_grad]
        own = {
            name: parameter
            for call in calls
            for name, parameter in ((call.weight, call.layer.weight), (call.bias, call.layer.bias))
            if parameter is not None and parameter.requires_grad
        }
        if not own:
            return set()
        factors = noise(logits.numel(), 5).reshape(logits.shape).to(logits)
        gave = [call.gave for call in calls]
        slopes = torch.autograd.grad(
            (logits * factors).sum(), [*own.values(), *gave], materialize_grads=True
        )
    rest = dict(zip(own, slopes, strict=False))  # of a gradient, what no call explains
    sizes = dict.fromkeys(own, 0.0)  # of the terms, which may cancel out: a bias before a norm's
    for call, slope in zip(calls, slopes[len(own) :], strict=True):
        slope, reads = call.by_place(slope), call.reads()
        for name, gradient in ((call.weight, _weight_gradient), (call.bias, _bias_gradient)):
            if name in own:
                rest[name] = rest[name] - gradient(slope, reads).reshape(rest[name].shape)
                sizes[name] += float(gradient(slope.abs(), reads.abs()).max())
    return {
        call.name
        for call in calls
        for name in (call.weight, call.bias)
        if name in own and float(rest[name].abs().max()) > UNEXPLAINED * sizes[name]
    }


def _weight_gradient(slope: Tensor, reads: Tensor) -> Tensor:
    return torch.einsum("nlgu,nlgc->guc", slope, reads)


def _bias_gradient(slope: Tensor, reads: Tensor) -> Tensor:
    return slope.sum(dim=(0, 1))


def is_plain(layer: nn.Module) -> bool:
    """Whether a layer does to its own weight what torch's does, so that the sums here hold.

    A weight that is computed from others (weight norm), or a forward of one's own, is another.
    """
    own = isinstance(layer._parameters.get("weight"), nn.Parameter)
    return own and type(layer).forward in _FORWARDS


def _groups(layer: Layer) -> int:
    if isinstance(layer, nn.Linear):
        return 1
    return layer.groups if isinstance(layer, Mixing) else layer.num_features
