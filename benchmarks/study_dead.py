"""Dead groups: pruning cut every module through, so that nothing of a sample reaches the output.

What such modules answer is no finding: a printed entropy can be met by accident, and no objective
can be better than another. Verdicts leave these groups out and name them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from intarsia.studies import Measured
from intarsia.studies.groups import grouped
from intarsia.studies.single import HALVES
from intarsia.studies.tables import finite
from study_counting import PRUNED, listed, titled
from study_packs import Variant

Group = tuple[Any, ...]  # labels of a row, as tables have them before `objective`


def dead_groups(variant: Variant) -> list[Group]:
    """Of a variant of `single` (model, IMP, data) or of `pairs` (model, |R|, IMP, data)."""
    if variant.study.name == "single":
        return _without_live_units(variant.measured)
    return alike(variant.measured)


def _without_live_units(cells: Sequence[Measured]) -> list[Group]:
    found = []
    for (model, data), own in grouped(cells, "model", "data").items():
        for half, imp in HALVES.items():
            live = finite([n for cell in own for n in cell.result[half]["live"]])
            if live and not any(live):
                found.append((model, "yes" if imp else "no", data))
    return found


def alike(cells: Sequence[Measured]) -> list[Group]:
    """Groups of pairs whose objectives answer the same to the digit, seed by seed.

    Cells of pairs do not say how many units are live; modules with live units would differ.
    """
    found = []
    for (model, size, data), own in grouped(cells, "model", "size", "data").items():
        by = grouped(own, "objective")
        for half, imp in HALVES.items():
            answers = [
                {c.settings["seed"]: c.result[half]["sum"] for c in some} for some in by.values()
            ]
            if len(answers) > 1 and all(_same(answers[0], other) for other in answers[1:]):
                found.append((model, size, "yes" if imp else "no", data))
    return found


def _same(one: dict[int, Any], other: dict[int, Any]) -> bool:
    """Whether they agree in the seeds that both have, and have some number there."""
    shared = [seed for seed in one if seed in other]
    known = any(finite(one[seed]["accuracy"]) for seed in shared)
    return known and all(one[seed] == other[seed] for seed in shared)


def where(groups: Iterable[Group]) -> str:
    """`Yeast with IMP`: the data sets and halves of groups, each once."""
    return listed(list(dict.fromkeys(f"{titled(g[-1])} {PRUNED[g[-2]]}" for g in groups)))
