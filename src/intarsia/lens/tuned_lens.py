"""The tuned lens of a class module: from each layer a least-squares map to the module's own logits.

A hidden layer has no head of its own, so one is fitted: with centred features x and logits z,

    W = (X'X / n + ridge * mean variance * I)^-1 X'Z / n

in float64, from sums that are gathered batch by batch, so that memory does not grow with samples.
A layer is read where the next one takes it in, behind activation, normalisation and pooling, and is
called after that: "before fc2". A block that a network has several of is one layer. What a layer
gives is made small before it is mapped:

    picture    N x channels x height x width: each channel is averaged over a grid of cells, as fine
               as leaves at most PICTURE numbers
    sequence   N x places x width: the places are averaged over as many stretches
    vector     up to VECTOR numbers as they are, a flattened picture as a picture; wider ones by a
               random projection to VECTOR numbers

So the map from the last hidden layer of most networks has that layer as it is, and equals the head.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from math import isqrt, prod
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from intarsia.composition import Composition
from intarsia.data import Data, Split
from intarsia.errors import DataError, IntarsiaError, ModelError, shortened
from intarsia.files import stream
from intarsia.lens.entropies import check_alpha, entropy
from intarsia.models.axes import Axis
from intarsia.models.custom.trial import evaluation_mode
from intarsia.models.wiring import carries_wiring, wiring_of
from intarsia.modules import Classifier, Module, Predicting
from intarsia.modules.classifier import Inputs, network_inputs
from intarsia.specs import is_number

INPUT, LOGITS = "input", "logits"
BEFORE = "before "  # a layer's name begins so, and goes on with that of the layer that reads it
PICTURE, VECTOR = 1024, 4096  # numbers of a layer that a map reads, at most
RIDGES = (1e-6, 1e-4, 1e-2, 1.0)  # of which validation samples choose
RIDGE = 1e-4  # where there are none
BATCH = 512
MIXING = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
CONTAINERS = nn.Sequential | nn.ModuleList | nn.ModuleDict

Reading = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LayerMap:
    """The fitted map of one layer: its features, less `centre`, times `weight`, plus `offset`."""

    name: str
    shape: tuple[int, ...]  # of what the layer gives for a sample
    features: int  # that the map reads
    ridge: float
    centre: Tensor  # F
    weight: Tensor  # F x C
    offset: Tensor  # C

    def __call__(self, features: Tensor) -> Tensor:
        """N x F to logits, N x C."""
        return (features - self.centre) @ self.weight + self.offset


@dataclass(frozen=True, eq=False)
class TunedLens:
    """The maps of a module's layers, from its inputs to its last hidden layer, and itself."""

    name: str
    rewarded: tuple[str, ...]
    catalogue: tuple[str, ...]
    temperature: float
    maps: tuple[LayerMap, ...]
    samples: int  # that the maps were fitted on
    reader: "LayerReader"

    def __repr__(self) -> str:
        return f"TunedLens({self.name!r}, {', '.join(self.layers)}, {self.samples:,} samples)"

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of layers, with the module's own logits last."""
        return (*(one.name for one in self.maps), LOGITS)

    def logits(self, x: Inputs, batch: int = BATCH) -> Tensor:
        """What each layer would answer, the module's own answer last: L x N x C, float64."""
        pieces = []
        for features, own in self.reader.batches(x, batch):
            made = [one(features[one.name]) for one in self.maps]
            pieces.append(torch.stack([*made, own]).cpu())
        return torch.cat(pieces, 1)

    def entropies(self, x: Inputs, batch: int = BATCH, alpha: float = 1.0) -> Tensor:
        """Nats of softmax(logits / temperature), L x N; `alpha` is Renyi's order."""
        return entropies(self.logits(x, batch), self.temperature, alpha)


def entropies(logits: Tensor, temperature: float = 1.0, alpha: float = 1.0) -> Tensor:
    """Entropy of Renyi's order alpha over the last axis, in nats and float64; 1 is Shannon's."""
    if (order := check_alpha(alpha)) != 1:
        result: Tensor = entropy(logits.double() / temperature, order)
        return result.clamp(min=0)
    log_p = torch.log_softmax(logits.double() / temperature, dim=-1)
    # A probability of 0 adds nothing; its logarithm may be minus infinity.
    return torch.special.xlogy(log_p.exp(), log_p.exp()).sum(-1).neg().clamp(min=0)


