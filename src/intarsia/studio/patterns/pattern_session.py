"""The state behind the page of pattern networks: what they draw, and what a moved weight does."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import torch
from torch import Tensor

from intarsia.errors import DataError, IntarsiaError, ModelError, RecipeError, nearest, shortened
from intarsia.sweetspot.networks import PatternBank, PatternNetwork, coordinates, forward
from intarsia.sweetspot.pattern_scores import PerturbedPictures, Place, check_place
from intarsia.sweetspot.pictures import check_size
from intarsia.sweetspot.sweeps import Connection, connections, unit_names
from intarsia.sweetspot.targets import available, load_network

SIZE = 128  # pixels along an edge of the picture
LISTED = 200  # connections of a layer, those of the largest effect
LARGEST = 2**26  # numbers in all maps of a network at full size
ATLAS = 2**19  # pixels of all maps in the atlas, about
SMALLEST_TILE, LARGEST_TILE = 8, 40  # pixels along an edge of a map in the atlas
FURTHEST = 1000.0  # values of a weight: from minus this to this
SAME = 1e-4  # a page rounds weights: what is so close to the weight is the weight
CACHED = 4  # networks whose maps at full size are kept

Result = TypeVar("Result")
_Listing = list[dict[Place, Connection]]  # by layer, in the order of their effects


@dataclass(frozen=True, eq=False)
class MovedWeight:
    """What a network draws once a weight has another value.

    connection    the weight as the network has it
    value         what it was moved to
    picture       size x size x 3, from 0 to 1
    unit_map      size x size: what the unit that the weight feeds draws
    maps          depth x width x tile x tile: what all units draw
    distance      mean squared error of RGB to the network's own picture
    """

    connection: Connection
    value: float
    picture: Tensor
    unit_map: Tensor
    maps: Tensor
    distance: float


class PatternSession:
    """Pattern networks by name; only what follows the moved weight is computed anew.

    Nobody can change it: each request says which weight it moves, and where to.
    """

    def __init__(self, networks: Iterable[PatternNetwork], size: int = SIZE) -> None:
        self.size = check_size(size)
        self._networks: dict[str, PatternNetwork] = {}
        for network in networks:
            self._add(network)
        if not self._networks:
            raise ModelError("the studio needs at least one pattern network")
        self._pictures: OrderedDict[Hashable, PerturbedPictures] = OrderedDict()
        self._connections: OrderedDict[Hashable, _Listing] = OrderedDict()
        self._lock = RLock()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._networks)

    def __getitem__(self, name: Any) -> PatternNetwork:
        if not isinstance(name, str) or name not in self._networks:
            raise DataError(
                f"the studio has no network {shortened(name)}: {nearest(str(name), self.names)}"
            )
        return self._networks[name]

    def layers(self, name: Any) -> list[tuple[str, int]]:
        """The matrices of a network that have a weight that is not 0: what to call each."""
        network = self[name]
        depth = network.layout.depth
        labels = [f"hidden layer {n + 1} of {depth}" for n in range(depth)] + ["outputs"]
        return [
            (label, n) for n, label in enumerate(labels) if bool(network.weights[n].count_nonzero())
        ]

    def connections(self, name: Any, layer: Any) -> list[Connection]:
        """The weights of a matrix that are not 0, those of the largest effect first."""
        network = self[name]
        known = [number for _, number in self.layers(name)]
        if type(layer) is not int or layer not in known:
            raise RecipeError(
                f"{name} has no connections into layer {shortened(layer)}: choose one of "
                f"{', '.join(map(str, known))}"
            )
        return list(self._by_place(name, network)[layer].values())

    def connection(self, name: Any, place: Any) -> Connection:
        """The weight at a place (layer, row, column), if it is not 0."""
        known = check_place(self[name], place)
        own = self._by_place(name, self[name])[known[0]].get(known)
        if own is None:
            raise RecipeError(f"the weight {known} of {name} is 0: choose another")
        return own

    @torch.no_grad()
    def move(self, name: Any, place: Any, value: Any = None) -> MovedWeight:
        """Move a weight to a value; None leaves it where it is."""
        own = self.connection(name, place)
        target = own.value if value is None else _checked(value)
        change = target - own.value if abs(target - own.value) >= SAME else 0.0
        drawn = self._drawn(name)
        picture = drawn.picture
        if change:
            picture = next(drawn.each([own.place], torch.tensor([change])))[0]
        distance = float((picture - drawn.picture).square().mean())
        unit_map = drawn.unit_map(own.place, change)
        return MovedWeight(own, target, picture, unit_map, self._maps(name, own, change), distance)

    def picture(self, name: Any) -> Tensor:
        """What a network draws, as it is."""
        return self._drawn(name).picture

    def unit_names(self, name: Any) -> tuple[str, ...]:
        """The units of every hidden layer, in the order of the atlas."""
        return unit_names(self[name].layout, 1)

    def _add(self, network: PatternNetwork) -> None:
        name, count = network.name or "network", 1
        while (known := name if count == 1 else f"{name} ({count})") in self._networks:
            count += 1
        units = network.layout.width * network.layout.depth
        if units * self.size**2 > LARGEST:
            fitting = isqrt(LARGEST // units)
            raise ModelError(
                f"{known} has {units:,} units, whose maps at {self.size} pixels are too much for a "
                f"page that answers at once: use a size of {fitting} or less"
            )
        if not network.nonzero:
            raise ModelError(f"{known} has no weight that is not 0: there is nothing to move")
        self._networks[known] = replace(network, name=known)

    def _by_place(self, name: str, network: PatternNetwork) -> _Listing:
        def listing() -> _Listing:
            layers: _Listing = [{} for _ in network.weights]
            for one in connections(network):
                layers[one.place[0]][one.place] = one
            return layers

        return self._cached(self._connections, name, listing)

    def _drawn(self, name: Any) -> PerturbedPictures:
        network = self[name]
        return self._cached(self._pictures, name, lambda: PerturbedPictures(network, self.size))

    def _maps(self, name: str, own: Connection, change: float) -> Tensor:
        """All maps, small: drawn anew as a whole, which takes a few milliseconds."""
        network = self[name]
        layer, row, column = own.place
        weights = list(network.weights)
        weights[layer] = weights[layer].clone()
        weights[layer][row, column] += change
        units = network.layout.width * network.layout.depth
        tile = max(SMALLEST_TILE, min(LARGEST_TILE, isqrt(ATLAS // units)))
        _, maps = forward(network.layout, weights, coordinates(tile))
        return torch.stack(maps).view(network.layout.depth, -1, tile, tile)

    def _cached(
        self, cache: OrderedDict[Hashable, Result], key: Hashable, make: Callable[[], Result]
    ) -> Result:
        with self._lock:
            if key not in cache:
                cache[key] = make()
                if len(cache) > CACHED:
                    cache.popitem(last=False)
            cache.move_to_end(key)
            return cache[key]


def open_patterns(
    sources: Sequence[str] = (), size: int = SIZE
) -> tuple[PatternSession, tuple[str, ...]]:
    """Networks by name and from files, then all that are on this machine; and what to note.

    A file is a saved network or bank, or a genome. One of the evolved networks that is damaged is
    left out, unless it was asked for.
    """
    networks = [network for source in sources for network in _read(source)]
    asked, notes = {network.name for network in networks}, []
    for name in available():
        try:
            networks += [] if name in asked else [load_network(name)]
        except IntarsiaError as error:
            notes.append(f"{name} is left out: {error}")
    return PatternSession(networks, size), tuple(notes)


def _read(source: str) -> list[PatternNetwork]:
    if not source.endswith(".safetensors"):
        return [load_network(source)]
    bank, stem = PatternBank.load(source), Path(source).stem
    if len(bank) == 1:
        return [replace(bank[0], name=stem)]
    return [replace(network, name=f"{stem}, {network.name}") for network in bank]


def _checked(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= FURTHEST:  # which nan is not, either
        raise RecipeError(
            f"the weight is to be {shortened(value)}: give a number from {-FURTHEST:g} to "
            f"{FURTHEST:g}"
        )
    return float(value)
