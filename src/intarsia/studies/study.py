"""Study: a set of cells that makes a table or a figure; one file each, found by name."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from intarsia.errors import StudyError, nearest
from intarsia.files import plain
from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = (
    "single",
    "pairs",
    "impact",
    "complete",
    "temperature",
    "sparsity",
    "width",
    "path",
    "confusion",
    "controls",
    "unlearning",
    "continual",
)
"""The studies of this package, in the paper's order."""

STUDIES: dict[str, "Study"] = {}
"""Studies that are registered; ours when they are first asked for."""

# Settings of a recipe that studies fill in; the option `recipe` is for the others.
OWN = (
    "preset",
    "data",
    "data_options",
    "model",
    "objective",
    "partition",
    "partition_seed",
    "seeds",
)


@dataclass(frozen=True)
class Study:
    """What is asked, how it is cut into cells, how a cell is measured, how answers are shown.

    `forms` holds every option with its value, in the paper's size and in a small one on the digits.
    `tables` and `figures` (by name) take any of the cells, also those of a run under way.
    `version` rises whenever `measure` gives other numbers, so that older cells are measured anew;
    `neutral` has the settings of cells that came later, at the value that leaves older cells alone.
    """

    name: str
    title: str
    about: str
    forms: Mapping[str, Mapping[str, Any]]
    cells: Callable[[Mapping[str, Any], StudyContext], list[Cell]]
    measure: Callable[[Cell, StudyContext], dict[str, Any]]
    tables: Callable[[Sequence[Measured]], list[Table]]
    figures: Callable[[Sequence[Measured]], "dict[str, Figure]"]
    neutral: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1

    def options(self, form: str = "paper", **given: Any) -> dict[str, Any]:
        """The form's options with those given in their place; an unknown one is named."""
        if form not in self.forms:
            raise StudyError(
                f"study {self.name!r} has no form {form!r}: {nearest(form, self.forms)}"
            )
        known = dict(self.forms[form])
        for key, value in given.items():
            if key not in known:
                raise StudyError(
                    f"study {self.name!r} has no option {key!r}: {nearest(key, known)}"
                )
            known[key] = _like(value, known[key], key)
        for key in known.get("recipe", {}):
            if key in OWN:
                raise StudyError(
                    f"option 'recipe' has {key!r}, which the study sets itself: use its own option"
                )
        result: dict[str, Any] = plain(known, "options")
        return result

    def plan(self, options: Mapping[str, Any], context: StudyContext) -> list[Cell]:
        """The cells, each once."""
        cells = [_owned(cell) for cell in self.cells(options, context)]
        if not cells:
            raise StudyError(f"study {self.name!r} has no cell with these options: widen them")
        return list({cell.key: cell for cell in cells}.values())


def register(study: Study) -> Study:
    """Make a study known by its name."""
    STUDIES[study.name] = study
    return study


def find_study(name: str) -> Study:
    """The study of this name: one of intarsia's, or one that was registered."""
    if name not in STUDIES and name in NAMES:
        import_module("intarsia.studies.maxent")
    if name not in STUDIES:
        raise StudyError(f"there is no study {name!r}: {nearest(name, {*NAMES, *STUDIES})}")
    return STUDIES[name]


def _owned(cell: Cell) -> Cell:
    """A cell with what its study says of all its cells; it may be another study's."""
    study = find_study(cell.study)
    return dataclasses.replace(cell, neutral=study.neutral, version=study.version)


def seeds_of(value: int | Sequence[int]) -> list[int]:
    """Seeds as an option gives them: so many, or these."""
    return list(range(value)) if isinstance(value, int) else list(value)


def _like(value: Any, example: Any, key: str) -> Any:
    """A value of the kind that the form has: one thing becomes a list where lists stand."""
    if isinstance(example, list | tuple) and not isinstance(value, list | tuple):
        return [value]
    if isinstance(example, Mapping) and not isinstance(value, Mapping):
        raise StudyError(f"option {key!r} is {value!r}: expected a mapping such as {{epochs: 5}}")
    return value