def tune(
    model: Module | Composition | Classifier,
    data: Data | Split,
    *,
    ridge: float | None = None,
    device: torch.device | str = "cpu",
    batch: int = BATCH,
) -> TunedLens:
    """Fit the lens of a module, or of a composition that is one network, on training samples.

    Labels are not looked at. `ridge` is relative to the mean variance of a layer's features; by
    default validation samples choose it for each layer from 1e-6 to 1, where there are some.
    """
    if ridge is not None and (not is_number(ridge) or not 0 < ridge < float("inf")):
        raise DataError(f"ridge is {shortened(ridge)}: expected a number above 0")
    if type(batch) is not int or batch < 1:
        raise DataError(f"batch is {shortened(batch)}: expected a whole number from 1")
    train, validation = (
        (data.train, data.validation) if isinstance(data, Data) else (data, data.select([]))
    )
    if len(train) < 2:
        raise DataError(f"a lens is fitted on training samples: there are {len(train)}, give more")
    network = _placed(model, torch.device(device))
    reader = LayerReader(network, train.x[:2])
    sums = _gathered(reader, train.x, batch)
    choosing = ridge is None and len(validation) > 1
    held = _gathered(reader, validation.x, batch, sums) if choosing else {}
    ridges = (ridge,) if ridge is not None else RIDGES if choosing else (RIDGE,)
    maps = [
        _best(name, reader.shapes[name], own, held.get(name), ridges) for name, own in sums.items()
    ]
    name = model.name if isinstance(model, Module) else "+".join(network.rewarded)
    about = (name, network.rewarded, network.catalogue, network.temperature)
    return TunedLens(*about, tuple(maps), len(train), reader)


def predicting(model: Any) -> Predicting:
    """A module or composition as a network from raw inputs to logits whose layers can be read."""
    if isinstance(model, Module):
        return model.to_module()
    if isinstance(model, Composition) and model.apart:
        raise ModelError(
            f"{model.operator} keeps {len(model.parts)} networks and joins their logits, so it has "
            'no layers of its own: take its parts, or compose them by "inlay" or "sum"'
        )
    if isinstance(model, Composition | Classifier):
        return model
    raise ModelError(
        f"a lens is tuned for a module or a composition, not for {shortened(model)}: "
        "Module.of(network, ...) makes a module of a network"
    )


def _placed(model: Any, device: torch.device) -> Predicting:
    """The network to read, on a device; a copy where the one given lies on another."""
    network = predicting(model)
    tensor = next(iter([*network.parameters(), *network.buffers()]), torch.zeros(()))
    is_there = tensor.device.type == device.type and device.index in (None, tensor.device.index)
    is_given = network is model  # and its owner's to move
    return network if is_there else (deepcopy(network) if is_given else network).to(device)


