"""One browser for the tests of pages; what a page does wrong fails the test that looks at it.

Scopes are those of the package: Playwright keeps an event loop running, and later tests want their
own. Without a browser, or without Playwright, they are skipped; where INTARSIA_BROWSER names a
browser, that is a fault.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NEEDS = ("playwright", "axe_playwright_python")
NAMES = ("chromium", "chromium-browser", "google-chrome")  # as .ci/chromium looks for them
PATIENCE = 15_000  # milliseconds, for a machine that has other things to do
Opened = Callable[..., "Page"]
Threads = Callable[[int], AbstractContextManager[None]]


class NotHere(pytest.Module):
    """A file of tests that cannot be imported."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip(f"needs {' and '.join(NEEDS)}: pip install -e '.[dev]'")


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    missing = any(find_spec(name) is None for name in NEEDS)
    if not missing or os.environ.get("INTARSIA_BROWSER"):
        return None
    return NotHere.from_parent(parent, path=module_path)


@pytest.fixture(scope="package", autouse=True)
def one_thread_for_all(threads: Threads) -> Iterator[None]:
    """The browser and the studio want processors, too."""
    with threads(1):
        yield


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A Chromium of this machine."""
    from playwright.sync_api import expect, sync_playwright

    path = os.environ.get("INTARSIA_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"needs one of {', '.join(NAMES)}: .ci/chromium installs Debian's")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def faults() -> list[str]:
    """What pages did wrong since it was last looked at."""
    return []


@pytest.fixture(autouse=True)
def no_faults(faults: list[str]) -> Iterator[None]:
    yield
    seen, faults[:] = faults.copy(), []
    assert not seen


@pytest.fixture(scope="package")
def opened(browser: Browser, faults: list[str]) -> Iterator[Opened]:
    """`opened(url, served=host, **options)` is a watched page of its own on a laptop."""
    from .checks import watch

    contexts = []

    def open_page(url: str, *, served: str = "", **options: object) -> Page:
        still = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"}
        context = browser.new_context(**{**still, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        watch(context, faults.append, served)
        page = context.new_page()
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="package", autouse=True)
def starting(request: pytest.FixtureRequest, browser: Browser) -> None:
    """The studio starts early: meanwhile other tests can run."""
    if any("studio" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("studio_process")


@pytest.fixture(scope="package")
def studio(request: pytest.FixtureRequest) -> str:
    """Its address."""
    if find_spec("gradio") is None:
        pytest.skip("needs the extra studio")
    return request.getfixturevalue("studio_address")
