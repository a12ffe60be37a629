"""Networks that read or answer in another form than one tensor, and those that share weights.

They keep their own forward and the names of their tensors; hooks translate around it. So a network
from elsewhere is one of rows to logits, whoever calls it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx, nn

from intarsia.errors import ModelError

Collate: TypeAlias = Callable[[Tensor], Any]
"""From N rows to what a network reads: a tensor, several as a tuple, or a mapping by name."""


def collated(network: nn.Module, collate: Collate) -> nn.Module:
    """The network itself, which from now on reads rows of one tensor, as `collate` arranges them.

    A tuple is given by position, a mapping by name:
    `collated(network, lambda rows: {"input_ids": rows, "attention_mask": rows != 0})`.
    """
    if not callable(collate):
        raise ModelError(f"collate is a {type(collate).__name__}: expected a function of N rows")
    network.register_forward_pre_hook(_Collated(collate), with_kwargs=True, prepend=True)
    return network


def packed(*tensors: Tensor) -> tuple[Tensor, Collate]:
    """Several tensors of N rows as one, and the function that gives them back, in this order.

    They must be of one type: whole numbers stay whole numbers.
    """
    if not tensors or len({(len(t), t.dtype) for t in tensors}) > 1:
        seen = ", ".join(f"{tuple(t.shape)} {t.dtype}" for t in tensors) or "none"
        raise ModelError(f"packed takes tensors of equally many rows and one type; given: {seen}")
    rows = torch.cat([tensor.flatten(1) for tensor in tensors], 1)
    return rows, _Unpacked([tuple(tensor.shape[1:]) for tensor in tensors])


def answer_logits(network: nn.Module) -> None:
    """Make a network whose answer holds logits among other things answer with these alone."""
    if not any(isinstance(hook, _Logits) for hook in network._forward_hooks.values()):
        network.register_forward_hook(_Logits())


def tie_shared(network: nn.Module) -> None:
    """Keep each shared parameter under its first name; the others follow it."""
    shared = shared_names(network)
    if not shared:
        return
    for name in shared:
        path, _, key = name.rpartition(".")
        del network.get_submodule(path)._parameters[key]
    tie = _Tie(shared)
    tie(network)
    network.register_forward_pre_hook(tie, prepend=True)
    network.register_forward_hook(tie, always_call=True)


def share_tied(network: nn.Module) -> None:
    """Undo `tie_shared`, in all layers: each of the names has the shared parameter itself."""
    for holder in network.modules():
        ties = {key: hook for key, hook in holder._forward_hooks.items() if isinstance(hook, _Tie)}
        for key, tie in ties.items():
            del holder._forward_hooks[key]
            holder._forward_hooks_always_called.pop(key, None)
            for name, first in tie.shared.items():
                (path, own), (source, other) = _layer_and_key(name), _layer_and_key(first)
                layer = holder.get_submodule(path)
                layer.__dict__.pop(own, None)
                layer.register_parameter(own, getattr(holder.get_submodule(source), other))
        before = holder._forward_pre_hooks
        for key in [key for key, hook in before.items() if isinstance(hook, _Tie)]:
            del before[key]


def shared_names(network: nn.Module) -> dict[str, str]:
    """Every further name of a parameter -> its first one."""
    first: dict[int, str] = {}
    shared = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            shared[name] = first[id(parameter)]
    return shared


def tied_names(network: nn.Module) -> dict[str, str]:
    """Names that `tie_shared` has taken from a network, each with the one that it follows."""
    return {
        f"{path}.{name}" if path else name: f"{path}.{first}" if path else first
        for path, holder in network.named_modules()
        for hook in holder._forward_pre_hooks.values()
        if isinstance(hook, _Tie)
        for name, first in hook.shared.items()
    }


def sharing_layers(network: nn.Module) -> set[str]:
    """The paths of layers that share a parameter with another, as `tie_shared` has left them."""
    names = {name for pair in tied_names(network).items() for name in pair}
    return {name.rpartition(".")[0] for name in names}


def logits_in(answer: Any) -> Any:
    """The logits of an answer: it itself, its `.logits`, or what a dict has by that name."""
    if isinstance(answer, Tensor | fx.Proxy):  # a tracer's stand-in has every attribute
        return answer
    if isinstance(answer, Mapping) and "logits" in answer:
        return answer["logits"]
    return getattr(answer, "logits", answer)


class _Logits:
    """A forward hook."""

    def __call__(self, network: nn.Module, args: Any, answer: Any) -> Any:
        return logits_in(answer)


class _Collated:
    """A forward pre-hook."""

    def __init__(self, collate: Collate) -> None:
        self.collate = collate

    def __call__(self, network: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if kwargs or len(args) != 1:
            return args, kwargs
        given = self.collate(args[0])
        if isinstance(given, Mapping):
            return (), dict(given)
        return (tuple(given) if isinstance(given, tuple | list) else (given,)), {}


class _Unpacked:
    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self.shapes = shapes

    def __call__(self, rows: Tensor) -> tuple[Tensor, ...]:
        sizes = [torch.Size(shape).numel() for shape in self.shapes]
        pieces = rows.split(sizes, 1)
        return tuple(
            piece.unflatten(1, shape) if len(shape) > 1 else piece.reshape(len(rows), *shape)
            for piece, shape in zip(pieces, self.shapes, strict=True)
        )


class _Tie:
    """A hook that puts what lies under a first name under the others as well.

    Before a forward, because functional calls put other tensors in place of the network's own; and
    after it, because those are gone by then.
    """

    def __init__(self, shared: Mapping[str, str]) -> None:
        self.shared = dict(shared)

    def __call__(self, network: nn.Module, *_: Any) -> None:
        for name, first in self.shared.items():
            path, key = _layer_and_key(name)
            source, own = _layer_and_key(first)
            tensor = getattr(network.get_submodule(source), own)
            # not registered: the state has a shared tensor once
            object.__setattr__(network.get_submodule(path), key, tensor)


def _layer_and_key(name: str) -> tuple[str, str]:
    path, _, key = name.rpartition(".")
    return path, key
