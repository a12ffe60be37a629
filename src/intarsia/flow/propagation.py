"""Propagation: mean and covariance through a network, layer by layer, predicted beside sampled.

Affine layers are exact. Behind an activation the Gaussian closure takes its inputs for Gaussian,
which holds at the first layer where the inputs are, and less from there on.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from intarsia.composition import Composition
from intarsia.data import Data, Split
from intarsia.errors import DataError, ModelError, nearest, shortened
from intarsia.files import plain, stream
from intarsia.flow.cumulants import Cumulants, samples_of
from intarsia.flow.pair_networks import FREE, PairNetwork
from intarsia.flow.unit_moments import Unit, unit_of
from intarsia.measure.evaluation import Renderable
from intarsia.models import Mlp
from intarsia.modules import Classifier, Module
from intarsia.specs import find_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

Closure = Literal["gaussian", "sample"]
CLOSURES = ("gaussian", "sample")
SAMPLES = 20_000  # drawn from a Gaussian where cumulants alone are given
WIDEST = 8192  # dimensions whose covariance is kept
INPUT = "input"


@dataclass(frozen=True, eq=False)
class Affine:
    """W x + b; a weight with one axis stands for a diagonal matrix."""

    name: str
    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        y = x * self.weight if self.weight.dim() == 1 else x @ self.weight.T
        return y if self.bias is None else y + self.bias

    def moments(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Exact, whatever the inputs' law is."""
        if self.weight.dim() == 1:
            result = covariance * torch.outer(self.weight, self.weight)
        else:
            result = self.weight @ covariance @ self.weight.T
        return self(mean[None])[0], result


