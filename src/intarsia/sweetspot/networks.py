"""Pattern networks: x, y, distance and 1 of a pixel go in, its hue, saturation and value come out.

Every hidden layer has the same blocks of units, each with an activation of its own; there are no
biases but the input that is 1. A bank stacks networks of one layout on a leading axis.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from intarsia.errors import FileError, ModelError, nearest, shortened
from intarsia.files import plain
from intarsia.modules.file import read, reading, write
from intarsia.modules.header import check_keys, texts
from intarsia.sweetspot.pictures import check_size, rgb

if TYPE_CHECKING:
    from intarsia.sweetspot.pattern_scores import Inflation
    from intarsia.sweetspot.sweeps import WeightSweep

INPUTS, OUTPUTS = 4, 3  # x, y, distance, 1; hue, saturation, value
DISTANCE = 1.4  # distance = 1.4 sqrt(x^2 + y^2), as Picbreeder has it
WIDEST, DEEPEST = 4096, 512
MOST_DIGITS = 9  # of a number of units in text; int() itself refuses thousands
FORMAT = "intarsia-patterns"
FIELDS = ("blocks", "depth", "names", "masked", "report")
CHUNK = 2**26  # floats of one layer that are rendered at a time

Weights = Sequence[Tensor]


def _same(z: Tensor) -> Tensor:
    return z


def _gaussian(z: Tensor) -> Tensor:
    return 2 * torch.exp(-z.square()) - 1


def _sigmoid(z: Tensor) -> Tensor:
    return 2 * torch.sigmoid(z) - 1


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cache": _same,  # hands a value on to a later layer, where a genome's link skips layers
    "identity": _same,
    "sin": torch.sin,
    "gaussian": _gaussian,
    "sigmoid": _sigmoid,
    "relu": torch.relu,
    "tanh": torch.tanh,
}
"""Activations of units by name."""

LINEAR = ("cache", "identity")
Blocks = tuple[tuple[str, int], ...]
DEFAULT_BLOCKS: Blocks = (("cache", 15), ("gaussian", 4), ("identity", 2), ("sin", 1))


@dataclass(frozen=True)
class PatternLayout:
    """The blocks of units of every hidden layer, by activation, and the number of hidden layers."""

    blocks: Blocks
    depth: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", read_blocks(self.blocks))
        if type(self.depth) is not int or not 1 <= self.depth <= DEEPEST:
            raise ModelError(
                f"depth is {shortened(self.depth)}: expected a whole number of hidden layers from "
                f"1 to {DEEPEST}"
            )

    @classmethod
    def of_width(cls, width: int, depth: int, like: Any = DEFAULT_BLOCKS) -> "PatternLayout":
        """So many units in the proportions of other blocks, the largest remainders rounded up."""
        if type(width) is not int or not 1 <= width <= WIDEST:
            raise ModelError(
                f"width is {shortened(width)}: expected a whole number of units from 1 to {WIDEST}"
            )
        like = read_blocks(like)
        total = sum(units for _, units in like)
        units = [width * own // total for _, own in like]
        remainders = [width * own % total for _, own in like]
        for place in sorted(range(len(like)), key=lambda p: -remainders[p])[: width - sum(units)]:
            units[place] += 1
        blocks = zip((name for name, _ in like), units, strict=True)
        return cls(tuple((name, own) for name, own in blocks if own), depth)

    @property
    def width(self) -> int:
        """Units of a hidden layer."""
        return sum(units for _, units in self.blocks)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(outputs, inputs) of every matrix: one more than there are hidden layers."""
        width = self.width
        return [(width, INPUTS), *[(width, width)] * (self.depth - 1), (OUTPUTS, width)]

    @property
    def parameters(self) -> int:
        """Weights of a network, zeros included."""
        return sum(prod(shape) for shape in self.shapes)

    @property
    def slices(self) -> list[tuple[str, slice]]:
        """The units of every block, by activation."""
        slices, start = [], 0
        for name, units in self.blocks:
            slices.append((name, slice(start, start + units)))
            start += units
        return slices

    @property
    def activations(self) -> list[str]:
        """The activation of every unit of a hidden layer."""
        return [name for name, units in self.blocks for _ in range(units)]

    def __str__(self) -> str:
        blocks = ", ".join(f"{name} {units}" for name, units in self.blocks)
        return f"{self.depth} layers of {self.width} ({blocks})"


