"""Dead groups: pruning cut every module through, so that nothing of a sample reaches the output.

What such modules answer meets nothing: a printed entropy can be near by accident, and no objective
can be better than another. Where the paper's modules are alive, dead ones are a failed
reproduction: verdicts count these groups as missed and name them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.studies.cells import Measured
from intarsia.studies.tables import finite, grouped
from intarsia.studies.wording import imp_label, several, titled

STATES = {"unpruned": False, "pruned": True}  # as results have them, and whether that is with IMP
ModuleGroup = tuple[str, bool, str]  # model, with IMP or without, data
PairGroup = tuple[str, int, bool, str]  # model, size, with IMP or without, data


def dead_modules(cells: Sequence[Measured]) -> list[ModuleGroup]:
    """Groups of the study `single` in which no module has a live hidden unit."""
    dead: list[ModuleGroup] = []
    for (model, data), own in grouped(cells, "model", "data").items():
        for state, imp in STATES.items():
            live = finite([n for cell in own for n in cell.result[state]["live"]])
            if live and not any(live):
                dead.append((model, imp, data))
    return dead


def dead_pairs(cells: Sequence[Measured]) -> list[PairGroup]:
    """Groups of the study `pairs` whose objectives answer the same to the digit, seed by seed.

    Cells of pairs do not say how many units are live; modules with live units would differ.
    """
    dead: list[PairGroup] = []
    for (model, size, data), own in grouped(cells, "model", "size", "data").items():
        by_objective = grouped(own, "objective").values()
        for state, imp in STATES.items():
            first, *others = (
                {c.settings["seed"]: c.result[state]["sum"] for c in some} for some in by_objective
            )
            if others and all(_same(first, other) for other in others):
                dead.append((model, size, imp, data))
    return dead


def failures(dead: Sequence[ModuleGroup] | Sequence[PairGroup]) -> dict[str, str]:
    """Why dead groups count as missed, by data set and with or without IMP."""
    labels = [f"{titled(data)} {imp_label(imp)}" for *_, imp, data in dead]
    return {
        label: "where pruning left no path from input to output in any module "
        f"({several(labels.count(label), 'group')})"
        for label in labels
    }


def _same(one: Mapping[int, Any], other: Mapping[int, Any]) -> bool:
    """Whether they agree in the seeds that both have, and have some number there."""
    shared = [seed for seed in one if seed in other]
    known = any(finite(one[seed]["accuracy"]) for seed in shared)
    return known and all(one[seed] == other[seed] for seed in shared)
