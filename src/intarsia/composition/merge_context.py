"""What operators may look at: the parts together, samples, and statistics that are cached."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.data import Data, Split, check_same_encoder, evenly_spaced
from intarsia.errors import CompositionError, DataError, WiringError, shortened
from intarsia.files import digest_of
from intarsia.models import MODELS, initialise, silence
from intarsia.models.axes import OUTPUT, names_in
from intarsia.models.custom.trial import input_dtype
from intarsia.models.wiring import Wiring
from intarsia.modules import Module
from intarsia.modules.architecture import Plan
from intarsia.modules.bases.base_weights import Base, common_base
from intarsia.modules.classifier import network_inputs, raw_inputs
from intarsia.modules.traits import check_columns
from intarsia.specs import is_number

ROWS = 1000  # samples kept of what is given, and saved with the composition
ENTRIES, BYTES = 64, 2**28  # statistics kept at most, by each operator
# Settings that may have a number for each part, by its name, and what one such number is called.
BY_NAME = {"weights": "weight", "density": "density"}

Stats = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class MergeContext:
    """What an operator may look at besides the states or logits of the parts.

    The parts are sorted by name, and already permuted where alignment was asked for. `samples` are
    raw inputs with labels, -1 where there is none. `similarities`, N x K, are what the operator's
    router gave for the inputs whose logits are joined. Operators that are given states on another
    device than the CPU find samples and masks on `device`, too.
    """

    parts: tuple[Module, ...]
    samples: Split | None = None
    aligned: bool = False
    similarities: Tensor | None = None
    device: torch.device | None = None

    @property
    def plan(self) -> Plan:
        """Shape and dtype of every tensor, and whether it is learned."""
        return self.parts[0].plan

    @cached_property
    def wiring(self) -> Wiring:
        """The axes of every tensor; their sizes may differ from part to part."""
        first = self.parts[0]
        return first.architecture.wiring(first.factory)

    @cached_property
    def has_wiring(self) -> bool:
        """Whether the axes are known; joining weights entry by entry does without them."""
        try:
            return bool(self.wiring)
        except WiringError:
            return False

    def wiring_for(self, what: str, does: str = "works on") -> Wiring:
        """The wiring, or a WiringError that names what cannot be done without it."""
        try:
            return self.wiring
        except WiringError as error:
            raise WiringError(
                f"{what} {does} units and needs the network's wiring: {error}"
            ) from error

    @property
    def learned(self) -> list[str]:
        """The names of the parameters, without buffers."""
        return [name for name, entry in self.plan.items() if entry.learned]

    @property
    def output_weights(self) -> list[str]:
        """The names of the parameters that have the outputs on an axis."""
        return [name for name in self.learned if OUTPUT in names_in(self.wiring[name])]

    @property
    def first_entry(self) -> int:
        """How many learned entries of the parts come before: none, unless they come in pieces."""
        return 0

    @property
    def weight_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the parameters that have rows and columns."""
        return [e.shape for e in self.plan.values() if e.learned and len(e.shape) > 1]

    @property
    def nbytes(self) -> int:
        """The bytes of all parts."""
        return sum(part.nbytes for part in self.parts)

    def read_nbytes(self, most: int) -> int:
        """The bytes, in float64, of what the layers read for at most so many of the samples.

        A convolution reads a patch for every pixel.
        """
        rows = min(most, len(self.samples) if self.samples is not None else 0)
        pixels = prod(self.parts[0].architecture.shape[1:])
        columns = sum(
            prod(shape[1:]) * (pixels if len(shape) > 2 else 1) for shape in self.weight_shapes
        )
        return 8 * rows * columns

    @cached_property
    def base(self) -> Base | None:
        """What all parts are changes of; None where they have no base, or not the same."""
        return common_base(self.parts)

    @property
    def masks(self) -> list[Mapping[str, Tensor]]:
        """What survives in each part; of changes of a base, what changed."""
        return [part.mask for part in self.parts]

    def kept(self, name: str) -> list[Tensor]:
        """What survives of a parameter in each part: all of it where it has no mask.

        Of changes of a base, what changed.
        """
        return [
            part.mask.get(name, torch.ones_like(part.state[name], dtype=torch.bool)).to(self.device)
            for part in self.parts
        ]

    @property
    def rewarded(self) -> list[tuple[int, ...]]:
        """The rewarded classes of each part, as indices into the catalogue."""
        return [tuple(map(part.catalogue.index, part.rewarded)) for part in self.parts]

    @property
    def classes(self) -> int:
        return len(self.parts[0].catalogue)

    @property
    def temperature(self) -> float:
        return self.parts[0].temperature

    def weights(self, given: float | Mapping[str, float]) -> list[float]:
        """One number per part: the same for all, or by name, where those left out have 1."""
        return self._numbers("weights", given)

    def densities(self, given: float | Mapping[str, float]) -> list[float]:
        """Likewise, the fraction of its entries that each part keeps."""
        return self._numbers("density", given)

    def _numbers(self, key: str, given: float | Mapping[str, float]) -> list[float]:
        if is_number(given):
            return [float(given)] * len(self.parts)  # type: ignore[arg-type]
        names = [part.name for part in self.parts]
        if not isinstance(given, Mapping):
            raise CompositionError(
                f"{key} is {shortened(given)}: expected one number, or one by name, as in "
                f"{{{names[0]!r}: 0.5}}"
            )
        for name, value in given.items():
            if not is_number(value):
                raise CompositionError(
                    f"the {BY_NAME[key]} of {name!r} is {shortened(value)}: expected a number"
                )
        return [float(given.get(name, 1.0)) for name in names]

    def origin(self) -> Mapping[str, Tensor]:
        """theta0, made anew from the seed in the parts' provenance, and checked by its digest.

        Of changes it is their base.
        """
        first = self.parts[0]
        if self.aligned or any(part.origin != first.origin for part in self.parts):
            raise CompositionError(
                "the parts have no common origin once they are aligned or come from several: "
                "take base='zero', or train them from one seed"
            )
        if self.base is not None:
            return self.base.state
        seed = first.provenance.get("seed")
        model = first.architecture.model or first.factory
        own = not first.architecture.widths
        if own and model is not None and type(seed) is int and 0 <= seed < 2**63:  # torch's range
            shape, outputs = first.architecture.shape, first.architecture.outputs
            network = initialise(model, shape, outputs, seed)
            for silent in (False, True) if self.has_wiring else (False,):
                if silent:
                    silence(network, self.wiring)
                state = {name: tensor.detach() for name, tensor in network.state_dict().items()}
                if digest_of("origin", state) == first.origin:
                    return state
        raise CompositionError(
            f"the origin of module {first.name!r} cannot be made anew from its seed {seed!r}: "
            "take base='zero', or train it anew with this version of torch"
        )

    def scaled(self, operator: str) -> Tensor:
        """The samples as the networks read them, N x *shape."""
        if self.samples is None:
            raise CompositionError(
                f"{operator} needs samples: compose(..., samples=data), or --samples in a shell"
            )
        first = self.parts[0]
        network = first.architecture.network(first.state, first.factory)
        inputs = first.scaling(self.samples.x)
        return inputs.to(self.device, input_dtype(network, first.architecture.shape))

    def networks(self) -> list[nn.Module]:
        """The bare networks of the parts, in evaluation mode."""
        return [part.architecture.network(part.state, part.factory) for part in self.parts]


