"""Three small modules of digits, trained once for all tests of the studio, and their session."""

from pathlib import Path

import pytest

import intarsia as ia
from intarsia.studio import Session
from tiny_encoder import feature_bank


@pytest.fixture(scope="package")
def digits() -> ia.Data:
    return ia.load_data("digits")


@pytest.fixture(scope="package")
def bank_folder(digits: ia.Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studio") / "bank"
    ia.train(
        digits,
        model="mlp(24)",
        partition=[["0"], ["3"], ["8", "9"]],
        sparsity=0.5,
        rounds=1,
        epochs=3,
        learning_rate=0.01,
        out=folder,
        progress=False,
    )
    return folder


@pytest.fixture(scope="package")
def bank(bank_folder: Path) -> ia.Bank:
    return ia.Bank.load(bank_folder)


@pytest.fixture(scope="package")
def session(bank: ia.Bank, digits: ia.Data) -> Session:
    """To be asked, not changed: what it measured once it knows."""
    return Session(bank, digits)


@pytest.fixture
def own_session(bank: ia.Bank, digits: ia.Data) -> Session:
    """To be changed."""
    return Session(bank, digits)


@pytest.fixture(scope="package")
def feature_session() -> Session:
    """Of modules that read a small encoder's features of pictures."""
    return Session(*feature_bank())
