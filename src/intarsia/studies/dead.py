"""Dead groups: pruning cut every module through, so that nothing of a sample reaches the output."""

from collections.abc import Sequence
from typing import Any

from intarsia.studies.cells import Measured
from intarsia.studies.groups import grouped
from intarsia.studies.ordering import Group
from intarsia.studies.single import HALVES
from intarsia.studies.tables import finite


def dead(cells: Sequence[Measured]) -> list[Group]:
    """Groups of pairs whose objectives answer the same to the digit, seed by seed.

    Cells of pairs do not say how many units are live; modules with live units would differ. What
    dead modules answer is no finding: no objective can be better than another.
    """
    found: list[Group] = []
    for (model, size, data), own in grouped(cells, "model", "size", "data").items():
        by = grouped(own, "objective")
        for half, imp in HALVES.items():
            answers = [
                {c.settings["seed"]: c.result[half]["sum"] for c in some} for some in by.values()
            ]
            if len(answers) > 1 and all(_same(answers[0], other) for other in answers[1:]):
                found.append((model, size, imp, data))
    return found


def _same(one: dict[int, Any], other: dict[int, Any]) -> bool:
    """Whether they agree in the seeds that both have, and have some number there."""
    shared = [seed for seed in one if seed in other]
    known = any(finite(one[seed]["accuracy"]) for seed in shared)
    return known and all(one[seed] == other[seed] for seed in shared)
