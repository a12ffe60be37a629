"""Maps of real weights: which hidden units each module uses, and how an inlay lays them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

import intarsia as ia
from intarsia.figures.styles import COLOURS
from intarsia.figures.svg import EMPTY, MARGIN, page, text
from intarsia.models.wiring import hidden_axes, live_units
from intarsia.modules import Bank, Module

ROW, WIDE = 12, 560  # pixels: the height of a module's row, and the width of a panel
CELL = 9  # the height of an output's row
LEFT = MARGIN + 20
PARTS = (*(COLOURS[place] for place in (1, 3, 4)), COLOURS[0])  # of three modules, and of several


def unit_figure(banks: Mapping[str, Bank]) -> str:
    """A row for each module, with a stroke at every hidden unit that it uses."""
    marks, top = [], 0.0
    for title, bank in banks.items():
        used = torch.stack([_live(module) for module in bank])  # modules, units
        shared = int((used.sum(0) > 1).sum())
        marks.append(text(LEFT, top + 24, title, bold=True))
        said = f"{shared} of {used.shape[1]} units are used by more than one module"
        marks.append(text(LEFT + WIDE, top + 24, said, "end"))
        top += 34
        step = WIDE / used.shape[1]
        for module, units in zip(bank, used, strict=True):
            marks.append(text(LEFT - 8, top + ROW - 2.5, module.name, "end"))
            context = f'x="{LEFT}" y="{top:g}" width="{WIDE}" height="{ROW - 1}"'
            marks.append(f'<rect {context} fill="{EMPTY}"/>')
            marks.append(_strokes(units, LEFT, top, step, ROW - 1, COLOURS[1]))
            top += ROW
    marks.append(text(LEFT + WIDE / 2, top + 18, "hidden units", "middle"))
    about = "hidden units that each module uses: " + ", ".join(banks)
    return page(LEFT + WIDE + MARGIN, top + 18 + MARGIN, marks, about)


def inlay_figure(modules: Sequence[Module]) -> str:
    """The output weights of some modules in the places they share, and laid side by side."""
    merged = ia.compose(modules, "inlay").joined
    assert merged is not None
    parts = sorted(modules, key=lambda module: module.name)  # as they lie in the inlay
    live = torch.stack([_live(module) for module in parts])  # modules, units
    kept = (
        torch.stack([_kept(module) for module in parts]) & live[:, None, :]
    )  # ..., classes, units
    side = _kept(merged)
    ends = live.sum(1).cumsum(0)
    owner = torch.bucketize(torch.arange(side.shape[1]), ends, right=True)
    apart = torch.stack([side & (owner == place) for place in range(len(parts))])
    marks: list[str] = []
    top = 0.0
    for title, layers in (("weights added", kept), ("inlay", apart)):
        units = layers.any(1)
        shared = int((units.sum(0) > 1).sum())
        said = f"{layers.shape[2]} units, {shared} of them used by more than one module"
        marks.append(text(LEFT, top + 24, title, bold=True))
        marks.append(text(LEFT + WIDE, top + 24, said, "end"))
        marks += _map(layers, merged.catalogue, top + 34)
        top += 34 + CELL * layers.shape[1]
    marks += _key([module.name for module in parts], top + 20)
    names = ", ".join(module.name for module in parts)
    about = f"output weights of modules {names}, added and as an inlay"
    return page(LEFT + WIDE + MARGIN, top + 20 + MARGIN, marks, about)


def _live(module: Module) -> Tensor:
    """The units of the one hidden layer that reach the output."""
    wiring = module.architecture.wiring(module.factory)
    (axis,) = hidden_axes(wiring)
    return live_units(wiring, module.state, module.mask)[axis]


def _kept(module: Module) -> Tensor:
    """Which output weights survive, classes x units."""
    name = list(module.state)[-1]
    return module.mask.get(name, torch.ones_like(module.state[name], dtype=torch.bool))


def _map(layers: Tensor, catalogue: Sequence[str], top: float) -> list[str]:
    """A row for each class, a stroke for each weight in the colour of its module or of several."""
    step = WIDE / layers.shape[2]
    several = layers.sum(0) > 1
    marks = []
    for row, name in enumerate(catalogue):
        y = top + CELL * row
        marks.append(text(LEFT - 6, y + CELL - 1.5, name, "end", extra=' font-size="9"'))
        context = f'x="{LEFT}" y="{y:g}" width="{WIDE}" height="{CELL - 1}"'
        marks.append(f'<rect {context} fill="{EMPTY}"/>')
        drawn = [*(layer[row] & ~several[row] for layer in layers), several[row]]
        for units, colour in zip(drawn, PARTS, strict=True):
            marks.append(_strokes(units, LEFT, y, step, CELL - 1, colour))
    return marks


def _key(names: Sequence[str], y: float) -> list[str]:
    marks, x = [], float(LEFT)
    for name, colour in zip([*(f"module {n}" for n in names), "several"], PARTS, strict=True):
        marks.append(f'<rect x="{x:g}" y="{y - 9:g}" width="11" height="11" fill="{colour}"/>')
        marks.append(text(x + 16, y, name))
        x += 90
    return marks


def _strokes(
    units: Tensor, left: float, top: float, step: float, height: float, colour: str
) -> str:
    """One path for all units; neighbours make one stroke."""
    result, start = [], None
    for place, on in enumerate([*units.tolist(), False]):
        if on and start is None:
            start = place
        elif not on and start is not None:
            x, wide = left + start * step, (place - start) * step
            result.append(f"M{x:.2f} {top:g}h{wide:.2f}v{height:g}h-{wide:.2f}z")
            start = None
    return f'<path fill="{colour}" d="{"".join(result)}"/>'
