"""How each kind of function carries units from what it reads to what it gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from intarsia.models.custom.axis_labels import (
    MOST_REPEATS,
    Label,
    Labels,
    RawLabel,
    RawLabels,
    UnreadableError,
    Variables,
    committed,
    reshaped,
    selected,
)


class Reader(Protocol):
    """What the rules need of the reader that runs them."""

    variables: Variables

    def raw(self, tensor: Tensor) -> RawLabels: ...

    def path_of(self, tensor: Tensor) -> str | None: ...

    def assign(self, tensor: Tensor, dimension: int, label: Label) -> None: ...


@dataclass
class Step:
    """One call: its arguments, what it gave, and the labels of tensors that it read."""

    reader: Reader
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any

    @property
    def variables(self) -> Variables:
        return self.reader.variables

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        given = self.args[place] if len(self.args) > place else self.kwargs.get(name)
        return default if given is None else given

    @property
    def first(self) -> Tensor:
        given = self.argument(0, "input", self.kwargs.get("self"))
        if not isinstance(given, Tensor):
            raise UnreadableError("it does not begin with a tensor")
        return given

    def labels(self, tensor: Tensor) -> Labels:
        return committed(self.variables, self.reader.raw(tensor))

    @property
    def x(self) -> Labels:
        return self.labels(self.first)

    def without_input(self, labels: Sequence[Label]) -> Labels:
        """After a layer nothing is raw input any more."""
        return tuple(self.variables.without_input(label) for label in labels)

    def dimensions(self, given: Any, count: int | None = None) -> list[int]:
        many = list(given) if isinstance(given, tuple | list) else [given]
        if not all(isinstance(d, int) for d in many):
            raise UnreadableError("its dimensions are computed")
        return [d % (self.first.ndim if count is None else count) for d in many]

    def meet(self, tensor: Tensor | None, labels: Sequence[Label]) -> None:
        """A parameter's dimensions are these units."""
        if tensor is None:
            return
        own = self.labels(tensor)
        for d, (label, size) in enumerate(zip(labels, tensor.shape, strict=True)):
            if size == 1 and own[d] is None and label is not None:
                self.reader.assign(tensor, d, label)
            self.variables.meet(own[d], label, size)

    def given_by(self, weight: Tensor, units: int | None = None) -> Label:
        """The axis that a weight's first dimension gives, by the name of its layer."""
        path = self.reader.path_of(weight)
        own = self.labels(weight)[0]
        if path is None:
            return own
        gives = self.variables.new(path, weight.shape[0] if units is None else units)
        if own is not None:
            self.variables.unify(own, gives)
        return gives


@dataclass(frozen=True)
class Unlabelled:
    """In place of labels, for a tensor that has none which fit: an error once it is used."""

    reason: str


Rule = Callable[[Step], Any]


def linear(step: Step) -> Labels:
    weight, bias = step.argument(1, "weight"), step.argument(2, "bias")
    gives, x = step.given_by(weight), step.x
    step.meet(weight, (gives, x[-1]))
    step.meet(bias, (gives,))
    return (*step.without_input(x[:-1]), gives)


def convolution(step: Step) -> Labels:
    weight, bias = step.argument(1, "weight"), step.argument(2, "bias")
    groups, x = step.argument(6, "groups", 1), step.x
    positions = windows(step)[2:]
    reads: Label = x[1]
    if groups == 1:
        gives = step.given_by(weight)
    else:
        # a group is a unit, and stays by itself: its channels are a block, as in depthwise layers
        rows, columns = weight.shape[0] // groups, weight.shape[1]
        if reads is None:
            raise UnreadableError(f"its {groups} groups read what is not units")
        group = step.variables.coarsen(reads, columns)
        gives = tuple((variable, block * rows) for variable, block in group)
        reads = None
    step.meet(weight, (gives, reads, *[None] * len(positions)))
    step.meet(bias, (gives,))
    return (None, gives, *positions)


def windows(step: Step) -> Labels:
    """Pools and convolutions: what lies under the window must not be units."""
    x = step.x
    positions = step.without_input(x[2:])
    if any(positions) or len(positions) != int(step.name[-2]):  # max_pool2d, conv1d
        raise UnreadableError("its window moves over units")
    return (*x[:2], *positions)


