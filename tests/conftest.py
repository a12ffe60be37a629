"""What all tests share: few threads, a cache of their own, and the big data sets where they are."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED_DATA = ROOT.parent / "shared" / "data"


def pytest_configure() -> None:
    import torch
    from hypothesis import settings

    # The same examples in every run, and as much time as a busy machine takes for one.
    settings.register_profile("house", deadline=None, derandomize=True, database=None)
    settings.load_profile("house")
    # Small networks: more threads than this only wait for one another.
    torch.set_num_threads(min(2, os.cpu_count() or 1))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, so that no test reads or writes the user's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("INTARSIA_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def demo_made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The demo's folder after three epochs a round, and what the demo found."""
    from intarsia.demo import demo

    out = tmp_path_factory.mktemp("demo") / "a demo"
    with _threads(1):
        return out, demo(out, epochs=3, progress=False)


@pytest.fixture(scope="session")
def demo_folder(demo_made: tuple[Path, Any]) -> Path:
    """What the demo leaves; a test that changes a file copies it."""
    return demo_made[0]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny networks are slower on many threads than on one."""
    with _threads(1):
        yield


@pytest.fixture
def require_data(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """`require_data("mnist")` points INTARSIA_DATA at the folder that holds it, or skips."""

    def require(name: str) -> Path:
        folder = Path(os.environ.get("INTARSIA_DATA") or SHARED_DATA)
        if not (folder / f"{name}.npz").is_file():
            pytest.skip(f"needs the data set {name!r}: no {name}.npz where INTARSIA_DATA points")
        monkeypatch.setenv("INTARSIA_DATA", str(folder))
        return folder

    return require


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)