@dataclass(frozen=True, eq=False)
class PatternNetwork:
    """One network: its matrices, and which weights are held at 0.

    weights    depth + 1 matrices (outputs, inputs), float32 on the CPU
    masks      of the same shapes, True where a weight is free; None: all of them are
    """

    layout: PatternLayout
    weights: tuple[Tensor, ...]
    masks: tuple[Tensor, ...] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        _set_tensors(self, self.layout, self.weights, self.masks, (), self.name or "the network")

    def __repr__(self) -> str:
        weights = f"{self.nonzero} of {self.layout.parameters} weights not 0"
        return f"PatternNetwork({self.name!r}, {self.layout}, {weights})"

    def image(self, size: int = 256) -> Tensor:
        """The picture that it draws: size x size x 3, RGB from 0 to 1."""
        return render(self.layout, [w[None] for w in self.weights], size)[0]

    @torch.no_grad()
    def maps(self, size: int = 64) -> list[Tensor]:
        """What every unit draws, by hidden layer: (width, size, size) each."""
        _, maps = forward(self.layout, self.weights, coordinates(size))
        return [layer.reshape(-1, size, size) for layer in maps]

    @property
    def nonzero(self) -> int:
        """Weights that are not 0."""
        return sum(int(w.count_nonzero()) for w in self.weights)

    def sweep(self, weight: int | Sequence[int], **settings: Any) -> "WeightSweep":
        """The pictures as one weight moves; see `sweetspot.sweep`."""
        from intarsia.sweetspot.sweeps import sweep

        return sweep(self, weight, **settings)

    def perturb(
        self, places: Sequence[tuple[int, int, int]], change: float, **settings: Any
    ) -> Tensor:
        """The pictures with single weights changed; see `sweetspot.perturb`."""
        from intarsia.sweetspot.pattern_scores import perturb

        return perturb(self, places, change, **settings)

    def inflation(self, **settings: Any) -> "Inflation":
        """How much longer its PNG gets when weights are changed; see `sweetspot.inflation`."""
        from intarsia.sweetspot.pattern_scores import inflation

        return inflation(self, **settings)

    def save(self, path: str | Path) -> None:
        """Write one safetensors file."""
        PatternBank.of([self]).save(path)

    @classmethod
    def load(cls, path: str | Path) -> "PatternNetwork":
        """Read what `save` wrote, every count and value checked."""
        bank = PatternBank.load(path)
        if len(bank) != 1:
            raise FileError(
                f"{path}: holds {len(bank)} pattern networks, not one: read it with "
                "PatternBank.load, and take one of them by its place"
            )
        return bank[0]


def one_network(given: Any) -> PatternNetwork:
    """What is given, if it is one pattern network."""
    if isinstance(given, PatternNetwork):
        return given
    advice = ": take one of them, such as bank[0]" if isinstance(given, PatternBank) else ""
    raise ModelError(f"a {type(given).__name__} is not one pattern network{advice}")


