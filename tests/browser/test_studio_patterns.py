"""The page of pattern networks: a weight is moved by hand, and the picture follows."""

import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from intarsia.sweetspot import available, load_network

from .checks import grave_faults, overhanging
from .conftest import Opened

COMMAND = [sys.executable, "-c", "from intarsia.cli.app import main; main()"]
WORDS = ["sweetspot", "studio", "--no-open", "--json"]
LIMIT = 200  # milliseconds from the move to the picture, at 128 pixels
MOVES = 11
# From the slider's event to the picture that answers it, as the browser sees both.
CLOCK = """() => {
  if (window.took) return;
  const slider = document.querySelector("#weight input[type=range]");
  const picture = document.querySelector("#picture");
  const shown = () => picture.querySelector("img").src;
  let start = 0, last = shown();
  window.took = [];
  slider.addEventListener("input", () => { start = performance.now(); }, true);
  new MutationObserver(() => {
    if (shown() === last) return;
    last = shown();
    window.took.push(performance.now() - start);
  }).observe(picture, { subtree: true, childList: true, attributes: true });
}"""


@pytest.fixture(scope="module")
def served(opened: Opened) -> Iterator[Page]:
    pytest.importorskip("gradio")
    with subprocess.Popen([*COMMAND, *WORDS], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = (re.search(r'"address": "([^"]+)"', line) for line in process.stdout)
            address = next(filter(None, lines))[1]
            yield opened(address, served=urlsplit(address).netloc)
        finally:
            process.terminate()


@pytest.fixture
def page(served: Page) -> Page:
    """As it is when it is opened: the first network, and no weight moved."""
    served.reload()
    expect(served.locator("#atlas img")).to_be_visible()
    return served


@pytest.mark.parametrize("name", ["totem", "skull"])
def test_the_picture_follows_the_slider_in_less_than_a_fifth_of_a_second(
    page: Page, name: str
) -> None:
    if name not in available():
        pytest.skip(f"needs {name} in the folder cppn of INTARSIA_DATA")
    choose(page, "#network", name)
    expect(page.locator("#picture img")).to_have_attribute("alt", re.compile(f"^{name} "))
    assert page.locator("#picture img").evaluate("image => image.naturalWidth") == 128
    page.evaluate(CLOCK)
    slider = page.locator("#weight input[type=range]")
    slider.focus()
    medians = []
    for key in ("ArrowRight", "ArrowLeft"):  # again, where the machine had other things to do
        page.evaluate("window.took = []")
        for move in range(MOVES):
            page.keyboard.press(key)
            page.wait_for_function("count => window.took.length > count", arg=move)
        medians.append(statistics.median(page.evaluate("window.took")))
    assert min(medians) < LIMIT


def test_the_slider_is_moved_the_numbers_follow_and_the_button_goes_back(page: Page) -> None:
    choose(page, "#network", "totem")
    choose(page, "#layer", "outputs")
    expect(page.locator("#moved")).to_contain_text("to value, as it was")
    picture = page.locator("#picture img")
    before = picture.get_attribute("src")
    assert page.locator("#original img").get_attribute("src") == before
    field = page.locator("#weight input[type=number]")
    value = float(field.input_value())
    slider = page.locator("#weight input[type=range]")
    slider.focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#moved")).to_contain_text("+0.30")
    expect(picture).not_to_have_attribute("src", before or "")
    assert float(field.input_value()) == pytest.approx(value + 0.3, abs=1e-3)
    page.locator("#reach").get_by_label("±10").check()  # a longer way begins where the weight was
    expect(page.locator("#moved")).to_contain_text("as it was")
    assert float(slider.get_attribute("max") or 0) == pytest.approx(value + 10, abs=1e-3)
    slider.click(position={"x": 5, "y": 5})
    expect(page.locator("#moved")).not_to_contain_text("as it was")
    page.get_by_role("button", name="Back to the weight").click()
    expect(picture).to_have_attribute("src", before or "")
    expect(page.locator("#moved")).to_contain_text("0.0000")


def test_walking_through_the_lists_leaves_a_moved_weight_where_it_is(page: Page) -> None:
    choose(page, "#network", "totem")
    choose(page, "#layer", "outputs")
    expect(page.locator("#moved")).to_contain_text("to value, as it was")
    page.locator("#weight input[type=range]").focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#moved")).to_contain_text("+0.20")
    moved = page.locator("#picture img").get_attribute("src")
    for control in ("#network", "#layer", "#connection"):
        page.locator(f"{control} input").focus()
        page.keyboard.press("Escape")
        page.keyboard.press("Tab")
    page.locator("#weight input[type=range]").focus()
    with page.expect_response("**/predict"):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#moved")).to_contain_text("+0.21")
    assert page.locator("#picture img").get_attribute("src") != moved


def test_lists_follow_the_keyboard_and_the_same_choice_again_moves_nothing(page: Page) -> None:
    choose(page, "#layer", "outputs")
    expect(page.locator("#moved")).to_contain_text("to value, as it was")
    slider = page.locator("#weight input[type=range]")
    slider.focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#moved")).to_contain_text("+0.20")
    choose(page, "#network", "totem")
    choose(page, "#layer", "outputs")
    choose(page, "#connection", page.locator("#connection input").input_value())
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#moved")).to_contain_text("+0.21")
    for control in ("#connection", "#layer"):
        before = page.locator("#moved").inner_text()
        page.locator(f"{control} input").focus()
        page.keyboard.press("ArrowUp" if control == "#layer" else "ArrowDown")
        page.keyboard.press("Enter")
        expect(page.locator("#moved")).not_to_have_text(before, use_inner_text=True)
        expect(page.locator("#moved")).to_contain_text("as it was")


def test_connections_are_listed_with_both_units(page: Page) -> None:
    choose(page, "#layer", "outputs")
    expect(page.locator("#moved")).to_contain_text("to value, as it was")
    choose(page, "#layer", "hidden layer 1 of 6")
    count = int(load_network("totem").weights[0].count_nonzero())
    page.locator("#connection input").click()
    options = page.get_by_role("option")
    expect(options).to_have_count(count)
    effects = [float(text.rpartition("effect ")[2]) for text in options.all_inner_texts()]
    assert effects == sorted(effects, reverse=True)
    options.last.click()
    expect(page.locator("#moved")).to_contain_text("as it was")
    expect(page.locator("#atlas")).to_contain_text("of layer 1")


def test_the_keyboard_reaches_every_control(page: Page) -> None:
    wanted = {"network", "layer", "connection", "reach", "weight", "reset", "atlas"}
    page.locator("#network input").focus()
    reached = {"network"}
    for _ in range(20):
        page.keyboard.press("Tab")
        here = "names => names.filter(name => document.activeElement.closest('#' + name))"
        found = page.evaluate(here, sorted(wanted))
        reached |= set(found)
        if "atlas" in reached:
            break
    assert reached == wanted


def test_axe_finds_no_grave_fault_in_light_and_in_dark(page: Page) -> None:
    assert grave_faults(page) == []
    turn = "document.body.classList.toggle('dark')"
    assert page.evaluate(turn)
    assert grave_faults(page, ["color-contrast"]) == []
    assert not page.evaluate(turn)


def test_on_a_phone_the_picture_and_the_slider_are_seen_together(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    assert overhanging(page) == []
    page.locator("#weight input[type=range]").scroll_into_view_if_needed()
    page.locator("#picture img").scroll_into_view_if_needed()
    expect(page.locator("#picture img")).to_be_in_viewport(ratio=1)
    expect(page.locator("#weight input[type=range]")).to_be_in_viewport(ratio=1)
    page.set_viewport_size({"width": 1280, "height": 800})


def choose(page: Page, control: str, value: str) -> None:
    """Pick from one of Gradio's lists, and wait for what follows: nothing, if it was chosen."""
    field = page.locator(f"{control} input")
    chosen = field.input_value() == value
    field.click()
    option = page.get_by_role("option", name=value, exact=True)
    if chosen:
        option.click()
        return
    with page.expect_response("**/predict"):
        option.click()
