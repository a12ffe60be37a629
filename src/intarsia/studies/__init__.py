"""Studies: sets of cells that make a paper's tables, figures and verdict, resumable and shared."""

from intarsia.studies.cells import Cell, Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.plans import Plan
from intarsia.studies.runners.local import progress, run
from intarsia.studies.store import Store
from intarsia.studies.study import STUDIES, Study, find_study, register, seeds_of
from intarsia.studies.tables import Paper, Spread, Table
from intarsia.studies.verdict import Claim, Findings, Verdict

from intarsia.studies import maxent  # noqa: F401  # isort: skip  # last: registers its studies
from intarsia.studies import (  # noqa: F401  # isort: skip
    apart, base, flow, fresh_head, graphs, lens, scale, sweetspot,
)  # fmt: skip

__all__ = [
    "STUDIES",
    "Cell",
    "Claim",
    "Findings",
    "Measured",
    "Paper",
    "Plan",
    "Spread",
    "Store",
    "Study",
    "StudyContext",
    "Table",
    "Verdict",
    "find_study",
    "progress",
    "register",
    "run",
    "seeds_of",
]