@dataclass(frozen=True, eq=False)
class PatternBank(Sequence[PatternNetwork]):
    """K networks of one layout, stacked: every matrix is (K, outputs, inputs), and every mask.

    losses    mean squared error of RGB of each network, or None where none was measured
    report    settings and measurements, as plain values
    """

    layout: PatternLayout
    weights: tuple[Tensor, ...]
    masks: tuple[Tensor, ...] | None = None
    names: tuple[str, ...] = ()
    losses: tuple[float, ...] | None = None
    report: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.weights[0]) if len(self.weights) else 0
        if not count:
            raise ModelError("a bank of pattern networks needs at least one")
        _set_tensors(self, self.layout, self.weights, self.masks, (count,), "the bank")
        names = tuple(self.names) or tuple(str(k) for k in range(count))
        object.__setattr__(self, "names", names)
        for what, values in (("names", names), ("losses", self.losses)):
            if values is not None and len(values) != count:
                raise ModelError(f"the bank has {count} networks and {len(values)} {what}")

    def __repr__(self) -> str:
        loss = "" if self.losses is None else f", lowest loss {min(self.losses):.3g}"
        return f"PatternBank({len(self)} networks, {self.layout}{loss})"

    @classmethod
    def of(cls, networks: Iterable[PatternNetwork]) -> "PatternBank":
        """Networks of one layout, stacked in this order."""
        networks = list(networks)
        if not networks:
            raise ModelError("a bank of pattern networks needs at least one")
        layout = networks[0].layout
        for network in networks:
            if network.layout != layout:
                raise ModelError(
                    f"pattern networks of one bank have one layout: {networks[0].name or 'one'} "
                    f"has {layout}, {network.name or 'another'} {network.layout}"
                )
        masks = None
        if any(network.masks is not None for network in networks):
            full = tuple(torch.ones(shape, dtype=torch.bool) for shape in layout.shapes)
            each = [full if n.masks is None else n.masks for n in networks]
            masks = tuple(torch.stack(layer) for layer in zip(*each, strict=True))
        weights = tuple(torch.stack(w) for w in zip(*(n.weights for n in networks), strict=True))
        names = tuple(n.name or str(k) for k, n in enumerate(networks))
        return cls(layout, weights, masks, names)

    def __len__(self) -> int:
        return len(self.weights[0])

    @overload
    def __getitem__(self, place: int) -> PatternNetwork: ...

    @overload
    def __getitem__(self, place: slice) -> "PatternBank": ...

    def __getitem__(self, place: int | slice) -> "PatternNetwork | PatternBank":
        weights = tuple(w[place] for w in self.weights)
        masks = None if self.masks is None else tuple(m[place] for m in self.masks)
        if not isinstance(place, slice):
            return PatternNetwork(self.layout, weights, masks, self.names[place])
        losses = None if self.losses is None else self.losses[place]
        return PatternBank(self.layout, weights, masks, self.names[place], losses, self.report)

    @property
    def best(self) -> PatternNetwork:
        """The network of the lowest loss; the first where none was measured."""
        if self.losses is None:
            return self[0]
        losses = [inf if isnan(loss) else loss for loss in self.losses]
        return self[losses.index(min(losses))]

    def images(self, size: int = 64) -> Tensor:
        """K x size x size x 3."""
        return render(self.layout, self.weights, size)

    @property
    def nonzero(self) -> tuple[int, ...]:
        """Weights that are not 0, of each network."""
        return tuple(sum(w.flatten(1).count_nonzero(1) for w in self.weights).tolist())  # type: ignore[union-attr]

    def save(self, path: str | Path) -> None:
        """Write all networks to one safetensors file; the same bank gives the same bytes."""
        tensors = {f"weights/{layer:03}": w for layer, w in enumerate(self.weights)}
        if self.masks is not None:
            tensors |= {f"masks/{layer:03}": m for layer, m in enumerate(self.masks)}
        if self.losses is not None:  # which may be nan, where a network diverged
            tensors["losses"] = torch.tensor(self.losses, dtype=torch.float64)
        fields = {
            "blocks": [list(block) for block in self.layout.blocks],
            "depth": self.layout.depth,
            "names": list(self.names),
            "masked": self.masks is not None,
            "report": plain(self.report, "report"),
        }
        write(path, FORMAT, fields, {name: t.contiguous() for name, t in tensors.items()})

    @classmethod
    def load(cls, path: str | Path) -> "PatternBank":
        """Read what `save` wrote, every count and value checked."""
        with reading(path):
            fields, tensors = read(path, FORMAT)
            check_keys(fields, FIELDS)
            return cls(**_unpacked(fields, tensors))


def read_blocks(given: Any) -> Blocks:
    """Blocks as (activation, units) pairs, a mapping, or text such as "cache 15, gaussian 4"."""
    if isinstance(given, str):
        given = [part.replace("=", " ").replace(":", " ").split() for part in given.split(",")]
        given = [(p[0], int(p[1])) if len(p) == 2 and _is_count(p[1]) else p for p in given]
    pairs = list(given.items()) if isinstance(given, dict) else given
    example = "expected activations with units, as in cache 15, gaussian 4, identity 2, sin 1"
    if not isinstance(pairs, list | tuple) or not pairs:
        raise ModelError(f"blocks are {shortened(given)}: {example}")
    blocks = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ModelError(f"blocks have {shortened(pair)}: {example}")
        name, units = pair
        if not isinstance(name, str) or name not in ACTIVATIONS:
            raise ModelError(
                f"blocks have the unknown activation {shortened(name)}: "
                f"{nearest(name, ACTIVATIONS)}"
            )
        if type(units) is not int or units < 1:
            raise ModelError(f"the block {name!r} has {shortened(units)} units: {example}")
        blocks.append((name, units))
    if sum(units for _, units in blocks) > WIDEST:
        raise ModelError(f"blocks {shortened(given)} have more than {WIDEST} units in a layer")
    return tuple(blocks)


def _is_count(word: str) -> bool:
    return word.isdecimal() and len(word) <= MOST_DIGITS


def coordinates(size: int, device: torch.device | str | None = None) -> Tensor:
    """The inputs of all pixels, row by row: (4, size * size) of x, y, distance and 1.

    x goes from -1 to 1 along the columns, y along the rows from the top.
    """
    line = torch.linspace(-1, 1, check_size(size), dtype=torch.float64)
    y, x = torch.meshgrid(line, line, indexing="ij")
    distance = DISTANCE * torch.hypot(x, y)
    inputs = torch.stack([x, y, distance, torch.ones_like(x)]).flatten(1)
    return inputs.float().to(device or "cpu")


def activate(layout: PatternLayout, values: Tensor) -> Tensor:
    """The activations of a layer, (..., width, pixels), block by block."""
    parts = values.split([units for _, units in layout.blocks], dim=-2)
    return torch.cat(
        [ACTIVATIONS[n](p) for (n, _), p in zip(layout.blocks, parts, strict=True)], -2
    )


