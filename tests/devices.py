"""A GPU that is only pretended, on which tensors of two devices fail to meet as on a real one.

    with PretendedGpu():
        network.to("cuda")(x.to("cuda"))

Tensors that are taken to "cuda" stay in the CPU's memory and are labelled. Each function of torch
that Python calls labels its results by what it was given, and raises where labels differ; torch's
exceptions are ours: numbers without dimension, copies, indices that lie on the CPU. What is not
pretended: kernels, autocast, generators on the GPU, and `torch.cuda`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.overrides import TorchFunctionMode

from intarsia.data import Data, Split

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
LABEL = "pretended_device"

# What they give lies on the CPU unless a device is named, whatever they are given.
FACTORIES = {"arange", "empty", "eye", "from_numpy", "full", "linspace", "logspace", "ones"}
FACTORIES |= {"rand", "randint", "randn", "randperm", "tensor", "zeros"}
# What they give lies where the first tensor does; of others the shape, or a copy, is enough.
FIRST = {"__deepcopy__", "_has_compatible_shallow_copy_type", "copy_", "expand_as", "view_as"}
# Here even a number without dimension has to lie where the others do.
STRICT = {"allclose", "bincount", "bucketize", "cat", "equal", "gather", "hstack", "index_add_"}
STRICT |= {"index_select", "isin", "matmul", "mm", "scatter", "scatter_", "searchsorted", "stack"}


def device_of(tensor: Tensor) -> torch.device:
    """Where a tensor is pretended to lie."""
    place: torch.device = getattr(_unwrapped(tensor), LABEL, CPU)
    return place


def on_gpu(data: Data) -> Data:
    """The data with all rows and labels on the pretended GPU."""
    parts = {name: getattr(data, name) for name in ("train", "validation", "test")}
    moved = {name: Split(own.x.to(GPU), own.y.to(GPU)) for name, own in parts.items()}
    return replace(data, **moved)


class PretendedGpu(TorchFunctionMode):
    """While open, "cuda" is a device that tensors can be taken to."""

    def __enter__(self) -> "PretendedGpu":
        made = self._new = nn.Parameter.__new__  # which no mode sees

        def new(kind: Any, data: Any = None, requires_grad: bool = True) -> Any:
            return _labelled(made(kind, data, requires_grad), _common("Parameter", data))

        nn.Parameter.__new__ = new  # type: ignore[assignment]
        super().__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        nn.Parameter.__new__ = self._new  # type: ignore[method-assign]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = _name(func), dict(kwargs or {})
        own = getattr(self, f"on_{name}", None)
        if own is not None:
            return own(func, *args, **kwargs)
        named = kwargs.get("device")
        if named is not None:
            place, kwargs["device"] = _place(named), _real(named)
        elif name in FIRST:
            place = device_of(args[0])
        else:
            place = CPU if name in FACTORIES else _common(name, (args, kwargs))
        _check_generator(kwargs.get("generator"), place)
        return _labelled(func(*args, **kwargs), place)

    def on_get_of_device(self, _: Any, tensor: Tensor, *__: Any) -> torch.device:
        return tensor.device if tensor.is_meta else device_of(tensor)

    def on_get_of_is_cuda(self, _: Any, tensor: Tensor, *__: Any) -> bool:
        return device_of(tensor) == GPU

    def on_get_of_grad(self, func: Any, tensor: Tensor, *others: Any) -> Any:
        return _labelled(func(tensor, *others), device_of(tensor))

    def on_set_of_data(self, func: Any, tensor: Tensor, data: Tensor) -> None:
        func(tensor, data)
        setattr(tensor, LABEL, device_of(data))

    def on_to(self, func: Any, tensor: Tensor, *others: Any, **named: Any) -> Tensor:
        places = [_place(o) for o in (*others, *named.values()) if _is_place(o)]
        others = tuple(_real(o) if _is_place(o) else o for o in others)
        named = {key: _real(o) if _is_place(o) else o for key, o in named.items()}
        made = func(tensor, *others, **named)
        return _moved(made, tensor, (*places, device_of(tensor))[0])

    def on_cpu(self, func: Any, tensor: Tensor, **named: Any) -> Tensor:
        return _moved(func(tensor, **named), tensor, CPU)

    def on_cuda(self, _: Any, tensor: Tensor, *__: Any, **___: Any) -> Tensor:
        return _moved(tensor, tensor, GPU)

    def on_type_as(self, func: Any, tensor: Tensor, other: Tensor) -> Tensor:
        return _moved(func(tensor, other), tensor, device_of(other))

    def on_numpy(self, func: Any, tensor: Tensor, *others: Any, **named: Any) -> Any:
        if device_of(tensor) == GPU:
            raise TypeError("can't convert cuda:0 device type tensor to numpy: use Tensor.cpu()")
        return func(tensor, *others, **named)

    on___array__ = on_numpy

    def on___getitem__(self, func: Any, tensor: Tensor, index: Any) -> Any:
        _check_index(tensor, index)
        return _labelled(func(tensor, index), device_of(tensor))

    def on___setitem__(self, func: Any, tensor: Tensor, index: Any, value: Any) -> None:
        _check_index(tensor, index)
        by_tensors = next(_walk(index), None) is not None  # else it is a copy
        if by_tensors and isinstance(value, Tensor) and value.dim():
            _common("__setitem__", (tensor, value))
        func(tensor, index, value)


def _name(func: Any) -> str:
    """The name of a function, or of what it does to a property."""
    name: str = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        return f"{name.strip('_')}_of_{getattr(func.__self__, '__name__', '')}"
    return name


def _is_place(value: Any) -> bool:
    return isinstance(value, str | torch.device | Tensor)


def _place(value: Any) -> torch.device:
    """The device that is meant by its name or by a tensor there."""
    if isinstance(value, Tensor):
        return device_of(value)
    return GPU if torch.device(value).type == "cuda" else torch.device(value)


def _real(value: Any) -> Any:
    """The same where the memory is."""
    if isinstance(value, Tensor):
        return value
    return CPU if torch.device(value).type == "cuda" else value


def _moved(made: Tensor, tensor: Tensor, place: torch.device) -> Tensor:
    """What was made of a tensor, on another device in memory of its own."""
    if made is tensor and place != device_of(tensor):
        made = made.clone()
    return _labelled(made, place)


def _walk(value: Any) -> Iterator[Tensor]:
    """The tensors in lists, tuples and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _walk(one)