class LayerReader:
    """What the layers of a network give for raw inputs, made small, and its own logits."""

    def __init__(self, model: Predicting, few: Inputs) -> None:
        self.model = model
        inner = model.networks[0] if isinstance(model, Composition) else model
        assert isinstance(inner, Classifier)  # the networks of a composition are
        self.inner, self.network = inner, inner.network
        self.readings: dict[str, Reading] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._find(few)

    @property
    def device(self) -> torch.device:
        return self.inner.scale.device

    def batches(self, x: Inputs, batch: int) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        """Features by layer, N x F, and logits, N x C; float64 where the network lies."""
        rows = network_inputs(x, self.inner.shape, self.model.encoder, self.device)
        for start in range(0, len(rows), batch):
            piece = rows[start : start + batch]
            if piece.is_floating_point() and not torch.isfinite(piece).all():
                raise DataError("the inputs hold numbers that are not finite: remove or fill them")
            given, logits = self._run(piece, list(self.readings))
            yield {n: self.readings[n](given[n]).double() for n in self.readings}, logits.double()

    def _find(self, few: Inputs) -> None:
        """Layers in the order of their calls; none that reads the same as the one before it."""
        rows = network_inputs(few, self.inner.shape, self.model.encoder, self.device)
        seen, _ = self._run(rows, [INPUT, *(f"{BEFORE}{name}" for name in _readers(self.network))])
        blocks = _blocks(self.network, self.inner.shape)
        last: Tensor | None = None
        for name, given in seen.items():
            flat = given.flatten(1)
            if not given.is_floating_point() or given.dim() < 2 or len(given) != len(rows):
                continue
            if last is None or flat.shape != last.shape or not torch.equal(flat, last):
                self.shapes[name] = tuple(given.shape[1:])
                self.readings[name] = _reading(
                    name, given, blocks.get(name.removeprefix(BEFORE), 1)
                )
            last = flat
        if not self.readings:
            raise ModelError(
                f"no layer of {type(self.network).__name__} is a linear layer or a convolution "
                "that can be watched: a lens has nothing to read"
            )

    def _run(self, rows: Tensor, names: Sequence[str]) -> tuple[dict[str, Tensor], Tensor]:
        """What the named layers read, of the first call of each, and the logits."""
        seen: dict[str, Tensor] = {}

        def keep(name: str, _: nn.Module, args: tuple[Any, ...]) -> None:
            if args and isinstance(args[0], Tensor) and name not in seen:
                seen[name] = args[0].detach().clone()  # what follows may work in place

        with ExitStack() as hooks, evaluation_mode(self.model), torch.no_grad():
            for name in names:
                path = "" if name == INPUT else name.removeprefix(BEFORE)
                layer = self.network.get_submodule(path)
                hooks.enter_context(_hooked(layer, partial(keep, name)))
            logits: Tensor = self.model(rows)
        return seen, logits


@contextmanager
def _hooked(layer: nn.Module, keep: Callable[..., None]) -> Iterator[None]:
    hook = layer.register_forward_pre_hook(keep)
    try:
        yield
    finally:
        hook.remove()


def _readers(network: nn.Module) -> list[str]:
    """The outermost of linear layers, convolutions, and blocks that a network has several of."""
    counts = Counter(type(layer) for layer in network.modules())
    found: list[str] = []
    for name, layer in network.named_modules():
        if not name or any(name.startswith(f"{outer}.") for outer in found):
            continue
        mixes = any(isinstance(one, MIXING) for one in layer.modules())
        block = counts[type(layer)] > 1 and not isinstance(layer, CONTAINERS)
        if isinstance(layer, MIXING) or (mixes and block):
            found.append(name)
    return found


def _blocks(network: nn.Module, shape: tuple[int, ...]) -> Mapping[str, int]:
    """Linear layers that read flattened pictures: the pixels of each channel."""
    if not carries_wiring(network):
        return {}
    try:
        wiring = wiring_of(network, shape)
    except IntarsiaError:
        return {}
    readers = {name.rpartition(".")[0]: axes[1] for name, axes in wiring.items() if len(axes) == 2}
    return {
        name: axis.block
        for name, axis in readers.items()
        if isinstance(axis, Axis) and axis.block > 1
    }


