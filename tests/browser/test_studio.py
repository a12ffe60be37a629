"""The studio, used as a person would use it: switch, join, draw, take out, walk, load."""

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

import intarsia as ia

from .checks import grave_faults
from .conftest import Opened

INK = "pad => pad.getContext('2d').getImageData(0, 0, 280, 280).data.some((v, i) => i % 4 < 3 && v)"
TABS = {
    "Confusion": False,
    "One sample": False,
    "Path": True,
    "Compatibility": True,
}  # measured anew?


@pytest.fixture(scope="module")
def page(studio: str, opened: Opened) -> Page:
    page = opened(studio, served=urlsplit(studio).netloc)
    expect(page.locator("#confusion svg")).to_be_visible()
    return page


def test_it_opens_with_all_modules_joined(page: Page, demo_folder: Path) -> None:
    bank, test = ia.Bank.load(demo_folder / "modules"), ia.load_data("digits").test
    score = ia.evaluate(ia.compose(bank, "inlay"), test)
    assert page.locator("#module-tiles input:checked").count() == len(bank)
    expect(page.locator("#accuracy")).to_contain_text(f"{score.accuracy:.4f}")
    expect(page.locator("#entropy")).to_contain_text(f"{score.ceiling:.3f}")


def test_switching_a_module_off_and_on_changes_the_whole_and_back(
    page: Page, demo_folder: Path
) -> None:
    places = ("#confusion .picture", "#accuracy .number")
    before = {name: page.locator(name).inner_html() for name in places}
    nine = ia.compose([m for m in ia.Bank.load(demo_folder / "modules") if m.name != "3"], "inlay")
    score = ia.evaluate(nine, ia.load_data("digits").test)
    tile(page, "3").uncheck()
    expect(page.locator("#accuracy .big")).to_have_text(f"{score.accuracy:.4f}")
    expect(page.locator("#entropy .big")).to_have_text(f"{score.entropy:.3f}")
    expect(page.locator("#change")).to_contain_text("3 off")
    expect(page.locator("#confusion")).to_contain_text("9 modules, inlay")
    tile(page, "3").check()
    expect(page.locator("#change")).to_contain_text("3 on")
    expect(page.locator("#confusion")).to_contain_text("10 modules, inlay")
    assert {name: page.locator(name).inner_html() for name in before} == before


def test_without_modules_it_says_what_to_do(page: Page) -> None:
    page.get_by_role("button", name="All off").click()
    expect(page.locator("#message")).to_contain_text("switch at least one on")
    page.get_by_role("button", name="All on").click()
    expect(page.locator("#message")).not_to_contain_text("switch at least one on")
    expect(page.locator("#module-tiles input:checked")).to_have_count(10)


def test_the_operator_and_its_settings_change_the_whole(page: Page, demo_folder: Path) -> None:
    bank, test = ia.Bank.load(demo_folder / "modules"), ia.load_data("digits").test
    accuracy = page.locator("#accuracy .big")
    choose(page, "#operator", "sum")
    added = ia.evaluate(ia.compose(bank, "sum"), test)
    expect(accuracy).to_have_text(f"{added.accuracy:.4f}")
    choose(page, "#operator", "task_arithmetic")
    scale = page.locator(
        "#setting-task_arithmetic-scale input, #setting-task_arithmetic-scale textarea"
    )
    scale.fill("0.3")
    scale.press("Tab")
    scaled = ia.evaluate(ia.compose(bank, "task_arithmetic(scale=0.3)"), test)
    expect(accuracy).to_have_text(f"{scaled.accuracy:.4f}")
    choose(page, "#operator", "inlay")
    expect(page.locator("#confusion")).to_contain_text("10 modules, inlay")


def test_a_sample_is_answered_by_each_module_and_by_the_whole(
    page: Page, demo_folder: Path
) -> None:
    page.get_by_role("tab", name="One sample").click()
    number = page.locator("#sample-number input")
    number.fill("7")
    number.press("Tab")
    test = ia.load_data("digits").test
    merged = ia.compose(ia.Bank.load(demo_folder / "modules"), "inlay")
    share = float(merged.predict_proba(test.x[7:8]).max())
    expect(page.locator("#sample-seen")).to_contain_text("7")
    expect(page.locator("#joined-answer .verdict")).to_contain_text(f"{share:.3f}")
    expect(page.locator("#module-answers .answer")).to_have_count(10)


