"""A small run of study `sweetspot` on the embedded pattern, made once."""

import os
from collections.abc import Sequence
from pathlib import Path
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

SHARED_DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture
def cppn(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the published networks; without them the test is skipped."""
    data = Path(os.environ.get("INTARSIA_DATA") or SHARED_DATA)
    if not (data / "cppn" / "cppn.json").is_file():
        pytest.skip("needs the published pattern networks: no cppn/ where INTARSIA_DATA points")
    monkeypatch.setenv("INTARSIA_DATA", str(data))
    return data / "cppn"


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