def _reading(name: str, given: Tensor, block: int) -> Reading:
    """How what a layer reads is made small."""
    if given.dim() == 2 and block > 1 and given.shape[1] % block == 0:
        side = isqrt(block)
        grid = (side, side) if side * side == block else (1, block)
        inner = _pooling((given.shape[1] // block, *grid))
        return lambda x: inner(x.reshape(len(x), -1, *grid))
    if given.dim() == 2:
        return _vector(name, given.shape[1], given.device)
    if given.dim() == 3:  # places come first
        tokens = _pooling((given.shape[2], 1, given.shape[1]))
        return lambda x: tokens(x.transpose(1, 2).unsqueeze(2))
    if given.dim() == 4:
        return _pooling(tuple(given.shape[1:]))
    inner = _vector(name, prod(given.shape[1:]), given.device)
    return lambda x: inner(x.flatten(1))


def _pooling(shape: tuple[int, ...]) -> Reading:
    """Means over cells: as many as leave PICTURE numbers, evenly in both directions."""
    channels, height, width = shape
    cells = max(1, PICTURE // channels)
    rows = min(height, isqrt(cells))
    columns = min(width, cells // rows)
    rows = min(height, cells // columns)
    return lambda x: F.adaptive_avg_pool2d(x.float(), (rows, columns)).flatten(1)


def _vector(name: str, size: int, device: torch.device) -> Reading:
    if size <= VECTOR:
        return lambda x: x
    generator = torch.Generator().manual_seed(stream("lens projection", name, size))
    matrix = torch.randn(size, VECTOR, generator=generator).to(device) / VECTOR**0.5
    return lambda x: x.to(matrix.dtype) @ matrix


class _Sums:
    """Sums over samples from which the map follows; features less a fixed centre, for rounding."""

    def __init__(self, centre: Tensor, offset: Tensor) -> None:
        size, classes = len(centre), len(offset)
        self.centre, self.offset, self.count = centre, offset, 0
        self.x, self.z = torch.zeros_like(centre), torch.zeros_like(offset)
        self.xx, self.xz = centre.new_zeros(size, size), centre.new_zeros(size, classes)
        self.zz = offset.new_zeros(())

    def add(self, features: Tensor, logits: Tensor) -> None:
        x, z = features - self.centre, logits - self.offset
        self.count += len(x)
        self.x, self.z = self.x + x.sum(0), self.z + z.sum(0)
        self.xx.addmm_(x.T, x)
        self.xz.addmm_(x.T, z)
        self.zz += z.square().sum()  # a number of Python's would wait for the device

    def error(self, weight: Tensor, x: Tensor, z: Tensor) -> float:
        """The squared error per sample of z + (features - x) W, whose features are these."""
        n = self.count
        a, b = self.x / n - x, self.z / n - z
        xx = self.xx / n - torch.outer(self.x, self.x) / n**2 + torch.outer(a, a)
        xz = self.xz / n - torch.outer(self.x, self.z) / n**2 + torch.outer(a, b)
        zz = float(self.zz) / n - float((self.z / n).square().sum()) + float(b.square().sum())
        return zz - 2 * float((weight * xz).sum()) + float((weight * (xx @ weight)).sum())


def _gathered(
    reader: LayerReader, x: Inputs, batch: int, like: Mapping[str, _Sums] | None = None
) -> dict[str, _Sums]:
    """The sums of every layer, about the means of a first batch or about those of others."""
    sums: dict[str, _Sums] = {}
    for features, logits in reader.batches(x, batch):
        if not torch.isfinite(logits).all():
            raise ModelError("the module's logits are not finite: it diverged, train it again")
        for name, own in features.items():
            if name not in sums:
                centre = own.mean(0) if like is None else like[name].centre
                offset = logits.mean(0) if like is None else like[name].offset
                sums[name] = _Sums(centre, offset)
            sums[name].add(own, logits)
    return sums


def _best(
    name: str, shape: tuple[int, ...], sums: _Sums, held: _Sums | None, ridges: Sequence[float]
) -> LayerMap:
    """The map with the ridge that the samples held out prefer; of one ridge, that."""
    n = sums.count
    x, z = sums.x / n, sums.z / n
    covariance = sums.xx / n - torch.outer(x, x)
    products = sums.xz / n - torch.outer(x, z)
    scale = float(covariance.diagonal().mean())
    eye = torch.eye(len(x), dtype=x.dtype, device=x.device)
    made: list[tuple[float, float, Tensor]] = []
    for ridge in ridges:
        # Features that never change carry nothing, whatever their weight: they get 0.
        factor = torch.linalg.cholesky(covariance + (ridge * scale or 1.0) * eye)
        weight = torch.cholesky_solve(products, factor)
        made.append((0.0 if held is None else held.error(weight, x, z), ridge, weight))
    _, ridge, weight = min(made, key=lambda one: one[0])
    return LayerMap(name, shape, len(x), ridge, sums.centre + x, weight, sums.offset + z)
