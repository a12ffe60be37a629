"""Make the reports and the pictures of pages that the docs show.

    python docs/build/pictures.py      or: make pictures

makes the reports that the site shows, opens them and the studio in a browser, and saves what a
reader should see first to docs/assets/*.png. A minute or two.
"""

import io
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from report_pages import ROOT, write_reports

ASSETS = ROOT / "docs" / "assets"
INTARSIA = Path(sys.executable).with_name("intarsia")
BESIDE, BELOW = 32, 14  # pixels around what is cut out of a page
COLOURS = 256  # of a picture: a page has few
LARGEST = 300_000  # bytes of a picture


def main() -> None:
    expect.set_options(timeout=60_000)  # milliseconds; the machine may be busy
    with TemporaryDirectory() as folder, browsing() as browser:
        picture_reports(browser, write_reports(Path(folder)))
        with serving(folder, "studio", "demo") as address:
            picture_studio(browser, address)
        with serving(folder, "sweetspot", "studio") as address:
            picture_patterns(browser, address)


def picture_reports(browser: Browser, reports: Mapping[str, Path]) -> None:
    page = opened(browser, reports["demo"].as_uri())
    save(page, "report-demo", end="#overview figure")
    save(page, "report-path", "#path h2", "#path .side-by-side")
    page.emulate_media(color_scheme="dark")
    save(page, "report-modules", "#modules h2", "#modules .card:nth-child(6)")
    page = opened(browser, reports["study"].as_uri())
    save(page, "report-study", end="#figures figure")


def picture_studio(browser: Browser, address: str) -> None:
    page = opened(browser, address, 1280)
    expect(page.locator("#confusion svg")).to_be_visible()
    page.locator("#module-tiles input[name='3']").uncheck()
    expect(page.locator("#change")).to_contain_text("3 off")
    save(page, "studio", end="#confusion")
    page.get_by_role("button", name="All on").click()
    page.get_by_role("tab", name="One sample").click()
    draw(page, page.locator("#sample-draw canvas"))
    page.locator("#take-out").get_by_label("3", exact=True).check()
    expect(page.locator("#joined-answer")).to_contain_text("without module 3")
    save(page, "studio-sample", end="#module-answers")
    page.get_by_role("tab", name="Compatibility").click()
    page.locator("#measure").get_by_label("unit overlap").check()
    expect(page.locator("#compatibility #meaning")).to_contain_text("unit overlap")
    save(page, "studio-compatibility", end="#compatibility")


def picture_patterns(browser: Browser, address: str) -> None:
    page = opened(browser, address, 1280)
    expect(page.locator("#atlas img")).to_be_visible()
    page.locator("#weight input[type=range]").focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#moved")).to_contain_text("+0.30")
    save(page, "studio-patterns", end="#atlas")


def draw(page: Page, pad: Locator) -> None:
    """A three, in one stroke of two bows."""
    bows = [((0.47, 0.3), -0.9, 1.6), ((0.47, 0.66), -0.1, 2.5)]
    places = [
        (x + 0.2 * math.sin(turn * math.pi / 2), y - 0.18 * math.cos(turn * math.pi / 2))
        for (x, y), start, end in bows
        for turn in (start + (end - start) * step / 12 for step in range(13))
    ]
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * places[0][0], box["y"] + box["height"] * places[0][1])
    page.mouse.down()
    for x, y in places[1:]:
        page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y)
    page.mouse.up()
    expect(page.locator("#sample-seen")).to_contain_text("draw")


def save(page: Page, name: str, start: str = "body", end: str = "body") -> None:
    """A picture of the page from the top of what one selector finds to the end of another's."""
    page.evaluate("Promise.allSettled(document.getAnimations().map(a => a.finished)).then(() => 1)")
    page.evaluate("scrollTo(0, 0)")
    first, last = (page.locator(part).first.bounding_box() for part in (start, end))
    assert first is not None
    assert last is not None
    left, top = max(0, first["x"] - BESIDE), max(0, first["y"] - BELOW)
    bottom = last["y"] + last["height"] + BELOW
    width = page.evaluate("innerWidth") - left
    clip = {"x": left, "y": top, "width": width, "height": bottom - top}
    data = page.screenshot(full_page=True, clip=clip)
    path = ASSETS / f"{name}.png"
    Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")
    if size > LARGEST:
        raise SystemExit(f"{path.relative_to(ROOT)} is larger than {LARGEST:,} bytes: show less")


def opened(browser: Browser, url: str, width: int = 1200) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 860}, reduced_motion="reduce")
    page.goto(url)
    return page


@contextmanager
def browsing() -> Iterator[Browser]:
    path = subprocess.check_output([ROOT / ".ci" / "chromium"], text=True).strip()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        yield browser
        browser.close()


@contextmanager
def serving(folder: str, *words: str) -> Iterator[str]:
    """A studio; its address."""
    command = [INTARSIA, *words, "--no-open"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = (re.search(r"http://[\w.:]+/", line) for line in process.stderr)
        result = next(filter(None, lines), None)
        if result is None:
            raise SystemExit("the studio did not start: run intarsia studio by hand to see why")
        try:
            yield result[0]
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