@dataclass(frozen=True, eq=False)
class Activation:
    """A unit's function of every number."""

    name: str
    unit: Unit

    def __call__(self, x: Tensor) -> Tensor:
        return self.unit(x)

    def moments(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """For Gaussian inputs."""
        return self.unit.moments(mean, covariance)


Layer = Affine | Activation


@dataclass(frozen=True, eq=False)
class LayerMoments:
    """Mean and covariance of a layer's outputs, sampled and, by a closure, predicted.

    skewness, kurtosis    root mean square over units of k3 / k2^(3/2) and k4 / k2^2: how far a
                          layer is from Gaussian
    mean_error            |predicted - sampled mean| / |sampled mean|
    covariance_error      the same of covariances, in Frobenius' norm
    mean_noise, ...       what these would be by sampling alone, were the prediction exact
    """

    name: str
    kind: str
    mean: Tensor
    covariance: Tensor
    predicted_mean: Tensor | None
    predicted_covariance: Tensor | None
    mean_noise: float
    covariance_noise: float
    skewness: float
    kurtosis: float

    @property
    def units(self) -> int:
        return len(self.mean)

    @property
    def mean_error(self) -> float | None:
        return _relative(self.predicted_mean, self.mean)

    @property
    def covariance_error(self) -> float | None:
        return _relative(self.predicted_covariance, self.covariance)

    def to_json(self) -> dict[str, Any]:
        """What the table shows, without the moments themselves."""
        names = (
            "name", "kind", "units", "mean_error", "mean_noise", "covariance_error",
            "covariance_noise", "skewness", "kurtosis",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Propagation(Renderable):
    """A network's layers, from its inputs on, each with its moments."""

    layers: Sequence[LayerMoments]
    closure: str
    samples: int

    def __iter__(self) -> Iterator[LayerMoments]:
        return iter(self.layers)

    def __getitem__(self, key: str | int) -> LayerMoments:
        """A layer by its place or name."""
        if isinstance(key, int):
            return self.layers[key]
        return find_named("layer", self.layers, key)

    def to_json(self) -> dict[str, Any]:
        rows = [layer.to_json() for layer in self.layers]
        about = {"closure": self.closure, "samples": self.samples, "layers": rows}
        result: dict[str, Any] = plain(about, "propagation")
        return result

    def figure(self, title: str = "closure error by layer") -> "Figure":
        """The relative errors of the predicted covariance by layer, and the sampling error."""
        from intarsia.plots import closure_error_by_layer

        if self.closure == "sample":
            raise DataError("nothing was predicted: propagate with closure='gaussian' to draw it")
        rows = [layer for layer in self.layers if layer.covariance_error is not None]
        errors = {layer.name: float(layer.covariance_error or 0) for layer in rows}
        noise = {layer.name: layer.covariance_noise for layer in rows}
        return closure_error_by_layer({"covariance": errors}, {"covariance": noise}, title=title)

    def __rich__(self) -> "Table":
        from rich import box
        from rich.table import Table

        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        drawn.add_column("layer")
        drawn.add_column("kind", no_wrap=True)
        headings = "units", "mean\nerror", "noise", "covariance\nerror", "noise", "skew", "kurt"
        for name in headings:
            drawn.add_column(name, justify="right", no_wrap=True)
        for layer in self.layers:
            row = layer.to_json()
            numbers = [row[n] for n in list(row)[3:]]
            texts = ["-" if n is None or math.isnan(n) else f"{n:.3g}" for n in numbers]
            drawn.add_row(layer.name, layer.kind, str(layer.units), *texts)
        return drawn


def propagate(
    network: "nn.Module | Module | Composition | PairNetwork",
    inputs: Any,
    *,
    closure: Closure = "gaussian",
    samples: int = SAMPLES,
    seed: int = 0,
) -> Propagation:
    """Carry the moments of inputs through a network, layer by layer.

    `network` is one of ours with linear layers: an `Mlp`, a module, a composition that is one
    network (such as `inlay` or `sum`), a pair network, or a Sequential of Linear layers and
    activations. `inputs` are samples, raw ones for a module or a composition, or `Cumulants`, for
    which so many Gaussian `samples` of that mean and covariance are drawn. By `closure="gaussian"`
    the mean and covariance of the inputs are carried as well, through activations as if they were
    Gaussian, and each layer has the relative error of that; by "sample" there are samples alone.
    """
    if closure not in CLOSURES:
        raise DataError(f"unknown closure {shortened(closure)}: {nearest(closure, CLOSURES)}")
    layers = layers_of(network)
    rows = _input_rows(network, inputs, samples, seed)
    _check_sizes(layers, rows.shape[1])
    if rows.shape[1] > WIDEST:
        raise DataError(
            f"the inputs have {rows.shape[1]} numbers each: covariances are kept up to {WIDEST}"
        )
    predicted = None
    if closure == "gaussian":
        predicted = _start(inputs) if isinstance(inputs, Cumulants) else _sample_moments(rows)
    found = [_measured(INPUT, INPUT, rows, predicted)]
    with torch.no_grad():
        for layer in layers:
            rows = layer(rows)
            if not torch.isfinite(rows).all():
                raise ModelError(
                    f"layer {layer.name!r} gives numbers that are not finite: the network "
                    "diverged, or the inputs are too large for it"
                )
            if predicted is not None:
                predicted = layer.moments(*predicted)
            kind = "affine" if isinstance(layer, Affine) else str(layer.unit)
            found.append(_measured(layer.name, kind, rows, predicted))
    return Propagation(found, closure, len(rows))


def _check_sizes(layers: Sequence[Layer], size: int) -> None:
    """Every affine layer must read as many numbers as there are."""
    giver = "the inputs have"
    for layer in layers:
        if not isinstance(layer, Affine):
            continue
        if (reads := layer.weight.shape[-1]) != size:
            reader = "the network" if giver == "the inputs have" else f"layer {layer.name!r}"
            raise DataError(f"{giver} {size} numbers each: {reader} reads {reads}")
        size, giver = len(layer.weight), f"layer {layer.name!r} gives"


def layers_of(network: Any) -> list[Layer]:
    """The affine layers and activations that a network applies, in order, in float64."""
    if isinstance(network, Module):
        return layers_of(network.to_module())
    if isinstance(network, Composition):
        return _of_composition(network)
    if isinstance(network, PairNetwork):
        return _of_pairs(network)
    if isinstance(network, Classifier):
        return [*_of_scaling(network), *layers_of(network.network)]
    if isinstance(network, Mlp):
        return _of_mlp(network)
    if isinstance(network, nn.Sequential | nn.Linear):
        return list(_of_sequence(network, ""))
    if isinstance(network, nn.Module):
        raise ModelError(
            f"a {type(network).__name__} is not a chain of linear layers: moments are carried "
            "through an Mlp, a Sequential of Linear layers and activations, and modules of those"
        )
    raise ModelError(
        f"{shortened(network)} is not a network: give a module, a composition or a torch.nn.Module"
    )


def _of_composition(whole: Composition) -> list[Layer]:
    joined = whole.joined
    if joined is None:
        raise ModelError(
            f"{whole.operator} keeps {len(whole.parts)} networks and joins their logits: compose "
            'them to one network, by "inlay" or "sum", or take one of the parts'
        )
    layers = layers_of(joined)
    if whole.offset is not None:
        ones = torch.ones(len(whole.catalogue), dtype=torch.float64)
        layers.append(Affine("offset", ones, whole.offset.detach().cpu().double()))
    return layers


def _of_scaling(network: Classifier) -> list[Layer]:
    if network.reads_integers:
        raise ModelError("the network reads whole numbers, such as tokens: they have no cumulants")
    if network.scaling.kind == "none":
        return []
    size = math.prod(network.shape)
    shift, scale = (
        part.detach().cpu().double().expand(network.shape).reshape(size)
        for part in (network.shift, network.scale)
    )
    return [Affine("scaling", scale, -shift * scale)]


def _of_mlp(network: Mlp) -> list[Layer]:
    layers: list[Layer] = []
    last = len(network.layers) - 1
    for place, layer in enumerate(network.layers):
        assert isinstance(layer, nn.Linear)  # an Mlp has no others
        layers.append(_linear(f"layers.{place}", layer))
        if place < last:
            layers.append(Activation(f"layers.{place} relu", Unit("relu")))
    return layers


def _of_pairs(network: PairNetwork) -> list[Layer]:
    with torch.no_grad():
        weights, biases = (part.cpu().clone() for part in network.hidden())
        out, offset = (network.get_parameter(n).cpu().clone() for n in ("outputs", "offsets"))
    out = out if network.form == FREE else torch.cat([out, out])
    return [
        Affine("hidden", weights, biases),
        Activation(f"hidden {network.unit}", network.unit),
        Affine("output", out[None], offset[None]),
    ]


def _of_sequence(network: nn.Module, name: str) -> Iterator[Layer]:
    if isinstance(network, nn.Sequential):
        for key, child in network.named_children():
            yield from _of_sequence(child, f"{name}.{key}".strip("."))
    elif isinstance(network, Mlp):
        yield from _of_mlp(network)
    elif isinstance(network, nn.Linear):
        yield _linear(name or "linear", network)
    elif not isinstance(network, nn.Flatten | nn.Dropout | nn.Identity):
        yield Activation(name, unit_of(network, name))


def _linear(name: str, layer: nn.Linear) -> Affine:
    weight = layer.weight.detach().cpu().double()
    return Affine(name, weight, None if layer.bias is None else layer.bias.detach().cpu().double())


def _input_rows(network: Any, inputs: Any, samples: int, seed: int) -> Tensor:
    """N x D samples: given, or drawn from the Gaussian with these cumulants."""
    if isinstance(inputs, Cumulants):
        if type(samples) is not int or samples < 2:
            raise DataError(f"samples is {shortened(samples)}: expected a whole number from 2")
        mean, covariance = _start(inputs)
        generator = torch.Generator().manual_seed(stream("flow propagate", seed))
        drawn = torch.randn(samples, len(mean), dtype=torch.float64, generator=generator)
        return mean + drawn @ _root(covariance).T
    if isinstance(inputs, Data):
        inputs = inputs.test.x
    elif isinstance(inputs, Split):
        inputs = inputs.x
    encoder = getattr(network, "encoder", None)
    if encoder is not None:
        from intarsia.modules.classifier import network_inputs

        part = network.parts[0] if isinstance(network, Composition) else network
        inputs = network_inputs(inputs, part.architecture.shape, encoder)
    rows = samples_of(inputs)
    if len(rows) < 2:
        raise DataError("one sample has no covariance: give at least 2")
    return rows


def _start(given: Cumulants) -> tuple[Tensor, Tensor]:
    """Mean and covariance; diagonals are taken for independent numbers."""
    if given.order < 2:
        raise DataError("cumulants of order 1 alone have no covariance: give orders 1 and 2")
    covariance = torch.diag(given[2]) if given.diagonal else given[2]
    return given[1].double(), covariance.double()


def _root(covariance: Tensor) -> Tensor:
    """A matrix whose square is the covariance, which may be singular."""
    values, vectors = torch.linalg.eigh(covariance)
    if float(values.min()) < -1e-8 * max(float(values.max()), 1e-300):
        raise DataError("the cumulants of order 2 are not a covariance: a variance is negative")
    return vectors * values.clamp(min=0).sqrt()


def _sample_moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    mean = rows.mean(0)
    centred = rows - mean
    return mean, centred.T @ centred / len(rows)


def _measured(
    name: str, kind: str, rows: Tensor, predicted: tuple[Tensor, Tensor] | None
) -> LayerMoments:
    mean, covariance = _sample_moments(rows)
    centred, count = rows - mean, len(rows)
    squares = centred**2
    # The variance of a sampled covariance is (E c_i^2 c_j^2 - S_ij^2) / n.
    spread = (squares.T @ squares / count - covariance**2).clamp(min=0).sum() / count
    variance = covariance.diagonal()
    live = variance > 1e-24 * variance.max().clamp(min=1e-300)
    safe = torch.where(live, variance, torch.ones_like(variance))
    skewness = (squares * centred).mean(0) / safe**1.5
    kurtosis = squares.square().mean(0) / safe**2 - 3
    sizes = [float(part[live].square().mean().sqrt()) for part in (skewness, kurtosis)]
    predicted_mean, predicted_covariance = predicted or (None, None)
    return LayerMoments(
        name,
        kind,
        mean,
        covariance,
        predicted_mean,
        predicted_covariance,
        mean_noise=_ratio(float((variance.sum() / count).sqrt()), float(mean.norm())),
        covariance_noise=_ratio(float(spread.sqrt()), float(covariance.norm())),
        skewness=sizes[0],
        kurtosis=sizes[1],
    )


def _relative(predicted: Tensor | None, sampled: Tensor) -> float | None:
    if predicted is None:
        return None
    return _ratio(float((predicted - sampled).norm()), float(sampled.norm()))


def _ratio(size: float, of: float) -> float:
    return size / of if of > 0 else math.nan