def per_channel_norm(step: Step) -> Labels:
    x = step.x
    for tensor in (*step.args[1:], *step.kwargs.values()):
        if isinstance(tensor, Tensor):
            step.meet(tensor, (x[1],))
    return x


def group_norm(step: Step) -> Labels:
    """Channels of a group meet: they move, and stay, together."""
    groups, channels = step.argument(1, "num_groups"), step.x[1]
    size = step.first.shape[1]
    if groups == 1:
        step.variables.join(channels)
    elif channels is not None and groups != size:
        step.variables.coarsen(channels, size // groups)
    for place, name in ((2, "weight"), (3, "bias")):
        step.meet(step.argument(place, name), (channels,))
    return step.x


def layer_norm(step: Step) -> Labels:
    x = step.x
    last = x[-len(step.argument(1, "normalized_shape")) :]
    for label in last:
        step.variables.join(label)
    for place, name in ((2, "weight"), (3, "bias")):
        tensor = step.argument(place, name)
        if isinstance(tensor, Tensor):
            step.meet(tensor, last)
    return x


def prelu(step: Step) -> Labels:
    weight, x = step.argument(1, "weight"), step.x
    step.meet(weight, (None if weight.numel() == 1 else x[1],))
    return x


def embedding(step: Step) -> Labels:
    """A lookup: the rows are not units, the columns are what it gives."""
    weight = step.argument(1, "weight")
    gives = step.variables.new(step.reader.path_of(weight) or "embedding", weight.shape[1])
    step.meet(weight, (None, gives))
    return (*step.without_input(step.x), gives)


def weight_norm(step: Step) -> Labels:
    """v times g over the norm of v: units along v's dimension, which has g's entries."""
    v, g, dim = step.argument(0, "v"), step.argument(1, "g"), step.argument(2, "dim", 0)
    labels = step.labels(v)
    if dim == -1:  # one norm of the whole tensor
        for label in labels:
            step.variables.join(label)
        step.meet(g, [None] * g.ndim)
        return labels
    step.meet(g, [label if d == dim else None for d, label in enumerate(labels)])
    return labels


def elementwise(step: Step) -> Labels:
    return step.reader.raw(step.first)  # type: ignore[return-value]


def powers(step: Step) -> Labels:
    """Entry by entry, by numbers or by tensors."""
    tensors = [a for a in (*step.args, *step.kwargs.values()) if isinstance(a, Tensor)]
    return combine(step) if len(tensors) > 1 else elementwise(step)


def gated(step: Step) -> Labels:
    """Two halves of one dimension meet."""
    [dim] = step.dimensions(step.argument(1, "dim", -1))
    x, half = step.x, step.value.shape[dim]
    one, two = (step.variables.cut(x[dim], start, start + half) for start in (0, half))
    met = step.variables.meet(one, two, half)
    return tuple(met if d == dim else label for d, label in enumerate(x))


def attention(step: Step) -> Labels:
    """Heads are units: those of queries, keys and values are the same, or groups of them."""
    query, key, value = (step.argument(p, n) for p, n in enumerate(("query", "key", "value")))
    labels = [step.labels(tensor) for tensor in (query, key, value)]
    for own in labels:
        for inner in own[-2:-1]:
            step.variables.join(inner)
    step.variables.meet(labels[0][-1], labels[1][-1], query.shape[-1])
    joined: list[Label] = list(labels[0][:-2])
    for own, tensor in zip(labels[1:], (key, value), strict=True):
        for d in range(len(joined)):
            label, times = own[d], query.shape[d] // tensor.shape[d]
            if label is not None and times > 1:
                label = tuple((variable, block * times) for variable, block in label)
            joined[d] = step.variables.meet(joined[d], label, query.shape[d])
    mask = step.argument(3, "attn_mask")
    if isinstance(mask, Tensor):
        _meet_mask(step, mask, joined, (labels[0][-2], labels[1][-2]))
    return (*joined, labels[0][-2], labels[2][-1])


def _meet_mask(step: Step, mask: Tensor, heads: list[Label], places: tuple[Label, Label]) -> None:
    """What is added to the scores may be of each head, of each place, or of all alike."""
    own = step.without_input(step.labels(mask))
    offset = len(heads) + 2 - len(own)
    for d, (label, size) in enumerate(zip(own, mask.shape, strict=True), start=offset):
        if size == 1:
            step.variables.join(label)
        elif d < len(heads):
            heads[d] = step.variables.meet(heads[d], label, size)
        else:
            step.variables.meet(places[d - len(heads)], label, size)


def multihead(step: Step) -> list[RawLabels | Unlabelled]:
    """nn.MultiheadAttention: three weights in one tensor, or three tensors."""
    names = ("query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight",
             "in_proj_bias", "bias_k", "bias_v", "add_zero_attn", "dropout_p", "out_proj_weight",
             "out_proj_bias")  # fmt: skip
    given = dict(zip(names, step.args, strict=False)) | step.kwargs
    if given.get("bias_k") is not None:
        raise UnreadableError("there is no rule for its bias_k")
    weight, heads, width = given["in_proj_weight"], given["num_heads"], given["query"].shape[-1]
    own = given["out_proj_weight"]
    path = (step.reader.path_of(own) or "heads").rpartition(".")[0] or "heads"
    units = step.variables.new(f"{path}.heads", heads)
    block = tuple((variable, width // heads) for variable, _ in units)
    reads = [step.labels(given[name])[-1] for name in names[:3]]
    if weight is not None:
        read = step.variables.meet(reads[0], reads[1], width)
        step.meet(weight, (block * 3, step.variables.meet(read, reads[2], width)))
    else:
        for name, label in zip(("q", "k", "v"), reads, strict=True):
            step.meet(given[f"{name}_proj_weight"], (block, label))
    step.meet(given["in_proj_bias"], (block * 3,))
    gives = step.given_by(own)
    step.meet(own, (gives, block))
    step.meet(given["out_proj_bias"], (gives,))
    rows = step.without_input(step.labels(given["query"])[:-1])
    if any(rows):
        raise UnreadableError("it attends to units")
    return [(*rows, gives), Unlabelled("there is no rule for its attention weights")]


STATES = "the states of all its layers and directions lie in one tensor"


def recurrent(gates: int) -> Rule:
    """LSTM, GRU and plain cells: the gates of a unit lie side by side in one dimension."""

    def rule(step: Step) -> list[RawLabels | Unlabelled]:
        if any(isinstance(a, Tensor) and a.ndim == 1 for a in step.args[:3]):
            raise UnreadableError("it reads packed sequences")
        tensors = next(list(a) for a in step.args[2:] if isinstance(a, list | tuple))
        biased, layers, _, _, both = step.args[3:8]
        first, weights = step.x, 2 + 2 * biased
        if any(step.without_input(first[:-1])):
            raise UnreadableError("it moves over units")
        if len(tensors) != layers * (1 + both) * weights:
            raise UnreadableError("its outputs are projected")
        read = first[-1]
        for layer in range(layers):
            read = _layer(step, tensors, layer, read, (gates, weights, 1 + both))
        last: RawLabels = (None, None, read)
        several = layers * (1 + both) > 1
        given = step.args[1] if isinstance(step.args[1], tuple | list) else step.args[1:2]
        for state in given:
            label = step.labels(state)[-1]
            if label is not None and several:
                raise UnreadableError(f"{STATES}: begin with states of 0")
            if label is not None:
                step.variables.meet(read, label, state.shape[-1])
        rest = Unlabelled(f"{STATES}: read its outputs instead") if several else last
        return [last, *[rest] * (len(step.value) - 1)]

    return rule


def _layer(
    step: Step, tensors: list[Tensor], layer: int, read: Label, counts: tuple[int, int, int]
) -> Label:
    gates, weights, directions = counts
    gives: Label = ()
    for direction in range(directions):
        start = (layer * directions + direction) * weights
        into, again, *biases = tensors[start : start + weights]
        path = step.reader.path_of(into) or "cells"
        name = f"{path}.{layer}{'.reverse' if direction else ''}"
        units = step.variables.new(name, again.shape[1])
        step.meet(into, (units * gates, read))
        step.meet(again, (units * gates, units))
        for bias in biases:
            step.meet(bias, (units * gates,))
        gives = (*(gives or ()), *units)
    return gives


def reshape(step: Step) -> RawLabels:
    raw = step.reader.raw(step.first)
    return reshaped(step.variables, raw, step.first.shape, step.value.shape)


def reduce(step: Step) -> Any:
    """Means and sums: units that are summed away have met."""
    x = step.x
    place = 2 if "norm" in step.name else 1  # norm(x, p, dim)
    given = step.argument(place, "dim")
    if given is None or isinstance(given, bool):  # var(x, unbiased)
        given = list(range(len(x)))
    gone = step.dimensions(given)
    value = step.value if isinstance(step.value, Tensor) else step.value[0]
    for d in gone:
        step.variables.join(x[d])
    if value.ndim == len(x):
        labels = tuple(None if d in gone else label for d, label in enumerate(x))
    else:
        labels = tuple(label for d, label in enumerate(x) if d not in gone)
    if isinstance(step.value, Tensor):
        return labels
    if any(step.without_input([x[d] for d in gone])):  # max and min say where they are
        return [labels, Unlabelled("it depends on the places of units")]
    return [labels, labels]


def softmax(step: Step) -> Labels:
    implicit = 0 if step.first.ndim in (1, 3) else 1  # as torch has it where dim is left out
    for d in step.dimensions(step.argument(1, "dim", implicit)):
        step.variables.join(step.x[d])
    return step.x


def normalised(step: Step) -> Labels:
    """F.normalize(x, p, dim)."""
    for d in step.dimensions(step.argument(2, "dim", 1)):
        step.variables.join(step.x[d])
    return step.x


def permute(step: Step) -> RawLabels:
    given = step.args[1:] or tuple(step.kwargs.values())
    order = step.dimensions(given[0] if len(given) == 1 else given)
    raw = step.reader.raw(step.first)
    return tuple(raw[d] for d in order)


def transpose(step: Step) -> RawLabels:
    last = step.first.ndim
    default = (last - 2, last - 1) if step.name == "mT" else (0, 1)
    one, other = step.dimensions(
        [step.argument(1, "dim0", default[0]), step.argument(2, "dim1", default[1])], max(last, 1)
    )
    labels = list(step.reader.raw(step.first))
    if last > 1:
        labels[one], labels[other] = labels[other], labels[one]
    return tuple(labels)


def concatenate(step: Step) -> Labels:
    tensors = list(step.argument(0, "tensors"))
    [dim] = step.dimensions(step.argument(1, "dim", 0), step.value.ndim)
    word: list[Any] = []
    joined: list[Label] = [None] * step.value.ndim
    seen = False
    for tensor in (t for t in tensors if t.ndim == step.value.ndim):
        labels = step.labels(tensor)
        word.extend(labels[dim] or [(None, tensor.shape[dim])])
        for d, label in enumerate(labels):
            if d != dim:
                joined[d] = (
                    step.variables.meet(joined[d], label, tensor.shape[d]) if seen else label
                )
        seen = True
    joined[dim] = step.variables.simple(tuple(word))
    return tuple(joined)


def stack(step: Step) -> Labels:
    [dim] = step.dimensions(step.argument(1, "dim", 0), step.value.ndim)
    joined: list[Label] | None = None
    for tensor in step.argument(0, "tensors"):
        labels = step.labels(tensor)
        before = labels if joined is None else joined
        joined = [
            step.variables.meet(one, other, size)
            for one, other, size in zip(before, labels, tensor.shape, strict=True)
        ]
    result = list(joined or ())
    result.insert(dim, None)
    return tuple(result)


def pieces(step: Step) -> list[RawLabels]:
    """chunk and split."""
    [dim] = step.dimensions(step.argument(2, "dim", 0))
    result: list[RawLabels] = []
    start = 0
    for value in step.value:
        stop = start + value.shape[dim]
        result.append(_narrowed(step, dim, start, stop))
        start = stop
    return result


def narrow(step: Step) -> RawLabels:
    [dim] = step.dimensions(step.argument(1, "dim"))
    start = step.argument(2, "start") % max(step.first.shape[dim], 1)
    return _narrowed(step, dim, start, start + step.argument(3, "length"))


def _narrowed(step: Step, dim: int, start: int, stop: int) -> RawLabels:
    raw = list(step.reader.raw(step.first))
    if (start, stop) != (0, step.first.shape[dim]):
        x = step.x
        raw[:] = x
        raw[dim] = step.variables.cut(x[dim], start, stop)
    return tuple(raw)


def unbind(step: Step) -> list[RawLabels]:
    [dim] = step.dimensions(step.argument(1, "dim", 0))
    raw = step.reader.raw(step.first)
    return [selected(step.variables, raw, dim, i) for i in range(step.first.shape[dim])]


def select(step: Step) -> RawLabels:
    [dim] = step.dimensions(step.argument(1, "dim"))
    index = step.argument(2, "index") % step.first.shape[dim]
    return selected(step.variables, step.reader.raw(step.first), dim, index)


def index(step: Step) -> RawLabels:
    """x[...], by numbers, slices, None, an ellipsis, and tensors along what is not units."""
    raw = step.reader.raw(step.first)
    given = step.argument(1, "index")
    many = list(given) if isinstance(given, tuple) else [given]
    if any(isinstance(i, Tensor | list) for i in many):
        return _picked(step, raw, many)
    taken = sum(i is not None and i is not Ellipsis for i in many)
    if Ellipsis not in many:
        many.append(Ellipsis)
    place = many.index(Ellipsis)
    many[place : place + 1] = [slice(None)] * (step.first.ndim - taken)
    labels: RawLabels = raw
    sizes, place = list(step.first.shape), 0
    for item in many:
        if item is None:
            labels = (*labels[:place], None, *labels[place:])
            sizes.insert(place, 1)
            place += 1
        elif isinstance(item, slice):
            labels = _sliced(step.variables, labels, place, item.indices(sizes[place]), sizes)
            place += 1
        else:
            labels = selected(step.variables, labels, place, int(item) % sizes.pop(place))
    return labels


def _sliced(
    variables: Variables,
    labels: RawLabels,
    place: int,
    bounds: tuple[int, int, int],
    sizes: list[int],
) -> RawLabels:
    start, stop, stride = bounds
    if (start, stop, stride) == (0, sizes[place], 1):
        return labels
    result: list[RawLabel] = list(committed(variables, labels))
    label = result[place]
    assert not hasattr(label, "group")
    if label is None:
        return tuple(result)
    if stride == 1:
        result[place] = variables.cut(label, start, stop)
    elif 0 <= start < stride and stop == sizes[place] and sizes[place] % stride == 0:
        # every second entry: two neighbours are one unit
        result[place] = variables.coarsen(label, stride)
    else:
        raise UnreadableError("it takes some units and leaves out others")
    return tuple(result)


def _picked(step: Step, raw: RawLabels, many: list[Any]) -> RawLabels:
    labels = committed(step.variables, raw)
    picked = [d for d, i in enumerate(many) if isinstance(i, Tensor | list | int)]
    plain = all(isinstance(i, Tensor | list | int | slice) for i in many)
    if not plain or any(isinstance(i, Tensor) and _is_flags(i) and i.ndim > 1 for i in many):
        raise UnreadableError("it picks entries in a way for which there is no rule")
    for d in picked:
        _check_picked(step, labels[d])
    if any(isinstance(i, Tensor) and any(step.without_input(step.labels(i))) for i in many):
        raise UnreadableError("it picks entries by what units say")
    if any(isinstance(i, slice) and i != slice(None) for i in many):
        raise UnreadableError("it picks by a tensor and by a slice at once")
    kept = [label for d, label in enumerate(labels) if d not in picked]
    new = step.value.ndim - len(kept)
    front = picked[0] if picked == list(range(picked[0], picked[-1] + 1)) else 0
    return (*kept[:front], *[None] * new, *kept[front:])


def _is_flags(index: Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _check_picked(step: Step, label: Label) -> None:
    """Entries may be picked by their places where they are not units."""
    if step.without_input([label])[0] is not None and not step.variables.release(label):
        raise UnreadableError("it picks units by a tensor")


def index_select(step: Step) -> Labels:
    [dim] = step.dimensions(step.argument(1, "dim"))
    _check_picked(step, step.x[dim])
    return tuple(None if d == dim else label for d, label in enumerate(step.x))


def repeat(step: Step) -> Labels:
    """Copies of all that lies along a dimension, one after another."""
    x, shape = step.x, step.value.shape
    new = len(shape) - len(x)
    labels: list[Label] = [None] * new
    for label, before, after in zip(x, step.first.shape, shape[new:], strict=True):
        times = after // max(before, 1)
        if label is not None and times > MOST_REPEATS:
            raise UnreadableError("it repeats units many times")
        labels.append(label if label is None else label * times)
    return tuple(labels)


def expand(step: Step) -> RawLabels:
    """Broadcasting: a dimension of one entry becomes several alike."""
    x, shape = step.x, step.value.shape
    new = len(shape) - len(x)
    labels: list[Label] = [None] * new
    for label, before, after in zip(x, step.first.shape, shape[new:], strict=True):
        if before != after:
            step.variables.join(label)
        labels.append(label if before == after else None)
    return tuple(labels)


def repeat_interleave(step: Step) -> Labels:
    times, dim = step.argument(1, "repeats"), step.argument(2, "dim")
    if not isinstance(times, int) or dim is None:
        raise UnreadableError("its repeats are computed")
    [place] = step.dimensions(dim)
    x = list(step.x)
    label = x[place]
    if label is not None:
        x[place] = tuple((variable, block * times) for variable, block in label)
    return tuple(x)


def combine(step: Step) -> Labels:
    """Sums and products, entry by entry: what meets is the same units."""
    joined: list[Label] = [None] * step.value.ndim
    seen = [1] * step.value.ndim
    for tensor in (a for a in (*step.args, *step.kwargs.values()) if isinstance(a, Tensor)):
        labels = step.labels(tensor)
        offset = step.value.ndim - len(labels)
        for d, (label, size) in enumerate(zip(labels, tensor.shape, strict=True), start=offset):
            if size == seen[d]:
                joined[d] = step.variables.meet(joined[d], label, size)
                continue
            # one of the two has a single entry here, spread over all of the other's
            single, joined[d] = (label, joined[d]) if size == 1 else (joined[d], label)
            step.variables.join(single)
            seen[d] = max(size, seen[d])
    return tuple(joined)


def matmul(step: Step) -> Labels:
    one, two = step.args[-2:]
    first, second = step.labels(one), step.labels(two)
    if one.ndim < 2 or two.ndim < 2:
        raise UnreadableError("it multiplies by a vector")
    step.variables.meet(first[-1], second[-2], one.shape[-1])
    rows, columns = step.without_input([first[-2]]), step.without_input([second[-1]])
    batch: list[Label] = []
    count = step.value.ndim - 2
    for d in range(count):
        met: list[Label] = []
        for labels, tensor in ((first, one), (second, two)):
            place = d - count + tensor.ndim - 2
            if place >= 0 and tensor.shape[place] == step.value.shape[d]:
                met.append(labels[place])
        both = len(met) == 2
        batch.append(step.variables.meet(met[0], met[1], step.value.shape[d]) if both else met[0])
    if len(step.args) == 3:  # addmm: a bias before the two
        step.meet(step.args[0], (columns[0],) if step.args[0].ndim == 1 else (*rows, *columns))
    return (*step.without_input(batch), *rows, *columns)


def einsum(step: Step) -> Labels:
    equation = step.args[0]
    operands = step.args[1] if isinstance(step.args[1], list | tuple) else step.args[1:]
    if not isinstance(equation, str) or "." in equation or "->" not in equation:
        raise UnreadableError("its equation does not name every dimension")
    read, written = equation.replace(" ", "").split("->")
    known: dict[str, Label] = {}
    for letters, tensor in zip(read.split(","), operands, strict=True):
        for letter, label, size in zip(letters, step.labels(tensor), tensor.shape, strict=True):
            known[letter] = (
                step.variables.meet(known[letter], label, size) if letter in known else label
            )
    return step.without_input([known[letter] for letter in written])


def rolled(step: Step) -> Labels:
    """Functions along positions: units must not lie there."""
    given = step.argument(2, "dims", list(range(step.first.ndim)))
    if step.name == "flip":
        given = step.args[1:] or (step.kwargs["dims"],)
        given = given[0] if len(given) == 1 else given
    if any(step.without_input([step.x[d] for d in step.dimensions(given)])):
        raise UnreadableError("it moves units")
    return step.x


def padded(step: Step) -> Labels:
    """Padding of positions, or of tokens."""
    count = len(step.argument(1, "pad")) // 2
    given = step.argument(1, "pad")
    x = list(step.x)
    for place in range(count):
        if any(given[2 * place : 2 * place + 2]):
            [x[-1 - place]] = step.without_input([x[-1 - place]])
            if x[-1 - place] is not None:
                raise UnreadableError("it pads units")
    return tuple(x)


def _each(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


# by the name of a function or method, without the underscores of in-place and reflected forms
FUNCTIONS: dict[str, Rule] = {
    "linear": linear,
    "prelu": prelu,
    "embedding": embedding,
    "group_norm": group_norm,
    "glu": gated,
    "scaled_dot_product_attention": attention,
    "multi_head_attention_forward": multihead,
    "lstm": recurrent(4),
    "gru": recurrent(3),
    "weight_norm": weight_norm,
    "stack": stack,
    "unbind": unbind,
    "select": select,
    "narrow": narrow,
    "getitem": index,
    "einsum": einsum,
    "index_select": index_select,
    "repeat": repeat,
    "repeat_interleave": repeat_interleave,
    "normalize": normalised,
    "pad": padded,
    **_each(recurrent(1), "rnn_tanh rnn_relu"),
    **_each(convolution, "conv1d conv2d conv3d"),
    **_each(per_channel_norm, "batch_norm instance_norm"),
    **_each(layer_norm, "layer_norm rms_norm"),
    **_each(matmul, "matmul bmm mm addmm rmatmul"),
    **_each(permute, "permute"),
    **_each(transpose, "transpose swapaxes t T mT"),
    **_each(concatenate, "cat concat concatenate"),
    **_each(pieces, "chunk split tensor_split"),
    **_each(expand, "expand expand_as broadcast_to"),
    **_each(softmax, "softmax log_softmax"),
    **_each(reduce, "mean sum amax amin var std norm max min logsumexp any all"),
    **_each(reduce, "linalg_norm linalg_vector_norm"),
    **_each(reshape, "flatten reshape view unflatten squeeze unsqueeze view_as reshape_as"),
    **_each(rolled, "roll flip"),
    **_each(powers, "pow clamp clamp_min clamp_max"),
    **_each(combine, "add sub mul div truediv iadd isub imul itruediv maximum minimum"),
    **_each(combine, "radd rsub rmul rdiv rtruediv where lerp addcmul masked_fill"),
    **_each(combine, "eq ne lt le gt ge logical_and logical_or and or"),
    **_each(windows, "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d"),
    **_each(windows, "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"),
    **_each(windows, "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"),
    **_each(elementwise, "relu relu6 leaky_relu elu selu celu gelu silu mish hardswish"),
    **_each(elementwise, "hardsigmoid hardtanh sigmoid logsigmoid tanh softplus softsign"),
    **_each(elementwise, "dropout dropout1d dropout2d dropout3d alpha_dropout"),
    **_each(elementwise, "neg abs exp log sqrt rsqrt square reciprocal sign round log1p expm1"),
    **_each(elementwise, "contiguous clone detach float double to type type_as data erf sin cos"),
    **_each(elementwise, "requires_grad long int half bfloat16 invert logical_not ceil floor"),
    **_each(elementwise, "zeros_like ones_like full_like isnan isinf isfinite nan_to_num"),
    **_each(elementwise, "threshold hardshrink softshrink tanhshrink"),
}
# these take the type or the shape of another tensor, and nothing of what it holds
FORM_ALONE = ("to", "type_as", "expand_as", "view_as", "reshape_as")
CONSTANTS = ("new_zeros", "new_ones", "new_full", "new_empty")