def test_entropy_through_the_layers_follows_the_sample(page: Page) -> None:
    chart, box = page.locator("#layer-entropies"), page.get_by_label("Entropy through the layers")
    number = page.locator("#sample-number input")
    page.get_by_role("tab", name="One sample").click()
    number.fill("7")
    number.press("Tab")
    expect(chart.locator("svg")).to_have_count(0)
    box.check()
    expect(chart.locator("svg")).to_be_visible()
    expect(chart.locator("li").first).to_contain_text("input")
    before = chart.locator("li").all_text_contents()
    number.fill("12")
    number.press("Tab")
    expect(chart.locator("li")).not_to_have_text(before)
    assert not grave_faults(page)
    number.fill("7")
    number.press("Tab")
    expect(chart.locator("li")).to_have_text(before)
    box.uncheck()
    expect(chart.locator("svg")).to_have_count(0)


def test_a_class_taken_out_and_put_back_gives_the_same_answer(page: Page) -> None:
    merged = page.locator("#joined-answer")
    before = merged.inner_html()
    page.locator("#take-out").get_by_label("3", exact=True).check()
    expect(merged.locator("section")).to_have_count(2)
    expect(merged).to_contain_text("without module 3")
    page.locator("#take-out").get_by_label("nothing").check()
    expect(merged.locator("section")).to_have_count(1)
    assert merged.inner_html() == before


def test_a_drawn_digit_is_answered(page: Page) -> None:
    before = page.locator("#sample-seen").inner_html()
    pad = page.locator("#sample-draw canvas")
    pad.scroll_into_view_if_needed()
    stroke(page, pad, ring())
    expect(page.locator("#sample-seen")).to_contain_text("draw")
    assert page.locator("#sample-seen").inner_html() != before
    expect(page.locator("#joined-answer .verdict")).to_contain_text("0 with")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#sample-seen")).to_contain_text("test sample 7")
    stroke(page, pad, [(0.1 + x / 3, 0.1 + y / 3) for x, y in ring()])  # a small one is no blot
    expect(page.locator("#joined-answer .verdict")).to_contain_text("0 with")
    page.get_by_role("button", name="Next sample").click()
    expect(page.locator("#sample-seen")).to_contain_text("test sample 8")
    assert not page.evaluate(INK, pad.element_handle())


def test_a_measure_that_is_chosen_while_the_matrix_is_on_its_way_is_shown(page: Page) -> None:
    held: list[Route] = []
    page.get_by_role("tab", name="Confusion").click()
    page.route("**/gradio_api/run/**", lambda route: held.append(route))
    page.get_by_role("tab", name="Compatibility").click()
    page.locator("#measure").get_by_label("unit overlap").check()
    page.wait_for_timeout(100)  # for the change to reach the page's own script
    assert held
    page.unroute("**/gradio_api/run/**")  # lets go what is held
    expect(page.locator("#compatibility #meaning")).to_contain_text("unit overlap")
    page.locator("#measure").get_by_label("interference").check()
    expect(page.locator("#compatibility #meaning")).to_contain_text("interference")


def test_a_cell_of_the_matrix_chooses_a_pair_and_its_path_is_drawn(page: Page) -> None:
    page.get_by_role("tab", name="Compatibility").click()
    for width in (360, 1280):  # on a phone the table scrolls, not the page
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        expect(page.get_by_role("tab")).to_have_count(len(TABS))
    page.get_by_role("button", name="3 and 8:").click()
    expect(page.locator("#module-tiles input:checked")).to_have_count(2)
    page.get_by_role("tab", name="Path").click()
    expect(page.locator("#path-figure svg")).to_be_visible()
    expect(page.locator("#path-from input")).to_have_value("3")
    expect(page.locator("#path-to input")).to_have_value("8")
    expect(page.locator("#path-figure")).to_contain_text("connected")
    page.set_viewport_size({"width": 360, "height": 800})  # its letters stay large enough to read
    assert page.locator("#path-figure svg").bounding_box()["width"] >= 640
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert not grave_faults(page, within="#path-figure")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="All on").click()
    expect(page.locator("#accuracy")).to_contain_text("10 of 10")


