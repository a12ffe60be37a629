"""Estimate: what a study would cost, before it is run."""

from collections.abc import Sequence
from dataclasses import dataclass

from intarsia.studies.cells import Cell
from intarsia.studies.context import StudyContext
from intarsia.studies.records import read_records
from intarsia.studies.runners.bank_training import work_of
from intarsia.studies.runners.local import missing_plans, progress
from intarsia.studies.store import Store

ENOUGH = 0.01  # of the work that is estimated must have been done before
# Seconds for one epoch of one module, by sample and parameter: docs/results/training_*.md
USUAL = {"cuda": 2e-13, "cpu": 3e-11}


@dataclass(frozen=True)
class Estimate:
    """Cells, of which some are missing; modules to train; minutes of training, roughly."""

    cells: int
    missing: int
    modules: int
    minutes: float
    basis: str


def estimate(cells: Sequence[Cell], store: Store, context: StudyContext) -> Estimate:
    """What is missing, and how long its training takes.

    The time follows from what this store's earlier runs took on such a device, or else from what
    the project's own benchmarks took; measuring the cells comes on top.
    """
    missing = progress(cells, store).missing
    plans = missing_plans(missing, store)
    kind = context.device.type
    work = sum(work_of(p, context.data_of(p)) for p in plans)
    seen = _seen(store, kind, work)
    seconds = work * (seen or USUAL.get(kind, USUAL["cpu"]))
    basis = "this store's earlier runs" if seen else "the project's own benchmarks, a rough guess"
    modules = sum(plan.modules for plan in plans)
    return Estimate(len(cells), len(missing), modules, seconds / 60, basis)


def _seen(store: Store, kind: str, wanted: float) -> float | None:
    """Seconds by sample and parameter in this store's runs, if they did enough to tell.

    A small bank is nearly all beginning and end, and says little about a large one.
    """
    runs = read_records(store.path / "runs")
    events = [e for e in runs if e["event"] == "banks" and e["kind"] == kind]
    work = sum(e["work"] for e in events)
    return sum(e["seconds"] for e in events) / work if work > ENOUGH * wanted > 0 else None
