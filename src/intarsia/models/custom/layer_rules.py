"""How each kind of layer carries units from its input to its output."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, fx, nn

from intarsia.models.custom.axis_labels import Label, Labels, UnreadableError, Variables, reshaped


class Reader(Protocol):
    """What the rules need of the reader that runs them."""

    variables: Variables
    labels: dict[fx.Node, Labels]
    env: dict[fx.Node, Any]

    def wire(self, tensor: Tensor | None, labels: Labels) -> None: ...

    def given_by(self, weight: Tensor, name: str) -> Label | None: ...


@dataclass
class Step:
    """One call in the trace: where it is, what it read and what it gave."""

    reader: Reader
    node: fx.Node
    module: Any
    value: Tensor
    tensors: list[fx.Node]

    @property
    def x(self) -> Labels:
        return self.reader.labels[self.tensors[0]]

    @property
    def before(self) -> tuple[int, ...]:
        return tuple(self.reader.env[self.tensors[0]].shape)

    def without_input(self, labels: Labels) -> Labels:
        """After a layer nothing is raw input any more."""
        return tuple(None if self.reader.variables.is_input(label) else label for label in labels)

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        given = self.node.args[place] if len(self.node.args) > place else self.node.kwargs.get(name)
        return default if given is None else given

    def dimensions(self, given: Any) -> list[int]:
        if not all(
            isinstance(d, int) for d in (given if isinstance(given, tuple | list) else [given])
        ):
            raise UnreadableError("its dimensions are computed")
        many = given if isinstance(given, tuple | list) else [given]
        return [d % len(self.x) for d in many]


Rule = Callable[[Step], Labels]


def linear(step: Step) -> Labels:
    gives = step.reader.given_by(step.module.weight, str(step.node.target))
    step.reader.wire(step.module.weight, (gives, step.x[-1]))
    step.reader.wire(step.module.bias, (gives,))
    return (*step.without_input(step.x[:-1]), gives)


def convolution(step: Step) -> Labels:
    module, reads = step.module, step.x[1]
    positions = windows(step)[2:]
    if module.groups == 1:
        gives = step.reader.given_by(module.weight, str(step.node.target))
    elif module.groups == module.in_channels:
        # depthwise: every channel stays by itself, as a block of its multiples
        multiple = module.out_channels // module.in_channels
        gives = (reads[0], reads[1] * multiple) if reads else None
        reads = None
    else:
        raise UnreadableError(f"groups={module.groups} ties channels together")
    step.reader.wire(module.weight, (gives, reads, *[None] * len(positions)))
    step.reader.wire(module.bias, (gives,))
    return (None, gives, *positions)


def windows(step: Step) -> Labels:
    """Pools and convolutions: what lies under the window must not be units."""
    positions = step.without_input(step.x[2:])
    kind = step.node.target if step.module is None else type(step.module)
    spatial = int(str(getattr(kind, "__name__", kind))[-2])  # max_pool2d, Conv1d
    if any(positions) or len(positions) != spatial:
        raise UnreadableError("its window moves over units")
    return (*step.x[:2], *positions)


def per_channel_norm(step: Step) -> Labels:
    channels = step.x[1]
    for name in ("weight", "bias", "running_mean", "running_var"):
        step.reader.wire(getattr(step.module, name, None), (channels,))
    return step.x


def group_norm(step: Step) -> Labels:
    if step.module.num_groups not in (1, step.module.num_channels):
        raise UnreadableError(f"num_groups={step.module.num_groups} ties channels together")
    if step.module.num_groups == 1:
        step.reader.variables.join(step.x[1])
    return per_channel_norm(step)


def layer_norm(step: Step) -> Labels:
    last = step.x[-len(step.module.normalized_shape) :]
    for label in last:
        step.reader.variables.join(label)
    for name in ("weight", "bias"):
        step.reader.wire(getattr(step.module, name, None), last)
    return step.x


def prelu(step: Step) -> Labels:
    single = step.module.num_parameters == 1
    step.reader.wire(step.module.weight, (None if single else step.x[1],))
    return step.x


def elementwise(step: Step) -> Labels:
    if len(step.tensors) > 1:
        raise UnreadableError("it reads several tensors")
    return step.x


def reshape(step: Step) -> Labels:
    return reshaped(step.reader.variables, step.x, step.before, tuple(step.value.shape))


def reduce(step: Step) -> Labels:
    """Means and sums: units that are summed away have met."""
    given = step.argument(1, "dim", list(range(len(step.x))))
    gone = step.dimensions(given)
    for d in gone:
        step.reader.variables.join(step.x[d])
    if step.value.ndim == len(step.x):
        return tuple(None if d in gone else label for d, label in enumerate(step.x))
    return tuple(label for d, label in enumerate(step.x) if d not in gone)


def softmax(step: Step) -> Labels:
    dim = step.module.dim if step.module is not None else step.argument(1, "dim")
    for d in step.dimensions(dim):
        step.reader.variables.join(step.x[d])
    return step.x


def permute(step: Step) -> Labels:
    given = step.node.args[1:] or tuple(step.node.kwargs.values())
    order = step.dimensions(given[0] if len(given) == 1 else given)
    return tuple(step.x[d] for d in order)


def transpose(step: Step) -> Labels:
    one, other = step.dimensions([step.argument(1, "dim0"), step.argument(2, "dim1")])
    labels = list(step.x)
    labels[one], labels[other] = labels[other], labels[one]
    return tuple(labels)


def concatenate(step: Step) -> Labels:
    [dim] = step.dimensions(step.argument(1, "dim", 0))
    if any(step.without_input(tuple(step.reader.labels[node][dim] for node in step.tensors))):
        raise UnreadableError("it puts units of several axes side by side in one dimension")
    joined = list(step.x)
    for node in step.tensors:
        labels = step.reader.labels[node]
        step.reader.variables.join(labels[dim])
        joined = [
            None if d == dim else _meet(step, joined[d], label, step.value.shape[d])
            for d, label in enumerate(labels)
        ]
    return tuple(joined)


def combine(step: Step) -> Labels:
    """Sums and products, entry by entry: what meets is the same units."""
    joined: list[Label | None] = [None] * step.value.ndim
    seen = [1] * step.value.ndim
    for node in step.tensors:
        labels, sizes = step.reader.labels[node], step.reader.env[node].shape
        offset = step.value.ndim - len(labels)
        for d, (label, size) in enumerate(zip(labels, sizes, strict=True), start=offset):
            if size == seen[d]:
                joined[d] = _meet(step, joined[d], label, size)
                continue
            # one of the two has a single entry here, spread over all of the other's
            single, joined[d] = (label, joined[d]) if size == 1 else (joined[d], label)
            step.reader.variables.join(single)
            seen[d] = max(size, seen[d])
    return tuple(joined)


def _meet(step: Step, one: Label | None, other: Label | None, size: int) -> Label | None:
    variables = step.reader.variables
    if one is not None and other is not None:
        variables.unify(one, other)
        return one
    label = one or other
    if label is None or size == 1:
        return label
    if variables.is_input(label):
        variables.join(label)
    elif not variables.freeze(label):
        raise UnreadableError("units of an axis meet entries that are not units")
    return None


def _each(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


LAYERS: dict[type, Rule] = {
    getattr(nn, name): rule
    for name, rule in {
        "Linear": linear,
        "GroupNorm": group_norm,
        "PReLU": prelu,
        **_each(convolution, "Conv1d Conv2d Conv3d"),
        **_each(per_channel_norm, "BatchNorm1d BatchNorm2d BatchNorm3d"),
        **_each(per_channel_norm, "InstanceNorm1d InstanceNorm2d InstanceNorm3d"),
        **_each(layer_norm, "LayerNorm RMSNorm"),
        **_each(reshape, "Flatten Unflatten"),
        **_each(softmax, "Softmax LogSoftmax"),
        **_each(windows, "MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d"),
        **_each(windows, "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d"),
        **_each(windows, "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d"),
        **_each(elementwise, "ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Hardswish"),
        **_each(elementwise, "Hardsigmoid Hardtanh Sigmoid LogSigmoid Tanh Softplus Softsign"),
        **_each(elementwise, "Identity Dropout Dropout1d Dropout2d Dropout3d AlphaDropout"),
    }.items()
}

# by the name of a function or method, without the underscore of in-place forms
FUNCTIONS: dict[str, Rule] = {
    "permute": permute,
    "transpose": transpose,
    **_each(concatenate, "cat concat concatenate"),
    **_each(softmax, "softmax log_softmax"),
    **_each(reduce, "mean sum amax amin"),
    **_each(reshape, "flatten reshape view unflatten squeeze unsqueeze"),
    **_each(combine, "add sub mul div truediv iadd isub imul itruediv maximum minimum"),
    **_each(windows, "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d"),
    **_each(windows, "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"),
    **_each(windows, "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"),
    **_each(elementwise, "relu relu6 leaky_relu elu selu celu gelu silu mish hardswish"),
    **_each(elementwise, "hardsigmoid hardtanh sigmoid logsigmoid tanh softplus softsign"),
    **_each(elementwise, "dropout dropout1d dropout2d dropout3d alpha_dropout"),
    **_each(elementwise, "neg abs exp sqrt square pow clamp"),
    **_each(elementwise, "contiguous clone detach float double to"),
}
