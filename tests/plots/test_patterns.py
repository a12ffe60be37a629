"""Pictures of pattern networks hold what they are given, at its place."""

import math

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from intarsia.errors import DataError
from intarsia.plots import (
    loss_and_score_by_depth,
    map_atlas,
    png_ratio_by_size,
    save,
    score_against_loss,
    svg,
    sweep_strips,
    volume_map,
)


def own_axes() -> Axes:
    return Figure().add_subplot()


def test_an_atlas_has_every_map_in_its_row_and_frames_the_new_ones() -> None:
    maps = np.linspace(-1, 1, 2 * 3 * 4 * 4).reshape(2, 3, 4, 4)
    new = np.array([[True, False, True], [False, False, True]])
    ax = map_atlas(maps, new=new, title="skull")
    assert len(ax.images) == 6
    for place, image in enumerate(ax.images):
        assert np.allclose(image.get_array(), maps.reshape(6, 4, 4)[place])
        assert image.get_clim() == (-1, 1)
    red, white, blue = (ax.images[0].cmap(v) for v in (0.0, 0.5, 1.0))
    assert red[0] > 0.6 > red[2]
    assert min(white[:3]) > 0.98
    assert blue[2] > 0.6 > blue[0]
    frames = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    tiles = [image.get_extent() for image in np.array(ax.images)[new.flatten()]]
    assert len(frames) == len(tiles) == 3
    for frame, (left, right, bottom, top) in zip(frames, tiles, strict=True):
        assert left <= frame.get_x() < right
        assert top <= frame.get_y() < bottom
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1", "2"]
    assert ax.get_title() == "skull"


def test_strips_show_each_picture_above_its_label() -> None:
    pictures = np.random.default_rng(0).random((3, 5, 5, 3))
    ax = sweep_strips({"w": pictures, "v": pictures[:2]}, labels={"w": ["-1", "0", "1"]})
    assert len(ax.images) == 5
    assert np.allclose(ax.images[1].get_array(), pictures[1])
    assert [text.get_text() for text in ax.texts] == ["-1", "0", "1"]
    lefts = [image.get_extent()[0] for image in ax.images]
    assert lefts[:3] == sorted(lefts[:3])
    assert lefts[3:] == lefts[:2]


def test_scores_lie_against_losses_and_those_that_are_none_are_left_out() -> None:
    points = {"dense": [(1e-4, 1.02), (1e-3, 1.01)], "wanda": [(1e-2, 1.1), (0.3, math.nan)]}
    ax = score_against_loss(points)
    assert ax.get_xscale() == "log"
    dense, wanda = ax.lines
    assert dense.get_xydata().tolist() == [[1e-4, 1.02], [1e-3, 1.01]]
    assert wanda.get_xydata().tolist() == [[1e-2, 1.1]]
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["dense", "wanda"]


def test_depths_have_a_panel_for_the_loss_and_one_for_the_score() -> None:
    losses = {"dense": {10: (1e-3, 1e-4, 1e-2), 12: (1e-4, 1e-5, 1e-3)}}
    figure = loss_and_score_by_depth(losses, {"dense": {10: 1.01, 12: 1.02}})
    loss, score = figure.axes
    assert np.allclose(loss.lines[0].get_xydata(), [[10, -3], [12, -4]])
    assert np.allclose(score.lines[0].get_xydata(), [[10, 1.01], [12, 1.02]])
    assert len(loss_and_score_by_depth(losses, {"dense": {}}).axes) == 1


def test_ratios_lie_at_sizes_that_double() -> None:
    ax = png_ratio_by_size({"skull": {64: 0.58, 256: 0.21}, "apple": {64: 0.56, 256: 0.26}})
    assert np.allclose(ax.lines[0].get_xydata(), [[6, 0.58], [8, 0.21]])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["64", "256"]


def test_a_volume_map_has_a_row_for_each_width() -> None:
    ax = volume_map([[0.0, 0.5, 1.0], [0.25, math.nan, 0.9]], [3, 6], [1, 2, 3])
    assert [text.get_text() for text in ax.texts] == ["0.00", "0.50", "1.00", "0.25", "0.90"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["3", "6"]
    with pytest.raises(DataError, match="each of 2 widths"):
        volume_map([[0.0]], [3, 6], [1])


def test_axes_of_ones_own_are_drawn_on_and_figures_saved(tmp_path) -> None:
    maps, strip = np.zeros((1, 2, 4, 4)), np.zeros((2, 4, 4, 3))
    draws = [
        lambda ax: map_atlas(maps, ax),
        lambda ax: sweep_strips({"w": strip}, ax),
        lambda ax: score_against_loss({"a": [(0.1, 1.0)]}, ax),
        lambda ax: png_ratio_by_size({"a": {64: 0.5, 128: 0.4}}, ax),
        lambda ax: volume_map([[1.0]], [3], [1], ax),
    ]
    for draw in draws:
        ax = own_axes()
        assert draw(ax) is ax
        save(draw(None).figure, tmp_path / "figure.png")
        assert svg(draw(None).figure) == svg(draw(None).figure)


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(DataError, match="depth x width x H x W"):
        map_atlas(np.zeros((2, 3, 4)))
    with pytest.raises(DataError, match="N x H x W x 3"):
        sweep_strips({"w": np.zeros((2, 4, 4))})
    with pytest.raises(DataError, match="N x H x W x 3"):
        sweep_strips({})
    with pytest.raises(DataError, match="no network has a loss"):
        score_against_loss({"a": [(0.1, math.nan)]})
