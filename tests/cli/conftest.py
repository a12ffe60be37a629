"""Makes command_line.py importable by the tests here; a folder to run in, modules to read."""

import sys
from pathlib import Path

import pytest

import intarsia as ia

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def two_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bank of two tiny modules of the digits, to be read."""
    folder: Path = tmp_path_factory.mktemp("modules") / "bank"
    ia.train(
        ia.load_data("digits"), model="mlp(8)", epochs=1, partition=[["0"], ["1"]], out=folder,
        progress=False,
    )  # fmt: skip
    return folder