def kept_samples(given: Any, module: Module) -> Split:
    """At most ROWS evenly spaced samples in a module's input shape; -1 where a label is missing.

    Data give their validation part: test samples are for reports. Classes are matched by name.
    """
    if isinstance(given, Data):
        check_same_encoder(given, module.encoder)
        check_columns(given, module.columns)
        given = given.validation
    if isinstance(given, Split):
        x, y = given.x, given.labels_in(module.catalogue)
    else:
        x = raw_inputs(given)
        y = torch.full((len(x),), -1)
    if not len(x):
        raise CompositionError("the samples are empty: give a few hundred inputs")
    if int(y.min()) < -1 or int(y.max()) >= len(module.catalogue):
        bad = int(y.max() if y.min() >= -1 else y.min())
        raise CompositionError(
            f"the samples have the label {bad} for a catalogue of "
            f"{len(module.catalogue)} classes: labels are indices into it"
        )
    rows = evenly_spaced(len(x), ROWS)
    x = network_inputs(x[rows].cpu(), module.architecture.shape, module.encoder)
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise DataError("the samples hold values that are NaN or infinite: remove or fill them")
    return Split(x.contiguous(), y[rows].cpu().to(torch.int64))


class StatsCache:
    """Tensors by part and samples, the latest used of them, as many as have room.

    A part is known by its digest, so one that is aligned or scaled first is another. Nothing is
    kept for a custom network, whose digest does not say what it computes.
    """

    def __init__(self, entries: int = ENTRIES, size: int = BYTES) -> None:
        self.entries, self.size = entries, size
        self._stats: OrderedDict[Hashable, Stats] = OrderedDict()
        self._lock = Lock()

    def each(
        self, context: MergeContext, inputs: Tensor, find: Callable[[nn.Module], Stats]
    ) -> Iterator[Stats]:
        """`find(network)` for one part after another; the tensors are not to be written to.

        `find` may look at the network, at `inputs` and at the temperature, and at nothing else.
        """
        samples = digest_of("samples", {"inputs": inputs})
        for part in context.parts:
            model = part.architecture.model
            key = model and (part.digest, MODELS[model.name], samples, inputs.device)
            stats = self._known(key)
            if stats is None:
                network = part.architecture.network(part.state, part.factory)
                stats = find(network.to(inputs.device))
                if key is not None:
                    self._keep(key, stats)
            yield stats

    def __len__(self) -> int:
        return len(self._stats)

    def _known(self, key: Hashable) -> Stats | None:
        with self._lock:
            if key in self._stats:
                self._stats.move_to_end(key)
            return self._stats.get(key)

    def _keep(self, key: Hashable, stats: Stats) -> None:
        if _bytes([stats]) > self.size:
            return
        with self._lock:
            self._stats[key] = stats
            while len(self._stats) > self.entries or _bytes(self._stats.values()) > self.size:
                self._stats.popitem(last=False)


def _bytes(kept: Iterable[Stats]) -> int:
    return sum(tensor.nbytes for stats in kept for tensor in stats.values())
