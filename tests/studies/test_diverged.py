"""Every study goes on where training gave up all modules of its banks."""

import pytest

from intarsia.modules import Bank
from intarsia.plots import svg
from intarsia.studies import STUDIES, Measured, Plan, StudyContext, find_study

OURS = [
    name
    for name, study in STUDIES.items()
    if study.cells.__module__.startswith("intarsia.")
    and name not in ("flow", "graphs", "sweetspot")  # which have no banks of modules
]


class Nothing:
    """Banks of which no module is left."""

    def bank(self, plan: Plan) -> Bank:
        return Bank([], ["+".join(classes) for classes in plan.sets])


@pytest.fixture(scope="module")
def context() -> StudyContext:
    return StudyContext(Nothing(), "cpu")


@pytest.mark.parametrize("name", OURS)
def test_cells_without_any_module_are_measured_and_shown(name: str, context: StudyContext) -> None:
    study = find_study(name)
    cells = study.plan(study.options("small", seeds=1), context)
    chosen = [cells[0], cells[-1]]  # of `sparsity`, a complete merge and pairs
    done = [Measured(cell.settings, study.measure(cell, context)) for cell in chosen]
    for table in study.tables(done):
        assert "nan" not in table.markdown()
    assert all("nan" not in svg(figure) for figure in study.figures(done).values())
