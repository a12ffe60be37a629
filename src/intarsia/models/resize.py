"""A network with more or fewer units on some of its axes, whatever its layers are."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from intarsia.errors import ModelError, WiringError, nearest, shortened
from intarsia.models.axes import Wiring, axis_sizes, hidden_axes, joint_axes, resized_shape
from intarsia.models.custom.trial import answer

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip


def resize(network: nn.Module, wiring: Wiring, widths: Mapping[str, int]) -> nn.Module:
    """The network itself, with `widths` units on the named hidden axes, on the device it was on.

    Tensors that change their size become zeros: their values come with a state. The sizes that
    torch.nn's layers remember follow their tensors.
    """
    _check_widths(wiring, widths)
    changed: dict[nn.Module, str] = {}
    state = network.state_dict(keep_vars=True)
    sizes = axis_sizes(wiring, state)
    for name, tensor in state.items():
        shape = resized_shape(wiring[name], tensor.shape, sizes, widths)
        if shape == tuple(tensor.shape):
            continue
        path, _, key = name.rpartition(".")
        layer = network.get_submodule(path)
        changed[layer] = path
        _replace(layer, key, tensor, shape)
    for layer, path in changed.items():
        _remember(layer, path or type(network).__name__)
    return network


def try_resized(network: nn.Module, shape: tuple[int, ...], outputs: int) -> None:
    """Raise ModelError unless a resized network still takes inputs to logits."""
    try:
        logits = answer(network, shape)
        seen = f"gives {tuple(logits.shape)} where {(2, outputs)} was expected"
        fits = tuple(logits.shape) == (2, outputs)
    except Exception as cause:
        seen, fits = f"fails with {type(cause).__name__}: {cause}", False
    if not fits:
        raise ModelError(
            f"{type(network).__name__} cannot have other widths than its own, with them it {seen}; "
            "its forward probably holds a number of units, as view(-1, 10816) does: take it from "
            "the tensor's shape, as flatten(1) does"
        )


def _check_widths(wiring: Wiring, widths: Mapping[str, int]) -> None:
    known = hidden_axes(wiring)
    joint = joint_axes(wiring)
    for axis, units in widths.items():
        if axis not in known:
            raise WiringError(
                f"widths name the axis {axis!r}, which is not a hidden axis of this network: "
                f"{nearest(axis, known)}"
            )
        if axis in joint:
            raise WiringError(
                f"axis {axis!r} cannot have another width: its units meet outside the weights (as "
                "in LayerNorm), so none can be added or left out alone"
            )
        if type(units) is not int or units < 1:
            raise WiringError(
                f"axis {axis!r} has width {shortened(units)}: expected a whole number of at least 1"
            )


def _replace(layer: nn.Module, key: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    try:
        blank = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
    except RuntimeError as cause:
        raise WiringError(
            f"{key!r} of a {type(layer).__name__} cannot have the shape {shape}: no machine holds "
            "it; give smaller widths"
        ) from cause
    if isinstance(tensor, nn.Parameter):
        setattr(layer, key, nn.Parameter(blank, tensor.requires_grad))
    else:
        setattr(layer, key, blank)


def _remember(layer: nn.Module, path: str) -> None:
    """Set the attributes in which a layer keeps its sizes; a layer of one's own may have none."""
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape
    elif isinstance(layer, CONVOLUTIONS):
        _remember_channels(layer, path)
    elif isinstance(layer, NORMS):
        tensors = (layer.weight, layer.running_mean)
        layer.num_features = next(len(t) for t in tensors if t is not None)
    elif isinstance(layer, nn.GroupNorm) and layer.num_groups > 1:
        # a unit is a group
        group = layer.num_channels // layer.num_groups
        layer.num_channels = len(layer.weight)
        layer.num_groups = layer.num_channels // group
    elif isinstance(layer, nn.Embedding):
        layer.embedding_dim = layer.weight.shape[1]
    elif isinstance(layer, nn.LSTM | nn.GRU | nn.RNN) and layer.proj_size == 0:
        layer.hidden_size = layer.get_parameter("weight_hh_l0").shape[1]
        layer.input_size = layer.get_parameter("weight_ih_l0").shape[1]
    elif isinstance(layer, nn.PReLU):
        layer.num_parameters = len(layer.weight)
    elif type(layer).__module__.startswith("torch.nn."):
        raise WiringError(
            f"layer {path!r} ({type(layer).__name__}) cannot have another width: there is no rule "
            "for the sizes it keeps"
        )


def _remember_channels(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, path: str) -> None:
    rows, columns = layer.weight.shape[:2]
    if layer.groups == 1:
        layer.out_channels, layer.in_channels = rows, columns
        return
    given = layer.out_channels // layer.groups  # channels that a group gives
    if rows % given:
        raise WiringError(
            f"layer {path!r} cannot have another width: its groups={layer.groups} tie channels "
            "together"
        )
    layer.out_channels, layer.in_channels, layer.groups = (
        rows,
        rows // given * columns,
        rows // given,
    )
