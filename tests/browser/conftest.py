"""One browser for the tests of pages; what a page does wrong fails the test that looks at it.

Scopes are those of the package: Playwright keeps an event loop running, and later tests want their
own.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from .checks import watch

NAMES = ("chromium", "chromium-browser", "google-chrome")  # as .ci/chromium looks for them
PATIENCE = 15_000  # milliseconds, for a machine that has other things to do
Opened = Callable[..., Page]


@pytest.fixture(scope="package", autouse=True)
def one_thread_for_all() -> Iterator[None]:
    """The browser and the studio want processors, too."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A Chromium of this machine; INTARSIA_BROWSER names it, and then none is a fault."""
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
def starting(
    request: pytest.FixtureRequest, browser: Browser, demo_folder: Path
) -> Iterator[subprocess.Popen[str] | None]:
    """`intarsia studio` as a person starts it, early: meanwhile other tests can run."""
    if not any("studio" in getattr(item, "fixturenames", ()) for item in request.session.items):
        yield None
        return
    command = [sys.executable, "-c", "from intarsia.cli import main; main()"]
    words = ["studio", str(demo_folder / "modules"), "--no-open"]
    with subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.terminate()


@pytest.fixture(scope="package")
def studio(starting: subprocess.Popen[str]) -> str:
    """The address that it says."""
    assert starting.stderr is not None
    said = ""
    for line in starting.stderr:
        said += line
        if found := re.search(r"http://[\w.:]+/", line):
            return found[0]
    raise AssertionError(said)
