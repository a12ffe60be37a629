"""Which unit of one network answers like which unit of another on the same samples."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from intarsia.composition.alignment.matching import Orders, assign
from intarsia.errors import WiringError
from intarsia.models.axes import INPUT, OUTPUT, Axis, UnitRun, Wiring, axis_sizes, hidden_axes, runs

BATCH = 64


def match_activations(
    networks: Sequence[nn.Module], samples: Tensor, wiring: Wiring
) -> list[Orders]:
    """For each network after the first, the orders of its units that answer most like the first's.

    Likeness is the correlation of two units over samples and positions, summed over all layers that
    give the axis (a residual stream has several); a unit that never changes is like none.
    """
    sources = _sources(networks[0], samples[:2], wiring)
    moments = [[_Moments() for _ in sources] for _ in networks[1:]]
    for batch in samples.split(BATCH):
        first = _read(networks[0], sources, batch)
        for network, kept in zip(networks[1:], moments, strict=True):
            for moment, one, two in zip(kept, first, _read(network, sources, batch), strict=True):
                moment.add(one, two)
    return [
        {axis: assign(_likeness(axis, sources, kept)) for axis in hidden_axes(wiring)}
        for kept in moments
    ]


@dataclass(frozen=True)
class _Source:
    """A layer whose output has the units of an axis along one dimension."""

    layer: str
    run: UnitRun
    dimension: int

    @property
    def axis(self) -> Axis:
        return self.run.axis

    def units(self, output: Tensor) -> Tensor:
        """Units x everything else: positions, and the entries of a block, are more samples."""
        along = output.movedim(self.dimension, -1).narrow(-1, self.run.start, self.run.length)
        blocks = along.reshape(-1, self.run.units, self.axis.block)
        # a copy, because the network may go on to change its own in place
        return blocks.movedim(1, 0).flatten(1).to(torch.float64, copy=True)


class _Moments:
    """Running sums from which the correlation of every pair of units follows."""

    def __init__(self) -> None:
        self.count = 0
        self.one = self.two = self.squares = self.others = self.products = torch.zeros(())

    def add(self, one: Tensor, two: Tensor) -> None:
        self.count += one.shape[1]
        self.one, self.two = self.one + one.sum(1), self.two + two.sum(1)
        self.squares = self.squares + one.square().sum(1)
        self.others = self.others + two.square().sum(1)
        self.products = self.products + one @ two.T

    def correlation(self) -> Tensor:
        """Units x units; 0 where either never changes."""
        one, two = self.one / self.count, self.two / self.count
        product = self.products / self.count - one[:, None] * two
        first = _over_deviation(self.squares / self.count, one)
        second = _over_deviation(self.others / self.count, two)
        return product * first[:, None] * second


def _over_deviation(squares: Tensor, mean: Tensor) -> Tensor:
    """One over the standard deviation; 0 where that is nothing but rounding."""
    variance = squares - mean.square()
    return torch.where(variance > 1e-10 * squares, variance, torch.inf).rsqrt()


def _likeness(axis: str, sources: Sequence[_Source], moments: Sequence[_Moments]) -> Tensor:
    correlations = [
        m.correlation() for s, m in zip(sources, moments, strict=True) if s.axis.name == axis
    ]
    if not correlations:
        raise WiringError(
            f"no layer's output shows the units of axis {axis!r} one by one, so their activations "
            "cannot be compared: align by weights"
        )
    return torch.stack(correlations).sum(0)


def _read(network: nn.Module, sources: Sequence[_Source], batch: Tensor) -> list[Tensor]:
    """What every source gives for a batch; a layer that is used twice gives twice as much."""
    seen: dict[_Source, list[Tensor]] = {source: [] for source in sources}

    def keep(layer: str, _: Any, __: Any, ___: Any, output: Tensor) -> None:
        for source in sources:
            if source.layer == layer:
                seen[source].append(source.units(output))

    with _hooked(network, {source.layer for source in sources}, keep), torch.no_grad():
        network(batch)
    return [torch.cat(seen[source], 1) for source in sources]


def _sources(network: nn.Module, samples: Tensor, wiring: Wiring) -> list[_Source]:
    """Layers with a weight whose dimension 0 is an axis, where their output shows it."""
    state = network.state_dict()
    sizes = axis_sizes(wiring, state)
    given = {
        (name.rpartition(".")[0], run): None
        for name, entry in wiring.items()
        if len(entry) > 1
        for run in runs(entry, state[name].shape, sizes)
        if run.dimension == _gives(network, name) and run.axis.name not in (INPUT, OUTPUT)
    }
    calls: dict[str, tuple[Any, Any]] = {}

    def keep(layer: str, _: Any, args: Any, kwargs: Any, __: Any) -> None:
        calls.setdefault(layer, (args, kwargs))

    with _hooked(network, {layer for layer, _ in given}, keep), torch.no_grad():
        network(samples)
    sources = []
    for layer, run in given:
        if layer not in calls:
            continue
        dimension = _dimension(network, layer, run, wiring, *calls[layer])
        if dimension is not None:
            sources.append(_Source(layer, run, dimension))
    return sources


def _dimension(
    network: nn.Module, layer: str, run: UnitRun, wiring: Wiring, args: Any, kwargs: Any
) -> int | None:
    """The dimension of a layer's output along which its first unit alone changes its first entries.

    Tried out on random inputs, so that no kind of layer need be known and no dead unit misleads.
    """
    state, generator = network.state_dict(), torch.Generator().manual_seed(0)
    sizes = axis_sizes(wiring, state)
    own, changed, entries = {}, {}, 0
    for name, entry in wiring.items():
        if name.rpartition(".")[0] != layer:
            continue
        key, tensor = name.rpartition(".")[2], state[name]
        own[key] = changed[key] = tensor
        gives = _gives(network, name)
        if (replace(run, dimension=gives)) in runs(entry, tensor.shape, sizes):
            entries = tensor.shape[gives]
            changed[key] = tensor.clone()
            changed[key].narrow(gives, run.start, run.axis.block).add_(1)
    first = torch.zeros(entries, dtype=torch.bool)
    first[run.start : run.start + run.axis.block] = True
    args = tuple(_random_like(value, generator) for value in args)
    module = network.get_submodule(layer)
    with torch.no_grad():
        before, after = (functional_call(module, some, args, kwargs) for some in (own, changed))
    if not isinstance(before, Tensor):
        return None
    for dimension in range(1, before.ndim):
        if before.shape[dimension] == entries:
            moved = (before != after).movedim(dimension, 0).flatten(1).any(1)
            if moved.any() and not moved[~first].any():
                return dimension
    return None


def _gives(network: nn.Module, name: str) -> int:
    """The dimension of a tensor along which its layer gives units: a lookup table has it last."""
    layer = network.get_submodule(name.rpartition(".")[0])
    return 1 if isinstance(layer, nn.Embedding) else 0


def _random_like(value: Any, generator: torch.Generator) -> Any:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    return torch.randn(value.shape, generator=generator, dtype=value.dtype)


@contextmanager
def _hooked(
    network: nn.Module, layers: set[str], see: Callable[[str, nn.Module, Any, Any, Any], None]
) -> Iterator[None]:
    """While open, `see` gets what the named layers read and gave."""
    with ExitStack() as hooks:
        for layer in sorted(layers):
            module = network.get_submodule(layer)
            hook = partial(see, layer)
            hooks.enter_context(module.register_forward_hook(hook, with_kwargs=True))
        yield
