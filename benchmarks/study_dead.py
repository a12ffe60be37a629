"""Dead groups: pruning cut every module through, so that nothing of a sample reaches the output.

What such modules answer is no finding: a printed entropy can be met by accident, and no objective
can be better than another. Verdicts leave these groups out and name them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from intarsia.studies import Measured
from intarsia.studies.maxent.pairs import dead
from intarsia.studies.maxent.single import HALVES
from intarsia.studies.tables import finite, grouped
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
    """Groups of pairs, as the library finds them, with the words of a table's row."""
    return [(model, size, "yes" if imp else "no", data) for model, size, imp, data in dead(cells)]


def where(groups: Iterable[Group]) -> str:
    """`Yeast with IMP`: the data sets and halves of groups, each once."""
    return listed(list(dict.fromkeys(f"{titled(g[-1])} {PRUNED[g[-2]]}" for g in groups)))
