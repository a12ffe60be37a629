"""The report of pattern networks: pictures, scores, the maps of one and sweeps of its weights."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from intarsia import __version__
from intarsia.plots import map_atlas, svg, sweep_strips
from intarsia.plots.panels import short
from intarsia.reports.html.elements import (
    TableValue,
    commands,
    facts,
    figure,
    numbers,
    paragraph,
    table,
)
from intarsia.reports.html.page import Report, Section, page
from intarsia.reports.html.words import counted
from intarsia.sweetspot import (
    Connection,
    DistinctMaps,
    Inflation,
    PatternBank,
    PatternNetwork,
    connections,
    distinct_maps,
    inflation,
    load_network,
    orthogonality,
    png_ratio,
    sweep,
)

NETWORKS = 12  # of a bank that are shown: those of the lowest loss
ACROSS = 6  # pictures in a strip
SIZE = 128  # pixels along an edge of a picture
MAP_SIZES = ((400, 32), (1600, 20))  # units up to which maps in an atlas have so many pixels
SMALL_MAP = 12
LEAD = (
    "A pattern network draws a picture: x, y, the distance from the centre and 1 of a pixel go "
    "in, its hue, saturation and value come out, and every unit on the way draws a map of its own."
)
CAUTION = (
    "Inflation r is how much longer the picture's PNG becomes when single weights change it "
    "equally much. It moves with the fit: compare networks of like loss."
)


@dataclass(frozen=True, eq=False)
class ScoredNetwork:
    """A network, its loss where one was measured, and its scores."""

    network: PatternNetwork
    loss: float | None
    inflation: Inflation
    maps: DistinctMaps
    orthogonality: float

    @classmethod
    def of(cls, network: PatternNetwork, loss: float | None, weights: int) -> "ScoredNetwork":
        return cls(
            network, loss, inflation(network, weights=weights), distinct_maps(network),
            orthogonality(network),
        )  # fmt: skip

    @property
    def row(self) -> list[TableValue]:
        return [
            self.network.name, _loss(self.loss), self.network.nonzero,
            f"{self.inflation.median:.3f}" if len(self.inflation.ratios) else None,
            f"{len(self.inflation.ratios)} of {self.inflation.tried}",
            f"{self.maps.count} of {self.maps.total}",
            None if math.isnan(self.orthogonality) else f"{self.orthogonality:.2f}",
        ]  # fmt: skip


def pattern_report(
    source: str | Path | PatternNetwork | PatternBank = "totem",
    *,
    weights: int = 48,
    sweeps: int = 6,
) -> Report:
    """One page of a pattern network, or of a bank: of that the networks of the lowest loss.

    `source` is a network, a bank, or what `sweetspot.load` reads of networks. So many `weights` of
    each are tried for its inflation. The maps and sweeps are those of the first network shown; the
    `sweeps` are of the weights of the largest effect in as many layers.
    """
    bank, label = _opened(source)
    shown = [ScoredNetwork.of(net, loss, weights) for net, loss in _ordered(bank)[:NETWORKS]]
    first = shown[0]
    figures = {"pictures": _pictures(shown), "maps": _atlas(first)}
    moved = _strongest(first.network, sweeps)
    if moved:
        figures["sweeps"] = _sweeps(first.network, moved)
    sections = [
        Section("summary", "In short", _drawing(figures, "pictures") + _summary(bank, first)),
        Section("scores", "Scores", _scores(bank, shown)),
        Section("maps", "Maps", _map_words(first) + _drawing(figures, "maps")),
    ]
    if moved:
        words = _sweep_words(first.network, moved)
        sections.append(Section("sweeps", "Sweeps", words + _drawing(figures, "sweeps")))
    sections.append(Section("reproduce", "Look further", _commands(label, weights, sweeps)))
    made = {
        "Made of": label or "a network in memory",
        "Made on": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "Made by": f"intarsia {__version__}, {first.inflation.encoder}",
    }
    return Report(page(_title(bank, label), LEAD, sections, made), figures)


def _opened(source: Any) -> tuple[PatternBank, str]:
    """The networks, and the words by which a command finds them; empty where none can."""
    if isinstance(source, PatternBank):
        return source, ""
    if isinstance(source, PatternNetwork):
        return PatternBank.of([source]), ""
    if str(source).endswith(".safetensors"):
        return PatternBank.load(source), str(source)
    return PatternBank.of([load_network(source)]), str(source)


def _ordered(bank: PatternBank) -> list[tuple[PatternNetwork, float | None]]:
    """The networks with their losses, the lowest first; as they are where none was measured."""
    if bank.losses is None:
        return [(network, None) for network in bank]
    losses = [math.inf if math.isnan(loss) else loss for loss in bank.losses]
    places = sorted(range(len(bank)), key=losses.__getitem__)
    return [(bank[place], bank.losses[place]) for place in places]


def _title(bank: PatternBank, label: str) -> str:
    if len(bank) == 1:
        return f"Pattern network {bank[0].name or label}"
    return f"{len(bank)} pattern networks" + (f" of {Path(label).parent.name}" if label else "")


def _summary(bank: PatternBank, first: ScoredNetwork) -> str:
    network, maps = first.network, first.maps
    total = network.layout.parameters
    tiles = [
        (f"{network.nonzero:,}", f"of {total:,} weights are not 0"),
        (f"{maps.count}", f"distinct maps of {maps.total} that vary over the picture"),
        (f"{png_ratio(network.image(256)):.3f}", "PNG over raw bytes at 256 pixels"),
    ]
    if first.loss is not None:
        tiles.insert(0, (f"{first.loss:.1e}", "loss, the lowest" if len(bank) > 1 else "loss"))
    about: dict[str, TableValue] = {"layout": str(network.layout)}
    about |= {"networks": len(bank)} if len(bank) > 1 else {}
    settings = {k: v for k, v in bank.report.items() if isinstance(v, str | int | float)}
    known = {k.replace("_", " "): v for k, v in settings.items() if k != "key"}
    return numbers(tiles) + facts(about | known)


def _scores(bank: PatternBank, shown: Sequence[ScoredNetwork]) -> str:
    columns = ["network", "loss", "weights", "inflation r", "from weights", "distinct maps",
               "orthogonality"]  # fmt: skip
    caption = f"Scores of {counted(len(shown), 'network')}"
    if len(shown) < len(bank):
        caption += f", those of the lowest loss of {len(bank)}"
    return paragraph(CAUTION) + table(columns, [one.row for one in shown], caption)


def _map_words(first: ScoredNetwork) -> str:
    depth, maps = first.network.layout.depth, first.maps
    return paragraph(
        f"What every unit of {first.network.name} draws: {counted(depth, 'row')}, one for each "
        f"hidden layer, the first on top; red is -1, white 0, blue 1. {maps.count} maps have a "
        "frame: no map before them, in layers above or further left, is like them."
    )


def _sweep_words(network: PatternNetwork, moved: Sequence[Connection]) -> str:
    lines = [
        [f"{','.join(map(str, one.place))}", f"{one.source} to {one.target}", f"{one.value:.3f}",
         f"{one.effect:.3f}"]
        for one in moved
    ]  # fmt: skip
    text = (
        f"In each strip one weight of {network.name} moves from 1 below to 1 above its value; "
        "these are the weights of the largest effect in their layers. The effect is how far a "
        "small change moves the picture, for each unit of change."
    )
    columns = ["layer, row, column", "connection", "weight", "effect"]
    return paragraph(text) + table(columns, lines, "Weights that move")


def _commands(label: str, weights: int, sweeps: int) -> str:
    name = shlex.quote(label) if label else "FILE.safetensors"
    text = "The studio moves any weight by a slider; sweep takes weights by their places."
    return paragraph(text) + commands(
        [
            f"intarsia sweetspot studio {name}",
            f"intarsia sweetspot sweep {name} --figure sweeps.svg",
            f"intarsia sweetspot report {name} --weights {weights} --sweeps {sweeps}",
        ]
    )


def _drawing(figures: dict[str, Figure], name: str) -> str:
    captions = {
        "pictures": "What is drawn; a loss is written below where one was measured.",
        "maps": "All maps of the network; those that are the first of their kind have a frame.",
        "sweeps": "Pictures as one weight moves, with its values.",
    }
    caption = captions[name]
    return figure(svg(figures[name]), caption, f"{caption} The text names them.", name=name)


def _pictures(shown: Sequence[ScoredNetwork]) -> Figure:
    images = torch.stack([one.network.image(SIZE) for one in shown]).numpy()
    words = [f"{short(one.network.name)}\n{_loss(one.loss) or ''}".strip() for one in shown]
    starts = range(0, len(shown), ACROSS)
    rows = {" " * row: slice(start, start + ACROSS) for row, start in enumerate(starts)}
    strips = {name: images[part] for name, part in rows.items()}
    labels = {name: words[part] for name, part in rows.items()}
    return _figure(sweep_strips(strips, labels=labels))


def _atlas(first: ScoredNetwork) -> Figure:
    units = first.network.layout.width * first.network.layout.depth
    size = next((pixels for most, pixels in MAP_SIZES if units <= most), SMALL_MAP)
    maps = torch.stack(first.network.maps(size)).numpy()
    return _figure(map_atlas(maps, new=first.maps.new.numpy(), title=first.network.name))


def _strongest(network: PatternNetwork, most: int) -> list[Connection]:
    """The connection of the largest effect in each of so many layers, evenly spaced."""
    by_layer: dict[int, Connection] = {}
    for one in connections(network):
        by_layer.setdefault(one.place[0], one)
    layers = sorted(by_layer)
    count = min(most, len(layers))
    places = [round(n * (len(layers) - 1) / max(1, count - 1)) for n in range(count)]
    return [by_layer[layers[place]] for place in places]


def _sweeps(network: PatternNetwork, moved: Sequence[Connection]) -> Figure:
    made = {",".join(map(str, one.place)): sweep(network, one.place, size=SIZE) for one in moved}
    strips = {name: own.pictures.numpy() for name, own in made.items()}
    labels = {name: own.labels for name, own in made.items()}
    return _figure(sweep_strips(strips, labels=labels, title=network.name))


def _figure(ax: Axes) -> Figure:
    drawn = ax.get_figure(root=True)
    assert drawn is not None
    return drawn


def _loss(loss: float | None) -> str | None:
    return None if loss is None or math.isnan(loss) else f"{loss:.2e}"
