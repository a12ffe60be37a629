"""Studies: sets of cells that make a paper's tables and figures, resumable and shared."""

from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.plans import Plan
from intarsia.studies.runners.local import run, standing
from intarsia.studies.store import Store
from intarsia.studies.study import NAMES, STUDIES, Study, find_study, register, seeds_of
from intarsia.studies.tables import Paper, Spread, Table

__all__ = [
    "NAMES",
    "STUDIES",
    "Cell",
    "Measured",
    "Paper",
    "Plan",
    "Spread",
    "Store",
    "Study",
    "StudyContext",
    "Table",
    "find_study",
    "register",
    "run",
    "seeds_of",
    "standing",
]
