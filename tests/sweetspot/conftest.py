"""The published pattern networks, where this machine has them."""

import os
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def cppn(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the published networks; without them the test is skipped."""
    data = Path(os.environ.get("INTARSIA_DATA") or SHARED_DATA)
    if not (data / "cppn" / "cppn.json").is_file():
        pytest.skip("needs the published pattern networks: no cppn/ where INTARSIA_DATA points")
    monkeypatch.setenv("INTARSIA_DATA", str(data))
    return data / "cppn"
