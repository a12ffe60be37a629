"""Cells that a pack was to hold and does not, in words.

Planning them would need the data, which need not be there; options say as much for most studies.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

from intarsia.studies import seeds_of
from intarsia.studies.archive import Pack
from study_counting import PRUNED, listed, several

# Options that list the values of a setting, in the order in which a text names them.
AXES = {
    "data": "data",
    "models": "model",
    "sizes": "size",
    "objectives": "objective",
    "imp": "imp",
    "temperatures": "temperature",
    "seeds": "seed",
}
CLASSES = {"har": 6, "yeast": 4}  # all others have ten
TABLES = ("har", "yeast")  # no pictures, which the CNN reads


def missing(pack: Pack) -> str:
    """`fashion_mnist deep (45 cells), mnist shallow |R| = 5 me (5)`; empty where it is unknown.

    It is where the options do not make as many cells as were planned, since then something else
    makes them.
    """
    options = {key: name for key, name in AXES.items() if key in pack.options}
    if not pack.missing or not all(
        name in cell.settings for name in options.values() for cell in pack.measured
    ):
        return ""
    names = list(options.values())
    values = [
        seeds_of(pack.options[key]) if key == "seeds" else pack.options[key] for key in options
    ]
    planned = [combo for combo in product(*values) if _fits(dict(zip(names, combo, strict=True)))]
    there = {tuple(cell.settings[name] for name in names) for cell in pack.measured}
    if len(planned) != len(pack.measured) + pack.missing or not there <= set(planned):
        return ""
    return ", ".join(_named(names, planned, there, ()))


def _fits(settings: dict[str, Any]) -> bool:
    """Whether two such sets of classes fit side by side, and the model reads the data."""
    classes = CLASSES.get(settings["data"], 10)
    return 2 * settings.get("size", 1) <= classes and not (
        settings["model"] == "cnn" and settings["data"] in TABLES
    )


def _named(
    names: Sequence[str],
    planned: Sequence[tuple[Any, ...]],
    there: set[tuple[Any, ...]],
    head: tuple[Any, ...],
) -> list[str]:
    """One entry for each smallest set of first settings of which all cells are missing."""
    lacking = [combo for combo in planned if combo not in there]
    if not lacking:
        return []
    shown = " ".join(_word(name, value) for name, value in zip(names, head, strict=False))
    if head and len(lacking) == len(planned):
        return [f"{shown} ({several(len(lacking), 'cell')})"]
    if len(head) == len(names) - 1:  # seeds are left
        seeds = listed([str(combo[-1]) for combo in lacking])
        return [f"{shown} seed{'s' if len(lacking) > 1 else ''} {seeds}"]
    place = len(head)
    return [
        entry
        for value in dict.fromkeys(combo[place] for combo in planned)
        for entry in _named(
            names, [combo for combo in planned if combo[place] == value], there, (*head, value)
        )
    ]


def _word(name: str, value: Any) -> str:
    if name == "imp":
        return PRUNED["yes" if value else "no"]
    symbol = {"size": "|R| = ", "temperature": "t = "}.get(name, "")
    return f"{symbol}{value}"
