"""Genomes: feed-forward graphs in which every node has an activation of its own.

A node's value is its activation of the weighted sum of what leads to it. A genome renders by
itself; laid out in layers it is a pattern network, where links that skip layers go through units
of the block "cache".
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from intarsia.data.sources.budget import file_size
from intarsia.errors import FileError, ModelError, nearest, shortened
from intarsia.limits import account, current
from intarsia.parsing import parse_json
from intarsia.sweetspot.networks import (
    ACTIVATIONS,
    DEEPEST,
    WIDEST,
    PatternLayout,
    PatternNetwork,
    coordinates,
)
from intarsia.sweetspot.pictures import rgb

SOURCES, TARGETS = ("x", "y", "d", "bias"), ("h", "s", "v")
Link = tuple[str, str, float]


@dataclass(frozen=True, eq=False)
class Genome:
    """Nodes with activations, weighted links, and which nodes are x, y, d, bias, h, s and v.

    nodes      activation by id
    links      (from, to, weight)
    special    id by role
    """

    nodes: Mapping[str, str]
    links: tuple[Link, ...]
    special: Mapping[str, str]
    name: str = ""
    levels: dict[str, int] = field(init=False, repr=False)  # longest way from an input, by id

    def __post_init__(self) -> None:
        self._check_nodes()
        self._check_links()
        object.__setattr__(self, "levels", self._levels())

    @classmethod
    def from_json(cls, value: Any, name: str = "") -> "Genome":
        """From `{"nodes": [{"id", "activation"}], "links": [[from, to, weight]], "special"}`."""
        label = f"genome {name!r}" if name else "the genome"
        if not isinstance(value, Mapping) or not {"nodes", "links", "special"} <= value.keys():
            raise ModelError(f"{label} is not a mapping with nodes, links and special")
        nodes, links, special = value["nodes"], value["links"], value["special"]
        if not all(isinstance(part, list) for part in (nodes, links)):
            raise ModelError(f"{label} has nodes or links that are not a list")
        for node in nodes:
            if not isinstance(node, Mapping) or not {"id", "activation"} <= node.keys():
                raise ModelError(
                    f"{label} has the node {shortened(node)}: expected an id and an activation"
                )
        counts = Counter(str(node["id"]) for node in nodes)
        if counts and (most := counts.most_common(1)[0])[1] > 1:
            raise ModelError(f"{label} has the node {shortened(most[0])} twice")
        for link in links:
            if not isinstance(link, list | tuple) or len(link) != 3:
                raise ModelError(
                    f"{label} has the link {shortened(link)}: expected from, to and a weight"
                )
        if not isinstance(special, Mapping):
            raise ModelError(f"{label} has special {shortened(special)}: expected ids by role")
        return cls(
            {str(node["id"]): node["activation"] for node in nodes},
            tuple((str(a), str(b), w) for a, b, w in links),
            {str(role): str(own) for role, own in special.items()},
            name,
        )

    @torch.no_grad()
    def image(self, size: int = 256) -> Tensor:
        """The picture that it draws: size x size x 3, RGB from 0 to 1."""
        values = self.values(size)
        outputs = torch.stack([values[self.special[role]] for role in TARGETS])
        return rgb(outputs).mT.reshape(size, size, 3)

    @torch.no_grad()
    def values(self, size: int = 64) -> dict[str, Tensor]:
        """What every node draws, (pixels,), by id."""
        inputs = coordinates(size)
        values = {self.special[role]: inputs[k] for k, role in enumerate(SOURCES)}
        incoming = self._incoming()
        for node in sorted(self.levels, key=self.levels.__getitem__):
            if node not in values:
                total = torch.zeros_like(inputs[0])
                for source, weight in incoming.get(node, ()):
                    total = total + weight * values[source]
                values[node] = ACTIVATIONS[self.nodes[node]](total)
        return values

    def network(self) -> PatternNetwork:
        """The genome in layers: nodes by their longest way from an input, as wide as needed.

        A node that leads to no output is left out. Every layer has the units of the fullest one;
        its matrices count against the limit `memory`, zeros and all.
        """
        levels, last_use = self._used()
        depth = max(1, *(levels[self.special[role]] for role in TARGETS))
        if depth > DEEPEST:
            raise ModelError(f"{self._label} has {depth} layers: expected at most {DEEPEST}")
        for role in TARGETS:
            last_use[self.special[role]] = depth + 1
        layers = self._layers(levels, last_use, depth)
        kinds = sorted({kind for layer in layers for kind in layer})
        layout = PatternLayout(
            tuple((kind, max(len(layer.get(kind, ())) for layer in layers)) for kind in kinds),
            depth,
        )
        with account() as taken:
            what = f"{{}} of memory are needed for {layout}, as which {self._label} is laid out"
            taken.take(what, 4 * layout.parameters)
        starts = {name: own.start for name, own in layout.slices}
        before = {self.special[role]: k for k, role in enumerate(SOURCES)}
        incoming = self._incoming()
        weights: list[Tensor] = []
        for layer, shape in zip(layers, layout.shapes, strict=False):
            matrix = torch.zeros(shape)
            places = {}
            for kind, nodes in layer.items():
                for place, node in enumerate(nodes, starts[kind]):
                    places[node] = place
                    links = [(node, 1.0)] if node in before else incoming.get(node, ())
                    for source, weight in links:
                        matrix[place, before[source]] += weight
            weights.append(matrix)
            before = places
        last = torch.zeros(len(TARGETS), layout.width)
        for k, role in enumerate(TARGETS):
            last[k, before[self.special[role]]] = 1.0
        return PatternNetwork(layout, (*weights, last), name=self.name)

    def _layers(
        self, levels: Mapping[str, int], last_use: Mapping[str, int], depth: int
    ) -> list[dict[str, list[str]]]:
        """The nodes of every layer by block: its own, and those that are handed on."""
        layers: list[dict[str, list[str]]] = [{} for _ in range(depth)]
        for node, own in levels.items():
            for level in range(max(own, 1), max(own + (own > 0), last_use.get(node, 0))):
                kind = self.nodes[node] if level == own else "cache"
                units = layers[level - 1].setdefault(kind, [])
                units.append(node)
                if len(units) > WIDEST:
                    raise ModelError(
                        f"{self._label} has more than {WIDEST} units of {kind!r} in layer {level}, "
                        f"those that hand a value on included: expected at most {WIDEST} in a layer"
                    )
        return layers

    def _used(self) -> tuple[dict[str, int], dict[str, int]]:
        """Levels of the nodes that lead to an output, and the last level that reads each."""
        incoming = self._incoming()
        waiting, used = [self.special[role] for role in TARGETS], set()
        last_use: dict[str, int] = {}
        while waiting:
            node = waiting.pop()
            if node in used:
                continue
            used.add(node)
            for source, _ in incoming.get(node, ()):
                last_use[source] = max(last_use.get(source, 0), self.levels[node])
                waiting.append(source)
        return {node: own for node, own in self.levels.items() if node in used}, last_use

    def _incoming(self) -> dict[str, list[tuple[str, float]]]:
        incoming: dict[str, list[tuple[str, float]]] = {}
        for source, target, weight in self.links:
            incoming.setdefault(target, []).append((source, weight))
        return incoming

    def _levels(self) -> dict[str, int]:
        """The longest way from an input to each node; a cycle has none and is an error.

        A node that nothing leads to is constant, and lies in the first layer.
        """
        outgoing: dict[str, list[str]] = {}
        missing = dict.fromkeys(self.nodes, 0)  # links whose sources have no level yet
        for source, target, _ in self.links:
            outgoing.setdefault(source, []).append(target)
            missing[target] += 1
        levels = dict.fromkeys((self.special[role] for role in SOURCES), 0)
        free = [node for node, links in missing.items() if not links and node not in levels]
        longest = {**levels, **dict.fromkeys(free, 1)}
        ready = [*levels, *free]
        for node in ready:  # which grows: Kahn's algorithm
            for target in outgoing.get(node, ()):
                longest[target] = max(longest.get(target, 0), longest[node] + 1)
                missing[target] -= 1
                if not missing[target]:
                    ready.append(target)
        if waiting := [node for node, links in missing.items() if links]:
            raise ModelError(
                f"{self._label} has a cycle through {self._cycle(waiting)}: a pattern network is "
                "feed-forward; remove one of these links"
            )
        nodes = sorted((n for n in self.nodes if n not in levels), key=longest.__getitem__)
        return levels | {node: longest[node] for node in nodes}

    def _cycle(self, waiting: list[str]) -> str:
        """A cycle among nodes that all wait for one another, as text."""
        left, incoming = set(waiting), self._incoming()
        places: dict[str, int] = {}
        node = waiting[0]
        while node not in places:
            places[node] = len(places)
            node = min(source for source, _ in incoming[node] if source in left)
        ring = [*list(places)[places[node] :], node]
        return " -> ".join(reversed(ring[:12]))

    def _check_nodes(self) -> None:
        for role in (*SOURCES, *TARGETS):
            if role not in self.special:
                raise ModelError(f"{self._label} does not say which node is {role!r}, in special")
            if self.special[role] not in self.nodes:
                raise ModelError(f"{self._label} has no node {self.special[role]!r}, its {role!r}")
        ids = [self.special[role] for role in SOURCES]
        if len(set(ids)) < len(ids) or set(ids) & {self.special[role] for role in TARGETS}:
            raise ModelError(f"{self._label} has one node in two roles: {shortened(self.special)}")
        for node, activation in self.nodes.items():
            if not isinstance(activation, str) or activation not in ACTIVATIONS:
                raise ModelError(
                    f"{self._label}, node {node!r}, has the unknown activation "
                    f"{shortened(activation)}: {nearest(activation, ACTIVATIONS)}"
                )

    def _check_links(self) -> None:
        inputs = {self.special[role] for role in SOURCES}
        for source, target, weight in self.links:
            where = f"{self._label}, link {source!r} -> {target!r},"
            for node in (source, target):
                if node not in self.nodes:
                    raise ModelError(f"{where} names a node that is not there: {node!r}")
            if target in inputs:
                raise ModelError(f"{where} leads to an input: inputs are the pixel's place alone")
            if type(weight) not in (int, float) or not math.isfinite(weight):
                raise ModelError(f"{where} has the weight {shortened(weight)}: expected a number")

    @property
    def _label(self) -> str:
        return f"genome {self.name!r}" if self.name else "the genome"


def read_genome(path: str | Path) -> Genome:
    """A genome from a JSON file, as `Genome.from_json` reads it; errors name the file."""
    path = Path(path)
    current().check("numbers", file_size(path), f"{path} has {{}} bytes")
    try:
        return Genome.from_json(parse_json(path.read_bytes()), path.stem)
    except ValueError as error:
        raise FileError(f"{path} is not a genome in JSON: {error}") from error
    except ModelError as error:
        raise FileError(f"{path}: {error}") from error
