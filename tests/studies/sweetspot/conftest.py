"""A small run of study `sweetspot` on the embedded pattern, made once."""

from collections.abc import Sequence
from typing import Any

import pytest

from intarsia.studies import Measured, Store, Study, find_study, run

TINY: dict[str, Any] = {
    "seeds": 2,
    "recipe": {"size": 8, "steps": 5},
    "retraining": 3,
    "wiring_steps": 3,
    "arms": ["dense", "similarity", "ticket", "random"],
    "budgets": {"totem": [142, 90]},
    "offsets": [-1, 0, 1],
    "optimisers": ["adam", "muon(steps=20)"],
    "widths": [4, 6, 8],
    "depths": [1, 2, 3],
    "volume_steps": 2,
    "scored": 2,
}


@pytest.fixture(scope="session")
def study() -> Study:
    return find_study("sweetspot")


@pytest.fixture(scope="session")
def options(study: Study) -> dict[str, Any]:
    return study.options("small", **TINY)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("sweetspot") / "store")


@pytest.fixture(scope="session")
def measured(study: Study, options: dict[str, Any], store: Store) -> Sequence[Measured]:
    return run(study, options, store, device="cpu")
