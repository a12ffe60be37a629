"""Study: a set of cells that makes tables, figures and a verdict; one file each, known by name."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from intarsia.errors import StudyError, nearest, shortened
from intarsia.files import plain
from intarsia.specs import Registry
from intarsia.studies.cells import DATA_OPTIONS, Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.plans import OF_ONE_BANK
from intarsia.studies.tables import Table
from intarsia.studies.verdict import Findings, Verdict, table_verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDIES = Registry("study")
"""All studies by name: those of this package in the order of its rooms, and those of users."""

USUAL: dict[str, Any] = {
    "data": ["mnist"],
    "data_options": {},  # of load_data, for all data sets, on top of the preset's
    "preset": "paper",
    "seeds": 5,
    "recipe": {},
}
DIGITS: dict[str, Any] = {"data": ["digits"], "models": ["mlp(32)"], "seeds": 2}
# Settings of a recipe that studies fill in; the option `recipe` is for the others.
OWN = ("preset", "data", "data_options", "model", *OF_ONE_BANK)


@dataclass(frozen=True)
class Study:
    """What is asked, how it is cut into cells, how a cell is measured, how answers are shown.

    `scales` holds every option with its value, in the paper's size and in a small one on the
    digits. `tables`, `figures` (by name) and `verdict` take any of the cells, also those of a run
    under way; without a verdict of its own, a study has one made from its tables. `paper` is what
    the paper shows, in one line. `version` rises whenever `measure` gives other numbers, so that
    older cells are measured anew; `neutral` has the settings of cells that came later, at the value
    that leaves older cells alone.
    """

    name: str
    title: str
    about: str
    scales: Mapping[str, Mapping[str, Any]]
    cells: Callable[[Mapping[str, Any], StudyContext], Iterable[Cell]]
    measure: Callable[[Cell, StudyContext], dict[str, Any]]
    tables: Callable[[Sequence[Measured]], list[Table]]
    figures: Callable[[Sequence[Measured]], "Mapping[str, Figure]"]
    verdict: Callable[[Findings], Verdict] | None = None
    paper: str = ""
    neutral: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1

    def options(self, scale: str = "paper", /, **given: Any) -> dict[str, Any]:
        """The scale's options with those given in their place; an unknown one is named."""
        if scale not in self.scales:
            raise StudyError(
                f"study {self.name!r} has no scale {scale!r}: {nearest(scale, self.scales)}"
            )
        known = dict(self.scales[scale])
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
        loading = options.get(DATA_OPTIONS, {})
        made = self.cells(options, context.loading(loading))
        cells = [_owned(cell, loading) for cell in made]
        if not cells:
            raise StudyError(f"study {self.name!r} has no cell with these options: widen them")
        return list({cell.key: cell for cell in cells}.values())

    def judge(
        self, findings: Findings | Sequence[Measured], missing: Sequence[str] = ()
    ) -> Verdict:
        """What the cells say; `missing` names those that are not there, as `missing_cells` does."""
        if not isinstance(findings, Findings):
            findings = Findings(findings)
        if self.verdict is None:
            verdict = table_verdict(self.tables(findings.cells))
        else:
            verdict = self.verdict(findings)
        return dataclasses.replace(verdict, missing=missing)


def register(study: Study) -> Study:
    """Make a study known by its name."""
    STUDIES[study.name] = study
    return study


def find_study(name: str) -> Study:
    """The study of this name: one of intarsia's, or one that was registered."""
    if name not in STUDIES:
        raise StudyError(
            f"there is no study {name!r} (one of your own is known once its file is imported, in a "
            f"shell by --module): {nearest(name, STUDIES)}"
        )
    study: Study = STUDIES[name]
    return study


def scales(paper: Mapping[str, Any], small: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A study in the paper's size, and in a small one that differs from it as given.

    USUAL and DIGITS say what nearly all studies have alike.
    """
    full = {**USUAL, **paper}
    digits = {key: value for key, value in DIGITS.items() if key in full}
    return {"paper": full, "small": {**full, **digits, **small}}


def seeds_of(value: int | Sequence[int]) -> list[int]:
    """Seeds as an option gives them: so many, or these."""
    return list(range(value)) if isinstance(value, int) else list(value)


def _owned(cell: Cell, loading: Mapping[str, Any]) -> Cell:
    """A cell with what its study says of all its cells, which may be another's; and with how its
    data are loaded, if not as usual."""
    study = find_study(cell.study)
    settings = {**cell.settings, DATA_OPTIONS: dict(loading)} if loading else cell.settings
    return dataclasses.replace(
        cell, settings=settings, neutral=study.neutral, version=study.version
    )


def _like(value: Any, example: Any, key: str) -> Any:
    """A value of the kind that the scale has: a single one becomes a list where lists are."""
    if isinstance(example, list | tuple) and not isinstance(value, list | tuple):
        return [value]
    if isinstance(example, Mapping) and not isinstance(value, Mapping):
        raise StudyError(
            f"option {key!r} is {shortened(value)}: expected a mapping such as {{epochs: 5}}"
        )
    return value
