"""Makes toy.py importable by the tests here and by the processes that they start."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

Threads = Callable[[int], AbstractContextManager[None]]
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="package", autouse=True)
def one_thread_for_all(threads: Threads) -> Iterator[None]:
    """As `one_thread`, but also for the small scales that several tests of a file look at."""
    with threads(1):
        yield