def _unwrapped(tensor: Tensor) -> Tensor:
    """The tensor that those of torch.func's maps hold."""
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def _labelled(made: Any, place: torch.device) -> Any:
    for tensor in _walk(made):
        setattr(_unwrapped(tensor), LABEL, place)
    return made


def _common(name: str, given: Any) -> torch.device:
    """Where all that is given lies, with the exception of numbers on the CPU."""
    tensors = list(_walk(given))
    if not any(device_of(tensor) == GPU for tensor in tensors):
        return CPU
    others = [t for t in tensors if device_of(t) == CPU and (t.dim() or name in STRICT)]
    if others:
        raise RuntimeError(
            f"Expected all tensors to be on the same device: {name} is given tensors on cuda:0 and "
            f"one of shape {tuple(others[0].shape)} on the CPU"
        )
    return GPU


def _check_index(tensor: Tensor, index: Any) -> None:
    if device_of(tensor) == CPU and any(device_of(t) == GPU and t.dim() for t in _walk(index)):
        raise RuntimeError("indices should be on the same device as the indexed tensor (cpu)")


def _check_generator(generator: torch.Generator | None, place: torch.device) -> None:
    if generator is not None and generator.device.type != place.type:
        raise RuntimeError(
            f"Expected a '{place.type}' device type for generator but found "
            f"'{generator.device.type}'"
        )
