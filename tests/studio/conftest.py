"""Three small modules of digits, trained once for all tests of the studio, and their session."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import intarsia as ia
from intarsia.studio import Session
from intarsia.studio.web.server import application
from intarsia.studio.web.studio_limits import StudioLimits
from served_page import Page
from tiny_encoder import feature_bank


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


@pytest.fixture
def served() -> Iterator[Any]:
    """`served(session, **limits)` is a page of it; where no loop runs, Gradio would leave some."""
    with asyncio.Runner() as runner, ExitStack() as stack:

        async def opening(session: Any, limits: StudioLimits) -> Any:
            return stack.enter_context(application(session, "test", limits=limits))

        yield lambda session, **limits: Page(
            runner.run(opening(session, StudioLimits(**limits))), runner
        )