def forward(layout: PatternLayout, weights: Weights, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Outputs h, s, v (K, 3, pixels), and the maps of every hidden layer (K, width, pixels).

    `weights` are (K, outputs, inputs) each, or without K; `inputs` (4, pixels), or with K before.
    """
    values, maps = inputs, []
    for matrix in weights[:-1]:
        values = activate(layout, matrix @ values)
        maps.append(values)
    return weights[-1] @ values, maps


@torch.no_grad()
def render(
    layout: PatternLayout,
    weights: Weights,
    size: int,
    device: torch.device | str | None = None,
) -> Tensor:
    """The pictures of stacked networks: (K, size, size, 3), RGB from 0 to 1, on the device."""
    place = weights[0].device if device is None else torch.device(device)
    inputs = coordinates(size, place)
    at_once = max(1, CHUNK // (layout.width * size * size))
    pictures = []
    for start in range(0, len(weights[0]), at_once):
        values = inputs
        for matrix in weights[:-1]:
            values = activate(layout, matrix[start : start + at_once].to(place) @ values)
        outputs = weights[-1][start : start + at_once].to(place) @ values
        pictures.append(rgb(outputs).mT.reshape(-1, size, size, OUTPUTS))
    return torch.cat(pictures)


def with_masks(network: PatternNetwork, masks: Sequence[Tensor] | None) -> PatternNetwork:
    """The network with other weights free; those that are not become 0."""
    return replace(network, masks=None if masks is None else tuple(masks))


def _set_tensors(
    owner: Any,
    layout: PatternLayout,
    weights: Sequence[Any],
    masks: Sequence[Any] | None,
    stack: tuple[int, ...],
    label: str,
) -> None:
    """Check every matrix, and set what is held at 0 to 0."""
    shapes = [(*stack, *shape) for shape in layout.shapes]
    for what, given in (("weights", weights), ("masks", masks)):
        if given is not None and len(given) != len(shapes):
            raise ModelError(
                f"{label} has {len(given)} matrices of {what}; its layout, {layout}, needs "
                f"{len(shapes)}"
            )
    clean = [
        _matrix(w, s, f"{label}, weights {n}")
        for n, (w, s) in enumerate(zip(weights, shapes, strict=True))
    ]
    if masks is not None:
        free = [
            _matrix(m, s, f"{label}, mask {n}", torch.bool)
            for n, (m, s) in enumerate(zip(masks, shapes, strict=True))
        ]
        clean = [w.masked_fill(~m, 0) for w, m in zip(clean, free, strict=True)]
        object.__setattr__(owner, "masks", tuple(free))
    object.__setattr__(owner, "weights", tuple(clean))


def _matrix(
    given: Any, shape: tuple[int, ...], label: str, dtype: torch.dtype = torch.float32
) -> Tensor:
    try:
        tensor = torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{label} is a {type(given).__name__}, not a matrix ({error})") from error
    if tuple(tensor.shape) != shape:
        raise ModelError(
            f"{label} has shape {tuple(tensor.shape)}, its layout needs {shape}: check blocks and "
            "depth"
        )
    if dtype == torch.bool and tensor.dtype != torch.bool:
        raise ModelError(f"{label} holds {tensor.dtype}: expected true and false")
    tensor = tensor.to(dtype).contiguous()
    if dtype != torch.bool and not bool(tensor.isfinite().all()):
        raise ModelError(f"{label} has a weight that is not a finite number")
    return tensor


def _unpacked(fields: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The arguments of a bank from a file's header and tensors."""
    if not isinstance(fields["report"], dict) or not isinstance(fields["masked"], bool):
        raise FileError("its header's report or masked is not what it should be")
    layout = PatternLayout(fields["blocks"], fields["depth"])
    kinds = ("weights", "masks") if fields["masked"] else ("weights",)
    names, losses = texts(fields["names"], "names"), tensors.pop("losses", None)
    stored = {
        kind: [tensors.pop(f"{kind}/{n:03}", None) for n in range(layout.depth + 1)]
        for kind in kinds
    }
    matrices = [tensor for layers in stored.values() for tensor in layers]
    if tensors or any(t is None or t.ndim != 3 or len(t) != len(names) for t in matrices):
        raise FileError(f"does not hold {len(names)} networks of its layout, {layout}")
    if losses is not None and losses.ndim != 1:
        raise FileError(f"its losses have shape {tuple(losses.shape)}: expected one per network")
    masks = tuple(stored["masks"]) if fields["masked"] else None
    return {
        "layout": layout,
        "weights": tuple(stored["weights"]),
        "masks": masks,
        "names": names,
        "losses": None if losses is None else tuple(losses.tolist()),
        "report": fields["report"],
    }
