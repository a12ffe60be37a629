"""Entropy by layer: the order of layers, their names, and the ceiling."""

import math

from intarsia.plots import entropy_by_layer


def test_layers_keep_their_order_and_shades_end_at_the_ceiling() -> None:
    bands = {
        "one": {"input": (0.5, 0.1), "before fc2": (0.25, 0.0), "logits": (0.2, 0.0)},
        "other": {"input": (1.0, 0.5), "before fc2": (1.05, 0.2)},
    }
    ax = entropy_by_layer(bands, ceiling=math.log(3)).axes[0]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["input", "fc2", "logits"]
    assert list(ax.lines[0].get_ydata()) == [0.5, 0.25, 0.2]
    assert list(ax.lines[1].get_xdata()) == [0, 1]
    highest = max(path.vertices[:, 1].max() for area in ax.collections for path in area.get_paths())
    assert highest <= math.log(3) + 1e-9
