"""Trying a network out: fixed weights and inputs, whatever it is and whatever it reads."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from intarsia.models.custom.adapting import logits_in, shared_names

MASK = 2**32 - 1
AMPLITUDES = (0.3, 1.0, 3.0, 30.0)  # of the inputs, row by row: functions part near 0 or far off


def is_foreign(network: nn.Module) -> bool:
    """Whether a network is not one of intarsia's own, whose wiring and outputs tests vouch for."""
    return not type(network).__module__.startswith("intarsia.")


def answer(network: nn.Module, shape: tuple[int, ...]) -> Any:
    """What the network says to two zero inputs, on its device and in evaluation mode.

    They are whole numbers where it cannot read floats.
    """
    return _answer_and_dtype(network, shape)[0]


def input_dtype(network: nn.Module, shape: tuple[int, ...]) -> torch.dtype:
    """float32, or int64 for a network that reads only whole numbers, as an Embedding does."""
    if not is_foreign(network):
        return torch.float32
    try:
        return _answer_and_dtype(network, shape)[1]
    except Exception:
        return torch.float32  # it will say itself what is wrong


def answering_dtype(network: nn.Module, shape: tuple[int, ...]) -> torch.dtype:
    """As `input_dtype`; of a network in bfloat16, say, that reads nothing else, its own type.

    For networks that only answer: merged weights often lie in 16 bits.
    """
    floats = (t.dtype for t in _tensors(network).values() if t.is_floating_point())
    own = next(floats, torch.float32)
    if own == torch.float32 or not is_foreign(network):
        return input_dtype(network, shape)
    zeros = torch.zeros(2, *shape, device=_device(network))
    for dtype in (torch.float32, own):
        with evaluating(network):
            try:
                network(zeros.to(dtype))
            except Exception:  # whatever custom code says to a type that it cannot read
                continue
            return dtype
    return input_dtype(network, shape)


def trial_inputs(network: nn.Module, shape: tuple[int, ...], rows: int = 8) -> Tensor:
    """Random inputs that the network can read, the same ones each time, on its device."""
    normal = torch.randn(rows, *shape, generator=torch.Generator().manual_seed(0))
    integers = (normal > 0).float()
    with evaluating(network):
        for inputs in (normal, integers, integers.long()):
            moved = inputs.to(_device(network))
            try:
                network(moved)
            except Exception:
                continue
            return moved
    return normal.to(_device(network))  # it will say itself what is wrong


