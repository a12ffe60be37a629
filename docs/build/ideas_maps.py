"""Maps of real weights: which hidden units each module uses, and how an inlay lays them."""

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

import intarsia as ia
from intarsia.models.wiring import hidden_axes, live_units
from intarsia.modules import Bank, Module
from intarsia.plots import COLOURS, house_style
from intarsia.plots.panels import MARGIN, axes_at, new_figure
from intarsia.plots.style import EMPTY, PAPER

ROW, WIDE = 12, 560  # pixels: the height of a module's row, and the width of a panel
CELL = 9  # the height of an output's row
LEFT, TOP = MARGIN + 20, 34
PARTS = (*(COLOURS[place] for place in (1, 3, 4)), COLOURS[0])  # of three modules, and of several


@house_style()
def unit_figure(banks: Mapping[str, Bank]) -> Figure:
    """A row for each module, with a stroke at every hidden unit that it uses."""
    heights = [TOP + ROW * len(bank) for bank in banks.values()]
    about = "hidden units that each module uses: " + ", ".join(banks)
    figure = new_figure(LEFT + WIDE + MARGIN, sum(heights) + 20 + MARGIN, about)
    top = 0.0
    for (title, bank), height in zip(banks.items(), heights, strict=True):
        ax = axes_at(figure, LEFT, top + TOP, WIDE, height - TOP)
        used = torch.stack([_live(module) for module in bank])  # modules, units
        shared = int((used.sum(0) > 1).sum())
        said = f"{shared} of {used.shape[1]} units are used by more than one module"
        _map(ax, used.int(), [module.name for module in bank], (COLOURS[1],), title, said)
        top += height
    ax.set_xlabel("hidden units")
    return figure


@house_style()
def inlay_figure(modules: Sequence[Module]) -> Figure:
    """The output weights of some modules in the places they share, and laid side by side."""
    merged = ia.compose(modules, "inlay").joined
    assert merged is not None
    parts = sorted(modules, key=lambda module: module.name)  # as they lie in the inlay
    names = [module.name for module in parts]
    live = torch.stack([_live(module) for module in parts])  # modules, units
    kept = (
        torch.stack([_kept(module) for module in parts]) & live[:, None, :]
    )  # ..., classes, units
    side = _kept(merged)
    ends = live.sum(1).cumsum(0)
    owner = torch.bucketize(torch.arange(side.shape[1]), ends, right=True)
    apart = torch.stack([side & (owner == place) for place in range(len(parts))])
    height = TOP + CELL * len(merged.catalogue)
    about = f"output weights of modules {', '.join(names)}, added and as an inlay"
    figure = new_figure(LEFT + WIDE + MARGIN, 2 * height + 20 + MARGIN, about)
    for place, (title, layers) in enumerate({"weights added": kept, "inlay": apart}.items()):
        ax = axes_at(figure, LEFT, place * height + TOP, WIDE, height - TOP)
        shared = int((layers.any(1).sum(0) > 1).sum())
        said = f"{layers.shape[2]} units, {shared} of them used by more than one module"
        # The number of the one module that keeps a weight; of several, the next number.
        numbers = (torch.arange(1, len(parts) + 1)[:, None, None] * layers).sum(0)
        numbers[layers.sum(0) > 1] = len(parts) + 1
        _map(ax, numbers, merged.catalogue, PARTS, title, said)
    ax.tick_params(axis="y", labelsize=9)
    figure.axes[0].tick_params(axis="y", labelsize=9)
    handles = [Patch(color=colour, linewidth=0) for colour in PARTS]
    labels = [*(f"module {name}" for name in names), "several"]
    wide, high = figure.get_size_inches() * 72
    corner = (LEFT / wide, (20 + MARGIN - 6) / high)
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=corner, ncols=len(labels))
    return figure


def _live(module: Module) -> Tensor:
    """The units of the one hidden layer that reach the output."""
    wiring = module.architecture.wiring(module.factory)
    (axis,) = hidden_axes(wiring)
    return live_units(wiring, module.state, module.mask)[axis]


def _kept(module: Module) -> Tensor:
    """Which output weights survive, classes x units."""
    name = list(module.state)[-1]
    return module.mask.get(name, torch.ones_like(module.state[name], dtype=torch.bool))


def _map(
    ax: Axes,
    numbers: Tensor,
    names: Sequence[str],
    colours: Sequence[str],
    title: str,
    said: str,
) -> None:
    """A row for each name, a stroke at each place that has a number, in the colour of it."""
    palette = ListedColormap([EMPTY, *colours])
    ax.imshow(
        numbers.numpy(),
        cmap=palette,
        vmin=-0.5,
        vmax=len(colours) + 0.5,
        aspect="auto",
        interpolation="none",
    )
    ax.hlines(torch.arange(len(names) + 1) - 0.5, *ax.get_xlim(), color=PAPER, linewidth=1)
    ax.set_yticks(range(len(names)), names)
    ax.set_xticks([])
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.set_title(title, loc="left", pad=10)
    ax.set_title(said, loc="right", pad=10, fontweight="normal")
