"""Makes toy.py importable by the tests here and by the processes that they start."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="package", autouse=True)
def one_thread_for_all() -> Iterator[None]:
    """As `one_thread`, but also for the small scales that several tests of a file look at."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