def test_a_bad_file_is_refused_with_what_is_wrong(page: Page, tmp_path: Path) -> None:
    page.get_by_role("button", name="Load a module file").click()
    bad = tmp_path / "bad.safetensors"
    bad.write_text("no module")
    file = page.locator("#load-file input[type=file]")
    with (tmp_path / "large.safetensors").open("wb") as large:
        large.truncate(65 * 2**20)
    (tmp_path / "some.txt").write_text("no module")
    for name, words in (
        ("large.safetensors", "has 65 MB, the limit is 64 MB"),
        ("some.txt", "is not a .safetensors file"),
        ("bad.safetensors", "is not a safetensors file"),
    ):
        file.set_input_files(tmp_path / name)
        expect(page.locator("#message .bad")).to_contain_text(f"{name}: {words}")
    expect(page.locator("#message .bad")).to_be_in_viewport()  # though the control is far below
    assert str(tmp_path) not in page.locator("#message").inner_text()
    expect(page.locator("#module-tiles input")).to_have_count(10)


def test_a_module_file_is_loaded_and_joined(page: Page, demo_folder: Path, tmp_path: Path) -> None:
    given = replace(ia.Bank.load(demo_folder / "territory")["3"], name="a guest")
    given.save(tmp_path / "guest.safetensors")
    page.locator("#load-file input[type=file]").set_input_files(tmp_path / "guest.safetensors")
    expect(page.locator("#message .good")).to_contain_text("loaded a guest")
    tile(page, "3").uncheck()
    tile(page, "a guest").check()
    expect(page.locator("#change")).to_contain_text("a guest on")
    expect(page.locator("#confusion")).to_contain_text("10 modules, inlay")
    page.get_by_role("button", name="Remove this module").click()
    expect(page.locator("#confusion")).to_contain_text("9 modules, inlay")
    expect(page.locator("#module-tiles input")).to_have_count(10)


@pytest.mark.parametrize("path", ["gradio_api/file=/etc/hostname", "file=/etc/hostname", "docs"])
def test_files_of_the_machine_are_not_served(page: Page, studio: str, path: str) -> None:
    assert page.request.get(f"{studio}{path}").status == 404


@pytest.mark.parametrize(("tab", "measured"), TABS.items())
def test_axe_finds_no_grave_fault_in_light_and_in_dark(
    page: Page, tab: str, measured: bool
) -> None:
    with page.expect_response("**/predict") if measured else nullcontext():
        page.get_by_role("tab", name=tab).click()
    expect(page.locator("#tabs .pending")).to_have_count(0)  # paler until the answer is there
    part = None if tab == "Confusion" else "#tabs"  # the rest of the page stays as it is
    assert grave_faults(page, within=part) == []
    turn = "document.body.classList.toggle('dark')"  # as Gradio does by the person's preference
    assert page.evaluate(turn)
    assert grave_faults(page, ["color-contrast"], part) == []
    assert not page.evaluate(turn)


def tile(page: Page, name: str) -> Locator:
    return page.locator(f"#module-tiles input[name='{name}']")


def choose(page: Page, control: str, value: str) -> None:
    """Pick from one of Gradio's lists."""
    page.locator(f"{control} input").click()
    page.get_by_role("option", name=value, exact=True).click()


def ring() -> list[tuple[float, float]]:
    """A zero as shares of the pad."""
    turns = [2 * math.pi * step / 16 for step in range(17)]
    return [(0.5 + 0.2 * math.sin(t), 0.5 - 0.32 * math.cos(t)) for t in turns]


def stroke(page: Page, pad: Locator, points: list[tuple[float, float]]) -> None:
    box = pad.bounding_box()
    assert box is not None
    places = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place)
    page.mouse.up()
