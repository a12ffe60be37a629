"""Reports, read as people read them: from disk, in the dark, on a phone, by keyboard, on paper."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from intarsia.cli.app import app
from intarsia.reports import pattern_report

from .checks import grave_faults, overhanging, unfold
from .conftest import Opened

ARCHIVE = Path(__file__).resolve().parents[2] / "docs" / "results" / "study_pairs.json"
LIMIT = 5 * 2**20  # bytes of a report
PHONE = {"width": 360, "height": 740}
LAPTOP = {"width": 1280, "height": 800}
SHEET = {"width": 688, "height": 1000}  # A4 between the margins of the page
SHRINKS = 1.5  # Chromium shrinks what is printed by this much at most, and cuts off the rest
# Of rows, cards and words of a figure, which are alike, axe looks at three: all of them would take
# half a minute. It cannot tell what is behind a figure's words; tests/test_figures.py can.
ALIKE = "tbody ~ tbody, tr:nth-child(n+4), .card:nth-child(n+4), svg text:nth-of-type(n+4)"


@pytest.fixture(scope="module", params=["demo", "study", "patterns"])
def path(
    request: pytest.FixtureRequest, demo_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What the demo wrote, and reports made by commands, without the data of the study."""
    if request.param == "demo":
        return demo_folder / "report.html"
    if request.param == "patterns":
        out = tmp_path_factory.mktemp("reports") / "patterns.html"
        pattern_report("totem", weights=4, sweeps=2).save(out)
        return out
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("INTARSIA_DATA", raising=False)
        return made(ARCHIVE, tmp_path_factory.mktemp("reports") / "study.html")


@pytest.fixture(scope="module")
def page(path: Path, opened: Opened) -> Page:
    return opened(path.as_uri(), permissions=["clipboard-read", "clipboard-write"])


def test_it_opens_from_disk_and_its_contents_lead_to_every_part(path: Path, page: Page) -> None:
    assert path.stat().st_size < LIMIT
    expect(page.locator("h1")).to_have_count(1)
    links = page.locator("nav a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
    parts = page.locator("main section").evaluate_all("all => all.map(s => '#' + s.id)")
    assert links == parts
    assert len(parts) >= 4
    page.locator("nav a").last.click()
    expect(page.locator("main section").last.locator("h2")).to_be_in_viewport()


def test_a_bank_has_no_part_that_the_demo_has_not(demo_folder: Path, tmp_path: Path) -> None:
    """So what holds of the demo's page holds of its own."""
    page = made(demo_folder / "modules", tmp_path / "bank.html").read_text()
    assert parts(page) <= parts((demo_folder / "report.html").read_text())


def test_axe_finds_no_grave_fault_in_light_and_in_dark(page: Page) -> None:
    unfold(page)
    page.locator(ALIKE).evaluate_all("all => all.forEach(one => one.remove())")
    assert grave_faults(page) == []
    context = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(context)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(context) != light
    assert grave_faults(page, ["color-contrast"]) == []
    page.emulate_media(color_scheme="light")
    page.reload()


def test_on_a_phone_nothing_hangs_over(page: Page) -> None:
    page.set_viewport_size(PHONE)
    unfold(page)
    assert overhanging(page) == []
    cut = """() => [...document.querySelectorAll(".scroll caption")].filter(
      e => e.getBoundingClientRect().width > e.closest(".scroll").clientWidth + 1).length"""
    assert page.evaluate(cut) == 0  # captions are read without scrolling, wide tables are not


def test_a_wide_table_scrolls_by_the_arrow_keys(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.evaluate("""() => {
      const all = [...document.querySelectorAll(".scroll")];
      const wide = all.find(e => e.scrollWidth > e.clientWidth + 40);
      wide.focus();
      window.scrolled = new Promise(done => wide.addEventListener("scroll", () => done(true)));
    }""")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("scrolled")
    page.set_viewport_size(LAPTOP)


def test_the_keyboard_reaches_everything(page: Page) -> None:
    page.goto(page.url.split("#")[0] + "#")  # from the top, wherever another test went
    page.reload()
    page.keyboard.press("Tab")
    skip = page.locator("a.skip")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    wanted = "nav a, summary, .scroll[tabindex], button"
    left = page.locator(wanted).count()
    for _ in range(left):
        page.keyboard.press("Tab")
        seen, folded = page.evaluate(
            """wanted => {
          const here = document.activeElement;
          return [here.matches(wanted), here.matches("details:not([open]) > summary")]}""",
            wanted,
        )
        left -= seen
        if folded:
            page.keyboard.press("Enter")  # what is inside comes next
    assert left == 0


def test_commands_are_copied_by_a_button(page: Page) -> None:
    block = page.locator("pre.commands").last
    block.locator("xpath=preceding-sibling::button[1]").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").strip() == block.inner_text().strip()


def test_on_paper_all_is_open_and_nothing_is_cut_off(page: Page) -> None:
    page.reload()
    page.evaluate("""addEventListener("beforeprint", () => {
      window.folded = document.querySelectorAll("details:not([open])").length})""")
    assert page.pdf(format="A4").startswith(b"%PDF-")
    assert page.evaluate("window.folded") == 0
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size(SHEET)
    unfold(page)
    assert overhanging(page, SHRINKS) == []
    cut = "all => all.filter(e => /auto|scroll|hidden/.test(getComputedStyle(e).overflowX)).length"
    assert page.locator(".scroll").evaluate_all(cut) == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def made(subject: Path, out: Path) -> Path:
    run = CliRunner().invoke(app, ["report", str(subject), "-o", str(out)])
    assert run.exit_code == 0, run.stderr
    return out


def parts(page: str) -> set[tuple[str, str | None]]:
    """The elements of a page, by name and class."""
    result = set()
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, given: result.add((tag, dict(given).get("class")))
    parser.feed(page)
    return result
