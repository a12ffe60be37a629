"""What all tests share: few threads, a cache of their own, one studio, the big data sets."""

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache as cache_result
from itertools import count
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED_DATA = ROOT.parent / "shared" / "data"
LONGEST = ("test_docs", "test_foreign", "test_app", "test_ray", "test_kill", "test_notebook")
# Files, or folders of them, that import the same heavy package or look at what a fixture of the
# session has made, such as the demo: one worker runs all of them, and does so once.
TOGETHER = {
    **dict.fromkeys(
        (
            *("test_adapters", "test_dare", "test_llama_files", "test_mergekit_recipe"),
            *("test_profiles", "test_published", "test_tensor_settings", "test_ties"),
        ),
        "transformers",
    ),
    **dict.fromkeys(
        ("browser", "reports", "studio", "test_demo", "test_page_verbs", "test_seven_channels"),
        "demo",
    ),
    **dict.fromkeys(("maxent", "fresh_head"), "studies"),
    **dict.fromkeys(
        ("test_geometric", "test_graph_layers", "test_graph_sets", "test_second_graphs"), "pyg"
    ),
}
CACHES = count()
# Read when torch is loaded. Threads that wait for others sleep, by default they spin and take a
# core from the test that the other worker runs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # it runs no test: its workers do
    _share_cores()
    with suppress(ImportError):  # then the files that want it fail, and no other
        from hypothesis import settings

        # The same examples in every run, and as much time as a busy machine takes for one.
        settings.register_profile("house", deadline=None, derandomize=True, database=None)
        settings.load_profile("house")
    # What a power cut would lose is nothing that tests look at, and the disk takes a while; who
    # watches the calls sets its own function, and other processes sync.
    os.fsync = lambda handle: None
    # Of the many objects of a session few are litter: look for it less often than Python would.
    gc.set_threshold(100_000, 20, 20)


def _share_cores() -> None:
    """As many threads as this worker's share of the cores, for torch and for what tests start."""
    if os.environ.get("OMP_NUM_THREADS"):
        return
    # Small networks: threads beyond the cores only wait for one another.
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    threads = max(1, min(2, (os.cpu_count() or 1) // workers))
    os.environ["OMP_NUM_THREADS"] = str(threads)  # before NumPy is loaded: its BLAS has its own

    import torch

    torch.set_num_threads(threads)  # a folder's conftest.py may have loaded it already


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The browser's tests come first: others load modules into the studio that all share.

    Then the longest files, so that of two workers none is left alone with one at the end.
    """
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(
        key=lambda item: ("browser" not in item.path.parts, order.get(item.path.stem, len(order)))
    )


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no search for litter looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker for each file, or for all files and folders that belong together."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            places = (Path(file).stem, *Path(file).parts[:-1])
            return next((TOGETHER[place] for place in places if place in TOGETHER), file)

    return Scheduling(config, log)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own for each test, so that none reads or writes the user's.

    It is made when something is put there: thousands of empty ones take seconds to come and go.
    """
    folder = tmp_path_factory.getbasetemp() / "caches" / str(next(CACHES))
    monkeypatch.setenv("INTARSIA_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """What a test registers goes with it, and what it replaces comes back."""
    before = [(registry, dict(registry)) for registry in all_registries()]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


@cache_result
def all_registries() -> list[Any]:
    """Every registry, once all that intarsia itself registers is imported."""
    from intarsia import cli, reports, studies, training  # noqa: F401
    from intarsia.reports import modules  # noqa: F401
    from intarsia.specs import Registry

    names = [name for name in sys.modules if name.startswith("intarsia.")]
    found = [value for name in names for value in vars(sys.modules[name]).values()]
    found = [value for value in found if isinstance(value, Registry)]
    return [*{id(registry): registry for registry in found}.values()]


@pytest.fixture(scope="session")
def digits() -> Any:
    """The digits as `load_data` gives them, for whoever only reads them."""
    from intarsia.data import load_data

    return load_data("digits")


@pytest.fixture(scope="session")
def demo_made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The demo's folder after three epochs a round, and what the demo found."""
    from intarsia.demos.demo import demo

    out = tmp_path_factory.mktemp("demo") / "a demo"
    with _threads(1):
        return out, demo(out, epochs=3, progress=False)


@pytest.fixture(scope="session")
def demo_folder(demo_made: tuple[Path, Any]) -> Path:
    """What the demo leaves; a test that changes a file copies it."""
    return demo_made[0]


@pytest.fixture(scope="session")
def uploaded() -> list[Path]:
    """Files that the studio was given, which are to go when it ends."""
    return []


@pytest.fixture(scope="session")
def studio_process(demo_folder: Path, uploaded: list[Path]) -> Iterator[subprocess.Popen[str]]:
    """`intarsia studio` with the demo's modules, as a person starts it."""
    command = [sys.executable, "-c", "from intarsia.cli.app import main; main()"]
    words = ["studio", str(demo_folder / "modules"), "--no-open"]
    with subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said.endswith("stopped\n"), "Traceback" in said) == (0, True, False)
    assert not [path for path in uploaded if path.parents[1].exists()]


@pytest.fixture(scope="session")
def studio_address(studio_process: subprocess.Popen[str]) -> str:
    """Where it says that it is; warnings may come before."""
    assert studio_process.stderr is not None
    said = ""
    for line in studio_process.stderr:
        said += line
        if result := re.search(r"the studio is at (http://127\.0\.0\.1:\d+/)", line):
            return result[1]
    raise AssertionError(said)


@pytest.fixture(scope="session")
def threads() -> Callable[[int], AbstractContextManager[None]]:
    """`with threads(1):` for fixtures that several tests share."""
    return _threads


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


@pytest.fixture
def cppn(require_data: Callable[[str], Path]) -> Path:
    """The folder of the published pattern networks; without them the test is skipped."""
    return require_data("cppn/skull") / "cppn"


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
