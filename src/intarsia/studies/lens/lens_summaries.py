"""What cells of the study `lens` keep of profiles and of what they tell apart."""

from collections.abc import Sequence

import numpy as np

from intarsia.lens import Classification, Profile

Scores = dict[str, list[float]]


def means_and_spreads(found: Classification) -> Scores:
    """The area under the curve by features: its mean over folds and standard deviation."""
    return {name: [found.mean(name), found.sd(name)] for name in found.scores}


def by_label(found: Profile, labels: Sequence[str]) -> dict[str, list[list[float]]]:
    """Mean and standard deviation by layer."""
    result = {}
    for kind in dict.fromkeys(labels):
        rows = found.mean[[label == kind for label in labels]]
        result[kind] = [rows.mean(0).tolist(), rows.std(0, ddof=1).tolist()]
    return result


def plane(found: Profile) -> list[list[float]]:
    """The first two principal components; the larger entry of each axis counts as positive."""
    centred = found.mean - found.mean.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2] * np.sign(axes[:2][range(2), np.abs(axes[:2]).argmax(1)])[:, None]
    points: list[list[float]] = (centred @ axes.T).round(3).tolist()
    return points