def is_deterministic(network: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the network answers alike to the same inputs twice, in evaluation mode.

    One that cannot be tried does.
    """
    inputs = trial_inputs(network, shape, rows=2)
    with evaluating(network):
        try:
            one, other = (logits_in(network(inputs.clone())).double() for _ in range(2))
        except Exception:  # whatever custom code says to random inputs
            return True
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; modes and torch's generator are put back afterwards."""
    with evaluation_mode(network), torch.no_grad(), torch.random.fork_rng(devices=[]):
        yield


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Every layer in evaluation mode, and afterwards in the mode it was in."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class Trial:
    """A network's answers to fixed inputs, in float64, for any values of its tensors.

    Raises whatever the network raises if it can read none of the inputs.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, ...], rows: int = 4) -> None:
        self.network = network
        self.own = {name: _wide(t) for name, t in _tensors(network).items()}
        self.shared = shared_names(network)
        self.fixed = filled(self.own)
        self.fixed |= {name: self.fixed[first] for name, first in self.shared.items()}
        first: Exception | None = None
        self.rounding = torch.finfo(torch.float64).eps  # of the coarsest numbers on the way
        for inputs in _inputs(shape, rows):
            self.inputs = inputs.to(_device(network))
            try:
                with _Narrowing() as seen:
                    self.answers(self.fixed)
                self.rounding = seen.rounding
                return
            except Exception as cause:
                first = first or cause
        assert first is not None
        raise first

    def answers(self, tensors: dict[str, Tensor], seed: int = 0) -> Tensor:
        """Rows x outputs, with these tensors in place of the network's own."""
        with evaluating(self.network):
            torch.default_generator.manual_seed(seed)
            own = {name: t for name, t in tensors.items() if name not in self.shared}
            logits = logits_in(functional_call(self.network, own, (self.inputs,)))
        if not isinstance(logits, Tensor):
            raise TypeError(f"the network gives a {type(logits).__name__}")
        return logits.detach().to("cpu", torch.float64)

    def repeats(self) -> bool:
        """Whether the network answers finite numbers, and the same ones each time."""
        try:
            one, other = self.answers(self.fixed, seed=0), self.answers(self.fixed, seed=1)
        except Exception:  # whatever custom code says the second time
            return False
        return bool(torch.isfinite(one).all()) and torch.equal(one, other)


def trial_of(network: nn.Module, shape: tuple[int, ...], rows: int = 4) -> Trial | None:
    """The network's trial; None if it cannot be tried, such as one that only reads float32."""
    try:
        return Trial(network, shape, rows)
    except Exception:  # whatever custom code says to float64
        return None


class _Narrowing(TorchFunctionMode):
    """Sees where a network goes on in coarser numbers than it was given, as some norms do."""

    def __init__(self) -> None:
        super().__init__()
        self.rounding = torch.finfo(torch.float64).eps

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        value = func(*args, **(kwargs or {}))
        given = [a for a in args if isinstance(a, Tensor) and a.is_floating_point()]
        if isinstance(value, Tensor) and value.is_floating_point() and given:
            now, before = torch.finfo(value.dtype).eps, (torch.finfo(t.dtype).eps for t in given)
            if now > min(before):
                self.rounding = max(self.rounding, now)
        return value


def filled(tensors: dict[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
    """The tensors with all floats replaced by numbers that follow from their place alone.

    Matrices and kernels keep the size of what they read; vectors, which may be variances, lie
    between 0.25 and 1.25.
    """
    made = {}
    for place, (name, tensor) in enumerate(tensors.items()):
        if not tensor.is_floating_point():
            made[name] = tensor
            continue
        values = noise(tensor.numel(), seed * 1009 + place).reshape(tensor.shape)
        if tensor.ndim > 1:
            values = values * (3 / max(1, tensor[0].numel())) ** 0.5
        else:
            values = 0.75 + 0.5 * values
        made[name] = values.to(tensor)
    return made


def noise(count: int, seed: int) -> Tensor:
    """Numbers in [-1, 1) from whole-number arithmetic, the same bits on every machine."""
    mixed = (torch.arange(count) + 1) * 0x9E3779B1 + (seed + 1) * 0x85EBCA77
    for factor, shift in ((0x85EBCA77, 15), (0xC2B2AE3D, 13), (0x27D4EB2F, 16)):
        mixed = mixed & MASK
        mixed = (mixed ^ (mixed >> shift)) * factor
    return (mixed & MASK).double() / 2**31 - 1


def _answer_and_dtype(network: nn.Module, shape: tuple[int, ...]) -> tuple[Any, torch.dtype]:
    """The answer to two zero inputs, and the type in which they could be read."""
    zeros = torch.zeros(2, *shape, device=_device(network))
    with evaluating(network):
        try:
            return network(zeros), torch.float32
        except Exception as cause:
            try:
                return network(zeros.long()), torch.int64
            except Exception as second:
                # an embedding says of floats only that they are no ids
                raise (second if "embedding" in str(cause) else cause) from None


def _inputs(shape: tuple[int, ...], rows: int) -> Iterator[Tensor]:
    """Any floats, floats that are whole numbers, whole numbers."""
    values = noise(rows * torch.Size(shape).numel(), 7).reshape(rows, *shape)
    sizes = torch.tensor([AMPLITUDES[row % len(AMPLITUDES)] for row in range(rows)])
    yield values * sizes.reshape(-1, *[1] * len(shape))
    yield (values > 0).double()
    yield (values > 0).long()


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and all buffers, also those that are not in the state."""
    parameters = dict(network.named_parameters(remove_duplicate=False))
    return parameters | dict(network.named_buffers(remove_duplicate=False))


def _wide(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return tensor.double() if tensor.is_floating_point() else tensor.clone()


def _device(network: nn.Module) -> torch.device:
    floats = (t for t in _tensors(network).values() if t.is_floating_point())
    return next(floats, torch.zeros(())).device


def readout_factor(layer: nn.Module, answer: Callable[[], Tensor], shape: Sequence[int]) -> float:
    """What an answer is of a layer's output of this shape: that times a number; 0 if it is not.

    Noise is put in place of what the layer gives, where that has the shape. Of an output N x
    places x C, as of a layer that reads every token, the answer to a row may be that of one place.
    """
    noise = torch.randn(tuple(shape), generator=torch.Generator().manual_seed(0))

    def instead(_: nn.Module, __: Any, gave: Tensor) -> Tensor:
        return noise.to(gave) if gave.shape == noise.shape else gave

    hook = layer.register_forward_hook(instead)
    try:
        made = answer()
    finally:
        hook.remove()
    moved = noise.to(made)
    if moved.dim() > made.dim():
        places = moved.flatten(1, -2)  # N, P, C
        # In float64: of many places with few classes, some point almost the same way.
        pairs = (places.double(), made[:, None].double())
        alike = torch.cosine_similarity(*pairs, dim=2).abs().argmax(1)
        moved = places[torch.arange(len(made), device=made.device), alike]
    factor = float((made * moved).sum() / moved.square().sum())
    if not torch.allclose(made, factor * moved, rtol=1e-3, atol=1e-6):
        return 0.0
    return 1.0 if torch.equal(made, moved) else factor
