"""Pictures on matplotlib: curves, bars and heat maps, each drawn on axes or on a figure of its own.

A function that draws one panel takes `ax` and returns it; without it there is a new figure in
intarsia's style, found as `ax.figure`. Those of several panels (`..._panels`) return a Figure.
"""

from intarsia.plots.bars import bar_panels, bars
from intarsia.plots.curves import curve_panels, curves
from intarsia.plots.entropies_by_layer import entropy_by_layer
from intarsia.plots.flows import (
    closure_error_by_layer,
    cumulants_by_step,
    error_by_law,
    error_by_weight,
)
from intarsia.plots.graph_figures import heat_curves, rewiring_steps
from intarsia.plots.heatmaps import (
    answers,
    confusion,
    confusion_panels,
    matrix,
    matrix_panels,
    weights,
)
from intarsia.plots.lens_figures import alpha_sweep, layer_bars, profile_bands, profile_plane
from intarsia.plots.patterns import (
    loss_and_score_by_depth,
    map_atlas,
    png_ratio_by_size,
    score_against_loss,
    sweep_strips,
    volume_map,
)
from intarsia.plots.render import check_format, png, save, svg
from intarsia.plots.style import COLOURS, house_style

__all__ = [
    "COLOURS",
    "alpha_sweep",
    "answers",
    "bar_panels",
    "bars",
    "check_format",
    "closure_error_by_layer",
    "confusion",
    "confusion_panels",
    "cumulants_by_step",
    "curve_panels",
    "curves",
    "entropy_by_layer",
    "error_by_law",
    "error_by_weight",
    "heat_curves",
    "house_style",
    "layer_bars",
    "loss_and_score_by_depth",
    "map_atlas",
    "matrix",
    "matrix_panels",
    "png",
    "png_ratio_by_size",
    "profile_bands",
    "profile_plane",
    "rewiring_steps",
    "save",
    "score_against_loss",
    "svg",
    "sweep_strips",
    "volume_map",
    "weights",
]
